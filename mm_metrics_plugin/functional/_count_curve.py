"""True and false positives at every threshold, from which the curves of detectors and classifiers are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, divide, fbeta_score


@dataclass(frozen=True, eq=False)
class CountCurve(Result):
    """True and false positives at or above each score."""

    thresholds: np.ndarray  # distinct scores, descending
    tp: np.ndarray  # true positives at or above each
    fp: np.ndarray  # false positives at or above each
    positives: int  # how many positives (ground truths of a detector) there are
    negatives: int = 0  # how many negatives there are; 0 where that cannot be counted

    @property
    def precision(self) -> np.ndarray:
        """TP / (TP + FP) at or above each threshold."""
        return divide(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> np.ndarray:
        """Sensitivity, true positive rate: share of the positives at or above each threshold."""
        return divide(self.tp, np.full(len(self.tp), self.positives))

    @property
    def false_positive_rate(self) -> np.ndarray:
        """Share of the negatives at or above each threshold."""
        return divide(self.fp, np.full(len(self.fp), self.negatives))

    @property
    def specificity(self) -> np.ndarray:
        """Share of the negatives below each threshold."""
        return divide(self.negatives - self.fp, np.full(len(self.fp), self.negatives))

    def f_score(self, *, beta: float = 1.0) -> np.ndarray:
        """The F-score at every threshold; 0 without true positives, NaN without positives and detections."""
        return fbeta_score(self.tp, self.fp, self.positives - self.tp, beta)

    def youden(self) -> Tuple[float, float]:
        """The greatest sensitivity + specificity - 1 (the KS statistic) and the highest threshold that reaches it."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        height = self.tp.astype(np.int64) * self.negatives - self.fp.astype(np.int64) * self.positives
        best = int(height.argmax())
        return int(height[best]) / (self.positives * self.negatives), float(self.thresholds[best])

    def sensitivity_at(self, specificity: float) -> Tuple[float, float]:
        """The greatest sensitivity with at least this specificity, and its highest threshold (infinite if none)."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        # Specificity falls and sensitivity rises from point to point, so the last point that is allowed is the best.
        allowed = _first(len(self.fp), lambda at: (self.negatives - int(self.fp[at])) / self.negatives < specificity)
        if not allowed:
            return 0.0, float("inf")
        best = int(np.searchsorted(self.tp, self.tp[allowed - 1], side="left"))
        return int(self.tp[best]) / self.positives, float(self.thresholds[best])

    def specificity_at(self, sensitivity: float) -> Tuple[float, float]:
        """The greatest specificity with at least this sensitivity, and its highest threshold."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        best = _first(len(self.tp), lambda at: int(self.tp[at]) / self.positives >= sensitivity)
        # Keeping nothing has sensitivity 0 and specificity 1.
        if sensitivity <= 0 or best == len(self.tp):
            return 1.0, float("inf")
        return (self.negatives - int(self.fp[best])) / self.negatives, float(self.thresholds[best])


def _first(length: int, holds: Callable[[int], bool]) -> int:
    """The first index at which a monotonic condition holds; the length if it never does."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def thin_curve(curve: CountCurve, *, most: int = 200) -> CountCurve:
    """About ``most`` points of a curve: the ends, and those with the greatest Youden index and F1.

    Half of the points are spread evenly along the ROC curve; half are closer together at high scores, where precision
    changes fastest.
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
