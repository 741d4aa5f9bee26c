"""Confusion matrices of a detector under three matching rules.

- ``coco``: COCO's matching within classes; then the unmatched detections at or above the score threshold and the
  unmatched ground truths are matched across classes by the same rule. The diagonal is COCO's TP, every row sums to the
  ground truths of the class, every column to its detections.
- ``mmdet``: mmdet's ``confusion_matrix.py``, which counts every overlapping pair. Duplicates count repeatedly, and
  crowds count as ordinary ground truths.
- ``agnostic``: class-agnostic one-to-one matching by descending overlap, as in supervision and ultralytics.
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

# Outcomes of detections and ground truths at the score and IoU threshold. An unmatched detection is a DUPLICATE if a
# ground truth of its class (matched already) reaches the IoU threshold, else CONFUSION_MATCHED if one of another class
# does, else BACKGROUND.
TP, CONFUSION, CONFUSION_MATCHED, DUPLICATE, BACKGROUND, IGNORED, BELOW_THRESHOLD, MISSED = range(8)
BACKGROUND_TYPES = {"confusion_matched": CONFUSION_MATCHED, "duplicate": DUPLICATE, "background": BACKGROUND}
# Columns that add up to FP: confusions in the matrix, and the types of the background row.
FALSE_POSITIVES = ("fp_confusion", *(f"fp_{name}" for name in BACKGROUND_TYPES))


def background_name(classes: Sequence[str]) -> str:
    """The name of the background row and column: one that no class has."""
    name = "background"
    while name in classes:
        name = f"({name})"
    return name


class OneToOne(NamedTuple):
    """A one-to-one matching at a score and an IoU threshold."""

    gt: np.ndarray  # (N,) index of the matched ground truth (or crowd), or -1
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
    """The ``coco`` rule; ``own_class_gt`` (N,) are the matches within classes at any score, or -1."""
    used = detections.reach(score_thr)
    gt = np.where(used, own_class_gt, NO_GT)
    unmatched = ~ground_truths.crowd
    unmatched[gt[gt >= 0]] = False
    near = pairs.select(np.flatnonzero(pairs.overlap >= min(iou_thr, MAX_IOU_THR)))
    leftover = near.select(np.flatnonzero((used & (gt < 0))[near.det] & unmatched[near.gt])).by_preference()
    _assign_gts(gt, leftover, ground_truths)
    return OneToOne(gt, _outcomes(gt, near, detections, ground_truths, used))


def match_agnostic(
    pairs: OverlapPairs, detections: Detections, ground_truths: GroundTruths, *, iou_thr: float, score_thr: float
) -> OneToOne:
    """The ``agnostic`` rule; crowds come last."""
    used = detections.reach(score_thr)
    near = pairs.select(np.flatnonzero((pairs.overlap >= min(iou_thr, MAX_IOU_THR)) & used[pairs.det]))
    on_crowd = ground_truths.crowd[near.gt]
    # Crowds come after all others; of crowds with equal overlap, the later one first.
    near = near.select(np.lexsort((np.where(on_crowd, -near.gt, near.gt), near.det, -near.overlap, on_crowd)))
    gt = np.full(len(detections), NO_GT, dtype=np.int32)
    _assign_gts(gt, near, ground_truths)
    return OneToOne(gt, _outcomes(gt, near, detections, ground_truths, used))


def _assign_gts(gt: np.ndarray, pairs: OverlapPairs, ground_truths: GroundTruths) -> None:
    """Assigns pairs in order of priority, and writes the ground truths into ``gt`` (N,)."""
    bits = np.ones(len(pairs.det), dtype=np.uint8)
    result = assign(pairs.det, pairs.gt, bits, num_dets=len(gt), shared=ground_truths.crowd)
    gt[pairs.det[result.pair]] = pairs.gt[result.pair]


def _outcomes(
    gt: np.ndarray, near: OverlapPairs, detections: Detections, ground_truths: GroundTruths, used: np.ndarray
) -> np.ndarray:
    """(N,) the outcome of each detection; ``near`` are the pairs that reach the IoU threshold."""
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


class RuleMatches(NamedTuple):
    """What one matching rule counts: detections with or without a ground truth, and missed ground truths."""

    det: np.ndarray  # (K,) index of the detection; ``mmdet`` lists it once per overlapping ground truth
    gt: np.ndarray  # (K,) index of its ground truth, or -1
    background_type: np.ndarray  # (K,) int8, index into ``BACKGROUND_TYPES`` without a ground truth, else -1
    missed: np.ndarray  # (M,) whether the ground truth is missed


def one_to_one_matches(matches: OneToOne, crowd: np.ndarray) -> RuleMatches:
    """What a one-to-one matching counts."""
    det = np.flatnonzero(matches.outcome < IGNORED)
    gt, outcome = matches.gt[det], matches.outcome[det]
    background_type = np.full(len(det), -1, dtype=np.int8)
    for index, own_outcome in enumerate(BACKGROUND_TYPES.values()):
        background_type[outcome == own_outcome] = index
    missed = ~crowd
    missed[gt[gt >= 0]] = False
    return RuleMatches(det, gt, background_type, missed)


def mmdet_matches(
    pairs: OverlapPairs, detections: Detections, ground_truths: GroundTruths, *, iou_thr: float, score_thr: float
) -> RuleMatches:
    """What mmdet's ``confusion_matrix.py`` counts.

    Every overlapping pair counts. A detection without any is background; a ground truth without a detection of its
    class is missed, even if it was counted as a confusion.
    """
    if pairs.mmdet_overlap is None:
        raise ValueError("matching='mmdet' needs pairs with mmdet's overlaps")
    used = detections.reach(score_thr)
    near = np.flatnonzero(used[pairs.det] & (pairs.mmdet_overlap >= np.float32(iou_thr)))
    det, gt = pairs.det[near], pairs.gt[near]
    missed = np.ones(len(ground_truths), dtype=bool)
    missed[gt[detections.labels[det] == ground_truths.labels[gt]]] = False
    used[det] = False
    background = np.flatnonzero(used)
    background_type = np.full(len(det) + len(background), -1, dtype=np.int8)
    background_type[len(det) :] = list(BACKGROUND_TYPES).index("background")
    gt = np.append(gt, np.full(len(background), NO_GT))
    return RuleMatches(np.append(det, background), gt, background_type, missed)


@dataclass(frozen=True, eq=False)
class RuleCounts:
    """The counts of one matching rule."""

    cells: np.ndarray  # (K,) counted cells of the matrix, as ``row * (C + 1) + column``
    background_types: np.ndarray  # (3, C) int64, the background row by ``BACKGROUND_TYPES``
    detections: np.ndarray  # (C,) number of detections used
    ground_truths: np.ndarray  # (C,) number of ground truths used
    detections_ignored: int  # detections matched to a crowd
    ground_truths_ignored: int  # crowds; 0 under ``mmdet``
    duplicates: int  # duplicates that ``mmdet`` counts as TP

    @property
    def matrix(self) -> np.ndarray:
        """(C + 1, C + 1) int64; rows ground truth, columns prediction, background last."""
        size = len(self.detections) + 1
        return np.bincount(self.cells, minlength=size * size).reshape(size, size)


def rule_counts(
    matches: RuleMatches, detections: Detections, ground_truths: GroundTruths, num_classes: int, *, score_thr: float
) -> RuleCounts:
    """The counts of what a matching rule counts."""
    label, gt_labels = detections.labels[matches.det], ground_truths.labels
    target = np.append(gt_labels, num_classes)[matches.gt]  # index -1 is the background, the last label
    used = np.zeros(len(detections), dtype=bool)
    used[matches.det] = True
    gt_used, hit = matches.missed.copy(), target == label
    gt_used[matches.gt[matches.gt >= 0]] = True

    def count(labels: np.ndarray) -> np.ndarray:
        return np.bincount(labels, minlength=num_classes)

    size = num_classes + 1
    return RuleCounts(
        np.concatenate([target * size + label, gt_labels[matches.missed] * size + num_classes]),
        np.stack([count(label[matches.background_type == index]) for index in range(len(BACKGROUND_TYPES))]),
        count(detections.labels[used]),
        count(gt_labels[gt_used]),
        int(np.count_nonzero(detections.reach(score_thr)) - np.count_nonzero(used)),
        int(len(gt_used) - np.count_nonzero(gt_used)),
        int(np.count_nonzero(hit) - np.count_nonzero(np.bincount(matches.gt[hit]))),
    )


@dataclass(frozen=True, eq=False)
class ProtocolReport:
    """The confusion matrix of one matching rule, with rates, counts and the most frequent confusions."""

    protocol: str  # the matching rule
    result: ConfusionResult  # the confusion matrix, background last, and its rates
    columns: Mapping[str, Any]  # table per class by column; ``FALSE_POSITIVES`` add up to ``fp``
    counts: Mapping[str, int]  # numbers of detections and ground truths used and ignored
    confusions: tuple[Confusion, ...]  # most frequent confusions between two classes

    @property
    def means(self) -> dict[str, float]:
        """Macro and micro averages, by their keys in log and report."""
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
        """Number of classes with a defined value, by column."""
        return {key: int(np.count_nonzero(~np.isnan(self.columns[key]))) for key in ("precision", "recall", "f1")}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        # Names stay a list: NumPy strips NUL characters at the end of strings.
        rows = zip(
            *(column if isinstance(column, list) else np.asarray(column).tolist() for column in self.columns.values())
        )
        return {
            **matrix_entries(self.result.matrix),
            "per_class": [dict(zip(self.columns, row)) for row in rows],
            **self.means,
            "classes_averaged": self.classes_averaged,
            "top_confusions": [confusion.to_dict() for confusion in self.confusions],
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
    """The report of a confusion matrix with background; arguments as in :class:`RuleCounts`."""
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
