"""TIDE's error types of a detector, and dAP: the AP gained by fixing all errors of one type.

Detections, by descending score, are matched to the unmatched ground truth of their class with the highest overlap, if
it reaches the IoU threshold t_f. An unmatched detection has the first error type that applies (t_b is the background
threshold):

- ``localization``: t_b <= IoU <= t_f with a ground truth of its class;
- ``classification``: IoU >= t_f with a ground truth of another class;
- ``duplicate``: IoU >= t_f with a matched ground truth of its class;
- ``background``: IoU <= t_b with all ground truths;
- ``both``: all others, wrong in class and localization.

A ground truth is ``missed`` if no detection is matched to it and no classification or localization error covers it.
Classification and localization errors are fixed by turning the best detection of each unmatched ground truth into a TP
and removing the others; other errors of detections by removing them; missed ground truths by removing them.

The numbers equal those of ``tidecv``: detections with an overlap above t_f with a crowd are ignored for AP, but their
error type is counted; of equal scores, fixed and wrong detections come before a TP. AP is a fraction.

Means are over the classes with ground truths, before and after a fix. If a fix removes all ground truths of a class,
its AP is 1 if no detection of the class remains (no error is left), else 0. ``absent='zero'`` selects the means of
``tidecv`` instead: over the classes with ground truths or detections, before and after separately.

Reference: D. Bolya, S. Foley, J. Hays, J. Hoffman, TIDE (ECCV 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, group_starts, mean_of_defined, stable_order
from mm_metrics_plugin.functional.detection._assignment import assign
from mm_metrics_plugin.functional.detection.average_precision import interpolated_ap
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.grid import NO_GT
from mm_metrics_plugin.functional.detection.match_table import ErrorType, MatchTable, Outcome
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs

ERROR_TYPES = ("classification", "localization", "both", "duplicate", "background", "missed")


class ErrorRows(NamedTuple):
    """The error types of all detections; columns as in :class:`MatchDetails`."""

    error_type: np.ndarray  # (N,) int8, an :class:`ErrorType`
    error_ignored: np.ndarray  # (N,) bool, ignored for AP
    error_fixed: np.ndarray  # (N,) bool, becomes a TP when errors of its type are fixed
    error_gt: np.ndarray  # (N,) int32 index of the unmatched ground truth that the error covers, or -1
    gt_matched: np.ndarray  # (M,) whether a ground truth is matched


def classify_errors(
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    *,
    iou_thr: float,
    background_iou_thr: float,
) -> ErrorRows:
    """The error types of detections sorted by image and descending score, from pairs above the background threshold."""
    own_class = detections.labels[pairs.det] == ground_truths.labels[pairs.gt]
    on_ignored, gt_ignored = np.zeros(len(detections), dtype=bool), ground_truths.ignored
    on_ignored[pairs.det[own_class & gt_ignored[pairs.gt] & (pairs.overlap > iou_thr)]] = True
    regular = np.flatnonzero(~gt_ignored[pairs.gt])
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
    types = [
        ErrorType.TRUE_POSITIVE,
        ErrorType.LOCALIZATION,
        ErrorType.CLASSIFICATION,
        ErrorType.DUPLICATE,
        ErrorType.BACKGROUND,
    ]
    error_type = np.select(conditions, types, default=ErrorType.BOTH).astype(np.int8)
    error_gt = np.full(len(detections), NO_GT, dtype=np.int32)
    for kind, gt in ((ErrorType.LOCALIZATION, own_gt), (ErrorType.CLASSIFICATION, other_gt)):
        chosen = np.flatnonzero(error_type == kind)
        error_gt[chosen] = gt[chosen]
    error_gt[np.append(gt_matched, False)[error_gt]] = NO_GT
    covering = np.flatnonzero(error_gt >= 0)
    _, first = np.unique(error_gt[covering], return_index=True)  # the highest score of each ground truth
    fixed = np.zeros(len(detections), dtype=bool)
    fixed[covering[first]] = True
    return ErrorRows(error_type, on_ignored & ~is_tp, fixed, error_gt, gt_matched)


def _matches(pairs: OverlapPairs, detections: Detections, ground_truths: GroundTruths) -> tuple[np.ndarray, np.ndarray]:
    """Which detections and ground truths are matched; of equal overlaps the earlier ground truth first."""
    pairs = pairs.select(np.lexsort((pairs.gt, -pairs.overlap, pairs.det)))
    bits = np.ones(len(pairs.det), dtype=np.uint8)
    not_shared = np.zeros(len(ground_truths), dtype=bool)
    result = assign(pairs.det, pairs.gt, bits, num_dets=len(detections), shared=not_shared)
    gt_matched = np.zeros(len(ground_truths), dtype=bool)
    gt_matched[pairs.gt[result.pair]] = True
    return result.det_bits.astype(bool), gt_matched


def _best(pairs: OverlapPairs, num_dets: int) -> tuple[np.ndarray, np.ndarray]:
    """The highest overlap of each detection and its ground truth (the first of ties); 0 and -1 without pairs."""
    overlap, gt = np.zeros(num_dets), np.full(num_dets, NO_GT, dtype=np.int32)
    starts = group_starts(pairs.det)
    if len(starts):
        det = pairs.det[starts]
        overlap[det] = np.maximum.reduceat(pairs.overlap, starts)
        best = np.flatnonzero(pairs.overlap == overlap[pairs.det])
        gt[pairs.det[best[::-1]]] = pairs.gt[best[::-1]]  # the last write wins: the first of ties
    return overlap, gt


@dataclass(frozen=True, eq=False)
class TideErrors(Result):
    """Errors and dAP by type."""

    detections: int  # number of detections
    iou_thr: float
    background_iou_thr: float
    average_precision: float  # mean over classes, before fixing errors
    average_precision_per_class: np.ndarray  # (classes,); NaN for classes without ground truths
    counts: dict[str, np.ndarray]  # by type, (classes,) number of errors
    ignored: dict[str, np.ndarray]  # by type, (classes,) number of these that are ignored for AP (crowds)
    # By type, AP gained by fixing all errors of the type: the mean of ``dap_per_class``, or that of ``absent='zero'``.
    dap: dict[str, float]
    dap_per_class: dict[str, np.ndarray]  # by type, (classes,), at least 0; NaN for classes without ground truths
    dap_false_positives: float  # AP gained by removing all false positives
    dap_false_negatives: float  # AP gained by removing all unmatched ground truths

    @property
    def totals(self) -> dict[str, int]:
        """By type, number of errors of all classes."""
        return {name: int(count.sum()) for name, count in self.counts.items()}

    def to_dict(self) -> dict[str, Any]:
        """The errors as plain Python values."""
        return {"totals": self.totals, **super().to_dict()}


def _average_precision(label: np.ndarray, is_tp: np.ndarray, num_gts: np.ndarray) -> np.ndarray:
    """(classes,) AP of detections sorted by class and descending score."""
    class_starts = np.searchsorted(label, np.arange(len(num_gts) + 1))
    hits = np.flatnonzero(is_tp)
    starts = np.searchsorted(hits, class_starts)
    tp = np.arange(1, len(hits) + 1) - starts[label[hits]]
    tp_and_fp = hits + 1 - class_starts[label[hits]]
    columns = (column[:, None].astype(np.float64) for column in (tp, tp_and_fp, num_gts))
    tp, tp_and_fp, gts = columns
    return interpolated_ap(tp, tp_and_fp, starts, gts, interpolation="tide")[:, 0]


def _order_ties(rows: np.ndarray, label: np.ndarray, score: np.ndarray, is_tp: np.ndarray) -> np.ndarray:
    """Rows sorted by class and descending score, with the TP last among equal scores."""
    sorted_score = score[rows]
    same = np.append(False, (label[1:] == label[:-1]) & (sorted_score[1:] == sorted_score[:-1]))
    tied = np.flatnonzero(same | np.append(same[1:], False))
    run = np.cumsum(~same[tied])
    result = rows.copy()
    result[tied] = rows[tied][np.lexsort((rows[tied], is_tp[rows[tied]], run))]
    return result


def tide_errors(table: MatchTable, *, absent: str = "skip") -> TideErrors:
    """TIDE's errors by type, and dAP.

    Args:
        table: Match table with details (``keep='full'``).
        absent: ``'skip'`` leaves classes without ground truths out of all means. ``'zero'`` counts them as 0 if they
            have detections, as in ``tidecv``: then all numbers equal those of ``tidecv``.

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
    label, kind, fixed = table.label, details.error_type, details.error_fixed
    is_tp, counts_for_ap = kind == ErrorType.TRUE_POSITIVE, ~details.error_ignored
    target = table.gt_rows(details.error_gt)
    valid = table.gt_valid.any(axis=1)
    covered = np.zeros(len(table.gt_label), dtype=bool)
    covered[target[target >= 0]] = True
    missed = valid & ~details.gt_tide_matched & ~covered
    num_gts = np.bincount(table.gt_label[valid], minlength=num_classes)

    def per_class(label: np.ndarray) -> np.ndarray:
        return np.bincount(label, minlength=num_classes)

    def evaluate_rows(label: np.ndarray, now_tp: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, float]:
        """AP per class and its mean, of detections sorted by class and score, and the numbers of ground truths left."""
        values, has_detections = _average_precision(label, now_tp, left), per_class(label) > 0
        if absent == "zero":
            mean = mean_of_defined(np.nan_to_num(values)[(left > 0) | has_detections])
        values = np.where((num_gts > 0) & (left == 0), ~has_detections, values)
        return values, float(mean if absent == "zero" else mean_of_defined(values))

    def evaluate(kept: np.ndarray, left: np.ndarray, now_tp: np.ndarray = is_tp) -> tuple[np.ndarray, float]:
        """The same of the kept rows."""
        rows = order[kept[order]]
        return evaluate_rows(label[rows], now_tp[rows], left)

    def evaluate_reclassified(these: np.ndarray) -> tuple[np.ndarray, float]:
        """AP with classification errors fixed: the best one of each ground truth becomes a TP of its class."""
        moved = np.flatnonzero(these & fixed)
        moved = moved[stable_order(table.gt_label[target[moved]], -table.score[moved])]
        moved_label = table.gt_label[target[moved]]
        kept = order[(counts_for_ap & ~these)[order]]
        starts = np.searchsorted(label[kept], np.arange(num_classes + 1))
        position = np.empty(len(moved), dtype=np.int64)
        for index in np.unique(moved_label):
            mask, (first, last) = moved_label == index, starts[index : index + 2]
            position[mask] = first + np.searchsorted(-table.score[kept[first:last]], -table.score[moved[mask]])
        rows, new_label = np.insert(kept, position, moved), np.insert(label[kept], position, moved_label)
        rows = _order_ties(rows, new_label, table.score, is_tp)
        return evaluate_rows(new_label, is_tp[rows] | (these & fixed)[rows], num_gts)

    before = table.ranked.order[counts_for_ap[table.ranked.order]]
    base, base_mean = evaluate_rows(label[before], is_tp[before], num_gts)
    order = _order_ties(table.ranked.order, label[table.ranked.order], table.score, is_tp)
    result: dict[str, dict[str, Any]] = {"counts": {}, "ignored": {}, "dap": {}, "dap_per_class": {}}
    for index, name in enumerate(ERROR_TYPES):
        these = kind == index
        if name == "missed":
            counted, ignored = per_class(table.gt_label[missed]), np.zeros(num_classes, dtype=np.int64)
            value, value_mean = evaluate(counts_for_ap, num_gts - counted)
        else:
            counted, ignored = per_class(label[these]), per_class(label[these & ~counts_for_ap])
            if index == ErrorType.CLASSIFICATION:
                value, value_mean = evaluate_reclassified(these)
            else:
                these_fixed = these & fixed
                value, value_mean = evaluate((counts_for_ap & ~these) | these_fixed, num_gts, is_tp | these_fixed)
        result["counts"][name], result["ignored"][name] = counted, ignored
        gained = np.maximum(value - base, 0.0)  # ties may be ordered differently, as in tidecv
        result["dap_per_class"][name] = gained
        result["dap"][name] = float(mean_of_defined(gained)) if absent == "skip" else max(value_mean - base_mean, 0.0)
    # Ranking every TP before every FP removes the effect of the FP.
    rows = np.flatnonzero(counts_for_ap)
    rows = rows[stable_order(label[rows], ~is_tp[rows])]
    _, without_fp = evaluate_rows(label[rows], is_tp[rows], num_gts)
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
    """Errors per class at the score threshold, by type; they add up to FP and FN of the ``coco`` confusion matrix.

    - ``classification``: confusions in the matrix, and confusions with a matched ground truth;
    - ``duplicate``: a matched ground truth of the class reaches the IoU threshold;
    - ``localization``, ``both``, ``background``: TIDE's type, if no ground truth reaches the IoU threshold;
    - ``missed``: ground truths without a match, in their class or another one.

    The five types of detections add up to FP. ``missed`` and the confusions in the row of a class add up to its FN.
    """
    details, num_classes = table.details, table.num_classes
    if details is None:
        raise ValueError("the error types need a table with details")
    on_background, kind = details.outcome == Outcome.BACKGROUND, details.error_type
    localization, background = kind == ErrorType.LOCALIZATION, kind == ErrorType.BACKGROUND
    masks = {
        "classification": np.isin(details.outcome, (Outcome.CONFUSION, Outcome.CONFUSION_MATCHED)),
        "localization": on_background & localization,
        "both": on_background & ~localization & ~background,
        "duplicate": details.outcome == Outcome.DUPLICATE,
        "background": on_background & background,
    }
    counts = {name: np.bincount(table.label[rows], minlength=num_classes) for name, rows in masks.items()}
    missed = details.gt_outcome == Outcome.MISSED
    return {**counts, "missed": np.bincount(table.gt_label[missed], minlength=num_classes)}
