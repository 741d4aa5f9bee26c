"""Scores in [0, 1] in a fixed number of bins that resolve both ends."""

from __future__ import annotations

import numpy as np

# Scores this close to 0 or to 1 share the outermost bins. Read as integers, the bits of positive floats grow like a
# piecewise linear logarithm; that is the scale of the bins, so both ends get as many bins an octave as the middle.
_SMALLEST = np.float32(2.0**-64)
_LOWEST = int(_SMALLEST.view(np.int32))
_HALF = int(np.float32(0.5).view(np.int32)) - _LOWEST


def bin_scores(scores: np.ndarray, *, num_bins: int) -> np.ndarray:
    """The bin of every score in [0, 1]: a monotonic map to ``0 .. num_bins - 1``, int32.

    Equal-width bins would put nearly all softmax scores of many classes into the first bin. The width of these is
    proportional to the score (or to its distance from 1), down to 2^-64.
    """
    scores = np.asarray(scores)
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float32)
    # 1 - score is exact for scores above a half, so no two scores change places.
    distance = np.minimum(scores, 1 - scores)
    position = np.maximum(distance, _SMALLEST, dtype=np.float32, casting="same_kind").view(np.int32)
    position -= _LOWEST
    np.subtract(2 * _HALF, position, out=position, where=scores > 0.5)
    position //= 2 * _HALF // num_bins + 1
    return position


def bin_edges(num_bins: int) -> np.ndarray:
    """The lowest score of every bin of :func:`bin_scores`, ascending, as float64."""
    position = np.minimum(np.arange(num_bins, dtype=np.int64) * (2 * _HALF // num_bins + 1), 2 * _HALF)
    upper = position > _HALF
    distance = np.where(upper, 2 * _HALF - position, position) + _LOWEST
    value = distance.astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(position == 0, 0.0, np.where(upper, 1 - value, value))
