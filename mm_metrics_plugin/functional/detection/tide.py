"""TIDE's error types of a detector, and dAP: the AP gained by fixing all errors of one type.

Detections of all classes of an image, by descending score, are each assigned the free ground truth of their class with
the highest overlap, if it reaches the IoU threshold. A detection that is assigned none is, by the first that applies:

- ``localization``: it overlaps a ground truth of its class by at least the background threshold and at most the other;
- ``classification``: it overlaps a ground truth of another class by at least the IoU threshold;
- ``duplicate``: it overlaps an assigned ground truth of its class by at least the IoU threshold;
- ``background``: it overlaps no ground truth by more than the background threshold;
- ``both``: anything else, wrong in class and localization.

A ground truth is ``missed`` if no detection is assigned to it and no classification or localization error points at it.
Such an error is fixed by turning the best detection that points at a free ground truth into a TP and removing the
others; the other errors of detections by removing them; a missed ground truth by no longer counting it.

The numbers equal those of ``tidecv``, crowds and ties included: detections on crowds (overlap with the crowd above the
threshold) are ignored, but their error type is counted; at exactly the threshold, an overlap with an assigned ground
truth is a localization error; between equal scores, fixed and wrong detections come before a TP. AP is a fraction.
Classes without ground truths are left out of the mean; with ``absent='zero'`` they count as 0, as in ``tidecv``.

Reference: D. Bolya, S. Foley, J. Hays, J. Hoffman, TIDE (ECCV 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, group_starts, stable_order
from mm_metrics_plugin.functional.detection import confusion_rules as outcomes
from mm_metrics_plugin.functional.detection._assignment import assign
from mm_metrics_plugin.functional.detection.ap_curves import interpolated_ap
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs

ERROR_TYPES = ("classification", "localization", "both", "duplicate", "background", "missed")
CLASSIFICATION, LOCALIZATION, BOTH, DUPLICATE, BACKGROUND = range(5)
TRUE_POSITIVE = 5
_TYPE = 7  # mask of the type without flags
ON_CROWD = 8  # flag: counts for nothing
FIXED = 16  # flag: the best detection that points at its ground truth
NO_GT = -1


class ErrorRows(NamedTuple):
    """The error of every detection."""

    error_type: np.ndarray  # (N,) int8: an index into ``ERROR_TYPES`` or ``TRUE_POSITIVE``, plus flags
    error_gt: np.ndarray  # (N,) int32 row of the free ground truth that the error points at, or -1
    gt_matched: np.ndarray  # (M,) ground truths that a detection is assigned to


def classify_errors(
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    *,
    iou_thr: float,
    background_iou_thr: float,
) -> ErrorRows:
    """The error of every detection, from the pairs at ``background_iou_thr`` or above.

    Detections are sorted by image and descending score.
    """
    own_class = detections.labels[pairs.det] == ground_truths.labels[pairs.gt]
    on_crowd = np.zeros(len(detections), dtype=bool)
    on_crowd[pairs.det[own_class & ground_truths.crowd[pairs.gt] & (pairs.overlap > iou_thr)]] = True
    regular = np.flatnonzero(~ground_truths.crowd[pairs.gt])
    pairs, own_class = pairs.select(regular), own_class[regular]
    is_tp, gt_matched = _matches(pairs.select(own_class & (pairs.overlap >= iou_thr)), detections, ground_truths)
    own, own_gt = _best(pairs.select(own_class), len(detections))
    other, other_gt = _best(pairs.select(~own_class), len(detections))
    matched, _ = _best(pairs.select(own_class & gt_matched[pairs.gt]), len(detections))
    conditions = [
        is_tp,
        (own >= background_iou_thr) & (own <= iou_thr),
        other >= iou_thr,
        matched >= iou_thr,
        np.maximum(own, other) <= background_iou_thr,
    ]
    types = [TRUE_POSITIVE, LOCALIZATION, CLASSIFICATION, DUPLICATE, BACKGROUND]
    error_type = np.select(conditions, types, default=BOTH).astype(np.int8)
    error_gt = np.full(len(detections), NO_GT, dtype=np.int32)
    for kind, gt in ((LOCALIZATION, own_gt), (CLASSIFICATION, other_gt)):
        chosen = np.flatnonzero(error_type == kind)
        error_gt[chosen] = gt[chosen]
    pointing = np.flatnonzero(error_gt >= 0)
    error_gt[pointing[gt_matched[error_gt[pointing]]]] = NO_GT  # it needs no other detection
    pointing = np.flatnonzero(error_gt >= 0)
    _, first = np.unique(error_gt[pointing], return_index=True)  # rows are by image and descending score
    error_type[pointing[first]] |= FIXED
    error_type[on_crowd & ~is_tp] |= ON_CROWD
    return ErrorRows(error_type, error_gt, gt_matched)


def _matches(pairs: OverlapPairs, detections: Detections, ground_truths: GroundTruths) -> tuple[np.ndarray, np.ndarray]:
    """Which detections are TP, and which ground truths are matched; of equal overlaps the earlier one first."""
    pairs = pairs.select(np.lexsort((pairs.gt, -pairs.overlap, pairs.det)))
    one = np.ones(len(pairs.det), dtype=np.uint8)
    nothing_shared = np.zeros(len(ground_truths), dtype=bool)
    result = assign(pairs.det, pairs.gt, one, num_dets=len(detections), shared=nothing_shared)
    gt_matched = np.zeros(len(ground_truths), dtype=bool)
    gt_matched[pairs.gt[result.pair]] = True
    return result.det_bits.astype(bool), gt_matched


def _best(pairs: OverlapPairs, num_dets: int) -> tuple[np.ndarray, np.ndarray]:
    """Each detection's greatest overlap and its ground truth (the first of equal ones); 0 and -1 without any."""
    overlap, gt = np.zeros(num_dets), np.full(num_dets, NO_GT, dtype=np.int32)
    starts = group_starts(pairs.det)
    if len(starts):
        det = pairs.det[starts]
        overlap[det] = np.maximum.reduceat(pairs.overlap, starts)
        best = np.flatnonzero(pairs.overlap == overlap[pairs.det])
        gt[pairs.det[best[::-1]]] = pairs.gt[best[::-1]]  # the last one assigned stays: the first of equal ones
    return overlap, gt


