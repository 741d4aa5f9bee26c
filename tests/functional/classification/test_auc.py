"""The AUC kernels against scikit-learn, against figures worked by hand, and the certificate of the binned ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from mm_metrics_plugin.functional.classification.auc import one_vs_one_auc, one_vs_rest_auc, roc_auc
from mm_metrics_plugin.functional.classification.histograms import bin_scores, binned_auc, histogram_auc
from mm_metrics_plugin.states.scores import ScoreHistogramState


def problem(seed, samples=300, classes=5, digits=1, dtype=np.float32):
    """Scores with many ties and a signal; every class occurs, the last three times as often as the others."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.minimum(np.arange(samples) % (classes + 2), classes - 1))
    logits = generator.normal(size=(samples, classes))
    logits[np.arange(samples), labels] += 1
    scores = np.round(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), digits)
    return scores.astype(dtype), labels


def binary(truth, scores):
    """The AUC of scores for class 1, through the kernel for many classes."""
    scores = np.asarray(scores, dtype=np.float64)
    return one_vs_rest_auc([np.stack([-scores, scores], axis=1)], np.asarray(truth))[1]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("digits", [1, 2, 9])
def test_equals_scikit_learn(seed, digits):
    scores, labels = problem(seed, digits=digits)
    truth = np.eye(5)[labels]
    close = dict(rtol=0, atol=1e-12)
    np.testing.assert_allclose(one_vs_rest_auc([scores], labels), roc_auc_score(truth, scores, average=None), **close)
    np.testing.assert_allclose(
        one_vs_rest_auc([scores], labels, curve="pr"), average_precision_score(truth, scores, average=None), **close
    )
    for max_fpr in (0.05, 0.3, 1.0):
        expected = [roc_auc_score(truth[:, c], scores[:, c], max_fpr=max_fpr) for c in range(5)]
        np.testing.assert_allclose(one_vs_rest_auc([scores], labels, max_fpr=max_fpr), expected, **close)
    for curve, reference in (("roc", roc_auc_score), ("pr", average_precision_score)):
        for average in ("macro", "weighted", "micro"):
            found = roc_auc([scores], labels, average=average, curve=curve).value
            np.testing.assert_allclose(found, reference(truth, scores, average=average), **close)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_one_vs_one_equals_scikit_learn(seed, average):
    scores, labels = problem(seed, digits=2, dtype=np.float64)
    scores += 0.01  # no row of zeros
    scores /= scores.sum(axis=1, keepdims=True)
    expected = roc_auc_score(labels, scores, multi_class="ovo", average=average)
    assert roc_auc([scores], labels, multi_class="ovo", average=average).value == pytest.approx(expected, abs=1e-12)


