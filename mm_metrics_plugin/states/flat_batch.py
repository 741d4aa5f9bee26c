"""A batch of samples that hold different numbers of values."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.states.batch import Batch


class FlatBatch(Batch):
    """Arrays in which the values of the samples lie one after the other.

    Args:
        columns: Flat arrays of equal length.
        lengths: How many values each sample has.

    Example:
        >>> batch = FlatBatch(np.array([0.5, 0.25, 0.75]), lengths=np.array([1, 2]))
        >>> len(batch), batch.without_last().columns[0].tolist()
        (2, [0.5])
    """

    def __init__(self, *columns: np.ndarray, lengths: np.ndarray) -> None:
        super().__init__(*columns)
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def without_last(self) -> FlatBatch:
        """The batch without its last sample."""
        stop = int(self.lengths[:-1].sum())
        return FlatBatch(*(column[:stop] for column in self.columns), lengths=self.lengths[:-1])
