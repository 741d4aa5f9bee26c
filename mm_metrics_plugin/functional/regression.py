"""Regression errors from exact sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mm_metrics_plugin.functional._arrays import Result
from mm_metrics_plugin.functional._exact_sum import (
    LIMBS,
    MAX_SUMMAND,
    exact_limbs,
    exact_square,
    fraction_to_float,
    limbs_to_fractions,
)

MAX_VALUE = 1e149  # squares of larger numbers cannot be summed
_MIN_SQUARED = 1e-140  # smaller numbers are scaled by a power of two before they are squared, to keep all digits
_SCALE_BITS = 600
NUM_SUMS = 7  # of :func:`regression_sums`


@dataclass(frozen=True)
class RegressionResult(Result):
    """Regression errors; NaN where undefined."""

    mse: float  # mean squared error
    rmse: float  # root mean squared error
    mae: float  # mean absolute error
    percentage_error: float  # mean absolute percentage error as a fraction, over targets that are not 0
    r2: float  # coefficient of determination; NaN if all targets are equal, -inf below the range of float64
    max_error: float  # maximum absolute error
    count: int  # number of values
    zero_targets: int  # number of values without a percentage error


def regression_sums(
    predicted: np.ndarray, target: np.ndarray, *, percentage_floor: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sufficient statistics of :func:`regression_error`: limbs and counts, merged by sum; maxima, merged by max.

    The limbs are of the sums of squared errors, absolute errors, percentage errors, targets, squared targets, and of
    the squares of errors and targets below 1e-140, times 2^1200.
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
    percentages = np.where(percentage <= MAX_SUMMAND, percentage, 0)  # the mean is infinite if one overflows
    limbs = np.zeros((NUM_SUMS, LIMBS), dtype=np.int64)
    limbs[:5] = [exact_limbs(terms) for terms in (regular_error * regular_error, error, percentages, target, square)]
    if rest.any():
        limbs[4] += exact_limbs(rest)
    for row, tiny in ((5, tiny_error), (6, tiny_target)):
        if tiny.size:
            limbs[row] = sum(exact_limbs(part) for part in exact_square(tiny))
    largest = [values.max() if values.size else -np.inf for values in (error, percentage)]
    counts = np.array([error.size, error.size - np.count_nonzero(defined)], dtype=np.int64)
    return limbs, counts, np.array(largest)


def _by_size(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values with tiny ones set to 0, and the tiny values times 2^600."""
    size = np.abs(values)
    tiny = (size < _MIN_SQUARED) & (size > 0)
    if not tiny.any():
        return values, values[:0]
    return np.where(tiny, 0.0, values), np.ldexp(values[tiny], _SCALE_BITS)


def _root(value: Fraction) -> float:
    """The square root of a fraction, also below the range of float64."""
    if not value:
        return 0.0
    # A power of 4 scales the value to near 1, where float64 has full precision.
    half = (value.denominator.bit_length() - value.numerator.bit_length()) // 2
    return math.ldexp(math.sqrt(float(value * Fraction(4) ** half)), -half)


def regression_result(limbs: np.ndarray, counts: np.ndarray, largest: np.ndarray) -> RegressionResult:
    """The errors from the statistics of :func:`regression_sums`."""
    count, zero_targets = (int(number) for number in counts)
    if not count:
        nan = math.nan
        return RegressionResult(nan, nan, nan, nan, nan, nan, 0, 0)
    squared, absolute, percentage, target, target_squared, tiny_squared, tiny_target_squared = limbs_to_fractions(limbs)
    squared += tiny_squared / 4**_SCALE_BITS
    target_squared += tiny_target_squared / 4**_SCALE_BITS
    # Exact rational arithmetic avoids cancellation here.
    spread = target_squared - target * target / count
    mse = float(squared / count)
    mean_percentage = float(percentage / (count - zero_targets)) if count > zero_targets else math.nan
    if largest[1] > MAX_SUMMAND:
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
    """Regression errors. Sums are exact and rounded once.

    Args:
        predicted: Predictions of any shape, at most 1e149 in absolute value.
        target: Targets of the same shape.
        percentage_floor: Minimum absolute target in the percentage error (Keras: 1e-7, scikit-learn: 2.2e-16). With 0,
            targets of 0 are left out and counted.

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
