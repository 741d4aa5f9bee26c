"""ROC and precision-recall curves of classifiers over all thresholds, not interpolated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional._count_curve import CountCurve, thin_curve
from mm_metrics_plugin.functional.classification.auc import map_classes, roc_points
from mm_metrics_plugin.functional.classification.score_bins import bin_edges


@dataclass(frozen=True, eq=False)
class ClassificationCurves:
    """The curves of a classifier, each class against the rest.

    Attributes:
        per_class: One curve a class.
    """

    per_class: Tuple[CountCurve, ...]

    def youden(self) -> Tuple[np.ndarray, np.ndarray]:
        """The greatest sensitivity + specificity - 1 of each class, and the thresholds."""
        return self._each([curve.youden() for curve in self.per_class])

    def sensitivity_at(self, specificity: float) -> Tuple[np.ndarray, np.ndarray]:
        """The greatest sensitivity of each class with at least this specificity, and the thresholds."""
        return self._each([curve.sensitivity_at(specificity) for curve in self.per_class])

    def specificity_at(self, sensitivity: float) -> Tuple[np.ndarray, np.ndarray]:
        """The greatest specificity of each class with at least this sensitivity, and the thresholds."""
        return self._each([curve.specificity_at(sensitivity) for curve in self.per_class])

    @staticmethod
    def _each(pairs: List[Tuple[float, float]]) -> Tuple[np.ndarray, np.ndarray]:
        values, thresholds = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return values, thresholds

    def to_dict(self) -> Dict[str, Any]:
        """The curves as plain Python values."""
        return {"per_class": [curve.to_dict() for curve in self.per_class]}

    def __str__(self) -> str:
        value, threshold = self.youden()
        rows = zip(value.tolist(), threshold.tolist())
        return "\n".join(f"class {index}: Youden {a:.4f} at {b:g}" for index, (a, b) in enumerate(rows))


def classification_curves(blocks: Sequence[np.ndarray], labels: np.ndarray) -> ClassificationCurves:
    """ROC and precision-recall curves of each class against the rest.

    Args:
        blocks: The scores as consecutive blocks of rows (one block for a plain matrix), one column a class.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1, where samples with -1 do not count.

    Example:
        >>> curves = classification_curves([np.array([[0.1], [0.4], [0.35], [0.8]])], np.array([[0], [0], [1], [1]]))
        >>> curves.per_class[0].false_positive_rate.tolist(), curves.per_class[0].recall.tolist()
        ([0.0, 0.5, 0.5, 1.0], [0.5, 0.5, 1.0, 1.0])
        >>> print(curves)
        class 0: Youden 0.5000 at 0.8
    """
    return ClassificationCurves(tuple(map_classes(count_curve, blocks, labels)))


def count_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The curve of one class against the rest.

    Args:
        ranked: The scores of all samples, ascending.
        positives: Those of the samples of the class, ascending.

    Example:
        >>> print(count_curve(np.array([0.1, 0.35, 0.4, 0.8]), np.array([0.35, 0.8])))
        4 thresholds from 0.8 to 0.1, 2 positives, 2 negatives
    """
    thresholds, fp, tp = roc_points(ranked, positives)
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def corner_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The points of :func:`count_curve` at the scores of positives, and the first point.

    Only there the true positives change, so these have the best thresholds: ``youden``, ``sensitivity_at`` and
    ``specificity_at`` of this curve are those of the whole one, and it takes a small part of the time.

    Args:
        ranked: The scores of all samples, ascending.
        positives: Those of the samples of the class, ascending.

    Example:
        >>> print(corner_curve(np.array([0.1, 0.35, 0.4, 0.8]), np.array([0.35, 0.8])))
        2 thresholds from 0.8 to 0.35, 2 positives, 2 negatives
    """
    thresholds = np.unique(np.append(positives, ranked[-1:]))[::-1]
    tp = len(positives) - np.searchsorted(positives, thresholds, side="left")
    fp = len(ranked) - np.searchsorted(ranked, thresholds, side="left") - tp
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def histogram_curves(positives: np.ndarray, totals: np.ndarray) -> ClassificationCurves:
    """The curves of scores that were counted in bins: the exact ones, at the lowest score of every bin.

    Args:
        positives: (classes, bins) how many scores of samples of the class lie in each bin of
            :func:`~mm_metrics_plugin.functional.classification.score_bins.bin_scores`.
        totals: (classes, bins) how many scores of all samples do.

    Example:
        >>> curves = histogram_curves(np.array([[0, 0, 2]]), np.array([[1, 0, 3]]))
        >>> curves.per_class[0].recall.tolist(), curves.per_class[0].false_positive_rate.tolist()
        ([1.0, 1.0], [0.5, 1.0])
    """
    edges = bin_edges(totals.shape[1])
    curves = []
    for mine, everything in zip(positives[:, ::-1], totals[:, ::-1]):
        used = np.flatnonzero(everything)
        tp, kept = np.cumsum(mine)[used], np.cumsum(everything)[used]
        curves.append(CountCurve(edges[::-1][used], tp, kept - tp, int(mine.sum()), int(everything.sum() - mine.sum())))
    return ClassificationCurves(tuple(curves))


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
