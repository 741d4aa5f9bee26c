"""Bootstrap and Wilson intervals compared with formulas and resampled datasets, and reasons for missing intervals."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection.average_precision import APCurves
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
from tests.helpers.detection_problems import crowded_images, everywhere, match_table
from tests.helpers.interval_reference import Ratio, count_intervals, f1_of, jaccard_ratios, shrunken, wilson

BOX = np.array([0.0, 0.0, 10.0, 10.0])


def table_at_50(batch, num_classes):
    """The match table at IoU 0.5 only, so AP_50 is the only average precision."""
    return match_table(batch, num_classes, iou_thrs=(0.5,))


def weighted_metrics(table):
    return WeightedMetrics(per_image_counts(table, score_thr=0.3), APCurves(table, "all", 100))


def test_seed_determines_the_draws_for_any_batch_size():
    metrics = weighted_metrics(table_at_50(everywhere(6), 3))
    parts = [
        map_draws(metrics, bootstrap_draws(12, draws=30, seed=9, batch_size=batch_size)).overall["mAP_50"]
        for batch_size in (1, 7, 30)
    ]
    # The same draws; sums may round otherwise.
    assert np.allclose(parts[0], parts[1:], rtol=0, atol=1e-14)
    table = table_at_50(everywhere(6, num_images=60), 3)
    first, second, other = (bootstrap_ci(table, resamples=50, seed=seed).to_dict() for seed in (1, 1, 2))
    assert first["overall"] == second["overall"] != other["overall"]


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
            ratio, interval = Ratio(tp[:, label], trials[:, label]), result.per_class[name].at(label)
            if name == "f1":
                ratio = jaccard_ratios(tp, fp, fn)[0][label]
                enough, transform = ratio.images >= 30 and ratio.effective_images >= 5, f1_of
            else:
                enough, transform = ratio.trials >= 10 and ratio.effective_images >= 5, float
            expected = [transform(end) for end in ratio.interval(0.9)] if enough else [np.nan, np.nan]
            assert [interval.low, interval.high] == pytest.approx(expected, abs=1e-10, nan_ok=True), (name, label)


def test_intervals_of_average_precision_equal_the_formulas():
    table = table_at_50(everywhere(12, num_images=60), 3)
    result = bootstrap_ci(table, ci=0.9, resamples=40, seed=2)
    draws = map_draws(weighted_metrics(table), bootstrap_draws(60, draws=40, seed=2, batch_size=64)).per_class["AP_50"]
    value = result.per_class["AP_50"].value
    chosen = table.grid.at(table.gt_valid, "all", 0.5)
    objects = np.bincount(table.gt_label[chosen], minlength=3)
    is_tp, is_tp_or_fp = (flag[table.ranked.order] for flag in table.tp_fp_masks(0.5, "all"))
    labels = table.label[table.ranked.order]
    near, biases, variances, floors, images = shrunken(value, objects), [], [], [], []
    for label in range(3):
        hits = is_tp[is_tp_or_fp & (labels == label)]
        bias = 0.0
        for earlier, at in enumerate(np.flatnonzero(hits)):  # its rank is at + 1, after ``earlier`` hits
            bias += (1 - (earlier + (1 + near[label]) / 2) / (at + 1)) / (at + 1) / objects[label]
        biases.append(bias)
        by_image = np.bincount(table.gt_image[chosen & (table.gt_label == label)], minlength=60)
        images.append(by_image)
        effective = by_image.sum() ** 2 / (by_image**2).sum()
        variances.append(draws[:, label].var() * effective / (effective - 1))
        floors.append(near[label] * (1 - near[label]) / objects[label])
        share = near[label] - bias
        size = share * (1 - share) / max(variances[-1], floors[-1])
        ends = wilson(value[label], size, effective, 0.9, center=value[label] - bias)
        if np.count_nonzero(by_image) >= 30:
            actual = result.per_class["AP_50"]
            assert (actual.low[label], actual.high[label]) == pytest.approx(ends, abs=1e-10)
    weight = sum(by_image / by_image.sum() for by_image in images)
    effective, alone = weight.sum() ** 2 / (weight**2).sum(), weight[sum(images) == 1].sum() / weight.sum()
    total = draws.mean(axis=1).var() * effective / (effective - 1)
    total += sum(max(floor - variance, 0) for floor, variance in zip(floors, variances)) / 9
    share = np.mean(near) - np.mean(biases)
    df = effective * (1 + alone) - 1
    ends = wilson(value.mean(), share * (1 - share) / total, df, 0.9, center=value.mean() - np.mean(biases))
    assert (result.overall["mAP_50"].low, result.overall["mAP_50"].high) == pytest.approx(ends, abs=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_intervals_contain_their_value_within_0_and_1(seed):
    random = np.random.default_rng(seed)
    for images in (4, 20, 35, 200):
        batch = everywhere(seed, num_images=images)
        several = bootstrap_ci(match_table(batch, 3), resamples=20, seed=seed)
        single = bootstrap_counts(PerImageCounts.from_labels(*random.integers(0, 40, (2, images)), num_classes=40))
        for actual in (several, single):
            for interval in (*actual.overall.values(), *actual.per_class.values()):
                value, low, high = (np.atleast_1d(part) for part in (interval.value, interval.low, interval.high))
                reason = np.atleast_1d(interval.reason)
                given = reason == ""
                assert np.array_equal(given, ~np.isnan(low)) and np.array_equal(given, ~np.isnan(high))
                assert ((low >= 0) & (low <= value) & (value <= high) & (high <= 1) & (low < high))[given].all()
                assert np.array_equal(reason == UNDEFINED, np.isnan(value))


def test_perfect_and_useless_detectors_have_intervals():
    image, box = np.arange(40), np.tile(BOX, (40, 1))
    for shift, value in ((0, 1.0), (30, 0.0)):
        detections = Detections(image, box + shift, np.linspace(0.9, 0.5, 40), np.zeros(40))
        table = match_table(DetectionBatch(detections, GroundTruths(image, box, np.zeros(40)), 40), 1)
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
        actual = bootstrap_counts(image_counts(tp, fp, fn))
        for name in ("f1", "f1_of_means", "precision", "recall", "f1_micro"):
            assert actual.overall[name].reason == reason, name
        assert actual.per_class["f1"].reason.tolist() == [reason] * 2
        table = match_table(crowded_images(images=images, columns=2, rows=2), 1)
        areas = bootstrap_ci(table, resamples=20)
        assert areas.overall["mAP_50"].reason == areas.per_class["AP_50"].reason[0] == reason
    assert str(Interval(0.5, np.nan, np.nan, TOO_FEW_IMAGES)) == "0.5000 (too few images)"
    with pytest.raises(ValueError, match="must"):
        bootstrap_counts(counts, ci=1.0)
    with pytest.raises(ValueError, match="must"):
        bootstrap_ci(match_table(everywhere(1), 3), resamples=0)


def test_equal_metrics_have_equal_intervals():
    random = np.random.default_rng(3)
    target = random.integers(0, 3, 60)
    decided = np.where(random.random(60) < 0.7, target, random.integers(0, 3, 60))
    overall = bootstrap_counts(PerImageCounts.from_labels(target, decided, num_classes=3)).overall
    assert overall["precision_micro"] == overall["recall_micro"] == overall["f1_micro"]
    tp, fp, fn = random_counts(random, 60, 1, rate=1.0)
    actual = bootstrap_counts(image_counts(tp, fp, fn))
    for mean, each in (("precision", "precision"), ("recall", "recall"), ("f1", "f1")):
        assert actual.overall[mean].low == actual.per_class[each].low[0]
    assert actual.overall["f1_of_means"].low == actual.overall["f1_micro"].low == actual.per_class["f1"].low[0]


def test_classes_whose_errors_cancel_in_every_image_still_have_intervals():
    image = np.arange(60)
    detected, missed = (
        (image, image % 2),
        (image, 1 - image % 2),
    )  # one of two ground truths each
    counts = PerImageCounts.from_events(detected, missed, missed, num_images=60, num_classes=2)
    for name, interval in bootstrap_counts(counts).overall.items():
        assert 0.4 < interval.low < 0.47 and 0.53 < interval.high < 0.6, name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PerImageCounts.from_labels([0, 2], [0, 1], num_classes=2), r"'labels' must be below num_classes=2"),
        (lambda: PerImageCounts.from_labels([0, 1], [0, 5], num_classes=2), r"'predicted' must be below num_classes=2"),
        (lambda: PerImageCounts.from_labels([0, -1], [0, 1], num_classes=2), r"'labels' must be whole numbers"),
        (lambda: PerImageCounts.from_labels([0, 1, 1], [0], num_classes=2), r"'predicted' must have the shape of"),
        (
            lambda: PerImageCounts.from_decisions([[0, 1]], [[1]]),
            r"the shape of 'targets', \(1, 2\) \(found \(1, 1\)\)",
        ),
        (
            lambda: PerImageCounts(1, 2, [1], [0], np.ones((3, 1))),
            r"'image' must be below num_images=1 \(found 1 in row 0",
        ),
        (lambda: PerImageCounts(1, 2, [0], [0], np.ones((2, 1))), r"must have shapes \(1,\) and \(3, 1\)"),
    ],
)
def test_invalid_counts_per_image_raise(make, message):
    with pytest.raises(MetricInputError, match=message):
        make()
