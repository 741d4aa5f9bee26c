"""Comparison of two runs: against SciPy, how often equal runs differ, and that p-value and interval always agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from benchmarks.equal_runs import rejection_rates
from mm_metrics_plugin.evaluation.comparison import verdict
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.classification.delong import auc_swaps, delong_test
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.cross_fitting import CrossFittedCounts, image_folds
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.statistics.paired_tests import (
    _interleave_tables,
    changed_images,
    compare_counts,
    family_tests,
    paired_permutation_test,
    significant,
)
from mm_metrics_plugin.functional.statistics.per_image_counts import (
    PerImageCounts,
    cross_fitted_counts,
    per_image_counts,
)
from mm_metrics_plugin.settings import OperatingRule
from tests.functional.statistics.test_bootstrap import table_at_50
from tests.helpers.detection_problems import everywhere, match_table

REJECTED = (0.03, 0.07)


def test_type_i_error_rate_of_equal_classifiers():
    random, runs = np.random.default_rng(23), 500
    labels = (np.arange(150) % 3 == 0).astype(int)[:, None]
    rejected = 0
    for _ in range(runs):
        common = random.normal(size=(150, 1)) + labels
        first, second = (common + random.normal(size=(150, 1)) for _ in range(2))
        rejected += delong_test([first], [second], labels, permutations=199).macro.p_value <= 0.05
    assert REJECTED[0] <= rejected / runs <= REJECTED[1], rejected / runs


def test_p_value_equals_scipy():
    pytest.importorskip("scipy", minversion="1.9")  # older ones have no permutation test
    random = np.random.default_rng(25)
    target = np.zeros(40, dtype=int)
    result = [np.where(random.random(40) < share, 0, 1) for share in (0.6, 0.8)]
    runs = [PerImageCounts.from_labels(target, labels, num_classes=2) for labels in result]
    actual = compare_counts(*runs, permutations=20000).per_class["recall"]
    right = [(labels == 0).astype(float) for labels in result]
    expected = stats.permutation_test(
        right, lambda a, b, axis: b.mean(axis=axis) - a.mean(axis=axis), permutation_type="samples",
        n_resamples=20000, vectorized=True, random_state=0,
    )  # fmt: skip
    assert actual.difference[0] == pytest.approx(expected.statistic)
    assert actual.p_unadjusted[0] == pytest.approx(expected.pvalue, abs=0.01)


def equal_scores(random, num_images=5):
    """Ground truths, and two runs with one detection per image, all of one score, correct on a random half."""
    image, boxes, zeros = np.arange(num_images), np.tile([0.0, 0.0, 10.0, 10.0], (num_images, 1)), np.zeros(num_images)
    for _ in range(2):
        wrong = random.random(num_images) < 0.5
        detections = Detections(image, boxes + 50 * wrong[:, None], np.full(num_images, 0.5), zeros)
        yield DetectionBatch(detections, GroundTruths(image, boxes, zeros), num_images)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ties", [False, True])
def test_p_value_equals_all_swaps_of_images(seed, ties):
    """Every arrangement of a few images is matched again. Equal scores are ranked by image, as in each run."""
    if ties:
        first, second = equal_scores(np.random.default_rng(seed))
    else:
        first, second = (everywhere(number, num_images=4) for number in (2 * seed, 2 * seed + 1))
        second = DetectionBatch(second.detections, first.ground_truths, 4)
    num_images = first.num_images

    def value(runs):
        batch = DetectionBatch.concatenate([run.images(image, image + 1) for image, run in enumerate(runs)])
        return average_precision(match_table(batch, 3)).to_dict()["mAP_50"]

    differences = []
    for swaps in itertools.product((False, True), repeat=num_images):
        differences.append(
            value([first if swap else second for swap in swaps]) - value([second if swap else first for swap in swaps])
        )
    result = paired_permutation_test(table_at_50(first, 3), table_at_50(second, 3), permutations=4000)
    result = result.overall["mAP_50"]
    assert result.difference == pytest.approx(differences[0], abs=1e-12)
    exact = np.mean(np.abs(differences) >= abs(differences[0]) - 1e-12)
    assert result.p_unadjusted == pytest.approx(exact, abs=0.03)


def test_means_are_compared_over_the_classes_of_both_runs():
    """Every arrangement of few images, in plain Python. The second run has no detection of class 1."""
    first_counts = [[(2, 1, 0), (0, 3, 1)], [(1, 0, 1), (1, 2, 0)], [(2, 0, 0), (0, 2, 1)], [(1, 1, 0), (0, 4, 1)],
                    [(0, 1, 2), (0, 0, 1)], [(3, 1, 0), (0, 1, 0)]]  # fmt: skip
    second_counts = [[(max(tp - 1, 0), 1, min(tp, 1) + fn), (0, 0, other[0] + other[2])]
                     for (tp, _, fn), other in first_counts]  # fmt: skip
    image, label = (part.reshape(-1) for part in np.indices((6, 2)))
    first, second = (
        PerImageCounts(6, 2, image, label, np.reshape(run, (12, 3)).T) for run in (first_counts, second_counts)
    )

    def difference(runs):
        """Mean difference in precision over the classes with detections in both runs; infinite without any."""
        values = []
        for each in range(2):
            tp, fp = np.array([[run[number][each][:2] for number in range(6)] for run in runs]).sum(axis=1).T
            values += [np.diff(tp / (tp + fp))[0]] if (tp + fp).all() else []
        return np.mean(values) if values else np.inf

    arrangements = []
    for swaps in itertools.product((False, True), repeat=6):
        pairs = [(b, a) if swap else (a, b) for swap, a, b in zip(swaps, first_counts, second_counts)]
        arrangements.append(difference(tuple(zip(*pairs))))
    result = compare_counts(first, second, permutations=4000)
    precision = result.overall["precision"]
    assert precision.difference == pytest.approx(arrangements[0], abs=1e-12)
    assert precision.first == pytest.approx(9 / 13, abs=1e-12)  # of class 0 alone
    exact = np.mean(np.abs(arrangements) >= abs(arrangements[0]) - 1e-12)
    assert precision.p_unadjusted == pytest.approx(exact, abs=0.03)
    assert result.classes_averaged == {"precision": 1, "recall": 2, "f1": 2, "f1_of_means": 1}
    assert np.isnan(result.per_class["precision"].p_value[1])
    assert verdict(result.per_class["precision"].difference[1], np.nan, ci=0.95) == "undefined"
    means = precision.first, result.overall["recall"].first
    assert result.overall["f1_of_means"].first == pytest.approx(stats.hmean(means), abs=1e-12)


def test_type_i_error_rate_at_the_best_threshold_of_each_run():
    """Equal detectors have different thresholds, so swapping counts at these would reject in every fifth comparison."""
    rates = rejection_rates("f1", 30, comparisons=80, permutations=99, seed=41)
    assert max(rates.values()) <= 0.1 and rates["any"] > 0, rates


@pytest.mark.parametrize("rule", ["f1", "recall=0.1"])
def test_every_permutation_selects_its_own_thresholds(rule):
    """A permutation is a run that is made of images of both; its thresholds are those of this run alone."""
    first, second = (everywhere(seed, num_images=12) for seed in (1, 2))
    second = DetectionBatch(second.detections, first.ground_truths, 12)
    swap = np.random.default_rng(0).random(12) < 0.5
    fold, options = image_folds(12, folds=3, seed=5), {"rule": OperatingRule.parse(rule)}
    both = CrossFittedCounts(
        _interleave_tables(*(table_at_50(run, 3) for run in (first, second))), np.repeat(fold, 2), **options
    )
    for choice in (swap, ~swap, np.zeros(12, dtype=bool)):
        mixed = [(second if swapped else first).images(image, image + 1) for image, swapped in enumerate(choice)]
        table = table_at_50(DetectionBatch.concatenate(mixed), 3)
        expected = operating_points(table, rule=rule, folds=3, seed=5).overall_cross_fitted
        weights = np.stack([~choice, choice], axis=1).reshape(24, 1).astype(float)
        counts = both(weights)
        assert [int(part.sum()) for part in counts] == [expected.tp, expected.fp, expected.fn]
        assert both.thresholds(weights).mean() == pytest.approx(expected.threshold)
        alone = cross_fitted_counts(table, fold, **options)
        assert [part[0].tolist() for part in counts] == [part.tolist() for part in alone.totals()]


def test_family_wise_error_rate_of_equal_runs():
    """The family of the metrics over all classes, and that of the classes of a metric."""
    random, runs = np.random.default_rng(28), 400
    overall = per_class = 0
    for run in range(runs):
        counts = []
        ease = random.beta(3, 2, (60, 6))
        for _ in range(2):
            tp, fp = random.binomial(2, ease), random.poisson(0.5, (60, 6))
            image, label = (part.reshape(-1) for part in np.indices((60, 6)))
            counts.append(PerImageCounts(60, 6, image, label, np.stack([tp, fp, 2 - tp]).reshape(3, -1)))
        result = compare_counts(*counts, permutations=199, seed=run)
        overall += any(test.p_value <= 0.05 for test in result.overall.values())
        per_class += bool((result.per_class["f1"].p_value <= 0.05).any())
    assert overall / runs <= REJECTED[1] and per_class / runs <= REJECTED[1]
    assert per_class / runs >= 0.02 and overall / runs >= 0.02  # not conservative


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_significant_exactly_if_the_interval_excludes_0(level):
    """With few images and integer counts, ties are common, and differences are on the edge of the interval."""
    seen = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        number = int(random.integers(1, 40))
        target = random.integers(0, 3, number)
        decided = [np.where(random.random(number) < share, target, 0) for share in random.random(2)]
        scores = [np.round(random.random((number, 3)) + np.eye(3)[target] * share, 1) for share in random.random(2)]
        result = compare_counts(
            *(PerImageCounts.from_labels(target, labels, num_classes=3) for labels in decided),
            auc=auc_swaps([scores[0]], [scores[1]], target),
            ci=level,
            permutations=int(random.choice([1, 19, 39, 99, 199])),
            seed=seed,
        )
        alone = delong_test([scores[0]], [scores[1]], target, ci=level, permutations=99, seed=seed)
        rows = []
        for test in (alone.macro, alone.per_class, *result.overall.values(), *result.per_class.values()):
            columns = [np.atleast_1d(part) for part in vars(test).values()]
            _, _, difference, low, high, p_value, low_alone, high_alone, p_alone = columns
            rows += zip(difference, low, high, p_value)
            rows += zip(difference, low_alone, high_alone, p_alone)
            assert (p_value >= p_alone)[~np.isnan(p_value)].all()
            narrow = (low <= low_alone + 1e-12) & (high_alone <= high + 1e-12)
            assert narrow[~np.isnan(low)].all()
        for difference, low, high, p_value in rows:
            if np.isnan(difference):
                assert np.isnan(p_value) and np.isnan(low)
                continue
            assert 0 < p_value <= 1
            is_significant = bool(significant(p_value, ci=level))
            seen.append(is_significant)
            if np.isnan(low):
                assert p_value == 1 and abs(difference) < 1e-12
            else:
                assert -1 <= low <= difference <= high <= 1
                assert is_significant == (low > 0 or high < 0), (difference, low, high, p_value)
            assert verdict(difference, p_value, ci=level) in (
                ("better" if difference > 0 else "worse",) if is_significant else ("not significant", "no difference")
            )
    assert any(seen) and not all(seen)


def test_family_tests_equal_hand_computed_values():
    permuted = np.array([[1.0, 2.0], [-1.0, 4.0], [3.0, -2.0]]) / 10
    actual = family_tests(np.zeros(2), np.array([0.3, 0.1]), permuted, ci=0.5)
    # With the observed ones: |0.1, 0.1, 0.3, 0.3| and |0.2, 0.4, 0.2, 0.1|.
    assert actual.p_unadjusted.tolist() == [0.5, 1.0]
    assert actual.low_unadjusted == pytest.approx([0.3 - 0.1, 0.1 - 0.2])
    scale = np.sqrt(np.array([0.2, 0.25]) / 4)
    largest = np.sort([(np.abs(row) / scale).max() for row in (*permuted, [0.3, 0.1])])[::-1]
    relative = np.array([0.3, 0.1]) / scale
    assert actual.p_value == pytest.approx([(largest >= value - 1e-12).sum() / 4 for value in relative])
    assert actual.high == pytest.approx(np.minimum(np.array([0.3, 0.1]) + np.maximum(largest[2] * scale, [0, 0.1]), 1))
    # A difference that is undefined only as observed stays in the maximum over the family.
    without = family_tests(np.zeros(2), np.array([0.3, np.nan]), permuted, ci=0.5)
    scale[1] = np.sqrt(0.24 / 4)
    largest = [(np.abs(row) / scale).max() for row in permuted]
    assert without.p_value[0] == (1 + np.sum(np.array(largest) >= 0.3 / scale[0] - 1e-12)) / 4
    assert without.p_value[0] > without.p_unadjusted[0] and np.isnan(without.p_value[1])
    # An undefined permuted difference counts as extreme, and NaN stays NaN.
    permuted[:, 1] = np.nan
    actual = family_tests(np.zeros(2), np.array([0.3, 0.1]), permuted, ci=0.5)
    assert actual.p_value[1] == 1 and (actual.low[1], actual.high[1]) == (-1, 1)
    assert np.isnan(family_tests(np.zeros(1), np.array([np.nan]), permuted[:, :1]).p_value[0])


def test_swapped_ranks_equal_changed_signs():
    random = np.random.default_rng(31)
    labels = np.array([0, 0, 1, 1, 1, -1])[:, None]
    scores = [np.round(random.random((6, 1)), 1) for _ in range(2)]
    swaps = auc_swaps([scores[0]], [scores[1]], labels)
    kept = labels[:, 0] >= 0
    ranks = [stats.rankdata(part[kept, 0]) for part in scores]
    target = labels[kept, 0] == 1

    def auc(column):
        return (np.sign(column[target][:, None] - column[~target][None]) / 2 + 0.5).mean()

    for code in range(32):
        swap = np.array([code >> at & 1 for at in range(5)], dtype=bool)
        mixed = auc(np.where(swap, ranks[0], ranks[1])) - auc(np.where(swap, ranks[1], ranks[0]))
        sign = np.append(1 - 2 * swap, 1)
        assert (swaps.coefficients @ sign)[0] == pytest.approx(mixed, abs=1e-12)
        assert swaps.mean @ sign == pytest.approx(mixed, abs=1e-12)


def test_normal_approximation_of_many_samples():
    """Beyond 256 samples of a class the sum over the others is drawn from a normal distribution."""
    random = np.random.default_rng(32)
    labels = (random.random(1500) < 0.3).astype(int)[:, None]
    common = random.normal(size=(1500, 1)) + labels
    first, second = (common + random.normal(size=(1500, 1)) for _ in range(2))
    result = delong_test([first], [second + 0.1 * labels], labels)
    assert result.per_class.p_value[0] == pytest.approx(
        result.macro.p_value, abs=0.03
    )  # the mean is summed over all samples
    assert result.per_class.high[0] == pytest.approx(result.macro.high, abs=0.003)


def test_changed_images_are_sorted_by_change():
    none, missed, wrong = np.empty((2, 0), dtype=int), np.array([[0, 1, 1, 3], [0] * 4]), np.array([[2], [0]])
    first = PerImageCounts.from_events(none, none, missed, num_images=5, num_classes=1)
    second = PerImageCounts.from_events(missed, wrong, none, num_images=5, num_classes=1)
    changes = [(image.image, image.tp, image.fp, image.fn) for image in changed_images(first, second)]
    assert changes == [(1, 2, 0, -2), (0, 1, 0, -1), (3, 1, 0, -1), (2, 0, 1, 0)]


def test_runs_on_different_images_raise():
    first, second = (match_table(everywhere(1, num_images=number), 3) for number in (4, 5))
    with pytest.raises(MetricInputError, match="num_images"):
        paired_permutation_test(first, second)
    with pytest.raises(MetricInputError, match="num_images"):
        compare_counts(*(per_image_counts(table, score_thr=0.3) for table in (first, second)))
    other = match_table(everywhere(1, num_images=4), 3, iou_thr=0.6, iou_thrs=(0.6,))
    with pytest.raises(MetricInputError, match="IoU thresholds"):
        paired_permutation_test(first, other)
