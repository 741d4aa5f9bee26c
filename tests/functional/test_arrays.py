"""Helpers for arrays beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.functional._arrays import stable_order


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stable_order_equals_lexsort(dtype):
    random = np.random.default_rng(3)
    for size in (0, 1, 2, 1000):
        scores = random.choice(np.array([-np.inf, -1.5, -0.0, 0.0, 1e-30, 0.25, 3, 1e30]), size).astype(dtype)
        for keys in (
            [random.integers(-3, 3, size), scores],
            [random.integers(0, 2**40, size), random.integers(0, 2, size).astype(bool)],
            [-scores, random.integers(65_530, 65_550, size)],
        ):
            np.testing.assert_array_equal(stable_order(*keys), np.lexsort(keys[::-1]))


def test_stable_order_of_narrow_integers_does_not_overflow():
    assert stable_order(np.array([2**31 - 1, -(2**31), 0], dtype=np.int32)).tolist() == [1, 2, 0]
