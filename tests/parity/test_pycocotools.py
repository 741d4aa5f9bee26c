"""Average precision, average recall and results by size compared with pycocotools, with and without image weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection import pairs
from mm_metrics_plugin.functional.detection.average_precision import APCurves, average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.results_by_size import results_by_size
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.settings import COCO_IOU_THRS
from tests.helpers.detection_problems import (
    accumulated,
    coco_summary,
    dense_batch,
    empty_batch,
    match_table,
    random_batch,
    undefined_as_nan,
    with_areas,
)


def repeated(batch, weights):
    """The batch with every image repeated by its weight."""
    parts = [batch.images(at, at + 1) for at in np.repeat(np.arange(len(weights)), weights)]
    return DetectionBatch.concatenate(parts or [batch.images(0, 0)])


@pytest.mark.parametrize("block", [None, 3])
def test_all_twelve_numbers_equal_pycocotools(block, monkeypatch):
    if block:
        monkeypatch.setattr(pairs, "_BLOCK_CANDIDATES", block)
    undefined = between = 0
    for seed in range(60) if block else range(220):
        batch, num_classes = random_batch(seed)
        if seed % 2:
            batch = with_areas(batch, seed)
        stats, evaluated = coco_summary(batch, num_classes)
        actual = average_precision(match_table(batch, num_classes))
        numbers = list(actual.to_dict().values())
        np.testing.assert_allclose(numbers, undefined_as_nan(stats), rtol=0, atol=1e-10, err_msg=f"seed {seed}")
        precision = undefined_as_nan(evaluated["precision"])[..., -1].mean(axis=1)  # (T, K, A)
        np.testing.assert_allclose(actual.ap, precision.transpose(2, 0, 1), rtol=0, atol=1e-12)
        recall = undefined_as_nan(evaluated["recall"])  # (T, K, A, M)
        np.testing.assert_allclose(actual.recall, recall.transpose(2, 3, 0, 1), rtol=0, atol=1e-12)
        undefined += np.isnan(numbers).any()
        between += 0 < numbers[0] < 1
    assert undefined > 10 and between > (10 if block else 40)


def precision_at_levels(curves):
    """(thresholds, levels, classes) precision at pycocotools' recall levels, from the counts at each TP."""
    levels, num_gts = np.linspace(0, 1, 101), curves.num_gts()
    result = np.zeros((len(curves.iou_thrs), 101, len(num_gts)))
    for out, counts in zip(result, curves.hit_counts()):
        for label in np.unique(counts.label):
            own = counts.label == label
            highest = np.maximum.accumulate((counts.tp / counts.tp_and_fp)[own][::-1])[::-1]
            out[:, label] = np.append(highest, 0)[np.searchsorted(counts.tp[own] / num_gts[label], levels)]
    return np.where(num_gts > 0, result, np.nan)


def test_precision_at_every_recall_level_equals_pycocotools_at_other_settings():
    """More thresholds and area ranges than fit one 64-bit word, and few detections per image."""
    thresholds, edges = tuple(np.linspace(0.3, 1.0, 29)), (150.0,)
    areas = {"all": [0, 1e10], "area_0_150": [0, 150.0], "area_150_up": [150.0, 1e10]}
    for seed in range(60):
        batch, num_classes = random_batch(seed)
        table = match_table(batch, num_classes, iou_thrs=thresholds, area_edges=edges, iou_thr=thresholds[8])
        assert table.grid.num_words == 4
        expected = accumulated(
            batch, num_classes, iouThrs=np.array(thresholds), areaRng=list(areas.values()), maxDets=[2, 5]
        )
        precision, recall = (undefined_as_nan(expected[name]) for name in ("precision", "recall"))
        for index, area in enumerate(areas):
            curves = APCurves(table, area, 5)
            np.testing.assert_allclose(precision_at_levels(curves), precision[:, :, :, index, 1], rtol=0, atol=1e-12)
            ap = curves.average_precision()[..., 0]
            np.testing.assert_allclose(ap, precision[:, :, :, index, 1].mean(axis=1), rtol=0, atol=1e-12)
            for at, most in enumerate((2, 5)):
                np.testing.assert_allclose(curves.recall(most), recall[:, :, index, at], rtol=0, atol=1e-12)


