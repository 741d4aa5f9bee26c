"""Intervals: of draws made by hand, of DeLong's by its definition, and whether they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.auc import one_vs_rest_auc
from mm_metrics_plugin.functional.confusion import confusion_report, counts_report
from mm_metrics_plugin.functional.delong import auc_intervals, compare_auc
from mm_metrics_plugin.functional.detection import APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.image_counts import ImageCounts
from mm_metrics_plugin.functional.intervals import bootstrap_counts, bootstrap_detection, bootstrap_means
from mm_metrics_plugin.functional.resampling import WeightedFigures, drawn_images, over_draws, quantiles
from mm_metrics_plugin.functional.scored_matches import COCO_IOU_THRESHOLDS, match_scores
from tests.functional.detection_problems import everywhere

BOX = np.array([0.0, 0.0, 10.0, 10.0])
COVERED = (0.92, 0.98)


def simple_run(random, num_images, quality):
    """One object an image and class 0; found with a chance, with a box beside it with a chance."""
    image = np.arange(num_images)
    hit = random.random(num_images) < quality
    clutter = np.repeat(image, random.poisson(0.6, num_images))
    boxes = np.concatenate([np.where(hit[:, None], BOX, BOX + 30), np.tile(BOX + 60, (len(clutter), 1))])
    scores = np.concatenate([random.beta(3, 2, num_images), random.beta(2, 3, len(clutter))])
    labels = np.zeros(len(boxes))
    objects = Objects(image, np.tile(BOX, (num_images, 1)), np.zeros(num_images))
    return DetectionBatch(Detections(np.concatenate([image, clutter]), boxes, scores, labels), objects, num_images)


# --- the bootstrap ----------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_reports():
    batch = everywhere(4)
    matches = match_scores(batch, num_classes=3, iou_thresholds=COCO_IOU_THRESHOLDS)
    result = bootstrap_detection(matches, score_threshold=0.4, resamples=20)
    counts = matches.image_counts(score_threshold=0.4)
    theirs = counts_report(*counts.totals(), np.zeros(3))
    assert result.per_class["f1"].value == pytest.approx(theirs.per_class.f_score)
    for ours, value in (
        ("mean_precision", theirs.macro.precision),
        ("mean_recall", theirs.macro.recall),
        ("macro_f1", theirs.macro.f_score),
        ("f1_of_means", theirs.f_of_means),
        ("micro_precision", theirs.micro.precision),
        ("micro_recall", theirs.micro.recall),
        ("micro_f1", theirs.micro.f_score),
    ):
        assert result.overall[ours].value == pytest.approx(value, abs=1e-12), ours
    settings = APSettings(num_classes=3)
    theirs = average_precision(match_for_ap(batch.detections, batch.objects, settings), settings)
    for name in ("mAP", "mAP_50", "mAP_75"):
        assert result.overall[name].value == pytest.approx(theirs.to_dict()[name], abs=1e-12)
    assert result.per_class["AP"].value == pytest.approx(theirs.per_class, abs=1e-12)
    assert result.to_dict()["overall"]["mAP"]["value"] == result.overall["mAP"].value


def test_draws_are_those_of_data_put_together_anew():
    batch = everywhere(5, num_images=6)
    matches = match_scores(batch, num_classes=3)
    counts = matches.image_counts(score_threshold=0.3)
    figures = WeightedFigures(counts, matches)
    weights = np.concatenate(list(drawn_images(6, draws=5, seed=3, at_once=2)), axis=1)
    drawn = figures(weights)
    settings = APSettings(num_classes=3)
    for draw, column in enumerate(weights.T):
        again = DetectionBatch.concatenate(
            [batch.images(image, image + 1) for image, weight in enumerate(column) for _ in range(weight)]
        )
        there = match_scores(again, num_classes=3)
        theirs = counts_report(*there.image_counts(score_threshold=0.3).totals(), np.zeros(3))
        assert drawn.overall["mean_precision"][draw] == pytest.approx(theirs.macro.precision, abs=1e-12)
        assert drawn.per_class["recall"][draw] == pytest.approx(theirs.per_class.recall, abs=1e-12)
        ap = average_precision(match_for_ap(again.detections, again.objects, settings), settings).to_dict()
        assert drawn.overall["mAP_50"][draw] == pytest.approx(ap["mAP_50"], abs=1e-12)


def test_the_same_seed_gives_the_same_interval_however_it_is_cut():
    matches = match_scores(everywhere(6), num_classes=3)
    figures = WeightedFigures(matches.image_counts(score_threshold=0.3), matches)
    parts = [
        over_draws(figures, drawn_images(12, draws=30, seed=9, at_once=at_once)).overall["mAP_50"]
        for at_once in (1, 7, 30)
    ]
    # The same draws; sums may round otherwise.
    assert np.allclose(parts[0], parts[1:], rtol=0, atol=1e-14)
    first, second, other = (bootstrap_detection(matches, resamples=50, seed=seed).to_dict() for seed in (1, 1, 2))
    assert first == second and first != other


def test_quantiles_are_numpys():
    random = np.random.default_rng(0)
    draws = random.random((41, 5))
    draws[random.random(draws.shape) < 0.3] = np.nan
    draws[:, 4] = np.nan
    shares = np.array([0.025, 0.5, 0.975])
    assert np.allclose(quantiles(draws[:, :4], shares), np.nanquantile(draws[:, :4], shares, axis=0))
    assert np.isnan(quantiles(draws, shares)[:, 4]).all()


def test_counts_of_a_classifier():
    random = np.random.default_rng(1)
    truth, found = random.integers(0, 4, 300), random.integers(-1, 4, 300)
    counts = ImageCounts.from_labels(truth, found, num_classes=4)
    matrix = np.zeros((4, 5), dtype=np.int64)
    np.add.at(matrix, (truth, found), 1)
    theirs = confusion_report(matrix)
    for ours, expected in zip(counts.totals(), (theirs.tp, theirs.fp, theirs.fn)):
        assert np.array_equal(ours, expected)
    many = ImageCounts.from_decisions(np.array([[1, 0], [-1, 1], [0, 1]]), np.array([[1, 1], [1, 0], [0, 1]]))
    assert [part.tolist() for part in many.totals()] == [[1, 1], [0, 1], [0, 1]]
    assert many.of_images(np.array([True, False, False])).totals()[1].tolist() == [0, 1]


def test_a_class_that_is_not_there_has_no_interval():
    counts = ImageCounts.from_labels(np.array([0, 1, 0]), np.array([0, 1, 1]), num_classes=3)
    result = bootstrap_counts(counts, resamples=50)
    assert np.isnan(result.per_class["recall"].low[2]) and not np.isnan(result.per_class["recall"].low[0])
    for options in (dict(level=1.0), dict(resamples=0)):
        with pytest.raises(ValueError, match="must"):
            bootstrap_counts(counts, **options)


def test_rates_are_covered():
    """500 samples of images that differ in difficulty, so that detections of an image are not independent."""
    random, runs, number = np.random.default_rng(11), 500, 120
    truth = {"micro_precision": 0.6 * 4 / (0.6 * 4 + 1.0), "micro_recall": 0.6}
    hits = dict.fromkeys(truth, 0)
    for run in range(runs):
        ease = random.beta(3, 2, number)  # mean 0.6
        tp = random.binomial(4, ease)
        fp = random.poisson(2.5 * (1 - ease))  # mean 1
        image = np.arange(number)
        counts = ImageCounts(number, 1, image, np.zeros(number, dtype=int), np.stack([tp, fp, 4 - tp]))
        result = bootstrap_counts(counts, resamples=250, seed=run)
        for name, value in truth.items():
            hits[name] += result.overall[name].low <= value <= result.overall[name].high
    for name, count in hits.items():
        assert COVERED[0] <= count / runs <= COVERED[1], (name, count / runs)


def test_average_precision_is_covered():
    random, runs = np.random.default_rng(12), 500
    everything = match_scores(simple_run(random, 60000, 0.7), num_classes=1)
    truth = float(
        WeightedFigures(everything.image_counts(score_threshold=0.5), everything).of_all().overall["mAP_50"][0]
    )
    covered, percentile = 0, 0
    for run in range(runs):
        matches = match_scores(simple_run(random, 400, 0.7), num_classes=1)
        interval = bootstrap_detection(matches, resamples=200, seed=run).overall["mAP_50"]
        covered += interval.low <= truth <= interval.high
        percentile += 2 * interval.value - interval.high <= truth <= 2 * interval.value - interval.low
    assert COVERED[0] <= covered / runs <= COVERED[1], covered / runs
    assert percentile < covered  # why they are reflected


def test_means_are_those_of_scipy():
    pytest.importorskip("scipy", minversion="1.7")  # older ones have no bootstrap
    random = np.random.default_rng(3)
    values = random.exponential(size=(400, 2))
    values[:40, 1] = np.nan
    ours = bootstrap_means(values, resamples=3000, names=["a", "b"])
    for name, column in (("a", values[:, 0]), ("b", values[40:, 1])):
        theirs = stats.bootstrap((column,), np.mean, n_resamples=3000, method="percentile", random_state=0)
        assert ours[name].value == pytest.approx(column.mean())
        assert ours[name].low == pytest.approx(theirs.confidence_interval.low, abs=0.02)
        assert ours[name].high == pytest.approx(theirs.confidence_interval.high, abs=0.02)


# --- DeLong -----------------------------------------------------------------------------------------------------------


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
def test_delong_is_its_definition(digits):
    random = np.random.default_rng(digits)
    labels = random.integers(0, 3, 70)
    first, second = (np.round(random.normal(size=(70, 3)) + np.eye(3)[labels], digits) for _ in range(2))
    ours, both = auc_intervals([first[:30], first[30:]], labels), compare_auc([first], [second], labels, level=0.9)
    for label in range(3):
        aucs, covariance = direct(first[:, label], second[:, label], labels == label)
        assert ours.per_class.value[label] == pytest.approx(aucs[0], abs=1e-14)
        assert ours.standard_error[label] ** 2 == pytest.approx(covariance[0, 0], abs=1e-15)
        assert both.difference.value[label] == pytest.approx(aucs[1] - aucs[0], abs=1e-14)
        error = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
        assert both.p_value[label] == pytest.approx(2 * stats.norm.sf(abs(aucs[1] - aucs[0]) / error), abs=1e-12)
        low, high = stats.norm.interval(0.9, aucs[1] - aucs[0], error)
        assert (both.difference.low[label], both.difference.high[label]) == pytest.approx((low, high), abs=1e-12)
    assert ours.per_class.value == pytest.approx(one_vs_rest_auc([first], labels), abs=1e-15)
    assert ours.macro.value == pytest.approx(ours.per_class.value.mean())


def test_the_mean_of_two_classes_of_one_score_is_as_sure_as_either():
    random = np.random.default_rng(4)
    labels = random.integers(0, 2, 90)
    score = random.normal(size=90) + labels
    result = auc_intervals([np.stack([-score, score], axis=1)], labels)
    assert result.macro_standard_error == pytest.approx(result.standard_error[1], abs=1e-15)
    assert result.macro_standard_error == pytest.approx(result.standard_error[0], abs=1e-15)


def test_auc_is_covered():
    random, runs = np.random.default_rng(5), 500
    truth = stats.norm.cdf(1 / np.sqrt(2))
    labels = np.arange(150) % 3 == 0
    scores = random.normal(size=(runs, 150)) + labels
    found = [auc_intervals([row[:, None]], labels[:, None].astype(int)).macro for row in scores]
    covered = np.mean([interval.low <= truth <= interval.high for interval in found])
    assert COVERED[0] <= covered <= COVERED[1], covered


def test_the_mean_auc_of_classes_is_covered():
    random, runs = np.random.default_rng(6), 500
    truth = stats.norm.cdf(1 / np.sqrt(2))  # each class against the rest, whatever their shares
    covered = 0
    for _ in range(runs):
        labels = random.integers(0, 4, 160)
        # A common part makes the classes' AUCs depend on each other.
        noise = np.sqrt(0.5) * (random.normal(size=(160, 4)) + random.normal(size=(160, 1)))
        macro = auc_intervals([noise + np.eye(4)[labels]], labels).macro
        covered += macro.low <= truth <= macro.high
    assert COVERED[0] <= covered / runs <= COVERED[1], covered / runs


def test_undefined_aucs_stay_so():
    scores = np.random.default_rng(0).random((6, 3))
    result = auc_intervals([scores], np.array([0, 0, 1, 1, 0, 1]))
    assert np.isnan(result.per_class.value[2]) and not np.isnan(result.macro.low)
    both = compare_auc([scores], [scores], np.array([0, 0, 1, 1, 0, 1]))
    assert both.macro_p_value == 1 and np.isnan(both.p_value[2]) and both.macro.value == 0
    with pytest.raises(MetricInputError, match="6 rows"):
        compare_auc([scores], [scores[:5]], np.zeros(6, dtype=int))


def test_ignored_samples_do_not_count():
    random = np.random.default_rng(7)
    scores, labels = random.random((40, 1)), random.integers(-1, 2, (40, 1))
    kept = labels[:, 0] >= 0
    ours, theirs = auc_intervals([scores], labels), auc_intervals([scores[kept]], labels[kept])
    assert ours.standard_error == pytest.approx(theirs.standard_error) and ours.macro == theirs.macro
