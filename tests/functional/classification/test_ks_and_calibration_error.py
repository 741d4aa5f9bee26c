"""KS against SciPy, calibration against scikit-learn, and the bounds of both from histograms."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ks_2samp
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from mm_metrics_plugin.functional.classification.calibration_error import (
    brier_terms,
    calibration_error,
    histogram_calibration,
    log_terms,
)
from mm_metrics_plugin.functional.classification.histograms import bin_edges, bin_scores, histogram_ks
from mm_metrics_plugin.functional.classification.roc_curves import ks_statistic

scores_and_truth = st.integers(2, 30).flatmap(
    lambda n: st.tuples(
        arrays(np.float64, (n, 1), elements=st.integers(0, 12).map(lambda i: i / 12)),
        arrays(np.int8, (n, 1), elements=st.sampled_from([0, 1, 1, 0, -1])),
    )
)


@settings(max_examples=150, deadline=None)
@given(scores_and_truth)
def test_ks_equals_scipy_and_is_reached_at_its_threshold(problem):
    scores, truth = problem
    positive, negative = scores[truth == 1], scores[truth == 0]
    result = ks_statistic([scores], truth)
    if not len(positive) or not len(negative):
        assert np.isnan(result.per_class[0]) and np.isnan(result.thresholds[0])
        return
    (value,), (threshold,) = result.per_class, result.thresholds
    assert value == pytest.approx(ks_2samp(positive, negative, "less", "asymp").statistic, abs=1e-12)
    assert np.mean(positive >= threshold) - np.mean(negative >= threshold) == pytest.approx(value, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 16, 300]))
def test_the_exact_ks_lies_within_the_error_of_the_binned_one(seed, num_bins):
    generator = np.random.default_rng(seed)
    scores, truth = generator.random(40), generator.integers(0, 2, 40)
    truth[:2] = 0, 1
    cells = bin_scores(scores, num_bins=num_bins)
    totals = np.bincount(cells, minlength=num_bins)[None]
    positives = np.bincount(cells[truth == 1], minlength=num_bins)[None]
    binned, exact = histogram_ks(positives, totals), ks_statistic([scores[:, None]], truth[:, None])
    rounding = 1e-12
    assert binned.per_class[0] <= exact.per_class[0] + rounding
    assert exact.per_class[0] <= binned.per_class[0] + binned.errors[0] + rounding
    above = scores >= binned.thresholds[0]
    assert above[truth == 1].mean() - above[truth == 0].mean() == pytest.approx(binned.per_class[0], abs=rounding)


@pytest.mark.parametrize("num_bins", [2, 3, 64, 4095, 1 << 16])
def test_edges_are_the_lowest_scores_of_the_bins(num_bins):
    generator = np.random.default_rng(0)
    tiny = np.exp(-40 * generator.random(3000))
    scores = np.concatenate([generator.random(3000), tiny, 1 - tiny, [0.0, 0.5, 1.0]]).astype(np.float32)
    edges, cells = bin_edges(num_bins), bin_scores(scores, num_bins=num_bins)
    assert (edges[cells] <= scores).all()
    after = np.append(edges, np.inf)[cells + 1]
    assert (scores < after)[after < 1].all()


# --- calibration ------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["equal-width", "equal-mass"]), st.sampled_from([1, 4, 15]))
def test_bins_are_those_of_scikit_learn(seed, binning, num_bins):
    pytest.importorskip("sklearn", minversion="1.3")  # older ones put a value on an edge into the bin above
    generator = np.random.default_rng(seed)
    confidence, right = np.round(generator.random(50), 1), generator.random(50) < 0.6
    right[:2] = True, False  # scikit-learn wants both
    result = calibration_error(confidence, right, num_bins=num_bins, binning=binning)
    strategy = {"equal-width": "uniform", "equal-mass": "quantile"}[binning]
    accuracy, mean = calibration_curve(right, confidence, n_bins=num_bins, strategy=strategy)
    np.testing.assert_allclose(result.accuracy[result.counts > 0], accuracy, atol=1e-12)
    np.testing.assert_allclose(result.confidence[result.counts > 0], mean, atol=1e-12)
    weights = result.counts[result.counts > 0]
    assert weights.sum() == 50
    assert result.ece == pytest.approx(np.average(np.abs(accuracy - mean), weights=weights), abs=1e-12)
    assert result.mce == pytest.approx(np.abs(accuracy - mean).max(), abs=1e-12)
    order = generator.permutation(50)
    again = calibration_error(confidence[order], right[order], num_bins=num_bins, binning=binning)
    assert json.dumps(again.to_dict()) == json.dumps(result.to_dict())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["equal-width", "equal-mass"]),
    st.sampled_from([1, 4, 15]),
    st.sampled_from([2, 200, 4096]),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_error_bound_of_the_histogram_calibration_holds(seed, binning, num_bins, num_thresholds, dtype):
    generator = np.random.default_rng(seed)
    confidence = (generator.random(80) ** generator.choice([0.01, 1, 4])).astype(dtype)
    right = generator.random(80) < 0.6
    cells = bin_scores(confidence, num_bins=num_thresholds)
    totals = np.bincount(cells, minlength=num_thresholds)
    positives = np.bincount(cells[right], minlength=num_thresholds)
    result = histogram_calibration(positives, totals, num_bins=num_bins, binning=binning)
    assert len(result.edges) == num_bins + 1 and (np.diff(result.edges) >= 0).all()
    # The exact value over the same bins: what is in each is known from the histogram, only the confidences are not.
    lowest = np.append(bin_edges(num_thresholds), 1.0)
    bins = np.searchsorted(result.edges[1:-1], lowest[cells], side="right")
    assert np.bincount(bins, minlength=num_bins).tolist() == result.counts.tolist()
    gaps = [abs(right[bins == one].mean() - confidence[bins == one].mean(dtype=float)) for one in np.unique(bins)]
    weights = np.unique(bins, return_counts=True)[1]
    assert abs(result.ece - np.average(gaps, weights=weights)) <= result.ece_error
    assert abs(result.mce - max(gaps)) <= result.mce_error
    if binning == "equal-width":
        assert (np.abs(result.edges - np.linspace(0, 1, num_bins + 1)) <= np.diff(lowest).max() / 2).all()


def test_brier_and_likelihood_equal_scikit_learn():
    pytest.importorskip("sklearn", minversion="1.7")  # older ones have no Brier score of several classes
    generator = np.random.default_rng(0)
    scores, labels = generator.dirichlet(np.ones(5), 200), generator.integers(0, 5, 200)
    theirs = brier_score_loss(labels, scores, labels=np.arange(5), scale_by_half=False)
    assert brier_terms(scores, labels).mean() == pytest.approx(theirs, abs=1e-12)
    assert log_terms(scores, labels).mean() == pytest.approx(log_loss(labels, scores, labels=np.arange(5)), abs=1e-12)
    certain = np.array([[1.0, 0.0]])
    assert log_terms(certain, np.array([1])).tolist() == [np.inf]
    assert log_terms(certain, np.array([1]), floor=1e-7) == pytest.approx([-np.log(1e-7)])


def test_no_samples_have_no_calibration():
    for binning in ("equal-width", "equal-mass"):
        result = calibration_error(np.zeros(0), np.zeros(0, dtype=bool), binning=binning)
        assert np.isnan([result.ece, result.mce]).all() and result.counts.sum() == 0
