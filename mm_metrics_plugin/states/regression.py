"""Errors of predicted numbers that add up."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional._exact_sum import LIMBS
from mm_metrics_plugin.functional.regression import NUM_SUMS, RegressionResult, regression_result, regression_sums
from mm_metrics_plugin.states.base import MAX, SUM, State


class RegressionState(State):
    """Exact sums of errors and of targets, and the largest error.

    Args:
        percentage_floor: As in :func:`~mm_metrics_plugin.functional.regression.regression_error`.

    Example:
        >>> state = RegressionState().update(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        >>> state.update(np.array([0.0]), np.array([1.0])).result().max_error
        2.0
    """

    reductions = {"limbs": SUM, "counts": SUM, "largest": MAX}
    limbs: np.ndarray
    counts: np.ndarray
    largest: np.ndarray

    def __init__(self, percentage_floor: float = 0.0) -> None:
        self.percentage_floor = percentage_floor
        super().__init__()

    def update(self, predicted: np.ndarray, target: np.ndarray) -> RegressionState:
        """Adds predictions and targets of the same shape."""
        sums = regression_sums(predicted, target, percentage_floor=self.percentage_floor)
        for name, value in zip(self.reductions, sums):
            self.add(name, value)
        return self

    def result(self) -> RegressionResult:
        """All errors so far; NaN if nothing was seen."""
        if self.counts is None:
            return regression_result(np.zeros((NUM_SUMS, LIMBS), dtype=np.int64), np.zeros(2), np.zeros(2))
        return regression_result(self.limbs, self.counts, self.largest)
