"""Classification and regression metrics compared with scikit-learn."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as sklearn
from sklearn.calibration import calibration_curve

from mm_metrics_plugin.functional.classification.auc import one_vs_rest_auc, roc_auc
from mm_metrics_plugin.functional.classification.calibration_error import brier_terms, calibration_error, log_terms
from mm_metrics_plugin.functional.classification.confusion_matrix import confusion_matrix_report
from mm_metrics_plugin.functional.classification.roc_curves import ks_statistic, roc_curves
from mm_metrics_plugin.functional.ranking import label_ranks
from mm_metrics_plugin.functional.regression import regression_error
from mm_metrics_plugin.functional.segmentation import count_label_pairs
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.counts import ConfusionState

CLOSE = {"rtol": 0, "atol": 1e-12}
AREAS = {"roc": sklearn.roc_auc_score, "pr": sklearn.average_precision_score}


def scored(seed, *, samples=300, classes=5, digits=2, dtype=np.float64):
    """Read-only scores with ties and a signal, and labels; the last class is three times as frequent as the others."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.minimum(np.arange(samples) % (classes + 2), classes - 1))
    logits = generator.normal(size=(samples, classes))
    logits[np.arange(samples), labels] += 1
    scores = np.round(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), digits)
    scores = scores.astype(dtype)
    for array in (scores, labels):
        array.setflags(write=False)
    return scores, labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [1, 2, 9])
@pytest.mark.parametrize("classes", [5, 40])  # 40 columns are more than one tile
def test_auc_and_average_precision(seed, digits, classes):
    scores, labels = scored(seed, classes=classes, digits=digits, dtype=np.float32)
    target, blocks = np.eye(classes)[labels], np.split(scores, [1, 2, 100])
    for curve, reference in AREAS.items():
        per_class = one_vs_rest_auc(blocks, labels, curve=curve)
        np.testing.assert_allclose(per_class, reference(target, scores, average=None), **CLOSE)
        for average in ("macro", "weighted", "micro"):
            result = roc_auc(blocks, labels, average=average, curve=curve)
            np.testing.assert_allclose(result.value, reference(target, scores, average=average), **CLOSE)
            np.testing.assert_array_equal(result.per_class, per_class)
    for max_fpr in (0.05, 0.3, 1.0):
        expected = [sklearn.roc_auc_score(target[:, c], scores[:, c], max_fpr=max_fpr) for c in range(classes)]
        np.testing.assert_allclose(one_vs_rest_auc(blocks, labels, max_fpr=max_fpr), expected, **CLOSE)
    assert len(roc_auc(blocks, labels, average="micro", classwise=False).per_class) == 0


@pytest.mark.parametrize("seed", range(10))
def test_one_vs_one_auc(seed):
    scores, labels = scored(seed)
    scores = (scores + 0.01) / (scores + 0.01).sum(axis=1, keepdims=True)  # no row of zeros
    for average in ("macro", "weighted"):
        expected = sklearn.roc_auc_score(labels, scores, multi_class="ovo", average=average)
        result = roc_auc([scores], labels, multi_class="ovo", average=average)
        assert result.value == pytest.approx(expected, abs=1e-12)
    for first in range(5):  # the value of a class is the mean of its pairs
        pairs = [np.isin(labels, [first, second]) for second in set(range(5)) - {first}]
        aucs = [[sklearn.roc_auc_score(labels[b] == c, scores[b, c]) for c in np.unique(labels[b])] for b in pairs]
        assert result.per_class[first] == pytest.approx(np.mean(aucs), abs=1e-12)


@pytest.mark.parametrize("curve", AREAS)
@pytest.mark.parametrize("lowest", [-1, 0])
def test_multi_label_auc(curve, lowest):
    """Labels of -1 are ignored."""
    scores, _ = scored(1)
    target = np.random.default_rng(1).integers(lowest, 2, scores.shape)
    expected = [AREAS[curve](target[target[:, c] >= 0, c], scores[target[:, c] >= 0, c]) for c in range(5)]
    np.testing.assert_allclose(roc_auc([scores], target, curve=curve).per_class, expected, **CLOSE)
    micro = roc_auc([scores[:100], scores[100:]], target, curve=curve, average="micro").value
    assert micro == pytest.approx(AREAS[curve](target[target >= 0], scores[target >= 0]), abs=1e-12)


