"""ROC and precision-recall curves, and the Kolmogorov-Smirnov statistic of classifiers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, Scores, divide, fbeta_score, mean_over_classes, score_blocks
from mm_metrics_plugin.functional.classification.auc import class_support, map_classes, roc_points
from mm_metrics_plugin.functional.thresholding import count_reaching, decimal_thresholds, is_mixed, precision_codes

_R = TypeVar("_R")


@dataclass(frozen=True, eq=False)
class CountCurve(Result):
    """Counts of scores at or above each threshold."""

    thresholds: np.ndarray  # distinct scores, descending
    tp: np.ndarray  # true positives
    fp: np.ndarray  # false positives
    positives: int  # number of positives, or of a detector's ground truths
    negatives: int = 0  # number of negatives; 0 for a detector
    texts: tuple[str, ...] = ()  # short decimal numbers that select the same scores; only of thinned curves

    @property
    def precision(self) -> np.ndarray:
        """TP / (TP + FP) at each threshold."""
        return divide(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> np.ndarray:
        """Recall (sensitivity, true positive rate) at each threshold."""
        return divide(self.tp, np.full(len(self.tp), self.positives))

    @property
    def false_positive_rate(self) -> np.ndarray:
        """FP / negatives at each threshold."""
        return divide(self.fp, np.full(len(self.fp), self.negatives))

    def f_score(self, *, beta: float = 1.0) -> np.ndarray:
        """The F-beta score at each threshold."""
        return fbeta_score(self.tp, self.fp, self.positives - self.tp, beta)

    def youden(self) -> tuple[float, float]:
        """The maximum of sensitivity + specificity - 1 (the KS statistic), and its highest threshold."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        height = self.tp.astype(np.int64) * self.negatives - self.fp.astype(np.int64) * self.positives
        best = int(height.argmax())
        return int(height[best]) / (self.positives * self.negatives), float(self.thresholds[best])

    def sensitivity_at(self, specificity: float) -> tuple[float, float]:
        """The highest sensitivity with at least this specificity, and its highest threshold (infinite if none)."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        # Sensitivity increases and specificity decreases along the curve, so the last allowed point is the best.
        allowed = np.count_nonzero((self.negatives - self.fp) / self.negatives >= specificity)
        if not allowed:
            return 0.0, float("inf")
        best = int(np.searchsorted(self.tp, self.tp[allowed - 1], side="left"))
        return int(self.tp[best]) / self.positives, float(self.thresholds[best])

    def specificity_at(self, sensitivity: float) -> tuple[float, float]:
        """The highest specificity with at least this sensitivity, and its highest threshold."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        best = np.count_nonzero(self.tp / self.positives < sensitivity)
        # With no predicted positive, sensitivity is 0 and specificity 1.
        if sensitivity <= 0 or best == len(self.tp):
            return 1.0, float("inf")
        return (self.negatives - int(self.fp[best])) / self.negatives, float(self.thresholds[best])


@dataclass(frozen=True, eq=False)
class ClassificationCurves(Result):
    """The one-vs-rest curves of a classifier."""

    per_class: tuple[CountCurve, ...]

    def youden(self) -> tuple[np.ndarray, np.ndarray]:
        """The maximum Youden index of each class, and its threshold."""
        pairs = [curve.youden() for curve in self.per_class]
        values, thresholds = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return values, thresholds


def roc_curves(scores: Scores, labels: np.ndarray, *, precision: np.ndarray | None = None) -> ClassificationCurves:
    """One-vs-rest ROC and precision-recall curves over all thresholds, not interpolated.

    Args:
        scores: As in :func:`roc_auc`.
        labels: As in :func:`roc_auc`.
        precision: (samples,) precision code of each sample's scores, to which thresholds are rounded. None uses the
            dtype of the scores.

    Example:
        >>> curves = roc_curves(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
        >>> curves.per_class[0].false_positive_rate.tolist(), curves.per_class[0].recall.tolist()
        ([0.0, 0.5, 0.5, 1.0], [0.5, 0.5, 1.0, 1.0])
    """
    return ClassificationCurves(tuple(map_curves(lambda curve, ranked: curve, score_blocks(scores), labels, precision)))


def map_curves(
    function: Callable[[CountCurve, np.ndarray], _R],
    blocks: Sequence[np.ndarray],
    labels: np.ndarray,
    precision: np.ndarray | None = None,
    *,
    corners: bool = False,
) -> list[_R]:
    """``function`` of the curve of every class and its ascending scores.

    With ``corners``, curves have at least the points of :func:`corner_curve`.
    """
    if precision is None or not is_mixed(precision):
        make = corner_curve if corners else count_curve
        return map_classes(lambda ranked, positives: function(make(ranked, positives), ranked), blocks, labels)
    ends = np.cumsum([len(block) for block in blocks])[:-1]
    groups = []  # of each precision: the ascending scores of all samples and of the positives, by class
    for code in np.unique(precision).tolist():
        rows = precision == code
        same = [block[mask] for block, mask in zip(blocks, np.split(rows, ends))]
        groups.append([(code, *arrays) for arrays in map_classes(lambda *arrays: arrays, same, labels[rows])])
    curves = (_mixed_curve(of_class) for of_class in zip(*groups))
    return [function(curve, curve.thresholds[::-1]) for curve in curves]


