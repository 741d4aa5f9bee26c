"""Curves of classifiers beside scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.classification.roc_curves import (
    corner_curve,
    count_curve,
    ks_statistic,
    roc_curves,
    thinned_curves,
)


@pytest.mark.parametrize("seed", range(40))
def test_the_corners_of_a_curve_have_its_best_thresholds(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 30))
    scores = random.integers(0, random.choice([2, 8, 100]), size).astype(np.float32)
    own = random.random(size) < random.choice([0.0, 0.1, 0.5, 1.0])
    ranked, positives = np.sort(scores), np.sort(scores[own])
    whole, corners = count_curve(ranked, positives), corner_curve(ranked, positives)
    np.testing.assert_array_equal(corners.youden(), whole.youden())
    specificity = divide(whole.negatives - whole.fp, np.full(len(whole.fp), whole.negatives))
    for level in (0.0, 0.3, 0.5, 0.95, 1.0):
        for name, held, wanted, nothing in (
            ("sensitivity_at", specificity, whole.recall, (0.0, np.inf)),
            ("specificity_at", whole.recall, specificity, (1.0, np.inf)),
        ):
            allowed = np.flatnonzero(held >= level)
            if not own.any() or own.all():
                expected = (np.nan, np.nan)
            elif not len(allowed) or (name == "specificity_at" and level == 0):
                expected = nothing
            else:
                best = allowed[wanted[allowed].argmax()]
                expected = (wanted[best], whole.thresholds[best])
            np.testing.assert_array_equal(getattr(whole, name)(level), expected)
            np.testing.assert_array_equal(getattr(corners, name)(level), expected)


@pytest.mark.parametrize("digits", [1, 6])
def test_classification_curves_are_those_of_scikit_learn(digits):
    pytest.importorskip("sklearn", minversion="1.1")  # older ones end the curve where recall is reached
    random = np.random.default_rng(digits)
    labels = random.integers(0, 3, 200)
    scores = np.round(random.random((200, 3)) + np.eye(3)[labels] * 0.3, digits)
    curves = roc_curves([scores[:90], scores[90:]], labels)
    for label, curve in enumerate(curves.per_class):
        fpr, tpr, thresholds = metrics.roc_curve(labels == label, scores[:, label], drop_intermediate=False)
        assert np.allclose(curve.false_positive_rate, fpr[1:], rtol=0, atol=1e-15)
        assert np.allclose(curve.recall, tpr[1:], rtol=0, atol=1e-15)
        assert np.array_equal(curve.thresholds, thresholds[1:])
        precision, recall, _ = metrics.precision_recall_curve(labels == label, scores[:, label])
        assert np.allclose(curve.precision[::-1], precision[:-1], rtol=0, atol=1e-15)
        assert np.allclose(curve.recall[::-1], recall[:-1], rtol=0, atol=1e-15)
        for floor in (0.2, 0.5, 0.9, 1.0):
            allowed = 1 - fpr >= floor
            assert curve.sensitivity_at(floor)[0] == pytest.approx(tpr[allowed].max(), abs=1e-15)
            allowed = tpr >= floor
            assert curve.specificity_at(floor)[0] == pytest.approx((1 - fpr)[allowed].max(), abs=1e-15)
            value, threshold = curve.sensitivity_at(floor)
            assert np.mean(scores[labels == label, label] >= threshold) == pytest.approx(value, abs=1e-15)
    ks = ks_statistic([scores], labels)
    value, threshold = curves.youden()
    assert np.array_equal(value, ks.per_class) and np.array_equal(threshold, ks.thresholds)


def test_a_class_without_samples_has_no_point():
    curves = roc_curves([np.array([[0.2, 0.8], [0.4, 0.6]])], np.array([1, 1]))
    assert np.isnan(curves.youden()[0]).all() and all(np.isnan(one.sensitivity_at(0.5)[1]) for one in curves.per_class)
    curve = roc_curves([np.array([[0.1], [0.9]])], np.array([[1], [0]])).per_class[0]
    assert curve.sensitivity_at(1.0) == (0.0, float("inf"))
    assert curve.specificity_at(0.0) == (1.0, float("inf"))


def test_thinned_curves_are_points_of_the_exact_ones():
    random = np.random.default_rng(0)
    labels = random.integers(0, 20, 4000)
    scores = random.random((4000, 20)).astype(np.float32)
    scores[np.arange(4000), labels] += 0.5
    exact, thin = roc_curves([scores], labels), thinned_curves(scores, labels, max_points=80)
    for label, (whole, few) in enumerate(zip(exact.per_class, thin.per_class)):
        points = set(zip(whole.thresholds.tolist(), whole.tp.tolist(), whole.fp.tolist()))
        assert set(zip(few.thresholds.tolist(), few.tp.tolist(), few.fp.tolist())) <= points
        assert 40 < len(few.thresholds) <= 84 and few.youden() == whole.youden()
        assert few.f_score().max() == whole.f_score().max()
        area = metrics.auc(np.append(0, few.false_positive_rate), np.append(0, few.recall))
        assert area == pytest.approx(metrics.roc_auc_score(labels == label, scores[:, label]), abs=2e-3)
