"""Scores of key points and OKS-NMS, against loops over objects as in mmpose."""

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection.geometry.keypoints import COCO_SIGMAS, KeyPoints
from mm_metrics_plugin.functional.detection.keypoint_scores import SCORE_MODES, keypoint_scores, oks_nms


def _loop_score(box, joints, mode):
    above = [joint for joint in joints if joint > np.float32(0.2)]
    return {
        "bbox": box,
        "keypoint": np.mean(joints),
        "bbox_keypoint": box * (sum(above) / len(above) if above else 0),
        "bbox_rle": box + np.mean(joints) + np.max(joints),
    }[mode]


@pytest.mark.parametrize("mode", SCORE_MODES)
def test_score_modes_equal_loops_over_objects(mode):
    rng = np.random.default_rng(0)
    boxes, joints = rng.random(60, dtype=np.float32), rng.random((60, 17), dtype=np.float32)
    joints[0], joints[1, :3] = 0.1, 0.2
    expected = [_loop_score(box, row, mode) for box, row in zip(boxes, joints)]
    np.testing.assert_array_equal(keypoint_scores(boxes, joints, mode), expected)


def test_unknown_score_mode_is_named():
    with pytest.raises(ValueError, match=r"score_mode must be one of 'bbox', 'keypoint'.*found 'rle'"):
        keypoint_scores([1], [[1]], "rle")


@pytest.mark.parametrize("areas", [None, 9000.0])
def test_oks_nms_equals_loops_over_objects(areas):
    rng = np.random.default_rng(1)
    centers = rng.random((8, 17, 2)) * 60
    points = (centers[rng.integers(0, 8, 50)] + rng.normal(0, 1, (50, 17, 2))).astype(np.float32)
    scores, groups = rng.permutation(50) / 50, rng.integers(0, 2, 50)
    sides = points.max(axis=1) - points.min(axis=1)
    area = sides.prod(axis=1) if areas is None else np.full(50, areas, dtype=np.float32)
    kept = []
    for row in np.argsort(-scores):
        rivals = [other for other in kept if groups[other] == groups[row]]
        squared = ((points[rivals] - points[row]) ** 2).sum(axis=2)
        mean = (area[rivals] + area[row])[:, None] / 2
        oks = np.exp(-squared / (np.array(COCO_SIGMAS) * 2) ** 2 / (mean + np.spacing(1)) / 2).mean(axis=1)
        if not (oks > 0.9).any():
            kept.append(row)
    geometry = KeyPoints(points, COCO_SIGMAS)
    given = None if areas is None else area
    assert 8 <= len(kept) < 45
    assert oks_nms(geometry, scores, groups, areas=given).tolist() == sorted(kept)