@pytest.mark.parametrize("digits", [1, 6])
def test_roc_and_precision_recall_curves(digits):
    pytest.importorskip("sklearn", minversion="1.1")  # older versions end the curve where recall is 1
    scores, labels = scored(digits, classes=3, digits=digits)
    curves = roc_curves([scores[:90], scores[90:]], labels)
    for label, curve in enumerate(curves.per_class):
        fpr, tpr, thresholds = sklearn.roc_curve(labels == label, scores[:, label], drop_intermediate=False)
        np.testing.assert_allclose(curve.false_positive_rate, fpr[1:], rtol=0, atol=1e-15)
        np.testing.assert_allclose(curve.recall, tpr[1:], rtol=0, atol=1e-15)
        np.testing.assert_array_equal(curve.thresholds, thresholds[1:])
        precision, *_ = sklearn.precision_recall_curve(labels == label, scores[:, label])
        np.testing.assert_allclose(curve.precision[::-1], precision[:-1], rtol=0, atol=1e-15)
        for level in (0.2, 0.5, 0.9, 1.0):
            assert curve.sensitivity_at(level)[0] == pytest.approx(tpr[1 - fpr >= level].max(), abs=1e-15)
            assert curve.specificity_at(level)[0] == pytest.approx((1 - fpr)[tpr >= level].max(), abs=1e-15)
    ks = ks_statistic([scores], labels)
    np.testing.assert_array_equal(curves.youden(), (ks.per_class, ks.thresholds))


matrices = st.integers(2, 5).flatmap(lambda n: arrays(np.int64, (n, n), elements=st.integers(0, 6)))


