"""Exact sums against math.fsum and rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm_metrics_plugin import MetricInputError
from mm_metrics_plugin.functional._exact_sum import MAX_SUMMAND, exact_limbs, exact_square, limbs_to_fractions

floats = st.floats(min_value=-MAX_SUMMAND, max_value=MAX_SUMMAND)


@given(st.lists(floats, max_size=40), st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_equals_rational_arithmetic_for_any_split(values, cut):
    array = np.array(values, dtype=np.float64)
    limbs = exact_limbs(array[:cut]) + exact_limbs(array[cut:])
    assert limbs_to_fractions(limbs) == [sum(map(Fraction, values))]


@pytest.mark.parametrize("scale", [1.0, 1e-320, 1e-300, 1e290])
def test_equals_fsum_on_many_values(scale):
    values = np.random.default_rng(0).standard_cauchy(50_000) * scale
    assert float(limbs_to_fractions(exact_limbs(values))[0]) == math.fsum(values)


def test_columns_are_summed_separately():
    values = np.random.default_rng(0).normal(size=(1000, 3, 2)) * np.logspace(-20, 20, 6).reshape(3, 2)
    limbs = exact_limbs(values)
    assert limbs.shape[:-1] == (3, 2)
    expected = [math.fsum(column) for column in values.reshape(1000, -1).T]
    assert [float(total) for total in limbs_to_fractions(limbs)] == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e301])
def test_values_too_large_to_sum_raise(value):
    with pytest.raises(MetricInputError, match="at most 1e"):
        exact_limbs(np.array([1.0, value]))


def test_sum_of_no_values_is_0():
    assert limbs_to_fractions(exact_limbs(np.zeros((0, 2)))) == [0, 0]


@given(st.floats(min_value=1e-140, max_value=1e150), st.sampled_from([1, -1]))
def test_square_and_rest_are_the_exact_square(size, sign):
    square, rest = exact_square(np.array([sign * size]))
    assert Fraction(float(square[0])) + Fraction(float(rest[0])) == Fraction(size) ** 2
