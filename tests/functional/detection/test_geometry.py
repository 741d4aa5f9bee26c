"""Matching works for every class with the methods of Geometry, not for boxes alone."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection.geometry.keypoints import KeyPoints
from mm_metrics_plugin.functional.detection.matching import match_images
from tests.helpers.detection_problems import random_batch


class Shapes:
    """A geometry that has the methods of the interface and nothing else."""

    field = "shapes"
    overlap_name = "IoU"

    def __init__(self, boxes, prefiltered):
        self._boxes = boxes
        self.prefiltered = prefiltered

    def __len__(self):
        return len(self._boxes)

    def check(self):
        return None

    def first_invalid(self):
        return None

    def is_ignored(self):
        return self._boxes.is_ignored()

    def mismatch(self, image, ground_truths, image_sizes=None):
        return None

    def take(self, rows):
        return Shapes(self._boxes.take(rows), self.prefiltered)

    def concatenate(self, others):
        return Shapes(self._boxes.concatenate([other._boxes for other in others]), self.prefiltered)

    def areas(self):
        return self._boxes.areas()

    def ground_truth_areas(self):
        return self._boxes.areas()

    def is_empty(self):
        return self._boxes.is_empty()

    def bounding_boxes(self):
        return self._boxes.bounding_boxes()

    def drawn_like(self, others):
        return self

    def outlines(self):
        return self._boxes.outlines()

    def overlaps(self, ground_truths, rows, gt_rows):
        plain = replace(ground_truths, geometry=ground_truths.geometry._boxes)
        return self._boxes.overlaps(plain, rows, gt_rows)


@pytest.mark.parametrize("prefiltered", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_any_geometry_is_matched_like_boxes(seed, prefiltered):
    batch, num_classes = random_batch(seed)
    shapes = replace(
        batch,
        detections=replace(batch.detections, geometry=Shapes(batch.detections.boxes, prefiltered)),
        ground_truths=replace(batch.ground_truths, geometry=Shapes(batch.ground_truths.boxes, prefiltered)),
    )
    expected = match_images(batch, num_classes=num_classes, worst_images=3)
    actual = match_images(shapes, num_classes=num_classes, worst_images=3)
    assert actual.counts == expected.counts
    np.testing.assert_array_equal(actual.rules["coco"].matrix, expected.rules["coco"].matrix)
    np.testing.assert_equal(asdict(actual.table), asdict(expected.table))


def test_key_points_are_drawn_with_the_skeleton_of_the_ground_truth():
    points = np.array([[[0, 0, 2], [50, 0, 1], [0, 100, 2], [80, 80, 0]], np.zeros((4, 3))])
    ground_truths = KeyPoints(points, np.full(4, 0.1), skeleton=[(0, 1), (1, 3)])
    drawn = KeyPoints(points, np.full(4, 0.1)).drawn_like(ground_truths).outlines()
    gap = [np.nan, np.nan]
    line, cross = [[0, 0], [50, 0], gap], [[-2, 100], [2, 100], gap, [0, 98], [0, 102]]
    np.testing.assert_array_equal(drawn.points, line + cross)
    assert drawn.lengths.tolist() == [8, 0]
    assert KeyPoints.empty().drawn_like(ground_truths).outlines().points.shape == (0, 2)
