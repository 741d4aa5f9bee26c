"""Regression errors compared with math.fsum and rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm_metrics_plugin.functional.regression import regression_error

# Squares of smaller numbers than these are too small for float64.
values = st.just(0.0) | st.floats(1e-100, 1e6) | st.floats(-1e6, -1e-100)


@given(st.lists(st.tuples(values, values), min_size=2, max_size=30))
@settings(max_examples=60, deadline=None)
def test_equals_fsum(pairs):
    predicted, target = np.array(pairs).T
    actual = regression_error(predicted, target)
    errors = predicted - target
    assert actual.mse == pytest.approx(math.fsum(errors**2) / len(errors), rel=1e-15)
    assert actual.mae == pytest.approx(math.fsum(np.abs(errors)) / len(errors), rel=1e-15)
    assert actual.max_error == np.abs(errors).max()
    exact = [Fraction(value) for value in target]
    spread = sum((value - sum(exact) / len(exact)) ** 2 for value in exact)
    if spread:
        residual = sum(Fraction(float(error**2)) for error in errors)
        assert actual.r2 == pytest.approx(float(1 - residual / spread), rel=1e-14, abs=1e-14)
    else:
        assert math.isnan(actual.r2)


def test_r2_is_accurate_for_a_mean_of_1e8():
    """Sums of squares in float64, a common implementation, are wrong in the first digit here."""
    generator = np.random.default_rng(0)
    target = 1e8 + generator.normal(0, 1e-3, 10_000)
    predicted = target + generator.normal(0, 1e-4, 10_000)
    actual = regression_error(predicted, target)
    mean = math.fsum(target) / target.size
    residual = math.fsum((predicted - target) ** 2)
    # Differences from the (rounded) mean are exact here; the second sum takes the mean's own rounding out again.
    spread = math.fsum((target - mean) ** 2) - math.fsum(target - mean) ** 2 / target.size
    assert actual.r2 == pytest.approx(1 - residual / spread, rel=1e-12)
    assert actual.mse == pytest.approx(residual / target.size, rel=1e-15)
    naive = (target**2).sum() - target.sum() ** 2 / target.size
    assert not math.isclose(naive, spread, rel_tol=0.1)


def test_a_percentage_that_overflows_is_infinite():
    actual = regression_error(np.array([1e100, 1.0]), np.array([1e-300, 1.0]))
    assert actual.percentage_error == math.inf
    assert actual.mae == 5e99


def test_undefined_errors_are_nan():
    constant = regression_error(np.array([1.0, 2.0]), np.array([3.0, 3.0]))
    assert math.isnan(constant.r2)
    assert constant.mae == 1.5
    assert math.isnan(regression_error(np.ones(2), np.zeros(2)).percentage_error)
    nothing = regression_error(np.zeros(0), np.zeros(0))
    assert nothing.count == 0
    assert all(math.isnan(getattr(nothing, name)) for name in ("mse", "rmse", "mae", "percentage_error", "r2"))
