"""Precision, recall and F-score of a detector over all score thresholds, without interpolation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.functional._arrays import (
    Result,
    Rows,
    divide,
    fbeta_score,
    mean_of_defined,
    rates_from_counts,
    stable_order,
)
from mm_metrics_plugin.functional.classification.roc_curves import CountCurve
from mm_metrics_plugin.functional.detection.average_precision import APCurves
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.thresholding import (
    Threshold,
    count_reaching,
    decimal_thresholds,
    is_mixed,
    precision_of,
)
from mm_metrics_plugin.settings import OperatingRule

_BEST_F1 = OperatingRule("f", 1.0)


@dataclass(frozen=True, eq=False)
class RankedScores:
    """Detections by descending score, to be counted at any threshold in the precision of each score."""

    score: np.ndarray  # (N,) descending
    is_tp: np.ndarray  # (N,)
    precision: np.ndarray | None = None  # (N,) precision code of each score; None: that of the dtype

    @classmethod
    def of_rows(cls, table: MatchTable, rows: np.ndarray, is_tp: np.ndarray) -> RankedScores:
        """The detections in these rows of a table."""
        return cls(table.score[rows], is_tp, None if table.precision is None else table.precision[rows])

    @classmethod
    def pooled(cls, parts: Sequence[RankedScores]) -> RankedScores:
        """The detections of all parts, such as those of the classes."""
        if not parts:
            return cls(np.empty(0), np.empty(0, dtype=bool))
        codes = [part.precision for part in parts if part.precision is not None]
        score, is_tp = (np.concatenate([getattr(part, name) for part in parts]) for name in ("score", "is_tp"))
        return cls(score, is_tp, np.concatenate(codes) if codes else None).take(stable_order(-score))

    def take(self, rows: Rows) -> RankedScores:
        """The selected rows (indices, a mask or a slice)."""
        precision = None if self.precision is None else self.precision[rows]
        return RankedScores(self.score[rows], self.is_tp[rows], precision)

    def _groups(self, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The ascending scores of each precision among the rows of a mask."""
        if self.precision is None:
            yield precision_of(self.score.dtype), self.score[rows][::-1]
            return
        for code in np.unique(self.precision).tolist():
            yield code, self.score[rows & (self.precision == code)][::-1]

    def counts_at(self, thresholds: np.ndarray) -> np.ndarray:
        """(2, points) TP and FP at each threshold."""
        return np.stack([count_reaching(self._groups(rows), thresholds) for rows in (self.is_tp, ~self.is_tp)])

    def decimal_thresholds(self, thresholds: npt.ArrayLike) -> list[Threshold]:
        """Thresholds with texts that select the same detections."""
        return decimal_thresholds(thresholds, list(self._groups(np.ones(len(self.score), dtype=bool))))

    def curve(self, positives: int) -> CountCurve:
        """The curve with one point per distinct score."""
        last = np.flatnonzero(np.append(self.score[1:] != self.score[:-1], True)[: len(self.score)]).astype(np.int32)
        thresholds = self.score[last]
        if is_mixed(self.precision):  # a lower score may reach a threshold that is rounded to its precision
            tp, fp = self.counts_at(thresholds).astype(np.int32)
        else:
            tp = np.cumsum(self.is_tp, dtype=np.int32)[last]
            fp = last + 1 - tp
        return CountCurve(thresholds, tp, fp, positives)


@dataclass(frozen=True, eq=False)
class DetectionCurves:
    """The curves of a detector."""

    iou_thr: float
    beta: float  # of the F-score
    per_class: tuple[CountCurve, ...]  # one point per distinct score
    average_precision: np.ndarray  # (classes,) COCO's AP at the IoU threshold; NaN without ground truths
    max_dets: int  # limit of ``average_precision``; the curves include all detections
    confidence: np.ndarray  # (points,) a grid of score thresholds, ascending
    precision: np.ndarray  # (classes, points) on the grid; NaN without detections
    recall: np.ndarray  # (classes, points); NaN for classes without ground truths
    f_score: np.ndarray  # (classes, points)
    ranked: tuple[RankedScores, ...]  # detections of each class
    overlap_name: str = "IoU"  # that ``iou_thr`` is a threshold of

    @property
    def mean_precision(self) -> np.ndarray:
        """(points,) mean over classes."""
        return mean_of_defined(self.precision.T)

    @property
    def mean_recall(self) -> np.ndarray:
        """(points,) mean over classes."""
        return mean_of_defined(self.recall.T)

    @property
    def mean_f_score(self) -> np.ndarray:
        """(points,) mean over classes."""
        return mean_of_defined(self.f_score.T)


