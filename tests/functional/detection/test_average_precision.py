"""One matching pass for all thresholds, image by image and by weights, beside matching again and pycocotools."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.functional.boxes import stable_order
from mm_metrics_plugin.functional.coco_ap import APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.matching import match
from mm_metrics_plugin.functional.scored_matches import COCO_IOU_THRESHOLDS, match_scores
from mm_metrics_plugin.functional.sizes import size_ranges, size_report
from mm_metrics_plugin.functional.weighted_ap import WeightedAP
from mm_metrics_plugin.states.scored_matches import ScoredMatchState
from tests.functional.detection_problems import accumulated, random_batch


def repeated(batch, weights):
    """The batch with every image as often as its weight says."""
    return DetectionBatch.concatenate(
        [batch.images(image, image + 1) for image, weight in enumerate(weights) for _ in range(int(weight))]
        or [batch.images(0, 0)]
    )


@pytest.mark.parametrize("seed", range(40))
def test_counts_at_any_score_are_those_of_matching_there(seed):
    batch, num_classes = random_batch(seed)
    matches = match_scores(batch, num_classes=num_classes, iou_thresholds=[0.5, 0.75])
    for iou in (0.5, 0.75):
        for score in (0.0, 0.3, 0.5, 0.9):
            there = match(
                batch.detections, batch.objects, num_classes=num_classes, iou_threshold=iou, score_threshold=score
            )
            tp = there.matrix.diagonal()[:-1]
            counts = matches.image_counts(score_threshold=score, iou_threshold=iou).totals()
            assert np.array_equal(counts[0], tp)
            assert np.array_equal(counts[1], there.matrix[:, :-1].sum(axis=0) - tp)
            assert np.array_equal(counts[2], there.matrix[:-1].sum(axis=1) - tp)


@pytest.mark.parametrize("seed", range(30))
def test_average_precision_with_weights_is_that_of_repeated_images(seed):
    batch, num_classes = random_batch(seed, ties=False)
    # Distinct scores: those of the same image would else stand copy by copy in the one and side by side in the other.
    scores = np.random.default_rng(seed).permutation(len(batch.detections)) / 1000
    batch = DetectionBatch(batch.detections._with(scores=scores), batch.objects, batch.num_images)
    matches = match_scores(batch, num_classes=num_classes, iou_thresholds=COCO_IOU_THRESHOLDS)
    weights = np.random.default_rng(seed).integers(0, 4, (batch.num_images, 4))
    weights[:, 0] = 1
    found = WeightedAP(matches)(weights)
    settings = APSettings(num_classes=num_classes)
    for draw, column in enumerate(weights.T):
        again = repeated(batch, column)
        theirs = average_precision(match_for_ap(again.detections, again.objects, settings), settings)
        assert np.allclose(found[:, draw], theirs.precision[0].mean(axis=2), rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("seed", range(15))
def test_average_precision_is_that_of_pycocotools_whatever_ties(seed):
    batch, num_classes = random_batch(seed)
    matches = match_scores(batch, num_classes=num_classes, iou_thresholds=COCO_IOU_THRESHOLDS)
    ours = WeightedAP(matches)(np.ones((batch.num_images, 1)))[:, 0]
    precision = accumulated(batch, num_classes)["precision"][:, :, :, 0, -1]
    theirs = np.where(precision == -1, np.nan, precision).mean(axis=1)
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12, equal_nan=True)


def test_recall_at_a_level_counts_as_pycocotools_has_it():
    # 7/100 is below the seventh level as a float, 29/100 is not: both must fall as they do there.
    for hits in (7, 14, 28, 29, 55, 57, 58):
        image = np.arange(100)
        boxes = np.tile([0.0, 0.0, 10.0, 10.0], (100, 1))
        batch = DetectionBatch.from_images(
            boxes=[[box] if index < hits else [] for index, box in enumerate(boxes)],
            scores=[[1 - index / 200] if index < hits else [] for index in image],
            labels=[[0] if index < hits else [] for index in image],
            object_boxes=boxes[:, None],
            object_labels=np.zeros((100, 1), dtype=int),
        )
        settings = APSettings(num_classes=1)
        theirs = average_precision(match_for_ap(batch.detections, batch.objects, settings), settings).at_iou(0.5)
        assert np.array_equal(WeightedAP(match_scores(batch, num_classes=1))(np.ones((100, 1)))[0, 0], theirs)


def test_shards_give_the_same_bits_in_any_order():
    batch, num_classes = random_batch(8)
    whole = ScoredMatchState(num_classes).update(batch, np.arange(batch.num_images)).matches()
    parts = [
        ScoredMatchState(num_classes).update(batch.images(image, image + 1), np.array([image]))
        for image in reversed(range(batch.num_images))
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    joined = merged.with_arrays(merged.arrays()).matches()
    assert np.array_equal(joined.image_keys, whole.image_keys)
    for name, value in vars(whole.records).items():
        assert getattr(joined.records, name).tobytes() == value.tobytes(), name
    assert np.array_equal(joined.object_label, whole.object_label)
    assert ScoredMatchState(3).matches() is None


def test_nms_comes_first():
    batch, num_classes = random_batch(12, odd_boxes=False)
    assert len(batch.detections)
    twice = batch.detections.take(np.repeat(np.arange(len(batch.detections)), 2))
    batch = DetectionBatch(twice, batch.objects, batch.num_images)
    state = ScoredMatchState(num_classes, nms_iou_threshold=0.9).update(batch, np.arange(batch.num_images))
    assert 0 < len(state.matches().records.score) <= len(twice) / 2


def test_an_unknown_threshold_is_refused():
    batch, num_classes = random_batch(1)
    with pytest.raises(ValueError, match=r"'iou_threshold' must be one of \(0.5,\) \(found 0.6\)"):
        match_scores(batch, num_classes=num_classes).flags(0.6)


@pytest.mark.parametrize("seed", range(10))
def test_sizes_are_those_of_pycocotools(seed):
    batch, num_classes = random_batch(seed, odd_boxes=False)
    report = size_report(batch, num_classes=num_classes, score_threshold=0.0)
    evaluation = accumulated(batch, num_classes)
    precision = evaluation["precision"][..., -1]  # thresholds, levels, classes, sizes
    theirs = np.where(precision == -1, np.nan, precision)
    assert np.allclose(report.average_precision, theirs.mean(axis=(0, 1)).T, rtol=0, atol=1e-12, equal_nan=True)
    assert np.allclose(report.average_precision_50, theirs[0].mean(axis=0).T, rtol=0, atol=1e-12, equal_nan=True)
    recall = evaluation["recall"][0, :, :, -1].T
    defined = report.objects > 0
    assert np.array_equal(np.where(defined, report.tp / np.maximum(report.objects, 1), -1), recall)


def test_own_edges_split_the_objects():
    batch, num_classes = random_batch(5, crowds=False)
    report = size_report(batch, num_classes=num_classes, edges=[50.5, 120.5, 300.5])
    assert report.objects[0].sum() == report.objects[1:].sum() == len(batch.objects) and len(report.figures()) == 5
    with pytest.raises(ValueError, match="ascending"):
        size_ranges([100, 50])


def test_rows_stand_by_class_and_score():
    batch, num_classes = random_batch(11)
    records = match_scores(batch, num_classes=num_classes).records
    order = stable_order(records.label, -records.score, records.image)
    assert np.array_equal(order, np.arange(len(order)))
