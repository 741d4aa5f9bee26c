"""Counts of pairs."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional.ranking import count_pairs
from mm_metrics_plugin.states.base import SUM, State


class PairState(State):
    """How many pairs of scores were in the right order, and how many in the wrong one.

    Example:
        >>> PairState().update(np.array([0.9, 0.5]), np.array([0.1, 0.6])).counts.tolist()
        [1, 1]
    """

    reductions = {"counts": SUM}
    counts: np.ndarray

    def update(self, positive: np.ndarray, negative: np.ndarray) -> PairState:
        """Counts pairs of scores."""
        self.add("counts", np.array(count_pairs(positive, negative), dtype=np.int64))
        return self