@dataclass(frozen=True, eq=False)
class TideErrors(Result):
    """Errors by type."""

    detections: int  # how many detections they are of
    iou_thr: float  # least overlap of a match
    background_iou_thr: float  # overlap up to which a detection is on background
    average_precision: float  # mean over the classes, as they are
    average_precision_per_class: np.ndarray  # (classes,); NaN for classes without ground truths
    counts: dict[str, np.ndarray]  # by type, (classes,) of the detection, or of a missed ground truth
    ignored: dict[str, np.ndarray]  # by type, (classes,): how many of these are on crowds and count for nothing
    dap: dict[str, float]  # by type, the AP gained by fixing all errors of the type; never below 0
    dap_per_class: dict[str, np.ndarray]  # by type, (classes,) the AP gained; NaN where undefined
    dap_false_positives: float  # the AP gained by removing every false positive
    dap_false_negatives: float  # the AP gained by no longer counting the ground truths that no detection is assigned to

    @property
    def totals(self) -> dict[str, int]:
        """By type, how many errors of all classes."""
        return {name: int(count.sum()) for name, count in self.counts.items()}

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {"totals": self.totals, **super().to_dict()}


def _average_precision(label: np.ndarray, is_tp: np.ndarray, num_gts: np.ndarray) -> np.ndarray:
    """(classes,) AP of detections that are sorted by class and descending score."""
    class_starts = np.searchsorted(label, np.arange(len(num_gts) + 1))
    hits = np.flatnonzero(is_tp)
    starts = np.searchsorted(hits, class_starts)
    own = label[hits]
    tp = np.arange(1, len(hits) + 1) - starts[own]
    seen = hits + 1 - class_starts[own]
    tp, seen, gts = (part[:, None].astype(np.float64) for part in (tp, seen, num_gts))
    return interpolated_ap(tp, seen, starts, gts, coco_levels=False)[:, 0]


