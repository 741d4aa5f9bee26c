"""Precision, recall and F-score of a detector over all score thresholds.

Every point has the counts at its score threshold. Nothing is interpolated or made monotonic, which would overstate
precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, divide, fbeta_score, mean_of_defined
from mm_metrics_plugin.functional._count_curve import CountCurve
from mm_metrics_plugin.functional.classification.confusion_matrix import stat_scores_report
from mm_metrics_plugin.functional.detection.ap_curves import RangeCurves
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.thresholding import precision_of, round_thresholds
from mm_metrics_plugin.settings import COCO_MAX_DETS


@dataclass(frozen=True, eq=False)
class RankedScores:
    """The detections of one class, which can be counted at any threshold."""

    score: np.ndarray  # (N,) descending
    is_tp: np.ndarray  # (N,) whether each is a true positive
    precision: np.ndarray | None = None  # (N,) code of the precision of each score; None: that of the dtype

    def counts_at(self, thresholds: np.ndarray) -> np.ndarray:
        """(2, points) true and false positives with a score of at least each threshold, in the score's precision."""
        counts = np.zeros((2, len(thresholds)), dtype=np.int64)
        rounded = round_thresholds(thresholds)
        codes = [precision_of(self.score.dtype)] if self.precision is None else np.unique(self.precision).tolist()
        for code in codes:
            same = np.ones(len(self.score), dtype=bool) if self.precision is None else self.precision == code
            for row, chosen in zip(counts, (self.is_tp & same, ~self.is_tp & same)):
                ascending = self.score[chosen][::-1]
                row += len(ascending) - np.searchsorted(ascending, rounded[code], side="left")
        return counts

    def curve(self, positives: int) -> CountCurve:
        """The exact curve: one point for every distinct score."""
        last = np.flatnonzero(np.append(self.score[1:] != self.score[:-1], True)[: len(self.score)]).astype(np.int32)
        tp = np.cumsum(self.is_tp, dtype=np.int32)[last]
        return CountCurve(self.score[last], tp, last + 1 - tp, positives)


@dataclass(frozen=True, eq=False)
class DetectionCurves:
    """The curves of a detector."""

    iou_thr: float  # least overlap of a match
    beta: float  # of the F-scores on the grid
    per_class: tuple[CountCurve, ...]  # the exact curve of each class: one point for every distinct score
    average_precision: np.ndarray  # (classes,) COCO's AP at the IoU threshold; NaN without ground truths
    max_dets: int  # The limit of ``average_precision``. The curves are of all detections.
    confidence: np.ndarray  # (points,) a grid of score thresholds, ascending, the same for all classes
    precision: np.ndarray  # (classes, points) at each of these; NaN where no detection is left
    recall: np.ndarray  # (classes, points); NaN for classes without ground truths
    f_score: np.ndarray  # (classes, points)
    ranked: tuple[RankedScores, ...]  # the detections of each class, to be counted at other thresholds

    @property
    def mean_precision(self) -> np.ndarray:
        """(points,) mean over the classes that have one."""
        return mean_of_defined(self.precision.T)

    @property
    def mean_recall(self) -> np.ndarray:
        """(points,) mean over the classes that have one."""
        return mean_of_defined(self.recall.T)

    @property
    def mean_f_score(self) -> np.ndarray:
        """(points,) mean over the classes that have one."""
        return mean_of_defined(self.f_score.T)


