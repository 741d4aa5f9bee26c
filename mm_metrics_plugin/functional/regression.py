"""Errors of predicted numbers, computed without rounding until the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result
from mm_metrics_plugin.functional._exact_sum import (
    LARGEST,
    LIMBS,
    exact_limbs,
    exact_square,
    fraction_to_float,
    limbs_to_fractions,
)

# Squares of larger numbers could not be summed.
LARGEST_VALUE = 1e149
# Squares of smaller numbers would lose digits, or be 0: such numbers are multiplied by a power of two first.
_SMALLEST_SQUARED = 1e-140
_SCALE_BITS = 600
NUM_SUMS = 7  # of :func:`regression_sums`


@dataclass(frozen=True)
class RegressionResult(Result):
    """The errors of some predictions; NaN where undefined."""

    mse: float  # mean squared error
    rmse: float  # its root
    mae: float  # mean absolute error
    percentage_error: float  # mean of the absolute error as a fraction of the target, over the targets that are not 0
    r2: float  # coefficient of determination; NaN if all targets are equal, -inf below the range of float64
    max_error: float  # the largest absolute error
    count: int  # how many values were compared
    zero_targets: int  # how many of them have no percentage error


def regression_sums(
    predicted: np.ndarray, target: np.ndarray, *, percentage_floor: float = 0.0
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sums that determine all errors; arguments as in :func:`regression_error`.

    Returns the limbs of the sums of squared errors, absolute errors, percentage errors, targets, squared targets, and
    of the squares of errors and targets below 1e-140, times 2^1200; the number of values and of those without a
    percentage error; the largest error and percentage error. Merging adds the first two and takes the maximum of the
    third.
    """
    predicted = np.asarray(predicted, dtype=np.float64).reshape(-1)
    target = np.asarray(target, dtype=np.float64).reshape(-1)
    error = np.abs(predicted - target)
    base = np.maximum(np.abs(target), percentage_floor)
    defined = base > 0
    with np.errstate(over="ignore"):
        percentage = np.divide(error, base, out=np.zeros_like(error), where=defined)
    (regular_error, tiny_error), (regular_target, tiny_target) = _by_size(error), _by_size(target)
    square, rest = exact_square(regular_target)
    percentages = np.where(percentage <= LARGEST, percentage, 0)  # one that overflows is infinite, and so is the mean
    limbs = np.zeros((NUM_SUMS, LIMBS), dtype=np.int64)
    limbs[:5] = [exact_limbs(one) for one in (regular_error * regular_error, error, percentages, target, square)]
    if rest.any():
        limbs[4] += exact_limbs(rest)
    for row, tiny in ((5, tiny_error), (6, tiny_target)):
        if tiny.size:
            limbs[row] = sum(exact_limbs(part) for part in exact_square(tiny))
    largest = [values.max() if values.size else -np.inf for values in (error, percentage)]
    counts = np.array([error.size, error.size - np.count_nonzero(defined)], dtype=np.int64)
    return limbs, counts, np.array(largest)


def _by_size(values: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """The values with 0 for those whose squares would lose digits, and those values times 2^600."""
    size = np.abs(values)
    tiny = (size < _SMALLEST_SQUARED) & (size > 0)
    if not tiny.any():
        return values, values[:0]
    return np.where(tiny, 0.0, values), np.ldexp(values[tiny], _SCALE_BITS)


def _root(value: Fraction) -> float:
    """The square root, also of a value that is too small for float64."""
    if not value:
        return 0.0
    # A power of 4 brings the value near 1, where it has all its digits.
    half = (value.denominator.bit_length() - value.numerator.bit_length()) // 2
    return math.ldexp(math.sqrt(float(value * Fraction(4) ** half)), -half)


def regression_result(limbs: np.ndarray, counts: np.ndarray, largest: np.ndarray) -> RegressionResult:
    """The errors from the sums of :func:`regression_sums`."""
    count, zero_targets = (int(number) for number in counts)
    if not count:
        nan = math.nan
        return RegressionResult(nan, nan, nan, nan, nan, nan, 0, 0)
    squared, absolute, percentage, target, target_squared, tiny_squared, tiny_target_squared = limbs_to_fractions(limbs)
    squared += tiny_squared / 4**_SCALE_BITS
    target_squared += tiny_target_squared / 4**_SCALE_BITS
    # Rational arithmetic: sums of squares as large as the squared mean cancel here without losing a digit.
    spread = target_squared - target * target / count
    mse = float(squared / count)
    mean_percentage = float(percentage / (count - zero_targets)) if count > zero_targets else math.nan
    if largest[1] > LARGEST:
        mean_percentage = math.inf
    return RegressionResult(
        mse=mse,
        rmse=_root(squared / count),
        mae=float(absolute / count),
        percentage_error=mean_percentage,
        r2=fraction_to_float(1 - squared / spread) if spread > 0 else math.nan,
        max_error=float(largest[0]),
        count=count,
        zero_targets=zero_targets,
    )


def regression_error(predicted: np.ndarray, target: np.ndarray, *, percentage_floor: float = 0.0) -> RegressionResult:
    """Errors of predictions. Means and sums are rounded once, at the end.

    Args:
        predicted: Numbers of at most 1e149 in size, in any shape.
        target: The true numbers, in the same shape.
        percentage_floor: Smaller targets count as this large in the percentage error. With 0, targets of 0 are left out
            and counted. Keras takes 1e-7, scikit-learn 2.2e-16.

    Example:
        >>> print(regression_error(np.array([2.5, 0.0, 2.0, 8.0]), np.array([3.0, -0.5, 2.0, 7.0])))
        mse               0.375
        rmse              0.612372
        mae               0.5
        percentage_error  0.327381
        r2                0.948608
        max_error         1
        count             4
        zero_targets      0
    """
    return regression_result(*regression_sums(predicted, target, percentage_floor=percentage_floor))
