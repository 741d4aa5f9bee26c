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

from typing import NamedTuple, Tuple, Union

import numpy as np

_SAME = 1e-12  # differences closer than this are equal: sums in another order
_ROUNDING = 1e-9  # of 1 - ci


class FamilyTests(NamedTuple):
    """Tests of a family of differences; arrays with one value per metric, NaN where undefined."""

    low: np.ndarray  # lower end of the simultaneous interval
    high: np.ndarray  # upper end of the simultaneous interval
    p_value: np.ndarray  # adjusted for the family
    low_unadjusted: np.ndarray  # lower end for this figure alone
    high_unadjusted: np.ndarray  # upper end for this figure alone
    p_unadjusted: np.ndarray  # for this figure alone


def significant(p_value: Union[float, np.ndarray], *, ci: float) -> np.ndarray:
    """Whether p <= 1 - ci."""
    return np.asarray(p_value) <= 1 - ci + _ROUNDING


def family_tests(observed: np.ndarray, permuted: np.ndarray, *, ci: float = 0.95) -> FamilyTests:
    """Tests every difference of a family.

    Args:
        observed: (F,) differences of the metrics; NaN where undefined.
        permuted: (permutations, F) the same with the runs swapped on some images. Undefined ones count as extreme.
        ci: Confidence level of the intervals; the significance level is 1 - ci.

    Returns:
        Intervals lie in -1 to 1. They are NaN, and p is 1, where no permutation changes the metric.
    """
    observed, permuted = np.asarray(observed, dtype=np.float64), np.asarray(permuted, dtype=np.float64)
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
    together = _compare(
        observed,
        relative,
        np.where(undefined, np.inf, largest[:, None]),
        np.full(len(size), relative.max(initial=0.0)),
        unit,
        ci,
    )
    parts = []
    for low, high, p_value in (together, alone):
        parts += [np.where(tested, low, np.nan), np.where(tested, high, np.nan)]
        parts.append(np.where(tested, p_value, np.where(np.isnan(observed), np.nan, 1.0)))
    return FamilyTests(*parts)


def _compare(
    observed: np.ndarray,
    statistic: np.ndarray,
    permuted: np.ndarray,
    identity: np.ndarray,
    unit: np.ndarray,
    ci: float,
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
