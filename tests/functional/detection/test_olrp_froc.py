"""oLRP and FROC: undefined values, ignored objects, ties, precision of scores, slices of images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, froc, match_images, olrp
from mm_metrics_plugin.functional.detection.match_table import Outcome
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers.detection_problems import counts_at, empty_batch, everywhere, mixed_precision, random_batch

BOX, FAR = [0, 0, 10, 10], [50, 50, 60, 60]


def table_of(boxes, scores, labels, gt_boxes, gt_labels, *, num_classes, **columns):
    zeros, gt_zeros = np.zeros(len(boxes), dtype=int), np.zeros(len(gt_boxes), dtype=int)
    batch = DetectionBatch(
        Detections(zeros, boxes, scores, labels), GroundTruths(gt_zeros, gt_boxes, gt_labels, **columns), 1
    )
    return match_images(batch, num_classes=num_classes).table


def per_class(table):
    return np.array(list(olrp(table).per_class.values()), dtype=float).T.round(6).tolist()


def test_classes_without_objects_or_true_positives():
    table = table_of([BOX, FAR, FAR], [0.9, 0.8, 0.7], [0, 1, 2], [BOX, BOX], [0, 1], num_classes=3)
    correct, missed, absent = per_class(table)
    assert correct == [0, 0, 0, 0, 0.9]
    np.testing.assert_equal(missed, [1, np.nan, np.nan, 1, np.nan])
    np.testing.assert_equal(absent, [np.nan] * 5)
    assert olrp(table).means() == {"oLRP": 0.5, "oLRP_Loc": 0, "oLRP_FP": 0, "oLRP_FN": 0.5}
    values = froc(table).class_values()
    np.testing.assert_equal(values["FROC"], [1, 0, np.nan])
    assert froc(table).values()["FROC"] == froc(table).values()["sensitivity@0.125"] == 0.5


@pytest.mark.parametrize("batch", [empty_batch(2), empty_batch(0)])
def test_without_objects_everything_is_undefined(batch):
    table = match_images(batch, num_classes=2).table
    assert np.isnan([*olrp(table).means().values(), *froc(table).values().values()]).all()


@pytest.mark.parametrize("column", ["crowd", "ignore"])
def test_detections_matched_to_ignored_objects_do_not_count(column):
    boxes, scores = [BOX, [50, 50, 60, 57]], [0.5, 0.9]
    table = table_of(boxes, scores, [0, 0], [BOX, FAR], [0, 0], num_classes=1, **{column: [False, True]})
    assert table.details.overlap.max() == 1 and table.details.overlap.min() > 0.6
    assert per_class(table) == [[0, 0, 0, 0, 0.5]]
    assert set(froc(table).values().values()) == {1}


def test_detections_of_equal_score_are_taken_together():
    """Without the detection on background, oLRP would be 0."""
    table = table_of([BOX, FAR], [0.5, 0.5], [0, 0], [BOX], [0], num_classes=1)
    assert per_class(table) == [[0.5, 0, 0.5, 0, 0.5]]
    assert froc(table).values()["sensitivity@0.5"] == 0.5  # half way to one false positive per image


def test_of_equal_errors_the_highest_threshold_is_the_best():
    """The second detection matches at the IoU threshold, so it is as bad as a false negative."""
    table = table_of([BOX, [50, 50, 60, 55]], [0.9, 0.4], [0, 0], [BOX, FAR], [0, 0], num_classes=1)
    assert table.tp_fp_masks(0.5)[0].all()
    assert per_class(table) == [[0.5, 0, 0, 0.5, 0.9]]


def test_a_table_without_details_has_froc_only():
    batch = everywhere(0)
    full, scores = (match_images(batch, num_classes=3, keep=keep).table for keep in ("full", "scores"))
    assert froc(full).values() == froc(scores).values()
    with pytest.raises(ValueError, match="keep='full'"):
        olrp(scores)


@pytest.mark.parametrize("seed", range(12))
def test_components_are_those_of_the_confusion_matrix_at_the_threshold(seed):
    """Also if the scores of each image have another precision, to which the threshold is rounded."""
    batch, num_classes = mixed_precision(everywhere(seed), seed), 3
    settings = DetectionSettings(score_thr=0.9)
    result = olrp(match_images(batch, settings, num_classes=num_classes).table)
    for label, threshold in enumerate(result.thresholds):
        for score_thr in (float(threshold), float(threshold.text)):
            tp, fp, fn = (int(count[label]) for count in counts_at(batch, num_classes, score_thr))
            components = result.false_positive[label], result.false_negative[label]
            assert components == pytest.approx((fp / (tp + fp), fn / (tp + fn)), abs=1e-12)
        again = match_images(batch, replace(settings, score_thr=float(threshold)), num_classes=num_classes).table
        is_tp = (again.label == label) & (again.details.outcome == Outcome.TP)
        error = 1 - again.details.overlap[is_tp].astype(float)
        assert result.localization[label] == pytest.approx(error.mean(), abs=1e-12)
        assert result.olrp[label] == pytest.approx((2 * error.sum() + fp + fn) / (tp + fp + fn), abs=1e-12)


def test_froc_counts_the_false_positives_of_all_images():
    """An image without instances halves the number of false positives per image."""
    for seed in range(10):
        batch, num_classes = random_batch(seed)
        twice = replace(batch, num_images=2 * batch.num_images)
        one, two = (froc(match_images(each, num_classes=num_classes, keep="scores").table) for each in (batch, twice))
        keys = [f"sensitivity@{fps}" for fps in ("0.125", "0.25", "0.5", "1", "2", "4", "8")]
        for fewer, more in zip(keys, keys[1:]):
            np.testing.assert_allclose(two.values()[fewer], one.values()[more], rtol=0, atol=1e-12)


def test_a_slice_has_the_values_of_its_images():
    batch = everywhere(3)
    table = match_images(batch, num_classes=3).table
    alone = match_images(batch.images(0, 5), num_classes=3).table
    sliced = table.select_images(np.arange(5))
    for function in (olrp, froc):
        np.testing.assert_equal(function(sliced).to_dict(), function(alone).to_dict())
