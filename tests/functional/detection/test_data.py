"""Checks of detections, ground truths and settings, and their messages."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mm_metrics_plugin.evaluation.detection import evaluate_detection
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry import nms
from mm_metrics_plugin.functional.detection.geometry.boxes import box_iou
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.reports.detection_analysis import DetectionAnalysis
from mm_metrics_plugin.settings import DetectionSettings, area_ranges
from mm_metrics_plugin.states.detection import DetectionState
from tests.helpers.detection_problems import random_batch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"geometry": [[0, 0, np.nan, 1]]}, r"'boxes' of image 'a.jpg' must be finite \(found nan at index 0\)"),
        ({"geometry": [[0, 0, 1e101, 1]]}, r"'boxes' of image 'a.jpg' must be at most 1e\+100 in size"),
        ({"geometry": np.zeros((1, 5))}, r"'boxes' must have shape \(N, 4\) \(found \(1, 5\)\)"),
        ({"scores": [np.inf]}, r"'scores' of image 'a.jpg' must be finite \(found inf at index 0\)"),
        ({"scores": [0.5, 0.6]}, r"'scores' must have 1 row, one per instance \(found 2\)"),
        ({"labels": [2]}, r"'labels' of image 'a.jpg' must be between 0 and 1 \(found 2 at index 0\)"),
        ({"labels": [-1]}, r"'labels' of image 'a.jpg' must be between 0 and 1 \(found -1 at index 0\)"),
        ({"labels": [0.5]}, r"'labels' of image 'a.jpg' must be whole numbers \(found 0.5 at index 0\)"),
        ({"labels": [1e30]}, r"'labels' of image 'a.jpg' must be whole numbers \(found 1e\+30 at index 0\)"),
        ({"labels": ["cat"]}, r"'labels' of image 'a.jpg' must be whole numbers \(found cat at index 0\)"),
        ({"scores": [[0.5]]}, r"'scores' must have 1 row, one per instance \(found shape \(1, 1\)\)"),
        ({"precision": [9]}, r"'precision' must be a code below 4 \(found 9\)"),
    ],
)
def test_invalid_detections_raise(change, message):
    columns = {"image": [0], "geometry": [[0, 0, 1, 1]], "scores": [0.5], "labels": [0], **change}
    with pytest.raises(MetricInputError, match=message):
        Detections(**columns).check(num_classes=2, names=["a.jpg"])


def test_invalid_ground_truths_and_lengths_raise():
    with pytest.raises(MetricInputError, match="'ground-truth boxes' of image 1 must be finite"):
        GroundTruths([1], [[0, 0, np.inf, 1]], [0]).check(num_classes=2)
    with pytest.raises(MetricInputError, match="'ground-truth area' of image 0 must be finite"):
        GroundTruths([0], [[0, 0, 1, 1]], [0], area=[np.nan]).check(num_classes=1)
    images = dict(boxes=[[], [[0, 0, 1, 1]]], labels=[[], [0]], gt_boxes=[[], []], gt_labels=[[], []])
    with pytest.raises(MetricInputError, match=r"'scores' of image 'b' must have shape \(1,\) \(found \(2,\)\)"):
        DetectionBatch.from_images(**images, scores=[[], [0.1, 0.2]], names=["a", "b"])
    with pytest.raises(MetricInputError, match=r"'scores' must be given for 2 images \(found 1\)"):
        DetectionBatch.from_images(**images, scores=[[]])


BOX = [[0, 0, 1, 1]]


def batch_at(image=0, gt_image=0, num_images=1):
    return DetectionBatch(Detections([image], BOX, [0.9], [0]), GroundTruths([gt_image], BOX, [0]), num_images)


@pytest.mark.parametrize("value", [-1, 0.5, float("nan"), float("inf"), 1e30, True, "a", None])
def test_image_index_that_is_no_whole_number_of_at_least_0_raises(value):
    message = rf"image' must be whole numbers of at least 0 \(found {value!r} in row 0\)".replace("+", r"\+")
    for sizes in ({"image": value}, {"gt_image": value}):
        with pytest.raises(MetricInputError, match=message):
            batch_at(num_images=9, **sizes)


@pytest.mark.parametrize("num_images", [0, 1, 7])
def test_image_index_beyond_the_number_of_images_raises(num_images):
    dets, gts = Detections([num_images], BOX, [0.9], [0]), GroundTruths([num_images], BOX, [0])
    expected = rf"must be below num_images={num_images} \(found {num_images} in row 0\)"
    with pytest.raises(MetricInputError, match=f"'image' {expected}"):
        DetectionBatch(dets, GroundTruths.empty(), num_images)
    with pytest.raises(MetricInputError, match=f"'ground-truth image' {expected}"):
        DetectionBatch(Detections.empty(), gts, num_images)
    assert len(DetectionBatch(dets, gts, num_images + 1).images(num_images, num_images + 1).ground_truths) == 1


@pytest.mark.parametrize("num_images", [-1, 1.5, True, None, float("nan")])
def test_number_of_images_that_is_no_whole_number_raises(num_images):
    with pytest.raises(ValueError, match="num_images must be a whole number of at least 0"):
        DetectionBatch(Detections.empty(), GroundTruths.empty(), num_images)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Detections([0], BOX, ["x"], [0]), r"'scores' must be an array of real numbers \(found \['x'\]\)"),
        (
            lambda: Detections([0], BOX, [0.5 + 1j], [0]),
            r"'scores' must be an array of real numbers \(found \[\(0.5\+1j\)\]\)",
        ),
        (lambda: Detections([0], BOX, [None], [0]), r"'scores' must be an array of real numbers \(found \[None\]\)"),
        (
            lambda: Detections([0], [["x", 0, 1, 1]], [0.5], [0]),
            r"'boxes' must be an array of real numbers \(found \[\['x',",
        ),
        (
            lambda: box_iou([[0, 0, 1], [0]], BOX),
            r"'boxes' must be an array of real numbers \(found \[\[0, 0, 1\], \[0\]\]\)",
        ),
        *(
            (
                lambda value=value: GroundTruths([0], BOX, [0], crowd=[value]),
                rf"crowd' must be 0 or 1 \(found {value!r} in row 0\)",
            )
            for value in (2, -1, 0.5, float("nan"), "no", None)
        ),
        (lambda: GroundTruths([0, 0], BOX * 2, [0, 0], ignore=[1, 2]), r"ignore' must be 0 or 1 \(found 2 in row 1\)"),
    ],
)
def test_values_that_are_no_numbers_or_flags_raise(make, message):
    with pytest.raises(MetricInputError, match=message):
        make()
    assert GroundTruths([0, 0], BOX * 2, [0, 0], crowd=[0, 1.0], ignore=np.array([True, False])).ignored.all()


def test_other_arguments_of_constructors_raise():
    batch = batch_at()
    with pytest.raises(TypeError, match="detections must be Detections"):
        DetectionBatch(batch.ground_truths, batch.detections, 1)
    with pytest.raises(MetricInputError, match=r"'image' must be one-dimensional \(found shape \(1, 1\)\)"):
        Detections([[0]], BOX, [0.9], [0])
    with pytest.raises(MetricInputError, match="at least one image"):
        evaluate_detection(DetectionBatch(Detections.empty(), GroundTruths.empty(), 0))
    with pytest.raises(MetricInputError, match=r"'labels' of image 0 must be between 0 and 1 \(found 3 at index 0\)"):
        match_images(replace(batch, detections=replace(batch.detections, labels=[3])), num_classes=2)
    with pytest.raises(
        MetricInputError, match=r"'labels' of image 0 must be none, as there are no classes \(found 0 at"
    ):
        match_images(batch, num_classes=0)
    with pytest.raises(ValueError, match="keep must be one of 'matrix', 'scores', 'full'"):
        match_images(batch, num_classes=1, keep="none")
    images = dict(boxes=[BOX, [[0, 0, 1]]], scores=[[0.9]] * 2, labels=[[0]] * 2, gt_boxes=[[]] * 2, gt_labels=[[]] * 2)
    with pytest.raises(MetricInputError, match=r"'boxes' of image 1 must have shape \(1, 4\) \(found \(1, 3\)\)"):
        DetectionBatch.from_images(**images)
    with pytest.raises(MetricInputError, match=r"'names' must be given for 2 images \(found 1\)"):
        DetectionBatch.from_images(**images, names=["a"])
    for call in (partial(nms, BOX, [0.9, 0.8], [0], iou_thr=0.5), partial(box_iou, BOX, BOX * 2)):
        with pytest.raises(MetricInputError, match="must have the same length"):
            call()


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0], r"'order' must have 2 rows, one per image \(found \(1,\)\)"),
        ([0.0, 1.0], r"'order' must be integers \(found float64\)"),
        ([[5, 0], [5, -1]], r"'order' must be whole numbers of at least 0 \(found -1 in row 1\)"),
        ([3, 3], "two images have the same position in 'order'"),
    ],
)
def test_order_of_images_that_does_not_fit_raises(order, message):
    batch = DetectionBatch.concatenate([batch_at(), batch_at()])
    with pytest.raises(MetricInputError, match=message):
        DetectionState(1, DetectionSettings()).update(batch, order).table()


def test_concatenating_parts_with_and_without_areas_raises():
    parts = [GroundTruths([0], [[0, 0, 1, 1]], [0], area=area) for area in (None, [1.0])]
    with pytest.raises(ValueError, match="areas"):
        GroundTruths.concatenate(parts)


def sides(batch):
    return batch.detections, batch.ground_truths


def test_blocks_are_whole_images_in_order():
    for seed in range(30):
        batch, _ = random_batch(seed)
        for number in (1, 10, 10**6):
            blocks = list(batch.blocks(number))
            assert [start for start, _ in blocks] == [0, *np.cumsum([b.num_images for _, b in blocks])[:-1].tolist()]
            joined = DetectionBatch.concatenate([block for _, block in blocks])
            assert joined.num_images == batch.num_images
            for own, expected in zip(sides(joined), sides(batch)):
                for name, column in expected.columns().items():
                    np.testing.assert_array_equal(own.columns()[name], column)
                np.testing.assert_array_equal(own.boxes.array, expected.boxes.array)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"iou_thr": value}, "iou_thr must be above 0 and at most 1") for value in (0, -0.5, 1.5)),
        ({"matching": ("voc",)}, "matching must be some of coco, mmdet, agnostic"),
        ({"matching": ("coco", "coco")}, "each once"),
        ({"iou_thrs": (0.7, 0.5)}, "iou_thrs must be ascending"),
        ({"area_edges": (100.0, 50.0)}, "area edges must be positive and ascending"),
        ({"background_iou_thr": 1.0}, "background_iou_thr must be from 0 to below 1"),
        ({"score_thr": float("nan")}, "score_thr must be a finite number"),
        ({"max_dets": 0}, "max_dets must be a whole number of at least 1"),
        *(({"operating_point": value}, "operating_point must be like") for value in ("voc", "", 5)),
        *(({name: "x"}, f"{name} must be a finite number") for name in ("nms_iou_thr", "ci", "background_iou_thr")),
        *(({"seed": value}, "seed must be a whole number of at least 0") for value in (-1, 1.5, "x")),
        ({"iou_thrs": "0.5"}, "iou_thrs must be numbers"),
        ({"area_edges": ("5",)}, "area_edges must be a finite number"),
        ({"ci": 1.0}, "ci must be above 0 and below 1"),
        ({"recall_max_dets": (10, 1)}, "recall_max_dets must be ascending"),
        *(({"area_ranges": value}, "area_ranges must be") for value in (5, [5], {"tiny": 5}, {"a/b": (0, 5)})),
        ({"area_ranges": {"tiny": (5, 5)}}, "the areas of 'tiny' must be ascending"),
        ({"area_ranges": {"all": (0, 5)}}, "area_ranges cannot have the name 'all'"),
    ],
)
def test_invalid_settings_raise(options, message):
    with pytest.raises(ValueError, match=message):
        DetectionSettings(**options)


def test_settings_of_numpy_scalars_and_lists_are_plain_values():
    given = DetectionSettings(
        score_thr=np.float32(0.25),
        iou_thrs=np.linspace(0.5, 0.95, 10),
        area_edges=[1024, np.int64(9216)],
        matching=["coco"],
        max_dets=np.int64(7),
        seed=np.uint8(3),
    )
    plain = DetectionSettings(score_thr=0.25, max_dets=7, seed=3)
    assert given == plain and hash(given) == hash(plain)
    assert json.loads(json.dumps(given.to_dict())) == plain.to_dict()
    named = DetectionSettings(area_ranges={"tiny": (0, np.int64(400))}, recall_max_dets=[100, 300], max_dets=1000)
    assert DetectionSettings.from_dict(json.loads(json.dumps(named.to_dict()))) == named


def test_close_area_edges_have_distinct_names():
    ranges = area_ranges([1_000_000, 1_000_001, 1_000_002])
    assert [(area.low, area.high) for area in ranges[2:4]] == [(1_000_000, 1_000_001), (1_000_001, 1_000_002)]
    assert len({area.name for area in ranges}) == len(ranges)


@pytest.mark.parametrize("edges", [(), (100.0,), (1_000_000.0, 1_000_001.0, 1_000_002.0)])
def test_a_report_has_a_row_for_every_area_range(edges):
    box = [[0.0, 0.0, 1000.0, 1000.001]]
    batch = DetectionBatch(Detections([0], box, [0.9], [0]), GroundTruths([0], box, [0]), 1)
    settings = DetectionSettings(area_edges=edges)
    table = match_images(batch, settings, num_classes=1).table
    sizes = DetectionAnalysis(["cat"], table).sizes
    rows = sizes.metrics()
    assert len(rows) == (len(edges) + 2 if edges else 1)
    for name, (low, high) in sizes.ranges.items():
        assert rows[name]["tp"] == rows[name]["ground_truths"] == (low <= 1_000_001.0 <= high), name


def test_operating_point_of_one_image_raises():
    batch = DetectionBatch(Detections.empty(), GroundTruths.empty(), 1)
    settings = DetectionSettings(operating_point="f1")
    table = match_images(batch, settings, num_classes=1).table
    with pytest.raises(ValueError, match="needs at least 2 images"):
        _ = DetectionAnalysis(["cat"], table).points


def test_image_columns_belong_to_all_images():
    nothing = (Detections.empty(), GroundTruths.empty(), 2)
    with pytest.raises(ValueError, match="an image column must be one of 'groups'"):
        DetectionBatch(*nothing, {"camera": [1, 2]})
    with pytest.raises(MetricInputError, match=r"'groups' must be numbers or texts of 2 images \(found int64 of shape"):
        DetectionBatch(*nothing, {"groups": [1, 2, 3]})
    with_groups, without = DetectionBatch(*nothing, {"groups": ["a", "b"]}), DetectionBatch(*nothing)
    with pytest.raises(ValueError, match="with and without image columns"):
        DetectionBatch.concatenate([with_groups, without])
    state = DetectionState(1, DetectionSettings()).update(with_groups, [0, 1]).update(without, [2, 3])
    with pytest.raises(MetricInputError, match=r"'groups' must be given for all images or for none \(found 2 of 4\)"):
        state.table()
