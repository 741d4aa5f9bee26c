"""Top-k decisions, recall at k, and the ratio of correctly to wrongly ordered pairs."""

from __future__ import annotations

import numpy as np

_BLOCK_ROWS = 1024  # compared at a time, to limit memory


def count_pairs(positive: np.ndarray, negative: np.ndarray) -> tuple[int, int]:
    """Numbers of correctly and wrongly ordered pairs; a tie is wrong."""
    correct = int(np.count_nonzero(positive > negative))
    return correct, positive.size - correct


def pos_neg_ratio(correct: int, wrong: int) -> float:
    """(correct + 1) / (wrong + 1), from the numbers of correctly and wrongly ordered pairs; NaN without pairs.

    Example:
        >>> round(pos_neg_ratio(1, 2), 6)
        0.666667
    """
    return (correct + 1) / (wrong + 1) if correct + wrong else float("nan")


def label_ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(samples,) rank of the true class from 0: number of higher scores, and of equal scores with a lower index."""
    ranks = np.zeros(len(labels), dtype=np.int64)
    for start in range(0, len(labels), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        rows, target = scores[block], labels[block]
        true_score = rows[np.arange(len(target)), target][:, None]
        ranks[block] = np.count_nonzero(rows > true_score, axis=1)
        tied = rows == true_score
        if np.count_nonzero(tied) > len(target):  # more than the true classes themselves
            ranks[block] += np.count_nonzero(tied & (np.arange(scores.shape[1]) < target[:, None]), axis=1)
    return ranks


def recall_at_k(scores: np.ndarray, labels: np.ndarray, *, k: int) -> float:
    """The fraction of samples whose true class is among the top k; ties go to the lower class index.

    Example:
        >>> recall_at_k(np.array([[0.5, 0.2, 0.3], [0.4, 0.4, 0.2]]), np.array([2, 0]), k=1)
        0.5
    """
    return float(np.mean(label_ranks(scores, labels) < k)) if len(labels) else float("nan")


def top_k_decisions(scores: np.ndarray, *, k: int) -> np.ndarray:
    """Whether each class is among the top k of its sample; ties go to the lower class index.

    Example:
        >>> top_k_decisions(np.array([[0.1, 0.4, 0.4, 0.4]]), k=2).tolist()
        [[False, True, True, False]]
    """
    index = scores.shape[1] - k
    kth_score = np.partition(scores, index, axis=1)[:, index, None]
    above, tied = scores > kth_score, scores == kth_score
    free = k - np.count_nonzero(above, axis=1)[:, None]
    chosen: np.ndarray = above | (tied & (np.cumsum(tied, axis=1) <= free))
    return chosen
