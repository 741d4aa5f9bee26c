"""Ranks of the true class, and pairs of scores of which one should be higher."""

from __future__ import annotations

from typing import Tuple

import numpy as np

_ROWS_AT_ONCE = 1024  # compared together, so that the comparison takes little memory beside the scores


def count_pairs(positive: np.ndarray, negative: np.ndarray) -> Tuple[int, int]:
    """How many pairs are in the right order, and how many are not; a tie is not."""
    right = int(np.count_nonzero(positive > negative))
    return right, positive.size - right


def pos_neg_ratio(right: int, wrong: int) -> float:
    """(right + 1) / (wrong + 1); NaN without pairs.

    Example:
        >>> round(pos_neg_ratio(1, 2), 6)
        0.666667
    """
    return (right + 1) / (wrong + 1) if right + wrong else float("nan")


def label_ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(samples,) how many classes rank before the true one: higher scores, and equal scores of a lower index."""
    ranks = np.zeros(len(labels), dtype=np.int64)
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        rows, true = scores[block], labels[block]
        own = rows[np.arange(len(true)), true][:, None]
        ranks[block] = np.count_nonzero(rows > own, axis=1)
        tied = rows == own
        if np.count_nonzero(tied) > len(true):  # more than the true classes themselves
            ranks[block] += np.count_nonzero(tied & (np.arange(scores.shape[1]) < true[:, None]), axis=1)
    return ranks


def recall_at_k(scores: np.ndarray, labels: np.ndarray, *, k: int) -> float:
    """The share of samples whose true class is among the k best; of equal scores the lower index is better.

    Example:
        >>> recall_at_k(np.array([[0.5, 0.2, 0.3], [0.4, 0.4, 0.2]]), np.array([2, 0]), k=1)
        0.5
    """
    return float(np.mean(label_ranks(scores, labels) < k)) if len(labels) else float("nan")


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
