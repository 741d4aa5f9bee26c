"""Boxes compared with pycocotools, mmdet and mmcv."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from pycocotools import mask

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection import pairs
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry import nms
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes, box_iou
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs, find_pairs
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states import detection as states
from mm_metrics_plugin.states.detection import DetectionState


def random_boxes(random, number, *, odd=True):
    """Edges with and without decimals, equal ones, and with ``odd`` some that are empty or inverted."""
    boxes = random.random((number, 4)) * 60
    boxes[:, 2:] += boxes[:, :2]
    boxes = np.round(boxes, int(random.choice([0, 1, 9])))
    if odd:
        boxes[random.random(number) < 0.1, 2] = 5
        boxes[random.random(number) < 0.1] = 5
    return boxes


def all_pairs(number, others):
    return np.repeat(np.arange(number), others), np.tile(np.arange(others), number)


@pytest.mark.parametrize("crowd", [False, True])
def test_iou_equals_pycocotools_bit_by_bit(crowd):
    random = np.random.default_rng(0)
    for _ in range(50):
        first, second = random_boxes(random, 20).astype(np.float32), random_boxes(random, 15)
        expected = mask.iou(*(Boxes(boxes).to_format("xywh") for boxes in (first, second)), [int(crowd)] * 15)
        rows, others = all_pairs(20, 15)
        actual = box_iou(first[rows], second[others], crowd=crowd).reshape(20, 15)
        assert not np.isnan(actual).any()
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("block", [None, 7])
def test_pairs_have_the_overlaps_of_pycocotools_and_mmdet(block, monkeypatch):
    from mmdet.evaluation import bbox_overlaps

    if block:
        monkeypatch.setattr(pairs, "_BLOCK_CANDIDATES", block)
    random = np.random.default_rng(1)
    for _ in range(50):
        first, second = random_boxes(random, 20).astype(np.float32), random_boxes(random, 15)
        crowd, labels, gt_labels = random.random(15) < 0.3, random.integers(0, 2, 20), random.integers(0, 2, 15)
        detections = Detections(np.zeros(20), first, np.ones(20), labels)
        ground_truths = GroundTruths(np.zeros(15), second, gt_labels, crowd)
        actual = find_pairs(detections, ground_truths, min_overlap=0.25, overlaps=("overlaps", "mmdet_overlaps"))
        # The overlaps of mmdet know no crowds, so a pair may reach the threshold by one of the two only.
        coco = mask.iou(*(Boxes(boxes).to_format("xywh") for boxes in (first, second)), crowd.astype(int).tolist())
        mmdet = bbox_overlaps(first, second)
        kept = (coco >= 0.25) | (mmdet >= np.float32(0.25))
        for overlap, expected in ((actual.overlap, coco), (actual.overlaps["mmdet_overlaps"], mmdet)):
            table = np.zeros((20, 15))
            table[actual.det, actual.gt] = overlap
            np.testing.assert_array_equal(table, np.where(kept, expected, 0))
        assert len(actual.det) == kept.sum()
        assert (np.diff(actual.det) >= 0).all() and (np.diff(actual.gt)[np.diff(actual.det) == 0] > 0).all()


def test_pairs_by_preference_are_in_the_order_of_coco():
    """The highest overlap first, of equal ones the later ground truth, and some ground truths after all others."""
    overlapping = OverlapPairs(
        np.array([0, 1, 1, 1, 1, 2, 2]),
        np.array([3, 0, 1, 2, 3, 0, 1]),
        {"overlaps": np.array([0.5, 0.6, 0.9, 0.6, 0.7, 0.2, 0.2])},
    )
    assert overlapping.by_preference().gt.tolist() == [3, 1, 3, 2, 0, 1, 0]
    last = overlapping.by_preference(np.array([False, True, False, False]))
    assert last.gt.tolist() == [3, 3, 2, 0, 1, 0, 1] and last.det.tolist() == overlapping.det.tolist()
    nothing = overlapping.select(np.zeros(7, dtype=bool))
    assert nothing.by_preference().det.tolist() == []


@pytest.mark.parametrize("block", [None, 4])
def test_image_with_too_many_overlapping_pairs_raises(block, monkeypatch):
    monkeypatch.setattr(pairs, "MAX_PAIRS", 8)
    if block:
        monkeypatch.setattr(pairs, "_BLOCK_CANDIDATES", block)
    box = [[0, 0, 9, 9]]
    batch = DetectionBatch.from_images(
        boxes=[box * 2, box * 3, box * 2],
        scores=[[0.9] * number for number in (2, 3, 2)],
        labels=[[0] * number for number in (2, 3, 2)],
        gt_boxes=[box * 4, box * 3, box * 4],
        gt_labels=[[0] * number for number in (4, 3, 4)],
    )
    message = "image 'b.jpg' has more than 8 pairs of a detection and a ground truth that overlap"
    with pytest.raises(MetricInputError, match=message):
        match_images(batch, DetectionSettings(), num_classes=1, names=["a.jpg", "b.jpg", "c.jpg"])
    monkeypatch.setattr(states, "_DETECTIONS_AT_ONCE", 1)  # one image at a time, and yet its number in the batch
    with pytest.raises(MetricInputError, match="image 1 has more than 8 pairs"):
        DetectionState(1, DetectionSettings()).update(batch, np.arange(3))
    few = batch.images(0, 1)  # exactly 8
    assert len(find_pairs(few.detections, few.ground_truths, min_overlap=0.5).det) == 8


def test_box_format_round_trip():
    boxes = np.array([[1, 2, 11, 22], [3, 3, 3, 3]])
    np.testing.assert_array_equal(Boxes(Boxes(boxes).to_format("xywh"), "xywh").to_format("xyxy"), boxes)
    assert boxes[0, 2] == 11
    assert Boxes(np.empty((0, 4))).to_format("xywh").shape == Boxes([]).array.shape == (0, 4)
    both = Boxes(boxes).concatenate([Boxes([[1, 2, 3, 4]], "xywh")])
    assert both.array[2].tolist() == [1, 2, 4, 6] and both.box_format == "xyxy"
    with pytest.raises(ValueError, match="box_format"):
        Boxes(boxes, "cxcywh")


def test_nms_equals_mmcv_in_every_group():
    import torch
    from mmcv.ops import nms as mmcv_nms

    random = np.random.default_rng(2)
    removed = 0
    for _ in range(200):
        number = int(random.integers(0, 120))
        centers = random_boxes(random, 4, odd=False)
        boxes = centers[random.integers(0, 4, number)] + np.round(random.normal(0, 4, (number, 4)))
        boxes[random.random(number) < 0.1, 2:] = 0
        boxes = boxes.astype(np.float32)
        scores = random.permutation(number).astype(np.float32)
        if number <= 16:  # mmcv sorts by torch, which beyond 16 elements takes equal ones in any order
            scores = np.round(random.random(number), 1).astype(np.float32)
        groups = random.integers(0, 3, number) * 1000
        iou_thr = float(random.choice([0.0, 0.3, 0.5, 0.9]))
        expected = []
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            _, kept = mmcv_nms(torch.from_numpy(boxes[rows]), torch.from_numpy(scores[rows]), iou_thr)
            expected.extend(rows[kept.numpy()].tolist())
        actual = nms(boxes, scores, groups, iou_thr=iou_thr)
        np.testing.assert_array_equal(actual, sorted(expected))
        removed += number - len(actual)
    assert removed > 1000


def test_nms_is_applied_before_matching():
    boxes = np.repeat([[0, 0, 9, 9], [20, 0, 29, 9]], 2, axis=0)
    detections = Detections([0] * 4, boxes, [0.9, 0.8, 0.7, 0.6], [0, 0, 0, 1])
    batch = DetectionBatch(detections, GroundTruths([0], boxes[:1], [0]), 1)
    state = DetectionState(2, DetectionSettings(nms_iou_thr=0.9)).update(batch, [0])
    assert state.counts_by_name["detections_suppressed"] == 1 and state.counts_by_name["detections"] == 3
    assert state.table().score.tolist() == [0.9, 0.7, 0.6]


def test_boxes_beyond_float32_have_a_nan_overlap_without_warning():
    row = np.array([0])
    boxes = Boxes([[0.0, 0.0, 1e30, 1e30]])
    ground_truths = GroundTruths(row, boxes, row)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(boxes.mmdet_overlaps(ground_truths, row, row)).all()
    assert boxes.overlaps(ground_truths, row, row) == 1
