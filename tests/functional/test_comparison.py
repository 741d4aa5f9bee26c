"""Tests of two runs: against SciPy, and how often they see what is not there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.comparison import changed_images, compare_counts, compare_detection, holm
from mm_metrics_plugin.functional.delong import compare_auc
from mm_metrics_plugin.functional.detection import APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.image_counts import ImageCounts
from mm_metrics_plugin.functional.scored_matches import COCO_IOU_THRESHOLDS, match_scores
from tests.functional.detection_problems import everywhere
from tests.functional.test_intervals import simple_run

REJECTED = (0.03, 0.07)


def counts_of(random, ease):
    """Four objects an image, found by chance; wrong detections the more, the harder the image."""
    number = len(ease)
    tp = random.binomial(4, ease)
    fp = random.poisson(2.5 * (1 - ease))
    return ImageCounts(number, 1, np.arange(number), np.zeros(number, dtype=int), np.stack([tp, fp, 4 - tp]))


def test_equal_runs_are_told_apart_as_often_as_said():
    random, runs = np.random.default_rng(21), 500
    rejected = dict.fromkeys(("micro_precision", "micro_recall", "micro_f1"), 0)
    for run in range(runs):
        ease = random.beta(3, 2, 80)
        result = compare_counts(
            counts_of(random, ease), counts_of(random, ease), resamples=2, permutations=199, seed=run
        )
        for name in rejected:
            rejected[name] += result.overall[name].p_value <= 0.05
    for name, count in rejected.items():
        assert REJECTED[0] <= count / runs <= REJECTED[1], (name, count / runs)


def test_equal_detectors_are_told_apart_as_often_as_said():
    random, runs = np.random.default_rng(22), 400
    rejected = 0
    for run in range(runs):
        first, second = (match_scores(simple_run(random, 60, 0.7), num_classes=1) for _ in range(2))
        result = compare_detection(first, second, score_threshold=0.5, resamples=2, permutations=99, seed=run)
        rejected += result.overall["mAP_50"].p_value <= 0.05
    assert REJECTED[0] <= rejected / runs <= REJECTED[1], rejected / runs


def test_equal_classifiers_are_told_apart_as_often_as_said():
    random, runs = np.random.default_rng(23), 500
    labels = (np.arange(150) % 3 == 0).astype(int)[:, None]
    rejected = 0
    for _ in range(runs):
        common = random.normal(size=(150, 1)) + labels
        first, second = (common + random.normal(size=(150, 1)) for _ in range(2))
        rejected += compare_auc([first], [second], labels).macro_p_value <= 0.05
    assert REJECTED[0] <= rejected / runs <= REJECTED[1], rejected / runs


def test_a_better_run_is_found():
    random = np.random.default_rng(24)
    ease = random.beta(3, 2, 200)
    better = compare_counts(counts_of(random, ease), counts_of(random, np.minimum(ease + 0.15, 1)))
    assert better.overall["micro_recall"].p_value < 0.01 and better.overall["micro_recall"].low > 0
    first, second = (match_scores(simple_run(random, 200, quality), num_classes=1) for quality in (0.55, 0.8))
    assert compare_detection(first, second, permutations=199).overall["mAP_50"].p_value < 0.02


def test_the_p_value_is_scipys():
    pytest.importorskip("scipy", minversion="1.9")  # older ones have no permutation test
    random = np.random.default_rng(25)
    truth = np.zeros(40, dtype=int)
    found = [np.where(random.random(40) < share, 0, 1) for share in (0.6, 0.8)]
    runs = [ImageCounts.from_labels(truth, labels, num_classes=2) for labels in found]
    ours = compare_counts(*runs, permutations=20000, resamples=2).per_class["recall"]
    right = [(labels == 0).astype(float) for labels in found]
    theirs = stats.permutation_test(
        right, lambda a, b, axis: b.mean(axis=axis) - a.mean(axis=axis), permutation_type="samples",
        n_resamples=20000, vectorized=True, random_state=0,
    )  # fmt: skip
    assert ours.difference[0] == pytest.approx(theirs.statistic)
    assert ours.p_value[0] == pytest.approx(theirs.pvalue, abs=0.01)


def test_swapping_is_swapping():
    """All swaps of a few images, each made anew from boxes."""
    first, second = everywhere(7, num_images=4), everywhere(8, num_images=4)
    second = DetectionBatch(second.detections, first.objects, 4)
    matches = [match_scores(batch, num_classes=3) for batch in (first, second)]
    result = compare_detection(*matches, permutations=4000, resamples=2).overall["mAP_50"]
    settings = APSettings(num_classes=3)

    def value(parts):
        batch = DetectionBatch.concatenate([run.images(image, image + 1) for image, run in enumerate(parts)])
        return average_precision(match_for_ap(batch.detections, batch.objects, settings), settings).to_dict()["mAP_50"]

    apart = []
    for code in range(16):
        swap = [bool(code >> image & 1) for image in range(4)]
        apart.append(
            value([first if flag else second for flag in swap]) - value([second if flag else first for flag in swap])
        )
    assert result.difference == pytest.approx(apart[0], abs=1e-12)
    exact = np.mean(np.abs(apart) >= abs(apart[0]) - 1e-12)
    assert result.p_value == pytest.approx(exact, abs=0.03)


def test_a_run_is_no_better_than_itself():
    matches = match_scores(everywhere(9), num_classes=3, iou_thresholds=COCO_IOU_THRESHOLDS)
    result = compare_detection(matches, matches, resamples=20, permutations=20)
    for name, difference in result.overall.items():
        parts = (difference.difference, difference.low, difference.high)
        assert parts == pytest.approx((0, 0, 0), abs=1e-14) and difference.p_value == 1, name
    assert {"mAP", "mAP_50", "mAP_75"} <= set(result.overall)
    assert changed_images(*[matches.image_counts(score_threshold=0.3)] * 2) == ()
    assert result.to_dict()["overall"]["mAP"]["p_value"] == 1.0


def test_holm_by_hand():
    random = np.random.default_rng(26)
    p_values = random.random(12) ** 3
    order = np.argsort(p_values)
    expected, highest = np.empty(12), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (12 - rank) * p_values[index]))
        expected[index] = highest
    assert holm(p_values) == pytest.approx(expected)
    assert holm(np.array([])).shape == (0,)


def test_classes_are_corrected_and_enough_swaps_made():
    random = np.random.default_rng(27)
    truth = random.integers(0, 60, 400)
    runs = [
        ImageCounts.from_labels(truth, np.where(random.random(400) < 0.7, truth, 0), num_classes=60) for _ in range(2)
    ]
    result = compare_counts(*runs, resamples=2)
    assert result.permutations == 1500
    assert np.array_equal(result.per_class["f1"].p_adjusted, holm(result.per_class["f1"].p_value), equal_nan=True)


def test_the_images_that_changed_most_come_first():
    truth = np.zeros(5, dtype=int)
    events = [(np.array([0, 1, 1, 3]), np.zeros(4, dtype=int)), (np.array([2]), np.array([0])), (truth[:0], truth[:0])]
    first = ImageCounts.from_events(
        (truth[:0], truth[:0]), (truth[:0], truth[:0]), events[0], num_images=5, num_classes=1
    )
    second = ImageCounts.from_events(*events, num_images=5, num_classes=1)
    changed = changed_images(first, second)
    assert [(image.image, image.tp, image.fp, image.fn) for image in changed] == [
        (1, 2, 0, -2), (0, 1, 0, -1), (3, 1, 0, -1), (2, 0, 1, 0),
    ]  # fmt: skip
    assert len(changed_images(first, second, most=2)) == 2


def test_runs_of_other_images_are_refused():
    first, second = (match_scores(everywhere(1, num_images=number), num_classes=3) for number in (4, 5))
    with pytest.raises(MetricInputError, match="same images"):
        compare_detection(first, second)
    counts = [matches.image_counts(score_threshold=0.3) for matches in (first, second)]
    with pytest.raises(MetricInputError, match="num_images"):
        compare_counts(*counts)
    other = match_scores(everywhere(1, num_images=4), num_classes=3, iou_thresholds=[0.6])
    with pytest.raises(MetricInputError, match="IoU thresholds"):
        compare_detection(first, other)
