"""Sums and means of floats that come out the same on any number of processes."""

from __future__ import annotations

from fractions import Fraction
from typing import List, Optional

import numpy as np

from mm_metrics_plugin.functional._exact_sum import exact_limbs, fraction_to_float, limbs_to_fractions
from mm_metrics_plugin.states.base import SUM, State


class ExactSumState(State):
    """Sums without rounding, of one value a sample or of several columns. NaN is no value and is left out.

    Example:
        >>> state = ExactSumState().update(np.array([[0.1, 1.0], [0.2, np.nan], [-0.3, 2.0]]))
        >>> state.sums(), state.means()
        (array([2.77555756e-17, 3.00000000e+00]), array([9.25185854e-18, 1.50000000e+00]))
    """

    reductions = {"limbs": SUM, "count": SUM}
    limbs: np.ndarray
    count: np.ndarray

    def update(self, values: np.ndarray, rest: Optional[np.ndarray] = None) -> ExactSumState:
        """Adds values (samples) or (samples, columns), and ``rest``, what was rounded off them."""
        missing = np.isnan(values)
        limbs = exact_limbs(np.where(missing, 0.0, values))
        if rest is not None and rest.any():
            limbs += exact_limbs(rest)
        self.add("limbs", limbs)
        self.add("count", (~missing).sum(axis=0, dtype=np.int64))
        return self

    def fractions(self) -> List[Fraction]:
        """The exact sums, of all columns in order; nothing if no batch was seen."""
        return [] if self.limbs is None else limbs_to_fractions(self.limbs)

    def sums(self) -> np.ndarray:
        """The sums, correctly rounded."""
        return np.array([fraction_to_float(total) for total in self.fractions()])

    def means(self) -> np.ndarray:
        """The means, correctly rounded; NaN for a column without values."""
        counts = [] if self.count is None else np.ravel(self.count).tolist()
        return np.array([fraction_to_float(total / n) if n else np.nan for total, n in zip(self.fractions(), counts)])