def _order_ties(rows: np.ndarray, label: np.ndarray, score: np.ndarray, is_tp: np.ndarray) -> np.ndarray:
    """Rows by class and descending score; of equal scores, wrong and fixed detections before a TP.

    ``rows`` and ``label`` are sorted by class and score; ``score`` and ``is_tp`` are of all rows of the table.
    """
    sorted_score = score[rows]
    same = np.append(False, (label[1:] == label[:-1]) & (sorted_score[1:] == sorted_score[:-1]))
    tied = np.flatnonzero(same | np.append(same[1:], False))
    run = np.cumsum(~same[tied])
    result = rows.copy()
    result[tied] = rows[tied][np.lexsort((rows[tied], is_tp[rows[tied]], run))]
    return result


def tide_errors(table: MatchTable, *, absent: str = "skip") -> TideErrors:
    """The errors of every type, and the AP gained by fixing them.

    Args:
        table: With details.
        absent: ``'skip'`` leaves classes without ground truths out of the mean; ``'zero'`` counts them as 0 if they
            have detections, as ``tidecv`` does.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> box = [[0, 0, 9, 9]]
        >>> batch = DetectionBatch(Detections([0], box, [0.9], [1]), GroundTruths([0], box, [0]), 1)
        >>> errors = tide_errors(match_images(batch, num_classes=2).table)
        >>> errors.totals["classification"], errors.dap["classification"]
        (1, 1.0)
    """
    details, num_classes = table.details, table.num_classes
    if absent not in ("skip", "zero"):
        raise ValueError(f"absent must be 'skip' or 'zero' (found {absent!r})")
    if details is None:
        raise ValueError("the error types need a table with details")
    label, kind = table.label, details.error_type & _TYPE
    is_tp, counts_for_ap = kind == TRUE_POSITIVE, (details.error_type & ON_CROWD) == 0
    fixed = (details.error_type & FIXED) != 0
    target = _gt_rows(table, details.error_gt)
    not_crowd = table.gt_counts.any(axis=1)
    pointed_at = np.zeros(len(table.gt_label), dtype=bool)
    pointed_at[target[target >= 0]] = True
    missed = not_crowd & ~details.gt_tide_matched & ~pointed_at
    num_gts = np.bincount(table.gt_label[not_crowd], minlength=num_classes)

    def per_class(label: np.ndarray) -> np.ndarray:
        return np.bincount(label, minlength=num_classes)

    def mean(values: np.ndarray, has_detections: np.ndarray, num_gts: np.ndarray) -> float:
        if absent == "zero":
            values = np.nan_to_num(values)[(num_gts > 0) | has_detections]
        values = values[~np.isnan(values)]
        return float(values.mean()) if len(values) else float("nan")

    def evaluate(kept: np.ndarray, num_gts: np.ndarray, now_tp: np.ndarray = is_tp) -> tuple[np.ndarray, float]:
        """AP per class and its mean, of the rows that are kept."""
        rows = order[kept[order]]
        values = _average_precision(label[rows], now_tp[rows], num_gts)
        return values, mean(values, per_class(label[rows]) > 0, num_gts)

    def evaluate_reclassified(these: np.ndarray) -> tuple[np.ndarray, float]:
        """The same with classification errors fixed: the best one of each ground truth becomes a TP of its class."""
        moved = np.flatnonzero(these & fixed)
        moved = moved[stable_order(table.gt_label[target[moved]], -table.score[moved])]
        moved_label = table.gt_label[target[moved]]
        kept = order[(counts_for_ap & ~these)[order]]
        starts = np.searchsorted(label[kept], np.arange(num_classes + 1))
        place = np.empty(len(moved), dtype=np.int64)
        for one in np.unique(moved_label):
            here, (first, last) = moved_label == one, starts[one : one + 2]
            place[here] = first + np.searchsorted(-table.score[kept[first:last]], -table.score[moved[here]])
        rows, new_label = np.insert(kept, place, moved), np.insert(label[kept], place, moved_label)
        rows = _order_ties(rows, new_label, table.score, is_tp)
        values = _average_precision(new_label, is_tp[rows] | (these & fixed)[rows], num_gts)
        return values, mean(values, per_class(new_label) > 0, num_gts)

    before = table.ranked.order[counts_for_ap[table.ranked.order]]
    base = _average_precision(label[before], is_tp[before], num_gts)
    base_mean = mean(base, per_class(label[before]) > 0, num_gts)
    order = _order_ties(table.ranked.order, label[table.ranked.order], table.score, is_tp)
    result: dict[str, dict[str, Any]] = {"counts": {}, "ignored": {}, "dap": {}, "dap_per_class": {}}
    for index, name in enumerate(ERROR_TYPES):
        these = kind == index
        if name == "missed":
            counted, ignored = per_class(table.gt_label[missed]), np.zeros(num_classes, dtype=np.int64)
            value, value_mean = evaluate(counts_for_ap, num_gts - counted)
        else:
            counted, ignored = per_class(label[these]), per_class(label[these & ~counts_for_ap])
            if index == CLASSIFICATION:
                value, value_mean = evaluate_reclassified(these)
            else:
                these_fixed = these & fixed
                value, value_mean = evaluate((counts_for_ap & ~these) | these_fixed, num_gts, is_tp | these_fixed)
        result["counts"][name], result["ignored"][name] = counted, ignored
        result["dap"][name] = max(value_mean - base_mean, 0.0)
        result["dap_per_class"][name] = value - base
    # Every TP before every FP; and only the ground truths that were matched.
    pure = np.flatnonzero(counts_for_ap)
    pure = pure[stable_order(label[pure], ~is_tp[pure])]
    without_fp = mean(_average_precision(label[pure], is_tp[pure], num_gts), per_class(label[pure]) > 0, num_gts)
    _, without_fn = evaluate(counts_for_ap, per_class(table.gt_label[details.gt_tide_matched]))
    return TideErrors(
        detections=len(table.score),
        iou_thr=table.settings.iou_thr,
        background_iou_thr=table.settings.background_iou_thr,
        average_precision=base_mean,
        average_precision_per_class=base,
        dap_false_positives=without_fp - base_mean,
        dap_false_negatives=without_fn - base_mean,
        **result,
    )