def precision_recall_curves(
    table: MatchTable, *, iou_thr: float = 0.5, beta: float = 1.0, num_points: int = 1001, max_dets: int = COCO_MAX_DETS
) -> DetectionCurves:
    """Precision, recall and F-score of a detector against each other and against the score threshold.

    The curves count all detections. Only the average precision has the limit ``max_dets``.

    Args:
        table: Every detection and ground truth, matched.
        iou_thr: One of the IoU thresholds of the table.
        beta: How many times as much recall weighs as precision in the F-score.
        num_points: Of the grid of thresholds, from 0 to 1 (or over the range of the scores, if they lie outside).
        max_dets: Number of detections per class and image that average precision uses.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> boxes = [[0, 0, 9, 9], [50, 0, 59, 9], [20, 0, 29, 9]]
        >>> detections = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.4], [0, 0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0, 0], boxes[::2], [0, 0]), 1)
        >>> table = match_images(batch, num_classes=1, table="ap").table
        >>> curves = precision_recall_curves(table, num_points=3)
        >>> curves.per_class[0].precision.round(4).tolist(), curves.per_class[0].recall.tolist()
        ([1.0, 0.5, 0.6667], [0.5, 0.5, 1.0])
    """
    is_tp, is_tp_or_fp = table.flags(iou_thr)
    rows = table.ranked.order[is_tp_or_fp[table.ranked.order]]
    label, score, is_tp = table.label[rows], table.score[rows], is_tp[rows]
    precision = None if table.precision is None else table.precision[rows]
    starts = np.searchsorted(label, np.arange(table.num_classes + 1)).tolist()
    num_gts = table.num_gts("any")
    low, high = (float(score.min()), float(score.max())) if len(score) else (0.0, 1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    confidence = np.linspace(low, high, num_points)
    ranked = []
    for start, stop in zip(starts, starts[1:]):
        of_class = None if precision is None else precision[start:stop]
        ranked.append(RankedScores(score[start:stop], is_tp[start:stop], of_class))
    tp, fp = _counts_at(ranked, confidence)
    gts = np.broadcast_to(num_gts[:, None], tp.shape)
    return DetectionCurves(
        iou_thr=float(iou_thr),
        beta=beta,
        per_class=tuple(one.curve(int(number)) for one, number in zip(ranked, num_gts)),
        average_precision=RangeCurves(table, "all", max_dets, [iou_thr]).average_precision()[0, :, 0],
        max_dets=max_dets,
        confidence=confidence,
        precision=divide(tp, tp + fp),
        recall=divide(tp, gts),
        f_score=fbeta_score(tp, fp, gts - tp, beta),
        ranked=tuple(ranked),
    )


def _counts_at(ranked: Sequence[RankedScores], thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(classes, points) true and false positives."""
    counts = np.zeros((2, len(ranked), len(thresholds)), dtype=np.int64)
    for index, one in enumerate(ranked):
        counts[:, index] = one.counts_at(thresholds)
    return counts[0], counts[1]


@dataclass(frozen=True, eq=False)
class ThresholdSweep(Result):
    """TP and FP of every class at every score threshold, under ``coco``."""

    thresholds: np.ndarray  # (points,) ascending
    ground_truths: np.ndarray  # (classes,) ground truths
    tp: np.ndarray  # (classes, points) true positives at or above each threshold
    fp: np.ndarray  # (classes, points) false positives
    best: float  # the threshold at which the micro F1 is greatest; NaN without true positives
    best_per_class: np.ndarray  # (classes,) the same for the F1 of each class

    def means(self) -> dict[str, np.ndarray]:
        """(points,) each: the means over classes, by their names in the JSON report."""
        fn = self.ground_truths[:, None] - self.tp
        reports = [stat_scores_report(*counts, np.zeros_like(counts[0])) for counts in zip(self.tp.T, self.fp.T, fn.T)]
        return {
            "precision": np.array([one.macro.precision for one in reports]),
            "recall": np.array([one.macro.recall for one in reports]),
            "f1_of_means": np.array([one.f_of_means for one in reports]),
            "f1": np.array([one.macro.f_score for one in reports]),
        }

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {**super().to_dict(), "means": {name: value.tolist() for name, value in self.means().items()}}


def threshold_sweep(curves: DetectionCurves, *, also: Sequence[float] = ()) -> ThresholdSweep:
    """Counts at the thresholds of the curves' grid, at the best one, and at those in ``also``."""
    best = _best(_pooled(curves.per_class))
    wanted = [*curves.confidence.tolist(), *(float(value) for value in also)]
    thresholds = np.unique(wanted if np.isnan(best) else [*wanted, best])
    tp, fp = _counts_at(curves.ranked, thresholds)
    return ThresholdSweep(
        thresholds=thresholds,
        ground_truths=np.array([curve.positives for curve in curves.per_class], dtype=np.int64),
        tp=tp,
        fp=fp,
        best=best,
        best_per_class=np.array([_best(curve) for curve in curves.per_class]),
    )


def _best(curve: CountCurve) -> float:
    """The highest threshold of the greatest F1; NaN without true positives."""
    if not len(curve.tp) or curve.tp[-1] == 0:
        return float("nan")
    return float(curve.thresholds[int(np.argmax(curve.f_score()))])


def _pooled(curves: Sequence[CountCurve]) -> CountCurve:
    """The curve of the pooled counts of all classes."""
    scores = np.concatenate([curve.thresholds for curve in curves]) if curves else np.empty(0)
    distinct, place = np.unique(-scores, return_inverse=True)
    sums: list[np.ndarray] = []
    for name in ("tp", "fp"):
        steps = [np.diff(getattr(curve, name), prepend=0) for curve in curves]
        each = np.bincount(place.reshape(-1), weights=np.concatenate(steps) if steps else None, minlength=len(distinct))
        sums.append(np.cumsum(each.astype(np.int64)))
    return CountCurve(-distinct, sums[0], sums[1], sum(curve.positives for curve in curves))
