"""The Kolmogorov-Smirnov statistic: the largest distance between the scores of a class and those of the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, Scores, divide, mean_over_classes
from mm_metrics_plugin.functional.classification.auc import class_support
from mm_metrics_plugin.functional.classification.roc_curves import roc_curves
from mm_metrics_plugin.functional.classification.score_bins import bin_edges


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


def histogram_ks(positives: np.ndarray, totals: np.ndarray) -> KSResult:
    """The KS statistic of histograms (classes, bins) of ``score_bins``, with a bound on its error.

    The value is the best at the edges of bins. Inside a bin the curve can rise at most by all of its positives and none
    of its negatives.
    """
    negatives = totals - positives
    tp = np.cumsum(positives[:, ::-1], axis=1)[:, ::-1]
    fp = np.cumsum(negatives[:, ::-1], axis=1)[:, ::-1]
    num_positives, num_negatives = tp[:, 0], fp[:, 0]
    height = tp * num_negatives[:, None] - fp * num_positives[:, None]
    highest = height + negatives * num_positives[:, None]
    # Among equal heights the last bin has the highest score.
    best = height.shape[1] - 1 - height[:, ::-1].argmax(axis=1)
    rows, pairs = np.arange(len(height)), num_positives * num_negatives
    per_class = divide(height[rows, best], pairs)
    return KSResult(
        per_class=per_class,
        thresholds=np.where(np.isnan(per_class), np.nan, bin_edges(totals.shape[1])[best]),
        support=num_positives,
        errors=divide(np.maximum(highest.max(axis=1), 0) - height[rows, best], pairs),
    )
