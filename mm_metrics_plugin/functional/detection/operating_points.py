"""The best score threshold of a detector, for all classes or for each class.

A threshold is always one of the scores. Its counts are those of the ``coco`` confusion matrix at this ``score_thr``,
which is rounded to the precision of each score. Results on the images that a threshold was selected on are optimistic.
Cross-fitted results are on other images: the images are split into folds, the threshold of each fold is selected on all
other folds, and the counts of the folds are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, divide, fbeta_score, mean_of_defined, stable_order
from mm_metrics_plugin.functional.detection.cross_fitting import image_folds
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.pr_curves import RankedScores, best_threshold, ranked_rows
from mm_metrics_plugin.functional.thresholding import precision_of, round_thresholds, threshold_text
from mm_metrics_plugin.settings import OperatingRule


@dataclass(frozen=True)
class OperatingPoint(Result):
    """A score threshold and its counts."""

    threshold: float  # a Threshold of the scores; NaN if none satisfies the rule
    tp: int
    fp: int
    fn: int
    beta: float = 1.0  # of the F-score

    @property
    def precision(self) -> float:
        """TP / (TP + FP)."""
        return float(divide(self.tp, self.tp + self.fp))

    @property
    def recall(self) -> float:
        """TP / (TP + FN)."""
        return float(divide(self.tp, self.tp + self.fn))

    @property
    def f_score(self) -> float:
        """The F-beta score."""
        return float(fbeta_score(self.tp, self.fp, self.fn, self.beta))

    def to_dict(self) -> dict[str, float]:
        """The values as plain Python values."""
        names = ("threshold", "precision", "recall", "f_score", "tp", "fp", "fn")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return (
            f"threshold {threshold_text(self.threshold)}: precision {self.precision:.4f}, recall {self.recall:.4f}, "
            f"F{self.beta:g} {self.f_score:.4f}"
        )


@dataclass(frozen=True, eq=False)
class OperatingPoints(Result):
    """The best thresholds and their results."""

    rule: OperatingRule  # selection rule
    folds: int  # number of folds of the cross-fitted results
    overall: OperatingPoint  # one threshold for all classes, by pooled counts
    overall_cross_fitted: OperatingPoint  # its threshold is the mean over the folds
    per_class: tuple[OperatingPoint, ...]  # one threshold per class
    per_class_cross_fitted: tuple[OperatingPoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """The values as plain Python values."""
        return {**super().to_dict(), "rule": str(self.rule)}


class _Group(NamedTuple):
    """The detections of one class, or of all classes, by descending score."""

    scores: RankedScores
    fold: np.ndarray  # fold of each detection
    num_gts: np.ndarray  # (folds,) number of ground truths

    def best(self, rule: OperatingRule) -> OperatingPoint:
        """Selected and evaluated on all images."""
        threshold = best_threshold(self.scores.curve(int(self.num_gts.sum())), rule)
        (threshold,) = self.scores.decimal_thresholds([threshold])
        tp, fp = self.scores.counts_at(np.array([threshold]))[:, 0].tolist()
        return self._point(threshold, tp, fp, rule)

    def cross_fitted(self, rule: OperatingRule) -> OperatingPoint:
        """Selected on all folds but one and evaluated on that one, for each fold."""
        thresholds = []
        for number, num_gts in enumerate(self.num_gts.tolist()):
            others = self.fold != number
            thresholds.append(best_threshold(self.scores.take(others).curve(int(self.num_gts.sum()) - num_gts), rule))
        scores, precision = self.scores.score, self.scores.precision
        codes = precision_of(scores.dtype) if precision is None else precision
        kept = scores >= round_thresholds(thresholds)[codes, self.fold]
        tp = int(np.count_nonzero(kept & self.scores.is_tp))
        fp = int(np.count_nonzero(kept)) - tp
        return self._point(float(mean_of_defined(np.array(thresholds))), tp, fp, rule)

    def _point(self, threshold: float, tp: int, fp: int, rule: OperatingRule) -> OperatingPoint:
        return OperatingPoint(threshold, tp, fp, int(self.num_gts.sum()) - tp, rule.beta)


def operating_points(
    table: MatchTable,
    *,
    rule: str | OperatingRule | None = None,
    iou_thr: float | None = None,
    folds: int = 5,
    seed: int | None = None,
) -> OperatingPoints:
    """The best score threshold for all classes and for each class.

    Args:
        table: Match table of :func:`match_images`. Its settings are the defaults of the other arguments.
        rule: ``'f1'``, ``'f2'``, ... maximize the F-score; ``'precision=0.9'`` maximizes recall with at least this
            precision; ``'recall=0.95'`` maximizes precision with at least this recall. Without a setting: ``'f1'``.
        iou_thr: IoU threshold, one of the table's.
        folds: Number of folds of the cross-fitted results.
        seed: Random seed of the split.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> image, box = np.arange(8), np.tile([0.0, 0.0, 10.0, 10.0], (8, 1))
        >>> detections = Detections(image, box + 30 * (image > 3)[:, None], 0.9 - image / 10, np.zeros(8))
        >>> batch = DetectionBatch(detections, GroundTruths(image[:6], box[:6], np.zeros(6)), 8)
        >>> table = match_images(batch, num_classes=1, keep="scores").table
        >>> print(operating_points(table, folds=4).overall)
        threshold 0.6000: precision 1.0000, recall 0.6667, F1 0.8000
        >>> operating_points(table, rule="recall=0.9", folds=4).overall.threshold
        nan
    """
    settings = table.settings_with(iou_thr=iou_thr, seed=seed)
    rule = rule or settings.operating_point or "f1"
    parsed = rule if isinstance(rule, OperatingRule) else OperatingRule.parse(rule)
    fold = image_folds(table.num_images, folds=folds, seed=settings.seed)
    overall, per_class = _groups(table, settings.iou_thr, fold, folds)
    return OperatingPoints(
        parsed,
        folds,
        overall.best(parsed),
        overall.cross_fitted(parsed),
        tuple(group.best(parsed) for group in per_class),
        tuple(group.cross_fitted(parsed) for group in per_class),
    )


def _groups(table: MatchTable, iou_thr: float, fold: np.ndarray, folds: int) -> tuple[_Group, list[_Group]]:
    """All classes pooled, and each class."""
    rows, is_tp, classes = ranked_rows(table, iou_thr)
    scores, row_fold = RankedScores.of_rows(table, rows, is_tp), fold[table.image[rows]]
    gts = table.grid.at(table.gt_valid, "any", iou_thr)
    cells = table.gt_label[gts].astype(np.int64) * folds + fold[table.gt_image[gts]]
    num_gts = np.bincount(cells, minlength=table.num_classes * folds).reshape(table.num_classes, folds)
    by_score = stable_order(-scores.score)
    overall = _Group(scores.take(by_score), row_fold[by_score], num_gts.sum(axis=0))
    return overall, [_Group(scores.take(c), row_fold[c], numbers) for c, numbers in zip(classes, num_gts)]
