"""True and false positives at every score threshold: the ROC and precision-recall curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, divide, fbeta_score


@dataclass(frozen=True, eq=False)
class CountCurve(Result):
    """Counts of scores at or above each threshold."""

    thresholds: np.ndarray  # distinct scores, descending
    tp: np.ndarray  # true positives
    fp: np.ndarray  # false positives
    positives: int  # number of positives, or of a detector's ground truths
    negatives: int = 0  # number of negatives; 0 for a detector

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
        allowed = _first(len(self.fp), lambda at: (self.negatives - int(self.fp[at])) / self.negatives < specificity)
        if not allowed:
            return 0.0, float("inf")
        best = int(np.searchsorted(self.tp, self.tp[allowed - 1], side="left"))
        return int(self.tp[best]) / self.positives, float(self.thresholds[best])

    def specificity_at(self, sensitivity: float) -> tuple[float, float]:
        """The highest specificity with at least this sensitivity, and its highest threshold."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        best = _first(len(self.tp), lambda at: int(self.tp[at]) / self.positives >= sensitivity)
        # With no predicted positive, sensitivity is 0 and specificity 1.
        if sensitivity <= 0 or best == len(self.tp):
            return 1.0, float("inf")
        return (self.negatives - int(self.fp[best])) / self.negatives, float(self.thresholds[best])


def _first(length: int, holds: Callable[[int], bool]) -> int:
    """Binary search for the first index at which a monotonic condition holds; the length if it never does."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


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
