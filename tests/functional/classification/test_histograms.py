"""Bins of scores, and the bounds on the error of AUC, KS and calibration error from histograms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from mm_metrics_plugin.functional.classification.auc import roc_auc
from mm_metrics_plugin.functional.classification.calibration_error import histogram_calibration
from mm_metrics_plugin.functional.classification.histograms import (
    bin_edges,
    bin_scores,
    binned_auc,
    histogram_auc,
    histogram_ks,
)
from mm_metrics_plugin.functional.classification.roc_curves import ks_statistic
from mm_metrics_plugin.states.scores import ScoreHistogramState

AREAS = {"roc": roc_auc_score, "pr": average_precision_score}
probabilities = st.one_of(
    st.floats(0, 1, width=32),
    st.floats(0, 1),
    st.sampled_from([0.0, 1.0, 0.5, 1e-30, 1e-8, 1 - 1e-7, 0.25]),
)


def histograms(scores, positive, num_bins):
    """The bin of each score, and the histograms of the positives and of all scores."""
    bins = bin_scores(scores, num_bins=num_bins)
    return bins, *(np.bincount(part, minlength=num_bins) for part in (bins[positive], bins))


@given(st.lists(probabilities, min_size=1, max_size=50), st.integers(2, 5000))
def test_bins_are_monotonic_and_in_range(scores, num_bins):
    bins = bin_scores(np.sort(np.array(scores)), num_bins=num_bins)
    assert (np.diff(bins) >= 0).all() and bins.min() >= 0 and bins.max() < num_bins


@pytest.mark.parametrize("num_bins", [2, 3, 64, 4095, 1 << 16])
def test_edges_are_the_lowest_scores_of_the_bins(num_bins):
    generator = np.random.default_rng(0)
    tiny = np.exp(-40 * generator.random(3000))
    scores = np.concatenate([generator.random(3000), tiny, 1 - tiny, [0.0, 0.5, 1.0]]).astype(np.float32)
    edges, bins = bin_edges(num_bins), bin_scores(scores, num_bins=num_bins)
    assert (edges[bins] <= scores).all()
    upper = np.append(edges, np.inf)[bins + 1]
    assert (scores < upper)[upper < 1].all()


@settings(max_examples=300)
@given(
    st.lists(st.tuples(probabilities, st.booleans()), min_size=2, max_size=40).filter(
        lambda rows: 0 < sum(positive for _, positive in rows) < len(rows)
    ),
    st.integers(2, 300),
)
def test_exact_auc_and_ks_are_within_the_error_bounds(rows, num_bins):
    scores, positive = map(np.array, zip(*rows))
    _, positives, totals = histograms(scores, positive, num_bins)
    for curve, reference in AREAS.items():
        value, bound = binned_auc(positives, totals, curve=curve)
        assert abs(reference(positive, scores) - value) <= bound + 1e-12
        assert 0 <= value <= 1 + 1e-12
    binned, exact = histogram_ks(positives[None], totals[None]), ks_statistic([scores[:, None]], positive[:, None])
    (value,), (error,) = binned.per_class, binned.errors
    assert value - 1e-12 <= exact.per_class[0] <= value + error + 1e-12


@pytest.mark.parametrize("curve", AREAS)
def test_auc_bound_is_reached_by_the_best_or_the_worst_order_within_the_bins(curve):
    for seed in range(20):
        positives, negatives = np.random.default_rng(seed).integers(0, 4, (2, 5)) + 1
        bins = np.concatenate([np.repeat(np.arange(5), positives), np.repeat(np.arange(5), negatives)])
        positive = np.arange(len(bins)) < positives.sum()
        best, worst = bins + 0.5 * positive, bins + np.where(positive, np.arange(len(bins)) / 100, 0.99)
        value, bound = binned_auc(positives, positives + negatives, curve=curve)
        best, middle, worst = (AREAS[curve](positive, scores) for scores in (best, bins, worst))
        assert value == pytest.approx(middle)
        assert bound == pytest.approx(max(best - value, value - worst))


@pytest.mark.parametrize("temperature", [8.0, 0.5], ids=["peaked", "flat"])
@pytest.mark.parametrize(("average", "curve"), [("macro", "roc"), ("weighted", "pr"), ("micro", "roc")])
def test_4096_bins_are_enough_for_a_thousand_classes(temperature, average, curve):
    generator = np.random.default_rng(0)
    samples, classes = 3000, 1000
    labels = np.arange(samples) % classes
    logits = generator.standard_normal((samples, classes), dtype=np.float32)
    logits[np.arange(samples), labels] += 2
    scores = np.exp(temperature * (logits - logits.max(axis=1, keepdims=True)))
    scores /= scores.sum(axis=1, keepdims=True)
    state = ScoreHistogramState(4096).update(scores, labels)
    binned = histogram_auc(state.positives, state.totals, average=average, curve=curve)
    exact = roc_auc([scores], labels, average=average, curve=curve)
    assert abs(binned.value - exact.value) <= min(binned.error + 1e-12, 5e-3)
    np.testing.assert_array_equal(binned.support, exact.support)
    bounds = binned_auc(state.positives, state.totals, curve=curve)[1]
    assert (abs(binned.per_class - exact.per_class) <= bounds + 1e-12).all()


def test_multi_label_histograms_leave_out_ignored_labels():
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.3]])
    state = ScoreHistogramState(64).update(scores, np.array([[1, -1], [0, 1], [-1, -1]], dtype=np.int8))
    assert state.totals.sum(axis=1).tolist() == [2, 1]
    assert state.positives.sum(axis=1).tolist() == [1, 1]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["equal-width", "equal-mass"]),
    st.sampled_from([1, 4, 15]),
    st.sampled_from([2, 200, 4096]),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_exact_calibration_error_is_within_the_error_bound(seed, binning, num_bins, num_thresholds, dtype):
    generator = np.random.default_rng(seed)
    confidence = (generator.random(80) ** generator.choice([0.01, 1, 4])).astype(dtype)
    correct = generator.random(80) < 0.6
    cells, positives, totals = histograms(confidence, correct, num_thresholds)
    result = histogram_calibration(positives, totals, num_bins=num_bins, binning=binning)
    assert len(result.edges) == num_bins + 1 and (np.diff(result.edges) >= 0).all()
    # The histogram determines the members of the bins, but not their mean confidence.
    lowest = np.append(bin_edges(num_thresholds), 1.0)
    bins = np.searchsorted(result.edges[1:-1], lowest[cells], side="right")
    assert np.bincount(bins, minlength=num_bins).tolist() == result.counts.tolist()
    used, weights = np.unique(bins, return_counts=True)
    gaps = [abs(correct[bins == index].mean() - confidence[bins == index].mean(dtype=float)) for index in used]
    assert abs(result.ece - np.average(gaps, weights=weights)) <= result.ece_error
    assert abs(result.mce - max(gaps)) <= result.mce_error
    if binning == "equal-width":
        assert (np.abs(result.edges - np.linspace(0, 1, num_bins + 1)) <= np.diff(lowest).max() / 2).all()