def errors_at_threshold(table: MatchTable) -> dict[str, np.ndarray]:
    """Errors at the score threshold by type, per class; they add up to FP and FN of the ``coco`` confusion matrix.

    - ``classification``: confusions in the matrix, and confusions with a matched ground truth;
    - ``duplicate``: a ground truth of the class reaches the IoU threshold, but it is matched already;
    - ``localization``, ``both``, ``background``: no ground truth reaches the IoU threshold; these are TIDE's types;
    - ``missed``: ground truths that no detection is matched to, neither of their class nor of another one.

    The five types of detections add up to FP. ``missed`` and the confusions in the row of a class add up to its FN.
    """
    details, num_classes = table.details, table.num_classes
    if details is None:
        raise ValueError("the error types need a table with details")
    on_nothing = details.outcome == outcomes.BACKGROUND
    kind = details.error_type & _TYPE
    chosen = {
        "classification": np.isin(details.outcome, (outcomes.CONFUSION, outcomes.CONFUSION_MATCHED)),
        "localization": on_nothing & (kind == LOCALIZATION),
        "both": on_nothing & (kind != LOCALIZATION) & (kind != BACKGROUND),
        "duplicate": details.outcome == outcomes.DUPLICATE,
        "background": on_nothing & (kind == BACKGROUND),
    }
    counts = {name: np.bincount(table.label[rows], minlength=num_classes) for name, rows in chosen.items()}
    missed = details.gt_outcome == outcomes.MISSED
    return {**counts, "missed": np.bincount(table.gt_label[missed], minlength=num_classes)}


def _gt_rows(table: MatchTable, position: np.ndarray) -> np.ndarray:
    """Rows of the ground truths at some positions of the detections' images; -1 where the position is -1."""
    first = np.searchsorted(table.gt_image, np.arange(table.num_images)).astype(np.int32)
    rows = first[table.image]
    rows += position
    rows[position < 0] = NO_GT
    return rows
