"""From scores to hard decisions."""

from __future__ import annotations

from typing import Sequence

import numpy as np

NO_DECISION = -1


def hard_decisions(scores: np.ndarray, *, thresholds: Sequence[float]) -> np.ndarray:
    """The best class of every sample where its score is above the threshold.

    Args:
        scores: One row a sample, one column a class. Of equal scores the first class is the best.
        thresholds: One column of decisions is made for each.

    Returns:
        int64 array (samples, thresholds); -1 where the best score is not above the threshold.

    Example:
        >>> hard_decisions(np.array([[0.2, 0.8], [0.55, 0.45]]), thresholds=[0.5, 0.6]).tolist()
        [[1, 1], [0, -1]]
    """
    best = scores.argmax(axis=1)
    height = np.take_along_axis(scores, best[:, None], axis=1)
    return np.where(height > np.asarray(thresholds, dtype=np.float64)[None, :], best[:, None], NO_DECISION)
