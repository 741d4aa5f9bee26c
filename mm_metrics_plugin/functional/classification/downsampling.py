"""Curves with few points, every one of them exact, for looking at."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional._count_curve import CountCurve
from mm_metrics_plugin.functional.classification.auc import map_classes
from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves, count_curve


def thin_curve(curve: CountCurve, *, most: int = 200) -> CountCurve:
    """Some points of a curve: ends, bends, and those with the greatest Youden index and F1.

    Half of the points are spread evenly along the ROC curve, half are the closer together the higher the score, where
    precision changes fastest.

    Args:
        curve: With one point for every distinct score.
        most: About how many points to keep.

    Example:
        >>> scores = np.arange(1000, 0, -1)
        >>> curve = CountCurve(scores, np.minimum(1001 - scores, 300), np.maximum(701 - scores, 0), 300, 700)
        >>> thin = thin_curve(curve, most=40)
        >>> len(thin.thresholds) <= 42, thin.youden() == curve.youden(), thin.thresholds[[0, -1]].tolist()
        (True, True, [1000, 1])
    """
    number = len(curve.thresholds)
    if number <= most:
        return curve
    along = curve.tp / max(1, curve.positives) + curve.fp / max(1, curve.negatives)
    heights = curve.tp * max(1, curve.negatives) - curve.fp * max(1, curve.positives)
    kept = np.unique(
        np.concatenate(
            [
                np.searchsorted(along, np.linspace(0, along[-1], most // 2)),
                np.geomspace(1, number, most - most // 2).astype(np.int64) - 1,
                [0, number - 1, heights.argmax(), np.nan_to_num(curve.f_score()).argmax()],
            ]
        )
    )
    return CountCurve(curve.thresholds[kept], curve.tp[kept], curve.fp[kept], curve.positives, curve.negatives)


def thinned_curves(scores: np.ndarray, labels: np.ndarray, *, most: int = 200) -> ClassificationCurves:
    """The curves of each class against the rest, with few points each.

    Args:
        scores: (samples, classes).
        labels: The class of each sample, or (samples, classes) of 1, 0 and -1, where samples with -1 do not count.
        most: About how many points a curve keeps.

    Example:
        >>> scores = np.linspace(0, 1, 5000)[:, None]
        >>> curves = thinned_curves(scores, (scores > 0.3).astype(np.int8), most=50)
        >>> len(curves.per_class[0].thresholds) <= 54, curves.per_class[0].youden()[0]
        (True, 1.0)
    """

    def thinned(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
        return thin_curve(count_curve(ranked, positives), most=most)

    return ClassificationCurves(tuple(map_classes(thinned, [scores], labels)))
