"""A batch read from samples and not yet added to a state."""

from __future__ import annotations

from typing import Tuple

import numpy as np


class Batch:
    """Arrays with one row a sample.

    The last batch waits until it is known whether its last sample was only padding; a batch whose arrays are laid
    out in another way (several rows a sample) overrides the two methods.

    Example:
        >>> batch = Batch(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 1]))
        >>> len(batch), len(batch.without_last())
        (2, 1)
    """

    def __init__(self, *columns: np.ndarray) -> None:
        self.columns: Tuple[np.ndarray, ...] = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def without_last(self) -> Batch:
        """The batch without its last sample."""
        return Batch(*(column[:-1] for column in self.columns))
