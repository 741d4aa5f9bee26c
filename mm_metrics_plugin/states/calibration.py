"""What calibration needs to remember."""

from __future__ import annotations

from typing import List, Union

import numpy as np

from mm_metrics_plugin.states.base import StateGroup
from mm_metrics_plugin.states.scores import ScoreHistogramState, ScoreState
from mm_metrics_plugin.states.sums import ExactSumState


class CalibrationState(StateGroup):
    """The confidence of every decision and whether it was right, and sums over the samples without rounding.

    Args:
        scores: What keeps the confidences: all of them, 5 bytes a sample, or their histogram.

    Example:
        >>> terms = np.array([[0.5, 1.0], [0.25, np.inf]])
        >>> state = CalibrationState(ScoreState()).update(np.array([0.9, 0.8]), np.array([True, False]), terms)
        >>> len(state["scores"].scores), state.means()
        (2, [0.375, inf])
    """

    def __init__(self, scores: Union[ScoreState, ScoreHistogramState]) -> None:
        super().__init__(scores=scores, terms=ExactSumState())

    def update(self, confidence: np.ndarray, right: np.ndarray, terms: np.ndarray) -> CalibrationState:
        """Keeps confidences and decisions (samples); adds up terms (samples, sums), each at least 0."""
        self["scores"].update(confidence[:, None], right.astype(np.int8)[:, None])
        # What is infinite makes the sum so, whatever the rest: it is enough to know that there was one.
        self["terms"].update(np.where(np.isinf(terms), np.nan, terms))
        return self

    def means(self) -> List[float]:
        """The mean of the terms of each sum, correctly rounded; nothing if no sample was seen."""
        terms: ExactSumState = self["terms"]  # type: ignore[assignment]
        if terms.count is None or not terms.count.any():
            return []
        most = terms.count.max()
        return [float(mean) if seen == most else float("inf") for mean, seen in zip(terms.means(), terms.count)]
