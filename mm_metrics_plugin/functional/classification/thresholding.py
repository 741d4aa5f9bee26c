"""From scores to decisions."""

from __future__ import annotations

from typing import Optional, Sequence

import numpy as np

from mm_metrics_plugin.functional._score_precision import limits_for

NO_DECISION = -1


def hard_decisions(
    scores: np.ndarray, *, thresholds: Sequence[float], precision: Optional[np.ndarray] = None
) -> np.ndarray:
    """(samples, thresholds) the best class of every sample, or -1 where its score is not above the threshold.

    Args:
        scores: (samples, classes). Of equal scores the first class is the best.
        thresholds: They are rounded to the scores' precision, so that a float32 score written as 0.3 is not above 0.3.
        precision: The code of each sample's precision (``_score_precision``); None: that of the dtype of the scores.

    Example:
        >>> hard_decisions(np.array([[0.2, 0.8], [0.55, 0.45]]), thresholds=[0.5, 0.6]).tolist()
        [[1, 1], [0, -1]]
    """
    best = scores.argmax(axis=1)
    height = scores[np.arange(len(best)), best]
    above = height[:, None] > limits_for(scores, list(thresholds), precision)
    return np.where(above, best[:, None], NO_DECISION)


def top_k_decisions(scores: np.ndarray, *, k: int) -> np.ndarray:
    """Whether each class is among the k best of its sample; of equal scores the lower index is better.

    Example:
        >>> top_k_decisions(np.array([[0.1, 0.4, 0.4, 0.4]]), k=2).tolist()
        [[False, True, True, False]]
    """
    place = scores.shape[1] - k
    last = np.partition(scores, place, axis=1)[:, place, None]
    above = scores > last
    tied = scores == last
    room = k - np.count_nonzero(above, axis=1)[:, None]
    return above | (tied & (np.cumsum(tied, axis=1) <= room))
