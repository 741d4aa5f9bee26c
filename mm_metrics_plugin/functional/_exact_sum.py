"""Sums of floats without rounding, so that no order, batch or process can change a digit.

Every finite float64 is a multiple of 2^-1074, so a sum is a long integer. It is kept in limbs of 32 bits in int64, and
limbs of several batches or processes can be added.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Iterator, List, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError

# Nothing larger may be summed: there must be room above for the sums.
LARGEST = 1e300
# 1074 bits below the point, 1024 above, 64 for the number of values.
LIMBS = 68
_POINT = 1074
# Values that are split together; their sums and the bits that are cut off stay in the processor's cache.
_BLOCK = 1 << 14


def exact_limbs(values: np.ndarray) -> np.ndarray:
    """The exact sums over the first axis, as limbs: int64 of the shape of one row with a last axis of ``LIMBS``."""
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
    """Sums of the columns' leading bits, then of the bits after them, until none are left; each sum is exact.

    Adding and subtracting a large power of two cuts a value to a multiple of that power's last bit. As many such
    multiples as there are rows add up without rounding (Rump, Ogita and Oishi, SIAM J. Sci. Comput. 31, 2008).
    """
    room = (len(rest) + 2).bit_length()
    while rest.size:
        largest = np.abs(rest).max()
        if largest == 0:
            return
        if not largest <= LARGEST:
            raise MetricInputError(f"values to be summed must be at most {LARGEST:g} in size (found {largest})")
        cut = np.ldexp(1.0, int(np.frexp(largest)[1]) + room)
        leading = rest + cut
        leading -= cut
        yield leading.sum(axis=0)
        rest = rest - leading


def _to_limbs(total: int) -> np.ndarray:
    limbs = np.frombuffer(abs(total).to_bytes(4 * LIMBS, "little"), dtype="<u4").astype(np.int64)
    return limbs if total >= 0 else -limbs


def split_values(values: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Numbers of any dtype as float64, and the rounding error of each: the two sum to the exact number.

    Example:
        >>> rounded, rest = split_values(np.array([2**60 + 1, -3]))
        >>> rounded.tolist() == [2.0**60, -3.0], rest.tolist()
        (True, [1.0, 0.0])
    """
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
    """The float64 nearest to a fraction; infinite beyond the range of float64."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def limbs_to_fractions(limbs: np.ndarray) -> List[Fraction]:
    """The exact sums of limbs; ``float()`` of one is correctly rounded."""
    rows = np.asarray(limbs).reshape(-1, LIMBS)
    return [
        Fraction(sum(int(row[index]) << (32 * int(index)) for index in np.flatnonzero(row)), 1 << _POINT)
        for row in rows
    ]


def exact_square(values: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Squares of values that are 0 or between 1e-140 and 1e150, and their rounding errors (Veltkamp and Dekker)."""
    square = values * values
    scaled = values * 134217729.0  # 2^27 + 1 leaves 26 bits in the upper half
    upper = scaled - (scaled - values)
    lower = values - upper
    return square, ((upper * upper - square) + 2 * upper * lower) + lower * lower
