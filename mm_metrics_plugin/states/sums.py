"""Exact sums, which do not depend on the number of processes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mm_metrics_plugin.functional._exact_sum import LIMBS, exact_limbs, fraction_to_float, limbs_to_fractions
from mm_metrics_plugin.functional.regression import NUM_SUMS, RegressionResult, regression_result, regression_sums
from mm_metrics_plugin.functional.segmentation import dice_score
from mm_metrics_plugin.states.base import CONCAT, MAX, SUM, RowBuffer, State


class ExactSumState(State):
    """Sums without rounding, of one value per sample or of several columns; NaN is left out.

    Example:
        >>> state = ExactSumState().update(np.array([[0.1, 1.0], [0.2, np.nan], [-0.3, 2.0]]))
        >>> state.sums(), state.means()
        (array([2.77555756e-17, 3.00000000e+00]), array([9.25185854e-18, 1.50000000e+00]))
    """

    reductions = {"limbs": SUM, "count": SUM}
    limbs: np.ndarray
    count: np.ndarray

    def update(self, values: np.ndarray, rest: np.ndarray | None = None) -> ExactSumState:
        """Add values (samples) or (samples, columns), and their rounding errors ``rest``."""
        missing = np.isnan(values)
        limbs = exact_limbs(np.where(missing, 0.0, values))
        if rest is not None and rest.any():
            limbs += exact_limbs(rest)
        self.add("limbs", limbs)
        self.add("count", (~missing).sum(axis=0, dtype=np.int64))
        return self

    def fractions(self) -> list[Fraction]:
        """The exact sums of all columns in order; empty before the first batch."""
        return [] if self.limbs is None else limbs_to_fractions(self.limbs)

    def sums(self) -> np.ndarray:
        """The sums, correctly rounded."""
        return np.array([fraction_to_float(total) for total in self.fractions()])

    def means(self) -> np.ndarray:
        """The means, correctly rounded; NaN for a column without values."""
        counts = [] if self.count is None else np.ravel(self.count).tolist()
        return np.array([fraction_to_float(total / n) if n else np.nan for total, n in zip(self.fractions(), counts)])


class RegressionState(State):
    """Exact sums of errors and targets, and the largest error."""

    reductions = {"limbs": SUM, "counts": SUM, "largest": MAX}
    limbs: np.ndarray
    counts: np.ndarray
    largest: np.ndarray

    def __init__(self, percentage_floor: float = 0.0) -> None:
        self.percentage_floor = percentage_floor
        super().__init__()

    def update(self, predicted: np.ndarray, target: np.ndarray) -> RegressionState:
        """Add predictions and targets of the same shape."""
        sums = regression_sums(predicted, target, percentage_floor=self.percentage_floor)
        for name, value in zip(self.reductions, sums):
            self.add(name, value)
        return self

    def result(self) -> RegressionResult:
        """All errors; NaN without values."""
        if self.counts is None:
            return regression_result(np.zeros((NUM_SUMS, LIMBS), dtype=np.int64), np.zeros(2), np.zeros(2))
        return regression_result(self.limbs, self.counts, self.largest)


class BatchDiceState(State):
    """The pooled overlap of each batch, for the convention of one Dice per batch."""

    reductions = {"batches": CONCAT, "samples": SUM}
    batches: RowBuffer
    samples: np.ndarray

    def _clear(self) -> None:
        super()._clear()
        self._num_batches = 0

    def update(self, overlaps: np.ndarray) -> BatchDiceState:
        """Add the intersections and sizes of a batch, (samples, 2, classes)."""
        intersection, sizes = overlaps.sum(axis=(0, 2), dtype=np.float64)
        # With the batch index: batches of the same index on several processes form one batch.
        self.add("batches", np.array([[self._num_batches, intersection, sizes]]))
        self.add("samples", np.int64(len(overlaps)))
        self._num_batches += 1
        return self

    def dice(self, *, smooth: float) -> float:
        """The sum of the batches' Dice over the number of samples; NaN without samples."""
        rows = self.batches.to_array()
        if rows is None or not self.samples:
            return float("nan")
        number = rows[:, 0].astype(np.int64)
        intersection, sizes = (np.bincount(number, weights=rows[:, column]) for column in (1, 2))
        return float(dice_score(intersection, sizes, smooth=smooth, zero_division=0.0).sum() / self.samples)
