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


def label_ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many classes stand before the true one: those with a higher score, or the same and a lower index.

    Args:
        scores: One row a sample, one column a class.
        labels: The true class of each sample.

    Returns:
        int64 array (samples); 0 where the true class is the best, so below k where it is among the k best.

    Example:
        >>> label_ranks(np.array([[0.5, 0.2, 0.3], [0.4, 0.4, 0.2]]), np.array([2, 1])).tolist()
        [1, 1]
    """
    own = scores[np.arange(len(labels)), labels][:, None]
    ranks = (scores > own).view(np.uint8).sum(axis=1, dtype=np.int64)
    tied = scores == own
    if np.count_nonzero(tied) > len(labels):  # more than the true classes themselves
        ranks += np.count_nonzero(tied & (np.arange(scores.shape[1]) < labels[:, None]), axis=1)
    return ranks
