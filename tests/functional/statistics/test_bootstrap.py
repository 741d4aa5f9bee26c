"""Confidence intervals: against formulas written out, against resamples made by hand, and where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.classification.auc import one_vs_rest_auc
from mm_metrics_plugin.functional.classification.confusion_matrix import confusion_matrix_report, stat_scores_report
from mm_metrics_plugin.functional.classification.delong import delong_ci, delong_test
from mm_metrics_plugin.functional.detection.average_precision import APCurves, average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.statistics.bootstrap import (
    TOO_FEW_IMAGES,
    TOO_FEW_OBJECTS,
    UNDEFINED,
    Interval,
    bootstrap_ci,
    bootstrap_counts,
    bootstrap_draws,
)
from mm_metrics_plugin.functional.statistics.per_image_counts import (
    PerImageCounts,
    WeightedMetrics,
    map_draws,
    per_image_counts,
)
from tests.helpers.coco_problems import match_table
from tests.helpers.detection_problems import everywhere
from tests.helpers.interval_reference import Ratio, auc_interval, count_intervals, f1_of, shrunken, wilson

BOX = np.array([0.0, 0.0, 10.0, 10.0])


def simple_run(random, num_images, quality):
    """One object an image and class 0; found with a chance, with a box beside it with a chance."""
    image = np.arange(num_images)
    hit = random.random(num_images) < quality
    clutter = np.repeat(image, random.poisson(0.6, num_images))
    boxes = np.concatenate([np.where(hit[:, None], BOX, BOX + 30), np.tile(BOX + 60, (len(clutter), 1))])
    scores = np.concatenate([random.beta(3, 2, num_images), random.beta(2, 3, len(clutter))])
    labels = np.zeros(len(boxes))
    gts = GroundTruths(image, np.tile(BOX, (num_images, 1)), np.zeros(num_images))
    return DetectionBatch(Detections(np.concatenate([image, clutter]), boxes, scores, labels), gts, num_images)


def table_at_50(batch, num_classes):
    """Matched at an IoU of 0.5 alone, so that AP_50 is the only average precision."""
    return match_table(batch, num_classes, iou_thrs=(0.5,))


def figures_of(table):
    return WeightedMetrics(per_image_counts(table, score_thr=0.3), APCurves(table, "all", 100))


# --- the bootstrap ----------------------------------------------------------------------------------------------------


def test_draws_equal_resampled_datasets():
    batch = everywhere(5, num_images=6)
    figures = figures_of(table_at_50(batch, 3))
    weights = np.concatenate(list(bootstrap_draws(6, draws=5, seed=3, batch_size=2)), axis=1)
    drawn = figures(weights)
    for draw, column in enumerate(weights.T):
        again = DetectionBatch.concatenate(
            [batch.images(image, image + 1) for image, weight in enumerate(column) for _ in range(weight)]
        )
        table = match_table(again, 3)
        theirs = stat_scores_report(*per_image_counts(table, score_thr=0.3).totals(), np.zeros(3))
        assert drawn.overall["precision"][draw] == pytest.approx(theirs.macro.precision, abs=1e-12)
        assert drawn.per_class["recall"][draw] == pytest.approx(theirs.per_class.recall, abs=1e-12)
        assert drawn.overall["mAP_50"][draw] == pytest.approx(average_precision(table).to_dict()["mAP_50"], abs=1e-12)


def test_seed_determines_the_draws_for_any_batch_size():
    figures = figures_of(table_at_50(everywhere(6), 3))
    parts = [
        map_draws(figures, bootstrap_draws(12, draws=30, seed=9, batch_size=batch_size)).overall["mAP_50"]
        for batch_size in (1, 7, 30)
    ]
    # The same draws; sums may round otherwise.
    assert np.allclose(parts[0], parts[1:], rtol=0, atol=1e-14)
    table = table_at_50(everywhere(6, num_images=60), 3)
    first, second, other = (bootstrap_ci(table, resamples=50, seed=seed).to_dict() for seed in (1, 1, 2))
    assert first["overall"] == second["overall"] != other["overall"]


def test_counts_of_a_classifier():
    random = np.random.default_rng(1)
    truth, found = random.integers(0, 4, 300), random.integers(-1, 4, 300)
    counts = PerImageCounts.from_labels(truth, found, num_classes=4)
    matrix = np.zeros((4, 5), dtype=np.int64)
    np.add.at(matrix, (truth, found), 1)
    theirs = confusion_matrix_report(matrix)
    for ours, expected in zip(counts.totals(), (theirs.tp, theirs.fp, theirs.fn)):
        assert np.array_equal(ours, expected)
    many = PerImageCounts.from_decisions(np.array([[1, 0], [-1, 1], [0, 1]]), np.array([[1, 1], [1, 0], [0, 1]]))
    assert [part.tolist() for part in many.totals()] == [[1, 1], [0, 1], [0, 1]]


def random_counts(random, images, classes, *, rate=0.4):
    """(images, classes) TP, FP, FN; classes become rarer."""
    rates = rate / np.arange(1, classes + 1)
    difficulty = random.gamma(2, 0.5, (images, 1))
    tp, fp, fn = (random.poisson(share * rates * difficulty, (images, classes)) for share in (3, 1, 1))
    return tp, fp, fn


def image_counts(tp, fp, fn):
    counts = np.stack([tp, fp, fn])
    image, label = np.nonzero(counts.any(axis=0))
    return PerImageCounts(len(tp), tp.shape[1], image, label, counts[:, image, label])


@pytest.mark.parametrize("seed", range(6))
def test_intervals_of_counts_equal_the_formulas(seed):
    random = np.random.default_rng(seed)
    tp, fp, fn = random_counts(random, 80, 5)
    result = bootstrap_counts(image_counts(tp, fp, fn), ci=0.9)
    for name, ends in count_intervals(tp, fp, fn, 0.9).items():
        assert (result.overall[name].low, result.overall[name].high) == pytest.approx(ends, abs=1e-10), name
    for name, trials in (("precision", tp + fp), ("recall", tp + fn), ("f1", tp + fp + fn)):
        for label in range(5):
            one, low, high = Ratio(tp[:, label], trials[:, label]), *(getattr(result.per_class[name], e) for e in ENDS)
            if name == "f1":
                enough, change = one.images >= 30, f1_of
            else:
                enough, change = one.trials >= 10 and one.images >= 5, float
            expected = [change(end) for end in one.interval(0.9)] if enough else [np.nan, np.nan]
            assert [low[label], high[label]] == pytest.approx(expected, abs=1e-10, nan_ok=True), (name, label)


ENDS = ("low", "high")


def test_intervals_of_average_precision_equal_the_formulas():
    table = table_at_50(everywhere(12, num_images=60), 3)
    result = bootstrap_ci(table, ci=0.9, resamples=40, seed=2)
    draws = map_draws(figures_of(table), bootstrap_draws(60, draws=40, seed=2, batch_size=64)).per_class["AP_50"]
    value = result.per_class["AP_50"].value
    chosen = table.grid.at(table.gt_counts, "all", 0.5)
    objects = np.bincount(table.gt_label[chosen], minlength=3)
    is_tp, is_tp_or_fp = (flag[table.ranked.order] for flag in table.flags(0.5, "all"))
    labels = table.label[table.ranked.order]
    near, biases, variances, floors = shrunken(value, objects), [], [], []
    for label in range(3):
        hits = is_tp[is_tp_or_fp & (labels == label)]
        bias = 0.0
        for earlier, at in enumerate(np.flatnonzero(hits)):  # rank at + 1, so many hits before it
            bias += (1 - (earlier + (1 + near[label]) / 2) / (at + 1)) / (at + 1) / objects[label]
        biases.append(bias)
        variances.append(draws[:, label].var() * 60 / 59)
        floors.append(near[label] * (1 - near[label]) / objects[label])
        images = len(np.unique(table.gt_image[chosen & (table.gt_label == label)]))
        share = near[label] - bias
        size = share * (1 - share) / max(variances[-1], floors[-1])
        ends = wilson(value[label], size, images, 0.9, center=value[label] - bias)
        if images >= 30:
            found = result.per_class["AP_50"]
            assert (found.low[label], found.high[label]) == pytest.approx(ends, abs=1e-10)
    total = draws.mean(axis=1).var() * 60 / 59
    total += sum(max(floor - variance, 0) for floor, variance in zip(floors, variances)) / 9
    share = np.mean(near) - np.mean(biases)
    with_objects = len(np.unique(table.gt_image[chosen]))
    ends = wilson(
        value.mean(), share * (1 - share) / total, with_objects - 1, 0.9, center=value.mean() - np.mean(biases)
    )
    assert (result.overall["mAP_50"].low, result.overall["mAP_50"].high) == pytest.approx(ends, abs=1e-10)


def test_intervals_of_proportions_of_0_and_1_have_a_width():
    """The mistake this replaces: [0, 0]."""
    counts = PerImageCounts.from_labels(np.zeros(13, dtype=int), np.ones(13, dtype=int), num_classes=2)
    recall = bootstrap_counts(counts).per_class["recall"]
    assert (recall.value[0], recall.low[0]) == (0, 0) and 0.15 < recall.high[0] < 0.35
    turned = PerImageCounts.from_labels(np.zeros(13, dtype=int), np.zeros(13, dtype=int), num_classes=2)
    recall = bootstrap_counts(turned).per_class["recall"]
    assert (recall.value[0], recall.high[0]) == (1, 1) and 0.65 < recall.low[0] < 0.85


@pytest.mark.parametrize("seed", range(8))
def test_intervals_contain_their_value_inside_0_to_1_and_have_a_width(seed):
    random = np.random.default_rng(seed)
    for images in (4, 20, 35, 200):
        batch = everywhere(seed, num_images=images)
        several = bootstrap_ci(match_table(batch, 3), resamples=20, seed=seed)
        single = bootstrap_counts(PerImageCounts.from_labels(*random.integers(0, 40, (2, images)), num_classes=40))
        for found in (several, single):
            for interval in (*found.overall.values(), *found.per_class.values()):
                value, low, high = (np.atleast_1d(part) for part in (interval.value, interval.low, interval.high))
                reason = np.atleast_1d(interval.reason)
                given = reason == ""
                assert np.array_equal(given, ~np.isnan(low)) and np.array_equal(given, ~np.isnan(high))
                assert ((low >= 0) & (low <= value) & (value <= high) & (high <= 1) & (low < high))[given].all()
                assert np.array_equal(reason == UNDEFINED, np.isnan(value))


def test_perfect_and_useless_detectors_have_intervals_too():
    image, box = np.arange(40), np.tile(BOX, (40, 1))
    for shift, value in ((0, 1.0), (30, 0.0)):
        found = Detections(image, box + shift, np.linspace(0.9, 0.5, 40), np.zeros(40))
        table = match_table(DetectionBatch(found, GroundTruths(image, box, np.zeros(40)), 40), 1)
        for name, interval in bootstrap_ci(table, resamples=50).overall.items():
            assert interval.value == pytest.approx(value) and 0.03 < interval.high - interval.low < 0.3, name


def test_reasons_without_an_interval():
    counts = PerImageCounts.from_labels(np.array([0, 1, 0]), np.array([0, 1, 1]), num_classes=3)
    result = bootstrap_counts(counts)
    recall = result.per_class["recall"]
    assert recall.reason.tolist() == [TOO_FEW_OBJECTS, TOO_FEW_OBJECTS, UNDEFINED] and np.isnan(recall.low).all()
    assert result.overall["f1"].reason == TOO_FEW_IMAGES
    assert result.to_dict()["per_class"]["recall"]["reason"] == [TOO_FEW_OBJECTS, TOO_FEW_OBJECTS, UNDEFINED]
    assert result.to_dict()["overall"]["recall_micro"]["reason"] == TOO_FEW_OBJECTS
    # From 10 objects in 5 images on, and from 30 images on.
    for images, per_image, enough in ((4, 5, False), (5, 2, True), (9, 1, False), (10, 1, True)):
        tp, fn = np.full((images, 1), per_image), np.zeros((images, 1), dtype=int)
        given = bootstrap_counts(image_counts(tp, fn, fn)).overall["recall_micro"].reason == ""
        assert given == enough
    for images, reason in ((29, TOO_FEW_IMAGES), (30, "")):
        tp, fp, fn = (np.full((images, 2), number) for number in (2, 1, 0))
        found = bootstrap_counts(image_counts(tp, fp, fn))
        for name in ("f1", "f1_of_means", "precision", "recall", "f1_micro"):
            assert found.overall[name].reason == reason, name
        assert found.per_class["f1"].reason.tolist() == [reason] * 2
        table = match_table(simple_run(np.random.default_rng(0), images, 0.7), 1)
        areas = bootstrap_ci(table, resamples=20)
        assert areas.overall["mAP_50"].reason == areas.per_class["AP_50"].reason[0] == reason
    assert str(Interval(0.5, np.nan, np.nan, TOO_FEW_IMAGES)) == "0.5000 (too few images)"
    with pytest.raises(ValueError, match="must"):
        bootstrap_counts(counts, ci=1.0)
    with pytest.raises(ValueError, match="must"):
        bootstrap_ci(match_table(everywhere(1), 3), resamples=0)


def test_equal_metrics_have_equal_intervals():
    random = np.random.default_rng(3)
    truth = random.integers(0, 3, 60)
    decided = np.where(random.random(60) < 0.7, truth, random.integers(0, 3, 60))
    overall = bootstrap_counts(PerImageCounts.from_labels(truth, decided, num_classes=3)).overall
    assert overall["precision_micro"] == overall["recall_micro"] == overall["f1_micro"]
    tp, fp, fn = random_counts(random, 60, 1, rate=1.0)
    found = bootstrap_counts(image_counts(tp, fp, fn))
    for mean, each in (("precision", "precision"), ("recall", "recall"), ("f1", "f1")):
        assert found.overall[mean].low == found.per_class[each].low[0]
    assert found.overall["f1_of_means"].low == found.overall["f1_micro"].low == found.per_class["f1"].low[0]


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
def test_delong_equals_its_definition(digits):
    random = np.random.default_rng(digits)
    labels = random.integers(0, 3, 70)
    first, second = (np.round(random.normal(size=(70, 3)) + np.eye(3)[labels], digits) for _ in range(2))
    ours, both = delong_ci([first[:30], first[30:]], labels, ci=0.9), delong_test([first], [second], labels)
    for label in range(3):
        aucs, covariance = direct(first[:, label], second[:, label], labels == label)
        assert ours.per_class.value[label] == pytest.approx(aucs[0], abs=1e-14)
        assert ours.standard_error[label] ** 2 == pytest.approx(covariance[0, 0], abs=1e-15)
        assert both.per_class.difference[label] == pytest.approx(aucs[1] - aucs[0], abs=1e-14)
        ends = [getattr(ours.per_class, name)[label] for name in ("value", "low", "high")]
        assert ends == pytest.approx(auc_interval(first[:, label], labels == label, 0.9), abs=1e-12)
    assert ours.per_class.value == pytest.approx(one_vs_rest_auc([first], labels), abs=1e-15)
    assert ours.macro.value == pytest.approx(ours.per_class.value.mean())


def test_separated_classes_have_an_interval_with_a_width():
    for positives, negatives in ((1, 1), (1, 50), (5, 5), (100, 100)):
        labels = np.repeat([1, 0], [positives, negatives])[:, None]
        for scores, value in ((labels + 0.0, 1.0), (-labels + 0.0, 0.0)):
            result = delong_ci([scores], labels)
            assert result.macro.value == value and result.macro.low <= value <= result.macro.high
            assert 0.01 < result.macro.high - result.macro.low < 0.999


def test_a_class_of_one_sample_does_not_take_the_interval_of_the_mean_away():
    """The mistake this replaces: NaN without a message."""
    random = np.random.default_rng(8)
    labels = np.array([0] * 30 + [1] * 30 + [2])
    result = delong_ci([random.random((61, 3)) + np.eye(3)[labels] * 0.5], labels)
    assert not np.isnan(result.per_class.low).any() and (result.per_class.low < result.per_class.high).all()
    assert 0 <= result.macro.low <= result.macro.value <= result.macro.high <= 1
    assert np.isnan(result.standard_error[2]) and not np.isnan(result.macro_standard_error)
    alone = delong_ci([random.random((61, 3)) + np.eye(3)[labels] * 0.5], np.where(labels == 2, 1, labels))
    assert result.macro.high - result.macro.low > alone.macro.high - alone.macro.low


def test_the_mean_of_two_complementary_classes_has_the_interval_of_one():
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
    ours, theirs = delong_ci([scores], labels), delong_ci([scores[kept]], labels[kept])
    assert ours.standard_error == pytest.approx(theirs.standard_error) and ours.macro == theirs.macro


def test_classes_whose_errors_cancel_in_every_image_still_have_intervals():
    image = np.arange(60)
    found, missed = (image, image % 2), (image, 1 - image % 2)  # of two objects per image, of two classes, always one
    counts = PerImageCounts.from_events(found, missed, missed, num_images=60, num_classes=2)
    for name, interval in bootstrap_counts(counts).overall.items():
        assert 0.4 < interval.low < 0.47 and 0.53 < interval.high < 0.6, name
