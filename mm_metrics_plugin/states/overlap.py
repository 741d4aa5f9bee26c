"""Overlaps of regions that add up."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional.segmentation import dice_score
from mm_metrics_plugin.states.base import CONCAT, SUM, RowBuffer, State
from mm_metrics_plugin.states.confusion import ConfusionState


class PixelConfusionState(ConfusionState):
    """A confusion matrix of pixels, fed with matrices that are already counted.

    Example:
        >>> PixelConfusionState(2).update(np.array([[[3, 1], [0, 2]], [[1, 0], [0, 1]]])).matrix[:, :2].tolist()
        [[4, 1], [0, 3]]
    """

    def update(self, matrices: np.ndarray) -> PixelConfusionState:  # type: ignore[override]
        """Adds matrices (any number, classes, classes)."""
        self.add_matrix(matrices.sum(axis=0))
        return self


class BatchOverlapState(State):
    """The overlap of each batch as a whole, for the convention that takes one Dice a batch.

    Example:
        >>> state = BatchOverlapState()
        >>> _ = state.update(np.array([[[0.5], [1.0]], [[0.0], [1.0]]])).update(np.array([[[1.0], [2.0]]]))
        >>> round(state.dice(smooth=0), 6)
        0.5
    """

    reductions = {"batches": CONCAT, "samples": SUM}
    batches: RowBuffer
    samples: np.ndarray

    def _clear(self) -> None:
        super()._clear()
        self._seen = 0

    def update(self, overlaps: np.ndarray) -> BatchOverlapState:
        """Adds the intersections and sizes of a batch, (samples, 2, classes)."""
        intersection, sizes = overlaps.sum(axis=(0, 2), dtype=np.float64)
        # Its number goes with it: batches of the same number on several processes are one.
        self.add("batches", np.array([[self._seen, intersection, sizes]]))
        self.add("samples", np.int64(len(overlaps)))
        self._seen += 1
        return self

    def dice(self, *, smooth: float) -> float:
        """The sum of the batches' Dice over the number of samples; NaN without samples."""
        rows = self.batches.to_array()
        if rows is None or not self.samples:
            return float("nan")
        number = rows[:, 0].astype(np.int64)
        intersection, sizes = (np.bincount(number, weights=rows[:, column]) for column in (1, 2))
        return float(dice_score(intersection, sizes, smooth=smooth, zero_division=0.0).sum() / self.samples)
