"""Scores in [0, 1] put into a fixed number of bins that resolve both ends."""

from __future__ import annotations

import numpy as np

# Scores this close to 0 or to 1 share the outermost bins. Read as integers, the bits of positive floats grow like a
# piecewise linear logarithm; that is the scale of the bins, so both ends get as many bins an octave as the middle.
_SMALLEST = np.float32(2.0**-64)
_LOWEST = int(_SMALLEST.view(np.int32))
_HALF = int(np.float32(0.5).view(np.int32)) - _LOWEST


def bin_scores(scores: np.ndarray, *, num_bins: int) -> np.ndarray:
    """The bin of every score: a monotone map from [0, 1] to ``0 .. num_bins - 1``.

    Equal-width bins would put nearly all softmax scores of many classes into the first bin. These are as wide as
    the score is small (or as near as it is to 1), down to 2^-64.

    Args:
        scores: Any shape, every value in [0, 1].
        num_bins: At least 2.

    Returns:
        int64 array of the same shape.

    Example:
        >>> bin_scores(np.array([0.0, 1e-6, 1e-3, 0.5, 0.999, 1.0]), num_bins=64).tolist()
        [0, 22, 27, 31, 36, 63]
    """
    scores = np.asarray(scores)
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float32)
    upper = scores > 0.5
    # 1 - score is exact for scores above a half, so no two scores change places.
    distance = np.where(upper, 1 - scores, scores).astype(np.float32, copy=False)
    position = np.maximum(distance, _SMALLEST).view(np.int32).astype(np.int64)
    position -= _LOWEST
    np.subtract(2 * _HALF, position, out=position, where=upper)
    position *= num_bins
    position //= 2 * _HALF + 1
    return position
