"""The Kolmogorov-Smirnov statistic of scores: how far apart those of a class and those of the rest lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import divide, mean_over_classes
from mm_metrics_plugin.functional.classification.auc import class_support, map_classes, roc_points
from mm_metrics_plugin.functional.classification.score_bins import bin_edges


@dataclass(frozen=True)
class KSResult:
    """The KS of every class, where it is reached, and how sure it is.

    Attributes:
        per_class: The largest TPR - FPR of each class; NaN for one without positives or without negatives.
        thresholds: Where it is reached: the class is said to be present from this score on. Of several the highest.
        support: How many samples each class has.
        errors: How far above ``per_class`` the exact values may lie; 0 for exact values.
    """

    per_class: np.ndarray
    thresholds: np.ndarray
    support: np.ndarray
    errors: np.ndarray

    @property
    def classes_averaged(self) -> int:
        """How many classes have a value."""
        return int((~np.isnan(self.per_class)).sum())

    def mean(self, *, absent: str = "skip") -> float:
        """The mean over the classes, with the rule for those that have no value."""
        return mean_over_classes(self.per_class, absent=absent)

    def to_dict(self) -> Dict[str, Any]:
        """The result as plain Python values."""
        return {
            "mean": self.mean(),
            "per_class": self.per_class.tolist(),
            "thresholds": self.thresholds.tolist(),
            "support": self.support.tolist(),
            "errors": self.errors.tolist(),
        }

    def __str__(self) -> str:
        return f"KS {self.mean():.6f} over {self.classes_averaged} of {len(self.support)} classes"


def _ks(ranked: np.ndarray, positives: np.ndarray) -> Tuple[float, float]:
    num_positives = len(positives)
    num_negatives = len(ranked) - num_positives
    if not num_positives or not num_negatives:
        return float("nan"), float("nan")
    thresholds, fp, tp = roc_points(ranked, positives)
    # Integers: which of two heights is the higher one is never left to rounding.
    height = tp.astype(np.int64) * num_negatives - fp.astype(np.int64) * num_positives
    best = int(height.argmax())
    return int(height[best]) / (num_positives * num_negatives), float(thresholds[best])


def score_ks(blocks: Sequence[np.ndarray], labels: np.ndarray) -> KSResult:
    """The exact KS of every class against the rest.

    Args:
        blocks: The scores as consecutive blocks of rows (one block for a plain matrix), one column a class.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1, where samples with -1 do not count.

    Example:
        >>> result = score_ks([np.array([[0.1], [0.4], [0.35], [0.8]])], np.array([[0], [0], [1], [1]]))
        >>> result.per_class.tolist(), result.thresholds.tolist()
        ([0.5], [0.8])
    """
    found = np.array(map_classes(_ks, blocks, labels), dtype=np.float64).reshape(-1, 2)
    return KSResult(found[:, 0], found[:, 1], class_support(labels, len(found)), np.zeros(len(found)))


def histogram_ks(positives: np.ndarray, totals: np.ndarray) -> KSResult:
    """The KS of histograms (classes, bins) with the bins of ``functional.histogram``, and its certified error.

    The value is the best of the bins' edges. Inside a bin the curve can rise at most to where it would stand with all
    of the bin's positives and none of its negatives.

    Example:
        >>> result = histogram_ks(np.array([[0, 1, 1]]), np.array([[1, 2, 1]]))
        >>> result.per_class.tolist(), result.errors.tolist()
        ([0.5], [0.5])
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
