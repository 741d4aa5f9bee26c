"""Confusion matrices of a detector under three matching rules, from the same overlapping pairs.

- ``coco``: COCO's rule within classes. Detections at or above the score threshold and ground truths that it leaves free
  are then matched across classes by the same rule. The diagonal is COCO's number of TP, every row sums to the ground
  truths of the class, every column to its detections.
- ``mmdet``: what mmdet's ``confusion_matrix.py`` counts: every pair that overlaps. Duplicates and neighbors count again
  and again, and crowds count as ordinary objects.
- ``agnostic``: one to one by descending overlap, whatever the class, as supervision and ultralytics do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.functional.classification.confusion_matrix import (
    Confusion,
    ConfusionResult,
    confusion_matrix_report,
    matrix_entries,
    top_confusions,
)
from mm_metrics_plugin.functional.detection._assignment import assign
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.match_table import MAX_IOU_THR, NO_GT
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs

# What became of a detection at the score and IoU threshold, and of a ground truth. A detection without a match is a
# duplicate if a ground truth of its class reaches the IoU threshold (it is matched already), else a confusion with a
# matched object if one of another class does, else background.
TP, CONFUSION, CONFUSION_MATCHED, DUPLICATE, BACKGROUND, IGNORED, BELOW_THRESHOLD, MISSED = range(8)
BACKGROUND_TYPES = {"confusion_matched": CONFUSION_MATCHED, "duplicate": DUPLICATE, "background": BACKGROUND}
# Columns of the table per class that add up to FP: confusions in the matrix, and the types of its background row.
FALSE_POSITIVES = ("fp_confusion", *(f"fp_{name}" for name in BACKGROUND_TYPES))


def background_name(classes: Sequence[str]) -> str:
    """The name of the background row and column: one that no class has.

    Example:
        >>> background_name(["cat", "dog"]), background_name(["background", "cat"])
        ('background', '(background)')
    """
    name = "background"
    while name in classes:
        name = f"({name})"
    return name


class OneToOne(NamedTuple):
    """Detections and ground truths matched one to one at a score and an IoU threshold."""

    gt: np.ndarray  # (N,) row of the ground truth of each detection, crowds included, else -1
    outcome: np.ndarray  # (N,) int8, such as ``TP``


def match_coco(
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    own_class_gt: np.ndarray,
    *,
    iou_thr: float,
    score_thr: float,
) -> OneToOne:
    """The ``coco`` rule: detections and ground truths that COCO's rule leaves free are matched across classes.

    ``own_class_gt`` (N,) is the ground truth that COCO's rule assigns within the class, whatever the score; -1 for
    none.
    """
    used = detections.reach(score_thr)
    gt = np.where(used, own_class_gt, NO_GT)
    is_free = ~ground_truths.crowd
    is_free[gt[gt >= 0]] = False
    near = pairs.select(np.flatnonzero(pairs.overlap >= min(iou_thr, MAX_IOU_THR)))
    leftover = near.select(np.flatnonzero((used & (gt < 0))[near.det] & is_free[near.gt])).by_preference()
    _assign_gts(gt, leftover, ground_truths)
    return OneToOne(gt, _outcomes(gt, near, detections, ground_truths, used))


def match_agnostic(
    pairs: OverlapPairs, detections: Detections, ground_truths: GroundTruths, *, iou_thr: float, score_thr: float
) -> OneToOne:
    """One to one by descending overlap, whatever the class, as supervision and ultralytics do; crowds come last."""
    used = detections.reach(score_thr)
    near = pairs.select(np.flatnonzero((pairs.overlap >= min(iou_thr, MAX_IOU_THR)) & used[pairs.det]))
    on_crowd = ground_truths.crowd[near.gt]
    # All crowds after all others: a crowd only takes what is left, and of two with equal overlap the later one.
    near = near.select(np.lexsort((np.where(on_crowd, -near.gt, near.gt), near.det, -near.overlap, on_crowd)))
    gt = np.full(len(detections), NO_GT, dtype=np.int32)
    _assign_gts(gt, near, ground_truths)
    return OneToOne(gt, _outcomes(gt, near, detections, ground_truths, used))


def _assign_gts(gt: np.ndarray, pairs: OverlapPairs, ground_truths: GroundTruths) -> None:
    """Writes the ground truths that detections are assigned to into ``gt`` (N,); pairs are in order of priority."""
    one = np.ones(len(pairs.det), dtype=np.uint8)
    result = assign(pairs.det, pairs.gt, one, num_dets=len(gt), shared=ground_truths.crowd)
    gt[pairs.det[result.pair]] = pairs.gt[result.pair]


def _outcomes(
    gt: np.ndarray, near: OverlapPairs, detections: Detections, ground_truths: GroundTruths, used: np.ndarray
) -> np.ndarray:
    """(N,) the outcome of each detection; ``near`` are the pairs at the IoU threshold or above."""
    outcome = np.where(used, BACKGROUND, BELOW_THRESHOLD).astype(np.int8)
    matched = np.flatnonzero(gt >= 0)
    rows = gt[matched]
    own_class = detections.labels[matched] == ground_truths.labels[rows]
    outcome[matched] = np.where(ground_truths.crowd[rows], IGNORED, np.where(own_class, TP, CONFUSION))
    near = near.select(np.flatnonzero((outcome == BACKGROUND)[near.det] & ~ground_truths.crowd[near.gt]))
    own_class = detections.labels[near.det] == ground_truths.labels[near.gt]
    outcome[near.det[~own_class]] = CONFUSION_MATCHED
    outcome[near.det[own_class]] = DUPLICATE
    return outcome


def mmdet_matrix(
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    num_classes: int,
    *,
    iou_thr: float,
    score_thr: float,
) -> tuple[np.ndarray, int]:
    """The matrix of mmdet's ``confusion_matrix.py``, and how many duplicates it counts as TP.

    Every overlapping pair counts. A detection without any is background; a ground truth without a detection of its
    class is missed, even if one of another class was counted for it.
    """
    size = num_classes + 1
    if pairs.mmdet_overlap is None:
        raise ValueError("the rule of mmdet needs pairs with mmdet's overlaps")
    used = detections.reach(score_thr)
    near = np.flatnonzero(used[pairs.det] & (pairs.mmdet_overlap >= np.float32(iou_thr)))
    det, gt = pairs.det[near], pairs.gt[near]
    predicted, truth = detections.labels[det], ground_truths.labels[gt]
    hits = np.bincount(gt[predicted == truth], minlength=len(ground_truths))
    used[det] = False
    cells = [
        truth * size + predicted,
        num_classes * size + detections.labels[used],
        ground_truths.labels[hits == 0] * size + num_classes,
    ]
    matrix = np.bincount(np.concatenate(cells), minlength=size * size).reshape(size, size)
    return matrix, int(np.maximum(hits - 1, 0).sum())


@dataclass(frozen=True, eq=False)
class RuleCounts:
    """The counts of one matching rule."""

    matrix: np.ndarray  # (C + 1, C + 1) int64; rows ground truth, columns prediction, background last
    background_types: np.ndarray  # (3, C) int64, the background row by ``BACKGROUND_TYPES``
    detections: np.ndarray  # (C,) detections used
    ground_truths: np.ndarray  # (C,) ground truths used
    detections_ignored: int  # detections that match only a crowd
    ground_truths_ignored: int  # crowds, which ``mmdet`` uses as ordinary ground truths
    duplicates: int = 0  # duplicates that ``mmdet`` counts as TP; 0 under the other rules


def one_to_one_counts(
    matches: OneToOne, detections: Detections, ground_truths: GroundTruths, num_classes: int
) -> RuleCounts:
    """The counts of a one-to-one matching."""
    size, used = num_classes + 1, matches.outcome < IGNORED
    gt = matches.gt[used]
    truth = np.append(ground_truths.labels, num_classes)[gt]  # row -1 is the background, the last label
    missed = ~ground_truths.crowd
    missed[gt[gt >= 0]] = False
    cells = np.concatenate([truth * size + detections.labels[used], ground_truths.labels[missed] * size + num_classes])
    background_types = np.stack(
        [
            np.bincount(detections.labels[matches.outcome == one], minlength=num_classes)
            for one in BACKGROUND_TYPES.values()
        ]
    )
    return RuleCounts(
        np.bincount(cells, minlength=size * size).reshape(size, size),
        background_types,
        np.bincount(detections.labels[used], minlength=num_classes),
        np.bincount(ground_truths.labels[~ground_truths.crowd], minlength=num_classes),
        int(np.count_nonzero(matches.outcome == IGNORED)),
        int(np.count_nonzero(ground_truths.crowd)),
    )


@dataclass(frozen=True, eq=False)
class ProtocolReport:
    """The confusion matrix of one matching rule, and the numbers that follow from it."""

    protocol: str  # its name
    result: ConfusionResult  # the confusion matrix, background last, and the rates that follow from it
    columns: Mapping[str, Any]  # the table per class by column; ``FALSE_POSITIVES`` add up to ``fp``
    counts: Mapping[str, int]  # what was used, ignored and counted again
    confusions: tuple[Confusion, ...]  # the most frequent confusions between two classes, the greatest first

    @property
    def means(self) -> dict[str, float]:
        """Means over classes, and the rates of the pooled counts (micro), by their keys in log and report."""
        result, micro = self.result, self.result.micro
        return {
            "precision": result.macro.precision,
            "recall": result.macro.recall,
            "f1_of_means": result.f_of_means,
            "f1": result.macro.f_score,
            "precision_micro": micro.precision,
            "recall_micro": micro.recall,
            "f1_micro": micro.f_score,
        }

    @property
    def classes_averaged(self) -> dict[str, int]:
        """How many classes have a value."""
        return {key: int(np.count_nonzero(~np.isnan(self.columns[key]))) for key in ("precision", "recall", "f1")}

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        names = list(self.columns)
        rows = zip(
            *(column if isinstance(column, list) else np.asarray(column).tolist() for column in self.columns.values())
        )
        return {
            **matrix_entries(self.result.matrix),
            "per_class": [dict(zip(names, row)) for row in rows],
            **self.means,
            "classes_averaged": self.classes_averaged,
            "top_confusions": [one.to_dict() for one in self.confusions],
            "counts": dict(self.counts),
        }


def protocol_report(
    protocol: str,
    matrix: np.ndarray,
    *,
    classes: Sequence[str],
    ground_truths: np.ndarray,
    detections: np.ndarray,
    counts: Mapping[str, int],
    background_types: np.ndarray,
    zero_division: float = float("nan"),
) -> ProtocolReport:
    """The numbers of a confusion matrix (C + 1, C + 1) with background, under the matching rule ``protocol``.

    ``ground_truths`` and ``detections`` (C,) are those used; ``background_types`` (3, C) is the background row by type.
    """
    result = confusion_matrix_report(matrix, background=True, zero_division=zero_division)
    rates = result.per_class
    inner = result.matrix[:-1, :-1]
    false_positives = [inner.sum(axis=0) - inner.diagonal(), *np.asarray(background_types)]
    return ProtocolReport(
        protocol=protocol,
        result=result,
        columns={
            "name": list(classes),
            "ground_truths": np.asarray(ground_truths),
            "detections": np.asarray(detections),
            "tp": result.tp[:-1],
            "fp": result.fp[:-1],
            "fn": result.fn[:-1],
            "precision": rates.precision[:-1],
            "recall": rates.recall[:-1],
            "f1": rates.f_score[:-1],
            **dict(zip(FALSE_POSITIVES, false_positives)),
        },
        counts=counts,
        confusions=top_confusions(result.matrix[:-1, :-1], classes),
    )