def test_named_area_ranges_and_several_max_dets_equal_pycocotools():
    """Ranges that overlap and leave gaps, in average precision, in its log values, and by size."""
    names = {"tiny": (0, 100), "any_thin": (50, 90), "rest": (400, 1e10)}
    for seed in range(60):
        batch, num_classes = random_batch(seed)
        table = match_table(batch, num_classes, area_ranges=names, recall_max_dets=(2, 3), max_dets=5)
        areas = [[0, 1e10], *map(list, names.values())]
        expected = accumulated(batch, num_classes, areaRng=areas, maxDets=[2, 3, 5])
        precision, recall = (undefined_as_nan(expected[name]) for name in ("precision", "recall"))
        actual = average_precision(table)
        assert (actual.areas, actual.max_dets) == (("all", *names), (2, 3, 5))
        ap = precision[..., -1].mean(axis=1).transpose(2, 0, 1)
        np.testing.assert_allclose(actual.ap, ap, rtol=0, atol=1e-12)
        np.testing.assert_allclose(actual.recall, recall.transpose(2, 3, 0, 1), rtol=0, atol=1e-12)
        assert {"mAP_tiny", "AR@2", "AR@3", "AR@5", "AR_rest@5"} < set(actual.to_dict())
        sizes = results_by_size(table)
        assert list(sizes.ranges) == ["all", *names]
        np.testing.assert_allclose(sizes.average_precision, ap.mean(axis=1), rtol=0, atol=1e-12)


def test_thousands_of_detections_on_one_crowd_equal_pycocotools():
    random = np.random.default_rng(0)
    corners = random.uniform(0, 900, (3000, 2))
    boxes = np.concatenate([corners, corners + random.uniform(5, 50, (3000, 2))], axis=1)
    detections = Detections(np.zeros(3000), boxes, random.random(3000), np.zeros(3000))
    ground_truths = GroundTruths([0, 0], [[0, 0, 1000, 1000], boxes[0]], [0, 0], crowd=[True, False])
    batch = DetectionBatch(detections, ground_truths, 1)
    actual = list(average_precision(match_table(batch, 1)).to_dict().values())
    np.testing.assert_allclose(actual, undefined_as_nan(coco_summary(batch, 1)[0]), rtol=0, atol=1e-10)


def test_xywh_boxes_equal_pycocotools_at_ties():
    """COCO files have widths with decimals; left + width is rounded, which must not change a tie."""
    random = np.random.default_rng(0)
    moved = 0
    for _ in range(60):
        xywh = np.round(random.random((6, 4)) * 50 + 1, 1)
        half = xywh * [1, 1, 0.5, 1]  # an IoU of exactly a half, but for rounding
        image, zeros = np.arange(6), np.zeros(6, dtype=int)
        detections = Detections(image, Boxes(half, "xywh").to_format("xyxy"), np.linspace(0.9, 0.4, 6), zeros)
        given, rounded = (
            DetectionBatch(detections, GroundTruths(image, boxes, zeros), 6)
            for boxes in (Boxes(xywh, "xywh"), Boxes(Boxes(xywh, "xywh").to_format("xyxy")))
        )
        tables = [match_table(problem, 1, iou_thrs=(0.5,)) for problem in (given, rounded)]
        expected = accumulated(given, 1, iouThrs=np.array([0.5]))["precision"][0, :, 0, 0, -1].mean()
        assert average_precision(tables[0]).at_iou(0.5)[0] == pytest.approx(expected, abs=1e-12)
        moved += not np.array_equal(tables[0].matched, tables[1].matched)
    assert moved  # so the format does matter