def test_a_class_in_one_vs_one_is_the_mean_of_its_pairs():
    scores, labels = problem(0, digits=2)
    expected = []
    for one in range(5):
        values = []
        for other in set(range(5)) - {one}:
            both = np.isin(labels, [one, other])
            values += [roc_auc_score(labels[both] == c, scores[both, c]) for c in (one, other)]
        expected.append(np.mean(values))
    np.testing.assert_allclose(roc_auc([scores], labels, multi_class="ovo").per_class, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("curve, reference", [("roc", roc_auc_score), ("pr", average_precision_score)])
@pytest.mark.parametrize("least", [-1, 0])
def test_several_labels_equal_scikit_learn(curve, reference, least):
    """1 is of the class, 0 is not, -1 is not known and left out."""
    scores, _ = problem(1, digits=2)
    truth = np.random.default_rng(1).integers(least, 2, scores.shape)
    expected = [reference(truth[truth[:, c] >= 0, c], scores[truth[:, c] >= 0, c]) for c in range(5)]
    np.testing.assert_allclose(roc_auc([scores], truth, curve=curve).per_class, expected, rtol=0, atol=1e-12)
    micro = roc_auc([scores[:100], scores[100:]], truth, curve=curve, average="micro").value
    assert micro == pytest.approx(reference(truth[truth >= 0], scores[truth >= 0]), abs=1e-12)


@pytest.mark.parametrize("label", [0, 1])
def test_labels_that_are_all_alike_have_no_auc(label):
    scores, _ = problem(0)
    truth = np.full(scores.shape, label)
    for average in ("macro", "micro"):
        assert np.isnan(roc_auc([scores], truth, average=average).value)


def test_more_columns_than_one_tile_and_many_blocks():
    scores, labels = problem(0, samples=700, classes=50, digits=3)
    blocks = np.split(scores, [1, 2, 100, 612])
    expected = roc_auc_score(np.eye(50)[labels], scores, average=None)
    np.testing.assert_allclose(one_vs_rest_auc(blocks, labels), expected, rtol=0, atol=1e-12)
    assert np.array_equal(one_vs_rest_auc(blocks, labels), one_vs_rest_auc([scores], labels))


def test_known_aucs():
    assert binary([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75
    truth = [1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0]
    scores = [0.6, 0.1, 0.4, 0.5, 0.7, 0.7, 0.7, 0.4, 0.4, 0.5, 0.8, 0.3, 0.5, 0.3]
    assert binary(truth, scores) == float(Fraction(38, 48))
    flat_scores = np.ravel([[3, 0, 1], [1, 3, 0], [1, 0, 2]])
    flat_labels = np.ravel([[0, 2, 1], [1, 2, 1], [0, 0, 1]])
    assert binary((flat_labels == 2).astype(int), flat_scores) == pytest.approx(0.5357142857, abs=1e-10)
    assert binary((flat_labels == 1).astype(int), flat_scores) == pytest.approx(0.45, abs=1e-12)


def test_absent_classes_are_nan_and_left_out():
    scores, labels = problem(0)
    present = labels != 3
    result = roc_auc([scores[present]], labels[present])
    assert np.isnan(result.per_class[3])
    assert result.classes_averaged == 4
    assert result.value == np.nanmean(result.per_class)
    assert np.isnan(one_vs_one_auc([scores[present]], labels[present])[3]).all()


def test_order_of_samples_does_not_change_the_auc():
    scores, labels = problem(1)
    order = np.random.default_rng(0).permutation(len(labels))
    for options in ({}, {"curve": "pr"}, {"max_fpr": 0.2}, {"average": "micro"}, {"multi_class": "ovo"}):
        assert roc_auc([scores], labels, **options).value == roc_auc([scores[order]], labels[order], **options).value


# --- binned ---

probabilities = st.one_of(
    st.floats(0, 1, width=32),
    st.floats(0, 1),
    st.sampled_from([0.0, 1.0, 0.5, 1e-30, 1e-8, 1 - 1e-7, 0.25]),
)


@given(st.lists(probabilities, min_size=1, max_size=50), st.integers(2, 5000))
def test_bins_are_monotone_and_in_range(scores, num_bins):
    bins = bin_scores(np.sort(np.array(scores)), num_bins=num_bins)
    assert (np.diff(bins) >= 0).all()
    assert bins.min() >= 0
    assert bins.max() < num_bins


@settings(max_examples=300)
@given(
    st.lists(st.tuples(probabilities, st.booleans()), min_size=2, max_size=40).filter(
        lambda rows: 0 < sum(r[1] for r in rows) < len(rows)
    ),
    st.integers(2, 300),
    st.sampled_from(["roc", "pr"]),
)
def test_error_bound_of_the_binned_auc_holds(rows, num_bins, curve):
    scores = np.array([score for score, _ in rows])
    truth = np.array([positive for _, positive in rows])
    bins = bin_scores(scores, num_bins=num_bins)
    totals = np.bincount(bins, minlength=num_bins)
    positives = np.bincount(bins[truth], minlength=num_bins)
    value, bound = binned_auc(positives, totals, curve=curve)
    exact = (roc_auc_score if curve == "roc" else average_precision_score)(truth, scores)
    assert abs(exact - value) <= bound + 1e-12
    assert 0 <= value <= 1 + 1e-12


@pytest.mark.parametrize("curve, reference", [("roc", roc_auc_score), ("pr", average_precision_score)])
def test_the_bound_is_reached_by_the_best_or_the_worst_order_in_every_bin(curve, reference):
    for seed in range(20):
        positives, negatives = np.random.default_rng(seed).integers(0, 4, (2, 5)) + 1
        bins = np.concatenate([np.repeat(np.arange(5), positives), np.repeat(np.arange(5), negatives)])
        truth = np.arange(len(bins)) < positives.sum()
        best = bins + 0.5 * truth
        worst = bins + np.where(truth, np.arange(len(bins)) / 100, 0.99)
        value, bound = binned_auc(positives, positives + negatives, curve=curve)
        assert value == pytest.approx(reference(truth, bins))
        assert bound == pytest.approx(max(reference(truth, best) - value, value - reference(truth, worst)))


@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
@pytest.mark.parametrize("curve", ["roc", "pr"])
def test_bins_that_separate_all_scores_are_exact(average, curve):
    scores, labels = problem(0, digits=1, dtype=np.float64)
    state = ScoreHistogramState(1000).update(scores, labels)
    binned = histogram_auc(state.positives, state.totals, average=average, curve=curve)
    exact = roc_auc([scores], labels, average=average, curve=curve, classwise=True)
    assert binned.value == pytest.approx(exact.value, abs=1e-12)
    np.testing.assert_allclose(binned.per_class, exact.per_class, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(binned.support, exact.support)


def test_micro_average_with_and_without_classes():
    scores, labels = problem(0)
    assert len(roc_auc([scores], labels, average="micro", classwise=False).per_class) == 0
    per_class = roc_auc([scores], labels, average="micro", classwise=True).per_class
    np.testing.assert_array_equal(per_class, one_vs_rest_auc([scores], labels))


@pytest.mark.parametrize("temperature", [8.0, 0.5], ids=["peaked", "flat"])
def test_4096_bins_are_enough_for_a_thousand_classes(temperature):
    generator = np.random.default_rng(0)
    samples, classes = 5000, 1000
    labels = np.arange(samples) % classes
    logits = generator.standard_normal((samples, classes), dtype=np.float32)
    logits[np.arange(samples), labels] += 2
    logits *= temperature
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    state = ScoreHistogramState(4096).update(scores, labels)
    binned = histogram_auc(state.positives, state.totals)
    exact = roc_auc([scores], labels)
    assert abs(binned.value - exact.value) <= 1e-3
    assert binned.error < 1e-2
    assert (abs(binned.per_class - exact.per_class) <= binned_auc(state.positives, state.totals)[1] + 1e-12).all()
