"""Matching rules of confusion matrices: one function for each way of assigning detections to ground truths.

- ``classes_first`` (rule ``coco``): COCO's matching within classes; then the unmatched detections at or above the score
  threshold and the unmatched ground truths are matched across classes by the same rule. The diagonal is COCO's TP,
  every row sums to the ground truths of the class, every column to its detections.
- ``every_pair`` (rule ``mmdet``): mmdet's ``confusion_matrix.py``, which counts every overlapping pair. Duplicates
  count repeatedly, and crowds count as ordinary ground truths.
- ``by_overlap`` (rule ``agnostic``): class-agnostic one-to-one matching by descending overlap, as in supervision and
  ultralytics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mm_metrics_plugin.conventions import MatchingRule
from mm_metrics_plugin.functional.detection._assignment import assign
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.grid import MAX_IOU_THR, NO_GT
from mm_metrics_plugin.functional.detection.match_table import Outcome
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs
from mm_metrics_plugin.settings import DetectionSettings

# Types of detections in the background row of the matrix.
BACKGROUND_TYPES = {
    "confusion_matched": Outcome.CONFUSION_MATCHED,
    "duplicate": Outcome.DUPLICATE,
    "background": Outcome.BACKGROUND,
}
# Columns that add up to FP: confusions in the matrix, and the types of the background row.
FALSE_POSITIVES = ("fp_confusion", *(f"fp_{name}" for name in BACKGROUND_TYPES))


class RuleMatches(NamedTuple):
    """What one matching rule counts. A one-to-one rule has one row per detection, in their order."""

    det: np.ndarray  # (K,) index of the detection; ``every_pair`` lists it once per overlapping ground truth
    gt: np.ndarray  # (K,) index of its ground truth, or -1
    outcome: np.ndarray  # (K,) int8, an :class:`Outcome`
    missed: np.ndarray  # (M,) whether the ground truth is missed


class MatchInput(NamedTuple):
    """What an assignment works on: detections sorted by image and descending score, and their overlapping pairs."""

    pairs: OverlapPairs
    detections: Detections
    ground_truths: GroundTruths
    own_class_gt: np.ndarray  # (N,) COCO's matches within classes at any score, or -1; empty if no rule needs them
    used: np.ndarray  # (N,) whether a detection reaches the score threshold
    iou_thr: float


def match_by_rule(
    rule: MatchingRule,
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    own_class_gt: np.ndarray,
    settings: DetectionSettings,
) -> RuleMatches:
    """The matches of one rule at the score and IoU threshold; ``own_class_gt`` as in :class:`MatchInput`."""
    used = detections.reach(settings.score_thr)
    return ASSIGNMENTS[rule.assignment](
        MatchInput(pairs, detections, ground_truths, own_class_gt, used, settings.iou_thr)
    )


def match_classes_first(given: MatchInput) -> RuleMatches:
    """Within classes by score, then the others across classes."""
    pairs, ground_truths, used = given.pairs, given.ground_truths, given.used
    gt = np.where(used, given.own_class_gt, NO_GT)
    unmatched = ~ground_truths.ignored
    unmatched[gt[gt >= 0]] = False
    near = pairs.select(np.flatnonzero(pairs.overlap >= min(given.iou_thr, MAX_IOU_THR)))
    leftover = near.select(np.flatnonzero((used & (gt < 0))[near.det] & unmatched[near.gt])).by_preference()
    _assign_gts(gt, leftover, ground_truths)
    return _one_to_one(gt, near, given)


def match_by_overlap(given: MatchInput) -> RuleMatches:
    """By descending overlap, regardless of the class; crowds and ignored objects come last."""
    pairs, ground_truths = given.pairs, given.ground_truths
    near = pairs.select(np.flatnonzero((pairs.overlap >= min(given.iou_thr, MAX_IOU_THR)) & given.used[pairs.det]))
    on_ignored = ground_truths.ignored[near.gt]
    # Of ignored ones with equal overlap, the later one first.
    near = near.select(np.lexsort((np.where(on_ignored, -near.gt, near.gt), near.det, -near.overlap, on_ignored)))
    gt = np.full(len(given.detections), NO_GT, dtype=np.int32)
    _assign_gts(gt, near, ground_truths)
    return _one_to_one(gt, near, given)


def match_every_pair(given: MatchInput) -> RuleMatches:
    """Every overlapping pair counts, as in mmdet's ``confusion_matrix.py``.

    A detection without any is background; a ground truth without a detection of its class is missed, even if it was
    counted as a confusion.
    """
    pairs, labels, gt_labels = given.pairs, given.detections.labels, given.ground_truths.labels
    overlap = pairs.overlaps["mmdet_overlaps"]
    near = np.flatnonzero(given.used[pairs.det] & (overlap >= overlap.dtype.type(given.iou_thr)))
    det, gt = pairs.det[near], pairs.gt[near]
    own_class = labels[det] == gt_labels[gt]
    missed = np.ones(len(gt_labels), dtype=bool)
    missed[gt[own_class]] = False
    alone = given.used.copy()
    alone[det] = False
    background = np.flatnonzero(alone)
    outcome = np.concatenate(
        [np.where(own_class, Outcome.TP, Outcome.CONFUSION), np.full(len(background), Outcome.BACKGROUND)]
    )
    gt = np.append(gt, np.full(len(background), NO_GT))
    return RuleMatches(np.append(det, background), gt, outcome.astype(np.int8), missed)


ASSIGNMENTS = {
    "classes_first": match_classes_first,
    "by_overlap": match_by_overlap,
    "every_pair": match_every_pair,
}


def _assign_gts(gt: np.ndarray, pairs: OverlapPairs, ground_truths: GroundTruths) -> None:
    """Assigns pairs in order of priority, and writes the ground truths into ``gt`` (N,)."""
    bits = np.ones(len(pairs.det), dtype=np.uint8)
    result = assign(pairs.det, pairs.gt, bits, num_dets=len(gt), shared=ground_truths.crowd)
    gt[pairs.det[result.pair]] = pairs.gt[result.pair]


def _one_to_one(gt: np.ndarray, near: OverlapPairs, given: MatchInput) -> RuleMatches:
    """The matches from the ground truth of each detection, or -1; ``near`` are the pairs that reach the threshold."""
    labels, ground_truths = given.detections.labels, given.ground_truths
    ignored = ground_truths.ignored
    outcome = np.where(given.used, Outcome.BACKGROUND, Outcome.BELOW_THRESHOLD).astype(np.int8)
    matched = np.flatnonzero(gt >= 0)
    rows = gt[matched]
    own_class = labels[matched] == ground_truths.labels[rows]
    outcome[matched] = np.where(ignored[rows], Outcome.IGNORED, np.where(own_class, Outcome.TP, Outcome.CONFUSION))
    near = near.select(np.flatnonzero((outcome == Outcome.BACKGROUND)[near.det] & ~ignored[near.gt]))
    own_class = labels[near.det] == ground_truths.labels[near.gt]
    outcome[near.det[~own_class]] = Outcome.CONFUSION_MATCHED
    outcome[near.det[own_class]] = Outcome.DUPLICATE
    missed = ~ignored
    missed[gt[matched]] = False
    return RuleMatches(np.arange(len(gt)), gt, outcome, missed)


@dataclass(frozen=True, eq=False)
class RuleCounts:
    """The counts of one matching rule."""

    cells: np.ndarray  # (K,) counted cells of the matrix, as ``row * (C + 1) + column``
    background_types: np.ndarray  # (3, C) int64, the background row by ``BACKGROUND_TYPES``
    detections: np.ndarray  # (C,) number of detections used
    ground_truths: np.ndarray  # (C,) number of ground truths used
    detections_ignored: int  # detections matched to a crowd or an ignored object
    ground_truths_ignored: int  # crowds and ignored objects; 0 under ``mmdet``
    duplicates: int  # duplicates that ``mmdet`` counts as TP

    @property
    def matrix(self) -> np.ndarray:
        """(C + 1, C + 1) int64; rows ground truth, columns prediction, background last."""
        size = len(self.detections) + 1
        return np.bincount(self.cells, minlength=size * size).reshape(size, size)


def rule_counts(
    matches: RuleMatches, detections: Detections, ground_truths: GroundTruths, num_classes: int
) -> RuleCounts:
    """The counts of what a matching rule counts."""
    counted = np.flatnonzero(matches.outcome < Outcome.IGNORED)
    det, gt, outcome = matches.det[counted], matches.gt[counted], matches.outcome[counted]
    label, gt_labels = detections.labels[det], ground_truths.labels
    target = np.append(gt_labels, num_classes)[gt]  # index -1 is the background, the last label
    used = np.zeros(len(detections), dtype=bool)
    used[det] = True
    gt_used, hit = matches.missed.copy(), target == label
    gt_used[gt[gt >= 0]] = True

    def count(labels: np.ndarray) -> np.ndarray:
        return np.bincount(labels, minlength=num_classes)

    size = num_classes + 1
    return RuleCounts(
        np.concatenate([target * size + label, gt_labels[matches.missed] * size + num_classes]),
        np.stack([count(label[outcome == kind]) for kind in BACKGROUND_TYPES.values()]),
        count(detections.labels[used]),
        count(gt_labels[gt_used]),
        int(np.count_nonzero(matches.outcome == Outcome.IGNORED)),
        int(len(gt_used) - np.count_nonzero(gt_used)),
        int(np.count_nonzero(hit) - np.count_nonzero(np.bincount(gt[hit]))),
    )