def _mixed_curve(groups: Sequence[tuple[int, np.ndarray, np.ndarray]]) -> CountCurve:
    """The curve of precision codes with the ascending scores of all samples and of the positives."""
    thresholds = np.unique(np.concatenate([ranked for _, ranked, _ in groups]))[::-1]
    tp = count_reaching([(code, positives) for code, _, positives in groups], thresholds)
    predicted = count_reaching([(code, ranked) for code, ranked, _ in groups], thresholds)
    num_positives = sum(len(positives) for _, _, positives in groups)
    num_negatives = sum(len(ranked) for _, ranked, _ in groups) - num_positives
    return CountCurve(thresholds, tp, predicted - tp, num_positives, num_negatives)


def count_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The curve of one class, from the ascending scores of all samples and of the positives."""
    thresholds, fp, tp = roc_points(ranked, positives)
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def corner_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The points of :func:`count_curve` at which the true positives change, and the first point.

    They determine ``youden``, ``sensitivity_at`` and ``specificity_at``, in a fraction of the time.
    """
    thresholds = np.unique(np.append(positives, ranked[-1:]))[::-1]
    tp = len(positives) - np.searchsorted(positives, thresholds, side="left")
    fp = len(ranked) - np.searchsorted(ranked, thresholds, side="left") - tp
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def thin_curve(curve: CountCurve, *, max_points: int = 200) -> CountCurve:
    """About ``max_points`` points of a curve, including the ends and the maxima of Youden's index and F1.

    Half of the points are evenly spaced along the ROC curve; half are denser at high scores, where precision changes
    fastest.
    """
    number = len(curve.thresholds)
    if number <= max_points:
        return curve
    along = curve.tp / max(1, curve.positives) + curve.fp / max(1, curve.negatives)
    heights = curve.tp * max(1, curve.negatives) - curve.fp * max(1, curve.positives)
    kept = np.unique(
        np.concatenate(
            [
                np.searchsorted(along, np.linspace(0, along[-1], max_points // 2)),
                np.geomspace(1, number, max_points - max_points // 2).astype(np.int64) - 1,
                [0, number - 1, heights.argmax(), np.nan_to_num(curve.f_score()).argmax()],
            ]
        )
    )
    return CountCurve(curve.thresholds[kept], curve.tp[kept], curve.fp[kept], curve.positives, curve.negatives)


def thinned_curves(
    scores: np.ndarray, labels: np.ndarray, *, precision: np.ndarray | None = None, max_points: int = 200
) -> ClassificationCurves:
    """One-vs-rest curves of about ``max_points`` points each, with texts of the thresholds."""
    codes = precision_codes(scores.dtype, precision)

    def thinned(curve: CountCurve, ranked: np.ndarray) -> CountCurve:
        curve = thin_curve(curve, max_points=max_points)
        thresholds = decimal_thresholds(curve.thresholds, [(code, ranked) for code in codes])
        return replace(curve, texts=tuple(threshold.text for threshold in thresholds))

    return ClassificationCurves(tuple(map_curves(thinned, [scores], labels, precision)))


@dataclass(frozen=True)
class KSResult(Result):
    """The KS statistic of every class, and its threshold."""

    per_class: np.ndarray  # maximum of TPR - FPR; NaN without positives or without negatives
    thresholds: np.ndarray  # highest threshold that reaches it
    support: np.ndarray  # number of samples of each class
    errors: np.ndarray  # bounds on the error if it is from histograms; 0 for exact values

    @property
    def classes_averaged(self) -> int:
        """Number of classes with a defined value."""
        return int((~np.isnan(self.per_class)).sum())

    def mean(self, *, absent: str = "skip") -> float:
        """The mean over classes; ``absent`` as in :func:`roc_auc`."""
        return mean_over_classes(self.per_class, absent=absent)


def ks_statistic(scores: Scores, labels: np.ndarray, *, precision: np.ndarray | None = None) -> KSResult:
    """The one-vs-rest Kolmogorov-Smirnov statistic: the maximum distance of the score distributions.

    Args:
        scores: As in :func:`roc_auc`.
        labels: As in :func:`roc_auc`.
        precision: As in :func:`roc_curves`.

    Example:
        >>> result = ks_statistic(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
        >>> result.per_class.tolist(), result.thresholds.tolist()
        ([0.5], [0.8])
    """
    values, thresholds = roc_curves(scores, labels, precision=precision).youden()
    return KSResult(values, thresholds, class_support(labels, len(values)), np.zeros(len(values)))