@pytest.mark.parametrize("max_dets", [1, 7, 100, 1000])
def test_matching_all_and_limiting_by_rank_is_pycocotools_with_max_dets(max_dets):
    """We limit detections after matching, pycocotools before."""
    for seed in range(3):
        batch, num_classes = dense_batch(seed)
        expected = accumulated(batch, num_classes, maxDets=[max_dets])
        precision, recall = (undefined_as_nan(expected[key])[..., -1] for key in ("precision", "recall"))
        table = match_table(batch, num_classes)
        assert len(table.score) == len(batch.detections) and table.most_detections > 100
        actual = average_precision(table, max_dets=max_dets)
        np.testing.assert_allclose(actual.ap, precision.mean(axis=1).transpose(2, 0, 1), rtol=0, atol=1e-12)
        np.testing.assert_allclose(actual.recall[:, -1], recall.transpose(2, 0, 1), rtol=0, atol=1e-12)
        sizes = results_by_size(table, max_dets=max_dets)
        np.testing.assert_allclose(sizes.average_precision, actual.ap.mean(axis=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_weights_count_images_several_times(seed):
    batch, num_classes = random_batch(seed, ties=False)
    random = np.random.default_rng(seed)
    # Distinct scores: tied detections of an image would not stay together when it is repeated.
    scores = random.permutation(len(batch.detections)) / 1000
    batch = replace(batch, detections=replace(batch.detections, scores=scores, precision=None))
    table = match_table(batch, num_classes)
    weights = random.integers(0, 4, (batch.num_images, 4))
    weights[:, 0] = 1
    draws = APCurves(table, "all", 100).average_precision(weights)
    for draw, column in enumerate(weights.T):
        expected = average_precision(match_table(repeated(batch, column), num_classes))
        actual = average_precision(table, weights=column)
        for name in ("ap", "recall", "num_gts"):
            np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=0, atol=1e-12)
        np.testing.assert_allclose(draws[..., draw], expected.ap[0], rtol=0, atol=1e-12)


def test_some_iou_thresholds_equal_those_of_all():
    for seed in range(30):
        batch, num_classes = random_batch(seed)
        table = match_table(batch, num_classes, iou_thr=0.42)
        weights = np.random.default_rng(seed).integers(0, 3, (batch.num_images, 5))
        whole, some = (APCurves(table, "all", 100, thrs) for thrs in (None, [0.5, 0.9]))
        places = [int(np.argmin(np.abs(np.array(whole.iou_thrs) - value))) for value in (0.5, 0.9)]
        for given in (None, weights):
            expected = whole.average_precision(given)[places]
            np.testing.assert_allclose(some.average_precision(given), expected, rtol=0, atol=1e-14)
        assert len(table.grid.iou_thrs) == 11 and average_precision(table).iou_thrs == COCO_IOU_THRS
        # A threshold of the counts changes no average precision.
        expected = average_precision(match_table(batch, num_classes)).to_dict()
        np.testing.assert_array_equal(list(average_precision(table).to_dict().values()), list(expected.values()))


def test_any_iou_thresholds_equal_pycocotools():
    """``iou_thr``, of the counts, is inside and outside of ``iou_thrs``, of average precision."""
    for seed in range(60):
        batch, num_classes = random_batch(seed)
        random = np.random.default_rng(seed)
        iou_thrs = tuple(np.unique(random.choice(np.arange(1, 21) / 20, random.integers(1, 8))))
        iou_thr = float(random.choice(iou_thrs)) if seed % 2 else float(random.choice(np.arange(1, 20) / 20))
        actual = average_precision(match_table(batch, num_classes, iou_thrs=iou_thrs, iou_thr=iou_thr))
        evaluated = accumulated(batch, num_classes, iouThrs=np.array(iou_thrs))
        precision = undefined_as_nan(evaluated["precision"])[..., -1].mean(axis=1)
        np.testing.assert_allclose(actual.ap, precision.transpose(2, 0, 1), rtol=0, atol=1e-12, err_msg=str(seed))
        assert actual.iou_thrs == iou_thrs
        expected = np.nanmean(precision[..., 0]) if np.isfinite(precision[..., 0]).any() else np.nan
        assert actual.to_dict()["mAP"] == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_classes_in_several_chunks_equal_one_chunk(monkeypatch):
    from mm_metrics_plugin.functional.detection import average_precision as module

    batch, num_classes = next(actual for actual in map(random_batch, range(20)) if actual[1] == 3)
    weights = np.random.default_rng(0).integers(0, 3, (batch.num_images, 7))
    curves = APCurves(match_table(batch, num_classes), "all", 100)
    expected = curves.average_precision(weights)
    monkeypatch.setattr(module, "_BLOCK_CELLS", 1)
    np.testing.assert_array_equal(curves.average_precision(weights), expected)


@pytest.mark.parametrize("hits", [7, 14, 28, 29, 55, 57, 58])
def test_recall_at_a_level_counts_as_in_pycocotools(hits):
    """7/100 is below the seventh level as a float, 29/100 is not."""
    image, boxes, zeros = np.arange(100), np.tile([0.0, 0.0, 10.0, 10.0], (100, 1)), np.zeros(100, dtype=int)
    detections = Detections(image, boxes, 1 - image / 200, zeros).take(slice(hits))
    batch = DetectionBatch(detections, GroundTruths(image, boxes, zeros), 100)
    expected = accumulated(batch, 1)["precision"][0, :, 0, 0, -1].mean()
    curves = APCurves(match_table(batch, 1), "all", 100)
    for weights in (None, np.ones((100, 1))):
        assert curves.average_precision(weights)[0, 0, 0] == pytest.approx(expected, abs=1e-14)


def test_unknown_iou_threshold_raises():
    batch, num_classes = random_batch(1)
    with pytest.raises(ValueError, match=r"iou_thr must be one of 0.5 \(found 0.6\)"):
        per_image_counts(match_table(batch, num_classes, iou_thrs=(0.5,)), score_thr=0.3, iou_thr=0.6)


@pytest.mark.parametrize("seed", range(10))
def test_results_by_size_equal_pycocotools(seed):
    batch, num_classes = random_batch(seed, odd_boxes=False)
    report = results_by_size(match_table(batch, num_classes), score_thr=0.0)
    evaluation = accumulated(batch, num_classes)
    expected = undefined_as_nan(evaluation["precision"][..., -1])  # thresholds, levels, classes, sizes
    assert np.allclose(report.average_precision, expected.mean(axis=(0, 1)).T, rtol=0, atol=1e-12, equal_nan=True)
    assert np.allclose(report.average_precision_50, expected[0].mean(axis=0).T, rtol=0, atol=1e-12, equal_nan=True)
    recall = evaluation["recall"][0, :, :, -1].T
    defined = report.ground_truths > 0
    assert np.array_equal(np.where(defined, report.tp / np.maximum(report.ground_truths, 1), -1), recall)


def test_own_edges_split_the_ground_truths():
    batch, num_classes = random_batch(5, crowds=False)
    edges = (50.5, 120.5, 300.5)
    report = results_by_size(match_table(batch, num_classes, area_edges=edges), area_edges=edges)
    assert (
        report.ground_truths[0].sum() == report.ground_truths[1:].sum() == len(batch.ground_truths)
        and len(report.metrics()) == 5
    )
    with pytest.raises(ValueError, match="ascending"):
        results_by_size(match_table(batch, num_classes), area_edges=[100, 50])
    with pytest.raises(ValueError, match="area must be one of"):
        results_by_size(match_table(batch, num_classes), area_edges=edges)


def test_no_ground_truths_are_undefined_and_no_detections_are_zero():
    actual = average_precision(match_table(empty_batch(), 2))
    assert np.isnan(list(actual.to_dict().values())).all() and actual.num_gts.tolist() == [[0, 0]] * 4
    batch = DetectionBatch(Detections.empty(), GroundTruths([0], [[0, 0, 50, 50]], [1]), 1)
    actual = average_precision(match_table(batch, 2))
    assert actual.to_dict()["mAP"] == 0 and str(actual).startswith("mAP ") and "AR_l@100" in str(actual)
    np.testing.assert_array_equal(actual.per_class, [np.nan, 0])
    np.testing.assert_array_equal(actual.at_iou(0.42), [np.nan, np.nan])
