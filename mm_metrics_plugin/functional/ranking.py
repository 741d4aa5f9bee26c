"""Pairs of scores of which one ought to be the higher."""

from __future__ import annotations

from typing import Tuple

import numpy as np


def count_pairs(positive: np.ndarray, negative: np.ndarray) -> Tuple[int, int]:
    """How many pairs are in the right order, and how many are not; a tie is not.

    Args:
        positive: The scores that ought to be higher.
        negative: The scores they are compared with, of the same shape.

    Example:
        >>> count_pairs(np.array([0.9, 0.5, 0.5]), np.array([0.1, 0.5, 0.6]))
        (1, 2)
    """
    right = int(np.count_nonzero(positive > negative))
    return right, positive.size - right


def pos_neg_ratio(right: int, wrong: int) -> float:
    """(right + 1) / (wrong + 1): above 1 if more pairs are right than wrong; NaN if there are none.

    Example:
        >>> round(pos_neg_ratio(1, 2), 6)
        0.666667
    """
    return (right + 1) / (wrong + 1) if right + wrong else float("nan")
