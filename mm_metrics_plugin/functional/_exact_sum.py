"""Exact sums of floats, independent of order, batches and processes.

Every finite float64 is a multiple of 2^-1074, so a sum is a long integer. It is stored as limbs of 32 bits in int64, so
limbs of batches and processes can be added.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Iterator

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError

# Largest absolute value that may be summed.
MAX_SUMMAND = 1e300
# 1074 bits below the point, 1024 above, 64 for the number of values.
LIMBS = 68
_POINT = 1074
_BLOCK = 1 << 14  # values that are split together and stay in the cache


def exact_limbs(values: np.ndarray) -> np.ndarray:
    """Exact sums over the first axis, as int64 limbs along a new last axis of length ``LIMBS``."""
    values = np.asarray(values, dtype=np.float64)
    columns = values.reshape(len(values), int(np.prod(values.shape[1:], dtype=np.int64)))
    totals = [0] * columns.shape[1]
    height = max(1, _BLOCK // max(1, len(totals)))
    for start in range(0, len(columns), height):
        for sums in _exact_parts(columns[start : start + height]):
            for index, part in enumerate(sums.tolist()):
                numerator, denominator = part.as_integer_ratio()
                totals[index] += numerator << (_POINT + 1 - denominator.bit_length())
    limbs = np.array([_to_limbs(total) for total in totals], dtype=np.int64)
    return limbs.reshape(*values.shape[1:], LIMBS)


def _exact_parts(rest: np.ndarray) -> Iterator[np.ndarray]:
    """Exact sums of the leading bits of the columns, then of the remaining bits, until none are left.

    Adding and subtracting a large power of two truncates a value to a multiple of that power's last bit. Sums of such
    multiples need no rounding (Rump, Ogita and Oishi, SIAM J. Sci. Comput. 31, 2008).
    """
    room = (len(rest) + 2).bit_length()
    while rest.size:
        largest = np.abs(rest).max()
        if largest == 0:
            return
        if not largest <= MAX_SUMMAND:
            raise MetricInputError(f"values to be summed must be at most {MAX_SUMMAND:g} in size (found {largest})")
        cut = np.ldexp(1.0, int(np.frexp(largest)[1]) + room)
        leading = rest + cut
        leading -= cut
        yield leading.sum(axis=0)
        rest = rest - leading


def _to_limbs(total: int) -> np.ndarray:
    limbs = np.frombuffer(abs(total).to_bytes(4 * LIMBS, "little"), dtype="<u4").astype(np.int64)
    return limbs if total >= 0 else -limbs


def split_values(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of any dtype as float64, and the rounding error of each."""
    values = np.asarray(values)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        upper = (values >> values.dtype.type(32)).astype(np.float64) * 2.0**32
        lower = (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64)
        rounded = upper + lower
        return rounded, lower - (rounded - upper)
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float64)
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        finite = np.isfinite(rounded)
        return rounded, np.where(finite, values - np.where(finite, rounded, 0), 0).astype(np.float64)
    return rounded, np.zeros_like(rounded)


def fraction_to_float(value: Fraction) -> float:
    """The nearest float64; infinite beyond its range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def limbs_to_fractions(limbs: np.ndarray) -> list[Fraction]:
    """The sums that limbs stand for, as exact fractions."""
    rows = np.asarray(limbs).reshape(-1, LIMBS)
    return [
        Fraction(sum(int(row[index]) << (32 * int(index)) for index in np.flatnonzero(row)), 1 << _POINT)
        for row in rows
    ]


def exact_square(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squares of values that are 0 or between 1e-140 and 1e150, and their rounding errors (Veltkamp and Dekker)."""
    square = values * values
    scaled = values * 134217729.0  # 2^27 + 1 leaves 26 bits in the upper half
    upper = scaled - (scaled - values)
    lower = values - upper
    return square, ((upper * upper - square) + 2 * upper * lower) + lower * lower
