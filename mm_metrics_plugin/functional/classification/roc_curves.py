"""ROC and precision-recall curves of classifiers over all thresholds, not interpolated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, Scores, mean_over_classes, score_blocks
from mm_metrics_plugin.functional._count_curve import CountCurve, thin_curve
from mm_metrics_plugin.functional.classification.auc import class_support, map_classes, roc_points


@dataclass(frozen=True, eq=False)
class ClassificationCurves(Result):
    """The curves of a classifier, each class against the rest."""

    per_class: Tuple[CountCurve, ...]  # one curve a class

    def youden(self) -> Tuple[np.ndarray, np.ndarray]:
        """The greatest sensitivity + specificity - 1 of each class, and the thresholds."""
        pairs = [curve.youden() for curve in self.per_class]
        values, thresholds = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return values, thresholds


def roc_curves(scores: Scores, labels: np.ndarray) -> ClassificationCurves:
    """ROC and precision-recall curves of each class against the rest.

    Args:
        scores: (rows, classes), or a list of consecutive blocks of rows.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1; samples with -1 are ignored.

    Example:
        >>> curves = roc_curves(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
        >>> curves.per_class[0].false_positive_rate.tolist(), curves.per_class[0].recall.tolist()
        ([0.0, 0.5, 0.5, 1.0], [0.5, 0.5, 1.0, 1.0])
    """
    return ClassificationCurves(tuple(map_classes(count_curve, score_blocks(scores), labels)))


def count_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The curve of one class; the scores of all samples and of the positives are ascending."""
    thresholds, fp, tp = roc_points(ranked, positives)
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def corner_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The points of :func:`count_curve` at the scores of positives, and the first point.

    Only there the true positives change, so ``youden``, ``sensitivity_at`` and ``specificity_at`` of this curve are
    those of the whole one, in a fraction of the time.
    """
    thresholds = np.unique(np.append(positives, ranked[-1:]))[::-1]
    tp = len(positives) - np.searchsorted(positives, thresholds, side="left")
    fp = len(ranked) - np.searchsorted(ranked, thresholds, side="left") - tp
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def thinned_curves(scores: np.ndarray, labels: np.ndarray, *, most: int = 200) -> ClassificationCurves:
    """The curves of each class against the rest, with about ``most`` points each."""

    def thinned(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
        return thin_curve(count_curve(ranked, positives), most=most)

    return ClassificationCurves(tuple(map_classes(thinned, [scores], labels)))


@dataclass(frozen=True)
class KSResult(Result):
    """The KS statistic of every class, and the threshold that reaches it."""

    per_class: np.ndarray  # the largest TPR - FPR of each class; NaN for one without positives or without negatives
    thresholds: np.ndarray  # the highest score at which it is reached
    support: np.ndarray  # how many samples each class has
    errors: np.ndarray  # how far above ``per_class`` the exact values may lie; 0 for exact values

    @property
    def classes_averaged(self) -> int:
        """How many classes have a value."""
        return int((~np.isnan(self.per_class)).sum())

    def mean(self, *, absent: str = "skip") -> float:
        """The mean over the classes, with the rule for those that have no value."""
        return mean_over_classes(self.per_class, absent=absent)


def ks_statistic(scores: Scores, labels: np.ndarray) -> KSResult:
    """The exact KS statistic of every class against the rest.

    Args:
        scores: (rows, classes), or a list of consecutive blocks of rows.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1; samples with -1 are ignored.

    Example:
        >>> result = ks_statistic(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
        >>> result.per_class.tolist(), result.thresholds.tolist()
        ([0.5], [0.8])
    """
    best, thresholds = roc_curves(scores, labels).youden()
    return KSResult(best, thresholds, class_support(labels, len(best)), np.zeros(len(best)))
