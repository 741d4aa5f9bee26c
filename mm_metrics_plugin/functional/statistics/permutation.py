"""Paired permutation tests of several figures at once, with the confidence intervals that belong to them.

If two runs were equally good, it would not matter which result of an image belongs to which run. So the runs are
swapped on a random half of the images, many times. The p-value is the share of these permutations, the observed one
among them, whose difference is at least as large as the observed one. It is never 0. The interval is d ± q, where q is
the quantile of the differences that the test compares with: 0 lies outside exactly where p <= 1 - ci.

Figures that are looked at together are a family. In a family a difference is divided by its standard deviation over the
permutations, and compared with the largest one of the family in every permutation (the max-T method of Westfall and
Young). If the runs are equally good, the probability that any figure of the family is called different is at most
1 - ci. The intervals are simultaneous: they are widened by the same quantile, so p-value and interval always agree.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple, Union

import numpy as np

_SAME = 1e-12  # differences closer than this are equal: sums in another order
_ROUNDING = 1e-9  # of 1 - ci


class FamilyTests(NamedTuple):
    """Tests of a family of differences; arrays with one value per figure, NaN where undefined.

    Attributes:
        low: Lower end of the simultaneous interval.
        high: Upper end of the simultaneous interval.
        p_value: Adjusted for the family.
        low_unadjusted: Lower end for this figure alone.
        high_unadjusted: Upper end for this figure alone.
        p_unadjusted: For this figure alone.
    """

    low: np.ndarray
    high: np.ndarray
    p_value: np.ndarray
    low_unadjusted: np.ndarray
    high_unadjusted: np.ndarray
    p_unadjusted: np.ndarray


def significant(p_value: Union[float, np.ndarray], *, ci: float) -> np.ndarray:
    """Whether p <= 1 - ci.

    Example:
        >>> significant(np.array([0.05, 0.051]), ci=0.95).tolist()
        [True, False]
    """
    return np.asarray(p_value) <= 1 - ci + _ROUNDING


def family_tests(observed: np.ndarray, permuted: np.ndarray, *, ci: float = 0.95) -> FamilyTests:
    """Tests every difference of a family.

    Args:
        observed: (F,) differences of the figures; NaN where undefined.
        permuted: (permutations, F) the same with the runs swapped on some images. Undefined ones count as extreme.
        ci: Confidence level of the intervals; the significance level is 1 - ci.

    Returns:
        Intervals lie in -1 to 1. They are NaN where no permutation changes the figure: the runs are then identical in
        it, with p = 1.

    Example:
        >>> permuted = np.random.default_rng(0).normal(size=(999, 2))
        >>> found = family_tests(np.array([0.9, -5.0]), permuted / 10, ci=0.95)
        >>> found.p_value.tolist(), (found.low < 0).tolist(), (found.high < 0).tolist()
        ([0.001, 0.001], [False, True], [False, True])
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
