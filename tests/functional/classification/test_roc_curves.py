"""KS statistic compared with SciPy, best points of curves, and thinned curves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ks_2samp

from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.classification.auc import one_vs_one_auc, roc_auc
from mm_metrics_plugin.functional.classification.roc_curves import (
    corner_curve,
    count_curve,
    ks_statistic,
    roc_curves,
    thinned_curves,
)

scores_and_labels = st.integers(2, 30).flatmap(
    lambda n: st.tuples(
        arrays(np.float64, (n, 1), elements=st.integers(0, 12).map(lambda i: i / 12)),
        arrays(np.int8, (n, 1), elements=st.sampled_from([0, 1, 1, 0, -1])),
    )
)


@settings(max_examples=150, deadline=None)
@given(scores_and_labels)
def test_ks_equals_scipy_and_is_reached_at_its_threshold(problem):
    scores, labels = problem
    positive, negative = scores[labels == 1], scores[labels == 0]
    result = ks_statistic([scores], labels)
    (value,), (threshold,) = result.per_class, result.thresholds
    if not len(positive) or not len(negative):
        assert np.isnan(value) and np.isnan(threshold) and np.isnan(roc_auc([scores], labels).value)
        return
    assert value == pytest.approx(ks_2samp(positive, negative, "less", "asymp").statistic, abs=1e-12)
    assert np.mean(positive >= threshold) - np.mean(negative >= threshold) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_corners_of_a_curve_have_its_best_thresholds(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 30))
    scores = random.integers(0, random.choice([2, 8, 100]), size).astype(np.float32)
    positive = random.random(size) < random.choice([0.0, 0.1, 0.5, 1.0])
    ranked, positives = np.sort(scores), np.sort(scores[positive])
    whole, corners = count_curve(ranked, positives), corner_curve(ranked, positives)
    np.testing.assert_array_equal(corners.youden(), whole.youden())
    specificity = divide(whole.negatives - whole.fp, np.full(len(whole.fp), whole.negatives))
    for level in (0.0, 0.3, 0.5, 0.95, 1.0):
        for name, constrained, maximized, without_points in (
            ("sensitivity_at", specificity, whole.recall, (0.0, np.inf)),
            ("specificity_at", whole.recall, specificity, (1.0, np.inf)),
        ):
            allowed = np.flatnonzero(constrained >= level)
            if not positive.any() or positive.all():
                expected = (np.nan, np.nan)
            elif not len(allowed) or (name == "specificity_at" and level == 0):
                expected = without_points
            else:
                best = allowed[maximized[allowed].argmax()]
                expected = (maximized[best], whole.thresholds[best])
            np.testing.assert_array_equal(getattr(whole, name)(level), expected)
            np.testing.assert_array_equal(getattr(corners, name)(level), expected)


def test_absent_classes_are_nan_and_left_out():
    random = np.random.default_rng(0)
    scores, labels = random.random((60, 5)), np.arange(60) % 4
    result = roc_auc([scores], labels)
    assert np.isnan(result.per_class[4]) and result.classes_averaged == 4
    assert result.value == np.nanmean(result.per_class)
    assert np.isnan(one_vs_one_auc([scores], labels)[4]).all()
    assert np.isnan(roc_curves([scores], labels).youden()[0]).tolist() == [False] * 4 + [True]


def test_thinned_curves_are_points_of_the_exact_ones():
    random = np.random.default_rng(0)
    labels = random.integers(0, 20, 4000)
    scores = random.random((4000, 20)).astype(np.float32)
    scores[np.arange(4000), labels] += 0.5
    exact, thinned = roc_curves([scores], labels), thinned_curves(scores, labels, max_points=80)
    areas = roc_auc([scores], labels).per_class
    for area, whole, thin in zip(areas, exact.per_class, thinned.per_class):
        points = set(zip(whole.thresholds.tolist(), whole.tp.tolist(), whole.fp.tolist()))
        assert set(zip(thin.thresholds.tolist(), thin.tp.tolist(), thin.fp.tolist())) <= points
        assert 40 < len(thin.thresholds) <= 84 and thin.youden() == whole.youden()
        assert thin.f_score().max() == whole.f_score().max()
        x, y = np.append(0, thin.false_positive_rate), np.append(0, thin.recall)
        assert np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) == pytest.approx(area, abs=2e-3)
