"""Array helpers compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.functional._arrays import stable_order, worst_first


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


@pytest.mark.parametrize("most", [0, 30, 90, 1000])
def test_worst_rows_of_every_group(most):
    random = np.random.default_rng(1)
    group, severity = random.integers(0, 25, 400), np.round(random.random(400), 1)
    rows, limit = worst_first(group, severity, np.arange(400), per_group=7, most=most)
    assert len(rows) <= max(most, 25) and 1 <= limit <= 7
    for number in range(25):
        own = sorted(np.flatnonzero(group == number), key=lambda row: (-severity[row], row))
        assert rows[group[rows] == number].tolist() == own[:limit]
