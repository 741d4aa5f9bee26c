"""What calibration needs to remember."""

from __future__ import annotations

from typing import List

import numpy as np

from mm_metrics_plugin.functional.summation import exact_limbs, limbs_to_fractions
from mm_metrics_plugin.states.base import CONCAT, SUM, RowBuffer, State


class CalibrationState(State):
    """The confidence of every decision and whether it was right, and sums over the samples.

    Confidences are kept, not binned: 5 bytes a sample (of float32 scores) are little, equal-mass bins need them, and
    so nothing is approximated. Sums are without rounding.

    Example:
        >>> terms = np.array([[0.5, 1.0], [0.25, np.inf]])
        >>> state = CalibrationState().update(np.array([0.9, 0.8]), np.array([True, False]), terms)
        >>> len(state.confidence), state.means()
        (2, [0.375, inf])
    """

    reductions = {"confidence": CONCAT, "right": CONCAT, "limbs": SUM, "infinite": SUM}
    confidence: RowBuffer
    right: RowBuffer
    limbs: np.ndarray
    infinite: np.ndarray

    def update(self, confidence: np.ndarray, right: np.ndarray, terms: np.ndarray) -> CalibrationState:
        """Keeps confidences and decisions (samples); adds up terms (samples, sums), each at least 0."""
        infinite = np.isinf(terms)
        self.add("confidence", confidence)
        self.add("right", right)
        self.add("limbs", exact_limbs(np.where(infinite, 0.0, terms)))
        self.add("infinite", np.count_nonzero(infinite, axis=0))
        return self

    def means(self) -> List[float]:
        """The mean of the terms of each sum, correctly rounded."""
        totals = zip(limbs_to_fractions(self.limbs), self.infinite)
        return [float("inf") if infinite else float(total / len(self.confidence)) for total, infinite in totals]
