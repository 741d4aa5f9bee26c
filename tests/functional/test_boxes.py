"""Boxes beside pycocotools, mmdet and mmcv."""

from __future__ import annotations

import numpy as np
import pytest
from mm_metrics_plugin.functional.assignment import Pairs, by_preference, coco_pairs, gathered, mmdet_pairs
from mm_metrics_plugin.functional.boxes import (
    box_area,
    box_iou,
    coco_columns,
    mmdet_columns,
    nms,
    stable_order,
    xywh_to_xyxy,
    xyxy_to_xywh,
)
from pycocotools import mask

from mm_metrics_plugin.functional import assignment


def _boxes(random, number, *, odd=True):
    """Edges with and without decimals, equal ones, and with ``odd`` some that are empty or inverted."""
    boxes = random.random((number, 4)) * 60
    boxes[:, 2:] += boxes[:, :2]
    boxes = np.round(boxes, int(random.choice([0, 1, 9])))
    if odd:
        boxes[random.random(number) < 0.1, 2] = 5
        boxes[random.random(number) < 0.1] = 5
    return boxes


def _all_pairs(number, others):
    return np.repeat(np.arange(number), others), np.tile(np.arange(others), number)


@pytest.mark.parametrize("crowd", [False, True])
def test_iou_equals_pycocotools_bit_by_bit(crowd):
    random = np.random.default_rng(0)
    for _ in range(50):
        first, second = _boxes(random, 20).astype(np.float32), _boxes(random, 15)
        expected = mask.iou(xyxy_to_xywh(first), xyxy_to_xywh(second), [int(crowd)] * 15)
        rows, others = _all_pairs(20, 15)
        found = box_iou(first[rows], second[others], crowd=crowd).reshape(20, 15)
        assert not np.isnan(found).any()
        np.testing.assert_array_equal(found, expected)


def _flattened(blocks, shape):
    result = np.zeros(shape)
    for pairs in blocks:
        result[pairs.detection, pairs.object] = pairs.overlap
    return result


def test_blocks_of_pairs_hold_the_same_overlaps():
    from mmdet.evaluation import bbox_overlaps

    random = np.random.default_rng(1)
    for _ in range(50):
        first, second = _boxes(random, 20).astype(np.float32), _boxes(random, 15)
        crowd = random.random(15) < 0.3
        begin, count = np.zeros(20, dtype=int), np.full(20, 15)
        expected = mask.iou(xyxy_to_xywh(first), xyxy_to_xywh(second), crowd.astype(int).tolist())
        found = coco_pairs(coco_columns(first), coco_columns(second), crowd, begin, count, 0.25)
        np.testing.assert_array_equal(_flattened(found, (20, 15)), np.where(expected >= 0.25, expected, 0))
        expected = bbox_overlaps(first, second)
        found = mmdet_pairs(mmdet_columns(first), mmdet_columns(second), begin, count, 0.25)
        np.testing.assert_array_equal(_flattened(found, (20, 15)), np.where(expected >= 0.25, expected, 0))


def test_empty_and_inverted_boxes_overlap_nothing():
    odd = np.array([[5, 5, 5, 9], [5, 5, 5, 5], [9, 9, 1, 1], [9, 1, 1, 9]], dtype=float)
    plain = np.array([[0, 0, 10, 10]], dtype=float)
    everything = np.concatenate([odd, plain])
    rows, others = _all_pairs(len(odd), len(everything))
    for crowd in (False, True):
        np.testing.assert_array_equal(box_iou(odd[rows], everything[others], crowd=crowd), 0)
    np.testing.assert_array_equal(box_area(everything), [0, 0, 0, 0, 100])


def test_formats_there_and_back():
    boxes = np.array([[1, 2, 11, 22], [3, 3, 3, 3]])
    np.testing.assert_array_equal(xywh_to_xyxy(xyxy_to_xywh(boxes)), boxes)
    assert boxes[0, 2] == 11
    assert xyxy_to_xywh(np.empty((0, 4))).shape == (0, 4)


def test_nms_equals_mmcv_in_every_group():
    import torch
    from mmcv.ops import nms as mmcv_nms

    random = np.random.default_rng(2)
    removed = 0
    for _ in range(200):
        number = int(random.integers(0, 120))
        centres = _boxes(random, 4, odd=False)
        boxes = centres[random.integers(0, 4, number)] + np.round(random.normal(0, 4, (number, 4)))
        boxes[random.random(number) < 0.1, 2:] = 0
        boxes = boxes.astype(np.float32)
        scores = random.permutation(number).astype(np.float32)
        if number <= 16:  # mmcv sorts by torch, which beyond 16 elements takes equal ones in any order
            scores = np.round(random.random(number), 1).astype(np.float32)
        groups = random.integers(0, 3, number) * 1000
        threshold = float(random.choice([0.0, 0.3, 0.5, 0.9]))
        expected = []
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            _, kept = mmcv_nms(torch.from_numpy(boxes[rows]), torch.from_numpy(scores[rows]), threshold)
            expected.extend(rows[kept.numpy()].tolist())
        found = nms(boxes, scores, groups, iou_threshold=threshold)
        np.testing.assert_array_equal(found, sorted(expected))
        removed += number - len(found)
    assert removed > 1000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stable_order_equals_lexsort(dtype):
    random = np.random.default_rng(3)
    for size in (0, 1, 2, 1000):
        scores = random.choice(np.array([-np.inf, -1.5, -0.0, 0.0, 1e-30, 0.25, 3, 1e30]), size).astype(dtype)
        for keys in (
            [random.integers(-3, 3, size), scores],
            [random.integers(0, 2**40, size), random.integers(0, 2, size).astype(bool)],
            [-scores, random.integers(65_530, 65_550, size)],
        ):
            np.testing.assert_array_equal(stable_order(*keys), np.lexsort(keys[::-1]))


# --- pairs a block at a time ------------------------------------------------------------------------------------------


def numbered_pairs(numbers):
    return Pairs(np.array(numbers), np.array(numbers) + 10, np.array(numbers) / 100)


def test_small_blocks_are_joined_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(assignment, "KEPT_AT_ONCE", 3)
    blocks = [numbered_pairs(numbers) for numbers in ([0], [1], [2], [3, 4], [], [5, 6, 7, 8], [9])]
    joined = list(gathered(iter(blocks)))
    assert [pairs.detection.tolist() for pairs in joined] == [[0, 1, 2], [3, 4, 5, 6, 7, 8], [9]]
    for pairs in joined:
        assert (pairs.object - 10).tolist() == (pairs.overlap * 100).round().tolist() == pairs.detection.tolist()
    assert list(gathered(iter([numbered_pairs([])]))) == []


def test_detections_are_cut_into_runs_of_pairs(monkeypatch):
    monkeypatch.setattr(assignment, "PAIRS_AT_ONCE", 4)
    first, count = np.array([0, 0, 2, 2, 5, 0]), np.array([2, 2, 3, 1, 0, 6])
    runs = [(start, stop, rows.tolist()) for start, stop, _, rows in assignment._blocks(first, count)]
    assert runs == [(0, 2, [0, 1, 0, 1]), (2, 5, [2, 3, 4, 2]), (5, 6, [0, 1, 2, 3, 4, 5])]


def test_nothing_has_no_preference():
    assert by_preference(numbered_pairs([]), np.zeros(0, bool)).detection.tolist() == []
