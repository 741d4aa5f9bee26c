"""Paired permutation tests of several metrics at once, with confidence intervals that agree with them.

If two runs are equally good, their results on an image are exchangeable. So the runs are swapped on a random half of
the images, many times. The p-value is the share of these permutations, the observed one included, whose difference is
at least as large as the observed one. The interval is d ± q, where q is the quantile of the differences that the test
uses: 0 lies outside exactly where p <= 1 - ci.

Metrics that are reported together are a family. Each difference is divided by its standard deviation over the
permutations and compared with the largest one of the family in every permutation (the max-T method of Westfall and
Young), so the family-wise error rate is at most 1 - ci. The intervals are simultaneous: they use the same quantile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Tuple, Union

import numpy as np

from mm_metrics_plugin.functional._arrays import Result

_SAME = 1e-12  # differences closer than this are equal: sums in another order
_ROUNDING = 1e-9  # of 1 - ci


@dataclass(frozen=True)
class Difference(Result):
    """One metric of two runs, or a family of tests: floats, or arrays with one value per metric or class.

    The adjusted values are for metrics that are tested together, the unadjusted ones for a metric that was chosen
    before the results were known.
    """

    first: Any  # of the first run
    second: Any  # of the second run
    difference: Any  # second minus first; NaN where undefined
    low: Any  # lower end of the simultaneous interval; NaN where the runs are identical
    high: Any  # upper end of the simultaneous interval
    p_value: Any  # adjusted for the family; never 0
    low_unadjusted: Any
    high_unadjusted: Any
    p_unadjusted: Any

    def at(self, index: int) -> Difference:
        """One of the family."""
        return Difference(*(column[index].item() for column in vars(self).values()))

    def __str__(self) -> str:
        if np.ndim(self.first):
            return "; ".join(str(self.at(index)) for index in range(len(self.first)))
        return f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}], p = {self.p_value:.3g}"


def significant(p_value: Union[float, np.ndarray], *, ci: float) -> np.ndarray:
    """Whether p <= 1 - ci."""
    return np.asarray(p_value) <= 1 - ci + _ROUNDING


def family_tests(first: np.ndarray, second: np.ndarray, permuted: np.ndarray, *, ci: float = 0.95) -> Difference:
    """Tests every difference of a family: (F,) metrics of both runs, NaN where undefined.

    ``permuted`` (permutations, F) has the differences with the runs swapped on some images; undefined ones count as
    extreme. Intervals lie in -1 to 1. They are NaN, and p is 1, where no permutation changes the metric.
    """
    observed = second - first
    size = np.abs(observed)
    swapped = np.abs(permuted)
    swapped = np.where(np.abs(swapped - size) <= _SAME, size, swapped)
    undefined = np.isnan(swapped)
    known = np.where(undefined, 0.0, swapped)
    scale = np.sqrt((np.square(known).sum(axis=0) + np.nan_to_num(size) ** 2) / (len(known) + 1))
    tested = ~np.isnan(observed) & (scale > _SAME)
    alone = _compare(observed, size, np.where(undefined, np.inf, swapped), size, np.ones_like(scale), ci)
    unit = np.where(tested, scale, 1.0)
    relative = np.where(tested, size, 0.0) / unit
    largest = (np.where(tested, known, 0.0) / unit).max(axis=1, initial=0.0)
    extreme, identity = np.where(undefined, np.inf, largest[:, None]), np.full(len(size), relative.max(initial=0.0))
    together = _compare(observed, relative, extreme, identity, unit, ci)
    parts = []
    for low, high, p_value in (together, alone):
        parts += [np.where(tested, low, np.nan), np.where(tested, high, np.nan)]
        parts.append(np.where(tested, p_value, np.where(np.isnan(observed), np.nan, 1.0)))
    return Difference(first, second, observed, *parts)


def _compare(
    observed: np.ndarray, statistic: np.ndarray, permuted: np.ndarray, identity: np.ndarray, unit: np.ndarray, ci: float
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Low, high and p-value. ``identity`` is the statistic of the observed arrangement, one of the permutations."""
    number = len(permuted) + 1
    count = 1 + (permuted >= statistic).sum(axis=0)
    allowed = min(int(np.floor((1 - ci + _ROUNDING) * number)), number - 1)
    # At most `allowed` of all arrangements are as extreme exactly if the next largest one is less extreme.
    every = np.concatenate([permuted, identity[None]])
    quantile = -np.partition(-every, allowed, axis=0)[allowed] * unit
    size = np.abs(observed)
    half = np.where(count <= allowed, np.minimum(quantile, np.nextafter(size, 0.0)), np.maximum(quantile, size))
    return np.clip(observed - half, -1.0, 1.0), np.clip(observed + half, -1.0, 1.0), count / number