def precision_recall_curves(
    table: MatchTable,
    *,
    iou_thr: float | None = None,
    beta: float = 1.0,
    num_points: int = 1001,
    max_dets: int | None = None,
) -> DetectionCurves:
    """Precision-recall curves of a detector, and precision, recall and F-score by score threshold.

    Args:
        table: Match table of :func:`match_images`. Its settings are the defaults of ``iou_thr`` and ``max_dets``.
        iou_thr: IoU threshold, one of the table's.
        beta: Weight of recall relative to precision in the F-score.
        num_points: Number of score thresholds of the grid from 0 to 1, or over the range of scores outside of it.
        max_dets: Maximum number of detections per class and image for average precision only.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> boxes = [[0, 0, 9, 9], [50, 0, 59, 9], [20, 0, 29, 9]]
        >>> detections = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.4], [0, 0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0, 0], boxes[::2], [0, 0]), 1)
        >>> table = match_images(batch, num_classes=1, keep="scores").table
        >>> curves = precision_recall_curves(table, num_points=3)
        >>> curves.per_class[0].precision.round(4).tolist(), curves.per_class[0].recall.tolist()
        ([1.0, 0.5, 0.6667], [0.5, 0.5, 1.0])
    """
    settings = table.settings_with(iou_thr=iou_thr, max_dets=max_dets)
    rows, is_tp, classes = ranked_rows(table, settings.iou_thr)
    detections = RankedScores.of_rows(table, rows, is_tp)
    score = detections.score
    num_gts = table.num_gts("any")
    low, high = (float(score.min()), float(score.max())) if len(score) else (0.0, 1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    confidence = np.linspace(low, high, num_points)
    ranked = [detections.take(c) for c in classes]
    tp, fp = _counts_at(ranked, confidence)
    gts = np.broadcast_to(num_gts[:, None], tp.shape)
    return DetectionCurves(
        iou_thr=settings.iou_thr,
        beta=beta,
        per_class=tuple(scores.curve(int(number)) for scores, number in zip(ranked, num_gts)),
        average_precision=APCurves(table, "all", settings.max_dets, [settings.iou_thr]).average_precision()[0, :, 0],
        max_dets=settings.max_dets,
        confidence=confidence,
        precision=divide(tp, tp + fp),
        recall=divide(tp, gts),
        f_score=fbeta_score(tp, fp, gts - tp, beta),
        ranked=tuple(ranked),
        overlap_name=geometry_of(settings.iou_type).overlap_name,
    )


def ranked_rows(table: MatchTable, iou_thr: float) -> tuple[np.ndarray, np.ndarray, list[slice]]:
    """Table rows of TP and FP by class and descending score, which of them are TP, and the slice of each class."""
    is_tp, is_tp_or_fp = table.tp_fp_masks(iou_thr)
    rows = table.ranked.order[is_tp_or_fp[table.ranked.order]]
    starts = np.searchsorted(table.label[rows], np.arange(table.num_classes + 1)).tolist()
    return rows, is_tp[rows], list(map(slice, starts, starts[1:]))


def _counts_at(ranked: Sequence[RankedScores], thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(classes, points) TP and FP."""
    counts = np.zeros((2, len(ranked), len(thresholds)), dtype=np.int64)
    for index, scores in enumerate(ranked):
        counts[:, index] = scores.counts_at(thresholds)
    return counts[0], counts[1]


@dataclass(frozen=True, eq=False)
class ThresholdSweep(Result):
    """TP and FP of every class by score threshold, under the ``coco`` rule."""

    thresholds: np.ndarray  # (points,) ascending
    texts: list[str]  # (points,) short decimal numbers that select the same detections
    ground_truths: np.ndarray  # (classes,) number of ground truths
    tp: np.ndarray  # (classes, points)
    fp: np.ndarray  # (classes, points)
    best: Threshold  # of the highest micro F1; NaN without TP
    best_per_class: list[Threshold]  # (classes,) of the highest F1

    def means(self) -> dict[str, np.ndarray]:
        """(points,) macro averages, by their keys in the JSON report."""
        _, overall = rates_from_counts(self.tp.T, self.fp.T, (self.ground_truths[:, None] - self.tp).T)
        return {name: overall[name] for name in ("precision", "recall", "f1_of_means", "f1")}

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain Python values."""
        return {**super().to_dict(), "means": {name: value.tolist() for name, value in self.means().items()}}


def threshold_sweep(curves: DetectionCurves, *, also: Sequence[float] = ()) -> ThresholdSweep:
    """Counts at the thresholds of the grid, at the best one, and at those in ``also``."""
    num_gts = np.array([curve.positives for curve in curves.per_class], dtype=np.int64)
    pooled = RankedScores.pooled(curves.ranked)
    best = best_threshold(pooled.curve(int(num_gts.sum())), _BEST_F1)
    grid = [*curves.confidence.tolist(), *(float(value) for value in also)]
    thresholds = np.unique(grid if np.isnan(best) else [*grid, best])
    tp, fp = _counts_at(curves.ranked, thresholds)
    return ThresholdSweep(
        thresholds=thresholds,
        texts=[threshold.text for threshold in pooled.decimal_thresholds(thresholds)],
        ground_truths=num_gts,
        tp=tp,
        fp=fp,
        best=pooled.decimal_thresholds([best])[0],
        best_per_class=[
            scores.decimal_thresholds([best_threshold(curve, _BEST_F1)])[0]
            for scores, curve in zip(curves.ranked, curves.per_class)
        ],
    )


def rule_values(tp: np.ndarray, fp: np.ndarray, positives: npt.ArrayLike, rule: OperatingRule) -> np.ndarray:
    """The value that a rule maximizes, at each threshold; -1 where the threshold does not satisfy the rule."""
    if rule.kind == "f":
        value = fbeta_score(tp, fp, positives - tp, rule.value)
    else:
        rates = divide(tp, tp + fp), divide(tp, positives)
        constrained, maximized = rates if rule.kind == "precision" else rates[::-1]
        value = np.where(constrained >= rule.value, maximized, -1.0)
    return np.where(tp > 0, value, -1.0)


def best_threshold(curve: CountCurve, rule: OperatingRule) -> float:
    """The best score threshold by a rule, the highest of ties; NaN if no threshold satisfies it."""
    value = rule_values(curve.tp, curve.fp, curve.positives, rule)
    best = int(np.argmax(value)) if len(value) else -1
    return float(curve.thresholds[best]) if best >= 0 and value[best] >= 0 else float("nan")