@settings(max_examples=30, deadline=None)
@given(matrices.filter(lambda matrix: matrix.any()), st.sampled_from([0.5, 1.0, 2.0]))
def test_rates_of_confusion_matrices(matrix, beta):
    pytest.importorskip("sklearn", minversion="1.3")  # older versions have no zero_division=nan
    labels = np.arange(len(matrix))
    target, predicted = (part.repeat(matrix.reshape(-1)) for part in np.indices(matrix.shape).reshape(2, -1))
    report = confusion_matrix_report(matrix, beta=beta)
    np.testing.assert_array_equal(report.support, np.bincount(target, minlength=len(labels)))
    np.testing.assert_array_equal(report.predicted, np.bincount(predicted, minlength=len(labels)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for zero_division in (np.nan, 0, 1):
            options = {"labels": labels, "beta": beta, "zero_division": zero_division}
            result = confusion_matrix_report(matrix, beta=beta, zero_division=zero_division)
            averages = {None: result.per_class, "macro": result.macro, "weighted": result.weighted}
            for average, rates in averages.items():
                expected = sklearn.precision_recall_fscore_support(target, predicted, average=average, **options)
                expected = np.array(expected[:3], dtype=float)
                actual = np.array([rates.precision, rates.recall, rates.f_score])
                if average == "weighted":  # scikit-learn's mean of no defined class is 0, ours is undefined
                    actual[np.isnan(actual) & (expected == 0)] = 0
                np.testing.assert_allclose(actual, expected, atol=1e-12)
        assert report.accuracy == sklearn.accuracy_score(target, predicted)
        balanced = sklearn.balanced_accuracy_score(target, predicted)
        assert report.balanced_accuracy == pytest.approx(balanced, abs=1e-12)
        used = (matrix.any(axis=1), matrix.any(axis=0))
        assert np.isnan(report.mcc) == (min(map(np.count_nonzero, used)) == 1)
        if not np.isnan(report.mcc):
            assert report.mcc == pytest.approx(sklearn.matthews_corrcoef(target, predicted), abs=1e-12)
        kappas = {None: report.kappa, "linear": report.kappa_linear, "quadratic": report.kappa_quadratic}
        for weights, kappa in kappas.items():
            assert np.isnan(kappa) == (np.count_nonzero(matrix) == np.count_nonzero(matrix.diagonal()) == 1)
            if not np.isnan(kappa):
                expected = sklearn.cohen_kappa_score(target, predicted, labels=labels, weights=weights)
                assert kappa == pytest.approx(expected, abs=1e-12)


def test_samples_without_a_decision_are_fn_but_not_fp():
    report = confusion_matrix_report(np.array([[2, 0, 1], [1, 3, 1]]))
    assert (report.tp.tolist(), report.fp.tolist(), report.fn.tolist()) == ([2, 3], [1, 0], [1, 2])
    assert report.accuracy == 5 / 8 and np.isnan(report.kappa_linear)
    target, predicted = [0] * 3 + [1] * 5, [0, 0, 2, 0, 1, 1, 1, 2]
    assert report.kappa == pytest.approx(sklearn.cohen_kappa_score(target, predicted), abs=1e-15)
    assert report.mcc == pytest.approx(sklearn.matthews_corrcoef(target, predicted), abs=1e-15)


@pytest.mark.parametrize("zero_division", [0, 1])
@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
def test_zero_division_of_single_label_prf(zero_division, average):
    import torch

    from mm_metrics_plugin import SingleLabelPRF
    from mm_metrics_plugin.testing import evaluate

    generator, suffix = np.random.default_rng(3), "" if average == "macro" else f"_{average}"
    for _ in range(20):
        target, predicted = generator.integers(0, 3, 8), generator.integers(0, 4, 8)
        samples = [{"pred_score": torch.eye(4)[p], "gt_label": int(t)} for p, t in zip(predicted, target)]
        result = evaluate(SingleLabelPRF(average=average, zero_division=zero_division), samples)
        expected = sklearn.precision_recall_fscore_support(
            target, predicted, labels=range(4), average=average, zero_division=zero_division
        )
        keys = [f"single-label-prf/{key}{suffix}" for key in ("precision", "recall", "f1")]
        assert [result[key] for key in keys] == pytest.approx(expected[:3], abs=1e-12)


@pytest.mark.parametrize("num_classes", [3, 200], ids=["counted by bincount", "counted in place"])
def test_confusion_state(num_classes):
    generator = np.random.default_rng(0)
    target, predicted = generator.integers(0, num_classes, 500), generator.integers(-1, num_classes, 500)
    parts = np.array_split(np.arange(500), 7)
    states = [ConfusionState(num_classes).update(target[part], predicted[part]) for part in parts]
    states[2].update(target[:0], predicted[:0])
    before = states[0].matrix.copy()
    matrix, decided = merge_all(states).matrix, np.where(predicted < 0, num_classes, predicted)
    np.testing.assert_array_equal(states[0].matrix, before)
    expected = sklearn.confusion_matrix(target, decided, labels=range(num_classes + 1))
    np.testing.assert_array_equal(matrix, expected[:num_classes])
    assert matrix.dtype == np.int64


@pytest.mark.parametrize("dtype", ["uint8", "int8", ">i2", "uint16", ">u2", "int32", "int64", ">u8"])
@pytest.mark.parametrize("num_classes", [1, 5, 127, 300])
def test_label_pairs_of_any_dtype(dtype, num_classes):
    """Labels out of range are in the last row or column; strided inputs are not changed."""
    generator = np.random.default_rng(0)
    highest = min(num_classes + 2, np.iinfo(dtype).max)
    target, predicted = np.repeat(generator.integers(0, highest, (2, 6, 50)), 2, axis=2).astype(dtype)[..., ::2]
    if dtype == "int32":
        predicted[0] = -1
    before = target.copy(), predicted.copy()
    counts = count_label_pairs(target, predicted, num_classes=num_classes)
    np.testing.assert_array_equal((target, predicted), before)
    rows, columns = (
        np.where((labels < 0) | (labels > num_classes), num_classes, labels).ravel().astype(np.int64)
        for labels in (target, predicted)
    )
    np.testing.assert_array_equal(counts, sklearn.confusion_matrix(rows, columns, labels=range(num_classes + 1)))
    assert counts.dtype == np.int64


def test_top_k_accuracy():
    scores, labels = np.random.default_rng(3).random((300, 6)), np.arange(300) % 6
    for k in range(1, 6):
        expected = sklearn.top_k_accuracy_score(labels, scores, k=k)
        assert np.mean(label_ranks(scores, labels) < k) == pytest.approx(expected, abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["equal-width", "equal-mass"]), st.sampled_from([1, 4, 15]))
def test_calibration_error(seed, binning, num_bins):
    pytest.importorskip("sklearn", minversion="1.3")  # older versions put a value on an edge into the upper bin
    generator = np.random.default_rng(seed)
    confidence, correct = np.round(generator.random(50), 1), generator.random(50) < 0.6
    correct[:2] = True, False  # scikit-learn needs both
    result = calibration_error(confidence, correct, num_bins=num_bins, binning=binning)
    strategy = {"equal-width": "uniform", "equal-mass": "quantile"}[binning]
    accuracy, mean = calibration_curve(correct, confidence, n_bins=num_bins, strategy=strategy)
    used = result.counts > 0
    np.testing.assert_allclose(result.accuracy[used], accuracy, atol=1e-12)
    np.testing.assert_allclose(result.confidence[used], mean, atol=1e-12)
    gaps = np.abs(accuracy - mean)
    assert result.counts.sum() == 50
    assert result.ece == pytest.approx(np.average(gaps, weights=result.counts[used]), abs=1e-12)
    assert result.mce == pytest.approx(gaps.max(), abs=1e-12)
    order = generator.permutation(50)
    permuted = calibration_error(confidence[order], correct[order], num_bins=num_bins, binning=binning)
    assert json.dumps(permuted.to_dict()) == json.dumps(result.to_dict())
    empty = calibration_error(confidence[:0], correct[:0], num_bins=num_bins, binning=binning)
    assert np.isnan([empty.ece, empty.mce]).all() and empty.counts.sum() == 0


def test_brier_score_and_log_loss():
    pytest.importorskip("sklearn", minversion="1.7")  # older versions have no Brier score of several classes
    generator = np.random.default_rng(0)
    scores, labels = generator.dirichlet(np.ones(5), 200), generator.integers(0, 5, 200)
    expected = sklearn.brier_score_loss(labels, scores, labels=np.arange(5), scale_by_half=False)
    assert brier_terms(scores, labels).mean() == pytest.approx(expected, abs=1e-12)
    expected = sklearn.log_loss(labels, scores, labels=np.arange(5))
    assert log_terms(scores, labels).mean() == pytest.approx(expected, abs=1e-12)
    certain = np.array([[1.0, 0.0]])
    assert log_terms(certain, np.array([1])).tolist() == [np.inf]
    assert log_terms(certain, np.array([1]), floor=1e-7) == pytest.approx([-np.log(1e-7)])


def test_regression_errors():
    predicted, target = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    target[0, 0, 0] = 0
    flat = target.ravel().astype(float), predicted.ravel().astype(float)
    result = regression_error(predicted, target, percentage_floor=np.finfo(np.float64).eps)
    assert result.r2 == pytest.approx(sklearn.r2_score(*flat), rel=1e-12)
    assert result.mse == pytest.approx(sklearn.mean_squared_error(*flat), rel=1e-12)
    assert result.mae == pytest.approx(sklearn.mean_absolute_error(*flat), rel=1e-12)
    assert result.max_error == pytest.approx(sklearn.max_error(*flat), rel=1e-12)
    assert result.percentage_error == pytest.approx(sklearn.mean_absolute_percentage_error(*flat), rel=1e-12)
    assert (result.count, result.zero_targets) == (60, 0)
    assert regression_error(predicted, target).zero_targets == 1
