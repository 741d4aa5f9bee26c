"""AUC, KS and curves from score histograms in constant memory, with bounds on the error.

Bins are narrow near 0 and 1: equal-width bins would put nearly all softmax scores of many classes into the first one.
The bits of positive floats, read as integers, are a piecewise linear logarithm, which is the scale of the bins.
"""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.classification.auc import AUCResult, average_over_classes
from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves, CountCurve, KSResult

_SMALLEST = np.float32(2.0**-64)  # scores closer to 0 or 1 share the outermost bins
_LOWEST = int(_SMALLEST.view(np.int32))
_HALF = int(np.float32(0.5).view(np.int32)) - _LOWEST


def bin_scores(scores: np.ndarray, *, num_bins: int) -> np.ndarray:
    """The bin of each score in [0, 1]: a monotonic map to ``0 .. num_bins - 1``, int32."""
    scores = np.asarray(scores)
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float32)
    # 1 - score is exact for scores above 0.5, so the map is monotonic.
    distance = np.minimum(scores, 1 - scores)
    position: np.ndarray = np.maximum(distance, _SMALLEST, dtype=np.float32, casting="same_kind").view(np.int32)
    position -= _LOWEST
    np.subtract(2 * _HALF, position, out=position, where=scores > 0.5)
    position //= 2 * _HALF // num_bins + 1
    return position


def bin_edges(num_bins: int) -> np.ndarray:
    """The lowest score of each bin of :func:`bin_scores`, ascending."""
    position = np.minimum(np.arange(num_bins, dtype=np.int64) * (2 * _HALF // num_bins + 1), 2 * _HALF)
    upper = position > _HALF
    distance = np.where(upper, 2 * _HALF - position, position) + _LOWEST
    value = distance.astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(position == 0, 0.0, np.where(upper, 1 - value, value))


def binned_auc(positives: np.ndarray, totals: np.ndarray, *, curve: str = "roc") -> tuple[np.ndarray, np.ndarray]:
    """The AUC from histograms (..., bins) of ascending scores, and a bound on its error; NaN where undefined.

    Scores in the same bin are ties. The bound is the distance to the best and the worst order within the bins.
    """
    positives = np.asarray(positives, dtype=np.int64)
    negatives = np.asarray(totals, dtype=np.int64) - positives
    num_positives, num_negatives = positives.sum(axis=-1), negatives.sum(axis=-1)
    # Counts of strictly higher bins.
    above = num_positives[..., None] - np.cumsum(positives, axis=-1)
    if curve == "roc":
        pairs = num_positives.astype(np.float64) * num_negatives
        twice = (negatives.astype(np.float64) * (2 * above + positives)).sum(axis=-1)
        tied = (positives.astype(np.float64) * negatives).sum(axis=-1)
        return divide(twice, 2 * pairs), divide(tied, 2 * pairs)
    false_above = num_negatives[..., None] - np.cumsum(negatives, axis=-1)
    tp = above + positives
    fp = false_above + negatives
    value = divide(np.nansum(positives * divide(tp, tp + fp), axis=-1), num_positives)
    best = divide(np.nansum(positives * divide(tp, tp + false_above), axis=-1), num_positives)
    from scipy.special import digamma  # importing it takes long

    # In the worst order, negatives come first: the precision at the i-th positive is (above + i) / (above + i + fp).
    harmonic = digamma(tp + fp + 1.0) - digamma(above + fp + 1.0)
    worst = divide((positives - fp * harmonic).sum(axis=-1), num_positives)
    return value, np.maximum(np.maximum(best - value, value - worst), 0.0)


def histogram_auc(
    positives: np.ndarray,
    totals: np.ndarray,
    *,
    average: str | None = "macro",
    curve: str = "roc",
    absent: str = "skip",
) -> AUCResult:
    """The AUC of histograms (classes, bins), with a bound on its error; options as in :func:`roc_auc`."""
    support = positives.sum(axis=-1)
    per_class, bounds = binned_auc(positives, totals, curve=curve)
    if average == "micro":
        pooled, bound = binned_auc(positives.sum(axis=0), totals.sum(axis=0), curve=curve)
        return AUCResult(float(pooled), per_class, support, float(bound))
    value = average_over_classes(per_class, support, average, absent)
    return AUCResult(value, per_class, support, average_over_classes(bounds, support, average, absent))


def histogram_ks(positives: np.ndarray, totals: np.ndarray) -> KSResult:
    """The KS statistic at the bin edges of histograms (classes, bins), with a bound on its error."""
    negatives = totals - positives
    tp = np.cumsum(positives[:, ::-1], axis=1)[:, ::-1]
    fp = np.cumsum(negatives[:, ::-1], axis=1)[:, ::-1]
    num_positives, num_negatives = tp[:, 0], fp[:, 0]
    height = tp * num_negatives[:, None] - fp * num_positives[:, None]
    highest = height + negatives * num_positives[:, None]  # if all positives of the bin came before its negatives
    # The last of equal maxima has the highest threshold.
    best = height.shape[1] - 1 - height[:, ::-1].argmax(axis=1)
    rows, pairs = np.arange(len(height)), num_positives * num_negatives
    per_class = divide(height[rows, best], pairs)
    return KSResult(
        per_class=per_class,
        thresholds=np.where(np.isnan(per_class), np.nan, bin_edges(totals.shape[1])[best]),
        support=num_positives,
        errors=divide(np.maximum(highest.max(axis=1), 0) - height[rows, best], pairs),
    )


def histogram_curves(positives: np.ndarray, totals: np.ndarray) -> ClassificationCurves:
    """The curves of histograms (classes, bins), exact at the bin edges."""
    edges = bin_edges(totals.shape[1])
    curves = []
    for positive, total in zip(positives[:, ::-1], totals[:, ::-1]):
        bins = np.flatnonzero(total)
        tp, predicted = np.cumsum(positive)[bins], np.cumsum(total)[bins]
        num_positives = int(positive.sum())
        curves.append(
            CountCurve(edges[::-1][bins], tp, predicted - tp, num_positives, int(total.sum()) - num_positives)
        )
    return ClassificationCurves(tuple(curves))
