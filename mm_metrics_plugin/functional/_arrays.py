"""Array helpers that several modules share: orders, groups, means and F-scores."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional.averaging import divide


def stable_order(*keys: np.ndarray) -> np.ndarray:
    """Rows by the first key ascending, then the second, and so on, then as they stand.

    Keys are sorted 16 bits at a time, where NumPy's stable sort is a radix sort, from the last key to the first.

    Args:
        *keys: Integer, bool or float arrays of equal length, without NaN.

    Example:
        >>> stable_order(np.array([1, 0, 1]), np.array([0.5, 9.0, 0.25]))
        array([1, 2, 0])
    """
    order = None
    for key in reversed(keys):  # the last key decides least
        code = _sortable(np.asarray(key))
        bits = int(code.max()).bit_length() if len(code) else 0
        for shift in range(0, bits, 16):
            digits = (code >> code.dtype.type(shift)).astype(np.uint16)
            by_digit = np.argsort(digits if order is None else digits[order], kind="stable")
            order = by_digit if order is None else order[by_digit]
    return np.arange(len(keys[0])) if order is None else order


def _sortable(key: np.ndarray) -> np.ndarray:
    """Unsigned integers from 0 on that sort as the key does."""
    if key.dtype.kind == "b" or not len(key):
        return key.astype(np.uint8)
    if key.dtype.kind == "f":
        unsigned = np.dtype(f"u{key.dtype.itemsize}")
        sign = unsigned.type(1) << unsigned.type(8 * unsigned.itemsize - 1)
        # Flip all bits of negative numbers and the sign of the others: then the bits sort as the numbers do.
        bits = (key + key.dtype.type(0)).view(unsigned)  # -0.0 and 0.0 become one
        bits ^= np.where(bits >= sign, ~unsigned.type(0), sign)
        bits -= bits.min()
        return bits
    return (key - key.min()).view(f"u{key.dtype.itemsize}")


def group_starts(groups: np.ndarray) -> np.ndarray:
    """Where a new value begins in a sorted array.

    Example:
        >>> group_starts(np.array([3, 3, 5, 7, 7]))
        array([0, 2, 3])
    """
    if not len(groups):
        return np.empty(0, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(groups[1:] != groups[:-1]) + 1])


def position_in_group(groups: np.ndarray) -> np.ndarray:
    """How many rows of the same group stand before each row of a sorted array.

    Example:
        >>> position_in_group(np.array([3, 3, 5, 7, 7]))
        array([0, 1, 0, 0, 1])
    """
    starts = group_starts(groups)
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))


def mean_of_defined(values: np.ndarray) -> np.ndarray:
    """The mean along the last axis of what is not NaN; NaN where nothing is.

    Example:
        >>> mean_of_defined(np.array([[0.5, np.nan], [np.nan, np.nan]]))
        array([0.5, nan])
    """
    defined = ~np.isnan(values)
    return divide(np.where(defined, values, 0).sum(axis=-1), defined.sum(axis=-1))


def fbeta_score(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """The F-score of counts; NaN where all three are 0.

    Example:
        >>> fbeta_score(np.array([2, 0]), np.array([1, 0]), np.array([1, 0]))
        array([0.66666667,        nan])
    """
    squared = beta**2
    return divide((1 + squared) * tp, (1 + squared) * tp + squared * fn + fp)


def fbeta_of_rates(precision: np.ndarray, recall: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """The F-score of precisions and recalls, such as means over classes; 0 where both are 0.

    Example:
        >>> fbeta_of_rates(np.array([0.5, 0.0]), np.array([1.0, 0.0]))
        array([0.66666667, 0.        ])
    """
    weighted = beta**2 * precision + recall
    return np.where(weighted == 0, 0.0, divide((1 + beta**2) * precision * recall, weighted))
