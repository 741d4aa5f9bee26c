"""What calibration needs to remember."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.states.base import CONCAT, SUM, RowBuffer, State


class CalibrationState(State):
    """The confidence of every decision and whether it was right, and sums over the samples.

    Confidences are kept, not binned: 5 bytes a sample (of float32 scores) are little, equal-mass bins need them, and
    so nothing is approximated.

    Example:
        >>> ones = np.ones(2)
        >>> state = CalibrationState().update(np.array([0.9, 0.8]), np.array([True, False]), ones, ones)
        >>> len(state.confidence), float(state.squares)
        (2, 2.0)
    """

    reductions = {"confidence": CONCAT, "right": CONCAT, "squares": SUM, "logs": SUM}
    confidence: RowBuffer
    right: RowBuffer
    squares: np.ndarray
    logs: np.ndarray

    def update(
        self, confidence: np.ndarray, right: np.ndarray, squares: np.ndarray, logs: np.ndarray
    ) -> CalibrationState:
        """Keeps confidences and decisions; adds up the terms of the Brier score and of the log-likelihood."""
        self.add("confidence", confidence)
        self.add("right", right)
        self.add("squares", squares.sum())
        self.add("logs", logs.sum())
        return self
