"""Confidence intervals of AUC compared with DeLong's definition."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.classification.auc import one_vs_rest_auc
from mm_metrics_plugin.functional.classification.delong import delong_ci, delong_test
from tests.helpers.interval_reference import auc_interval


def direct(first, second, positive):
    """AUCs and their covariance matrix by DeLong's definition, over all pairs."""
    placements = []
    for scores in (first, second):
        above, below = scores[positive], scores[~positive]
        kernel = (above[:, None] > below) + 0.5 * (above[:, None] == below)
        placements.append((kernel.mean(axis=1), kernel.mean(axis=0), kernel.mean()))
    of_positives, of_negatives = (np.cov(np.stack([part[side] for part in placements])) for side in (0, 1))
    number = positive.sum()
    return np.array([part[2] for part in placements]), of_positives / number + of_negatives / (len(first) - number)


@pytest.mark.parametrize("digits", [1, 8])
def test_delong_equals_its_definition(digits):
    random = np.random.default_rng(digits)
    labels = random.integers(0, 3, 70)
    first, second = (np.round(random.normal(size=(70, 3)) + np.eye(3)[labels], digits) for _ in range(2))
    actual, both = delong_ci([first[:30], first[30:]], labels, ci=0.9), delong_test([first], [second], labels)
    for label in range(3):
        aucs, covariance = direct(first[:, label], second[:, label], labels == label)
        assert actual.per_class.value[label] == pytest.approx(aucs[0], abs=1e-14)
        assert actual.standard_error[label] ** 2 == pytest.approx(covariance[0, 0], abs=1e-15)
        assert both.per_class.difference[label] == pytest.approx(aucs[1] - aucs[0], abs=1e-14)
        ends = [getattr(actual.per_class, name)[label] for name in ("value", "low", "high")]
        assert ends == pytest.approx(auc_interval(first[:, label], labels == label, 0.9), abs=1e-12)
    assert actual.per_class.value == pytest.approx(one_vs_rest_auc([first], labels), abs=1e-15)
    assert actual.macro.value == pytest.approx(actual.per_class.value.mean())


def test_separated_classes_have_an_interval_with_a_width():
    for positives, negatives in ((1, 1), (1, 50), (5, 5), (100, 100)):
        labels = np.repeat([1, 0], [positives, negatives])[:, None]
        for scores, value in ((labels + 0.0, 1.0), (-labels + 0.0, 0.0)):
            result = delong_ci([scores], labels)
            assert result.macro.value == value and result.macro.low <= value <= result.macro.high
            assert 0.01 < result.macro.high - result.macro.low < 0.999


def test_mean_has_an_interval_with_a_class_of_one_sample():
    random = np.random.default_rng(8)
    labels = np.array([0] * 30 + [1] * 30 + [2])
    result = delong_ci([random.random((61, 3)) + np.eye(3)[labels] * 0.5], labels)
    assert not np.isnan(result.per_class.low).any() and (result.per_class.low < result.per_class.high).all()
    assert 0 <= result.macro.low <= result.macro.value <= result.macro.high <= 1
    assert np.isnan(result.standard_error[2]) and not np.isnan(result.macro_standard_error)
    alone = delong_ci([random.random((61, 3)) + np.eye(3)[labels] * 0.5], np.where(labels == 2, 1, labels))
    assert result.macro.high - result.macro.low > alone.macro.high - alone.macro.low


def test_mean_of_two_complementary_classes_has_the_interval_of_one_class():
    random = np.random.default_rng(9)
    labels = random.integers(0, 2, 40)
    for score in (random.normal(size=40) + labels, labels + 0.0):
        result = delong_ci([np.stack([-score, score], axis=1)], labels)
        assert (result.macro.low, result.macro.high) == (result.per_class.low[0], result.per_class.high[0])
        assert result.macro_standard_error == pytest.approx(result.standard_error[0], abs=1e-15)


def test_undefined_aucs_are_nan():
    scores = np.random.default_rng(0).random((6, 3))
    result = delong_ci([scores], np.array([0, 0, 1, 1, 0, 1]))
    assert np.isnan(result.per_class.value[2]) and not np.isnan(result.macro.low)
    both = delong_test([scores], [scores], np.array([0, 0, 1, 1, 0, 1]))
    assert both.macro.p_value == 1 and np.isnan(both.per_class.p_value[2]) and both.macro.difference == 0
    with pytest.raises(MetricInputError, match="6 rows"):
        delong_test([scores], [scores[:5]], np.zeros(6, dtype=int))


def test_ignored_samples_do_not_count():
    random = np.random.default_rng(7)
    scores, labels = random.random((40, 1)), random.integers(-1, 2, (40, 1))
    kept = labels[:, 0] >= 0
    actual, expected = delong_ci([scores], labels), delong_ci([scores[kept]], labels[kept])
    assert actual.standard_error == pytest.approx(expected.standard_error) and actual.macro == expected.macro
