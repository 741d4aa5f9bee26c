"""ROC and precision-recall curves of classifiers, and the Kolmogorov-Smirnov statistic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, Scores, mean_over_classes, score_blocks
from mm_metrics_plugin.functional._count_curve import CountCurve, thin_curve
from mm_metrics_plugin.functional.classification.auc import class_support, map_classes, roc_points


@dataclass(frozen=True, eq=False)
class ClassificationCurves(Result):
    """The one-vs-rest curves of a classifier."""

    per_class: tuple[CountCurve, ...]

    def youden(self) -> tuple[np.ndarray, np.ndarray]:
        """The maximum Youden index of each class, and its threshold."""
        pairs = [curve.youden() for curve in self.per_class]
        values, thresholds = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return values, thresholds


def roc_curves(scores: Scores, labels: np.ndarray) -> ClassificationCurves:
    """One-vs-rest ROC and precision-recall curves over all thresholds, not interpolated.

    Args:
        scores: As in :func:`roc_auc`.
        labels: As in :func:`roc_auc`.

    Example:
        >>> curves = roc_curves(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
        >>> curves.per_class[0].false_positive_rate.tolist(), curves.per_class[0].recall.tolist()
        ([0.0, 0.5, 0.5, 1.0], [0.5, 0.5, 1.0, 1.0])
    """
    return ClassificationCurves(tuple(map_classes(count_curve, score_blocks(scores), labels)))


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


def thinned_curves(scores: np.ndarray, labels: np.ndarray, *, max_points: int = 200) -> ClassificationCurves:
    """One-vs-rest curves of about ``max_points`` points each."""

    def thinned(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
        return thin_curve(count_curve(ranked, positives), max_points=max_points)

    return ClassificationCurves(tuple(map_classes(thinned, [scores], labels)))


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


def ks_statistic(scores: Scores, labels: np.ndarray) -> KSResult:
    """The one-vs-rest Kolmogorov-Smirnov statistic: the maximum distance of the score distributions.

    Args:
        scores: As in :func:`roc_auc`.
        labels: As in :func:`roc_auc`.

    Example:
        >>> result = ks_statistic(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
        >>> result.per_class.tolist(), result.thresholds.tolist()
        ([0.5], [0.8])
    """
    values, thresholds = roc_curves(scores, labels).youden()
    return KSResult(values, thresholds, class_support(labels, len(values)), np.zeros(len(values)))
