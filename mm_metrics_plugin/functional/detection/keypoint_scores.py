"""Scores of detected key points, and their non-maximum suppression by OKS, as in mmpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping

import numpy as np

from mm_metrics_plugin.functional.detection.geometry import greedy_nms
from mm_metrics_plugin.functional.detection.geometry.boxes import floats
from mm_metrics_plugin.settings import require_choice

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.geometry.keypoints import KeyPoints

JOINT_THR = 0.2  # defaults of mmpose's CocoMetric
OKS_NMS_THR = 0.9


def _mean_above(joints: np.ndarray, joint_thr: float) -> np.ndarray:
    """(N,) the mean of the scores above the threshold; 0 if there are none. Adds one after the other, as mmpose."""
    counted = joints > joints.dtype.type(joint_thr)
    number = counted.sum(axis=1)
    total = np.cumsum(np.where(counted, joints, 0), axis=1, dtype=joints.dtype)[:, -1]
    return np.asarray(total / np.maximum(number, 1).astype(joints.dtype))


SCORE_MODES: Mapping[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "bbox": lambda boxes, joints, thr: boxes,
    "keypoint": lambda boxes, joints, thr: joints.mean(axis=1),
    "bbox_keypoint": lambda boxes, joints, thr: boxes * _mean_above(joints, thr),
    "bbox_rle": lambda boxes, joints, thr: boxes + joints.mean(axis=1) + joints.max(axis=1),
}
DEFAULT_SCORE_MODE = "bbox_keypoint"


def keypoint_scores(
    box_scores: Any, joint_scores: Any, mode: str = DEFAULT_SCORE_MODE, joint_thr: float = JOINT_THR
) -> np.ndarray:
    """The scores of detected objects from those of their boxes and key points.

    Args:
        box_scores: (N,) scores of the boxes.
        joint_scores: (N, K) scores of the key points.
        mode: ``'bbox'``, ``'keypoint'`` (mean over the key points), ``'bbox_keypoint'`` (score of the box x mean of the
            scores above ``joint_thr``) or ``'bbox_rle'`` (score of the box + mean + maximum, which may exceed 1).
        joint_thr: Score threshold of key points in mode ``'bbox_keypoint'``.

    Example:
        >>> keypoint_scores([0.5], [[0.9, 0.7, 0.1]])
        array([0.4])
        >>> keypoint_scores([0.5], [[0.9, 0.7, 0.2]], "bbox_rle")
        array([2.])
    """
    require_choice("score_mode", mode, list(SCORE_MODES))
    boxes, joints = floats(box_scores, "box_scores"), floats(joint_scores, "joint_scores")
    if not joints.size:
        joints = np.zeros((len(boxes), 1), dtype=joints.dtype)
    return SCORE_MODES[mode](boxes, joints, joint_thr)


def oks_nms(
    geometry: KeyPoints, scores: Any, groups: Any, iou_thr: float = OKS_NMS_THR, areas: Any = None
) -> np.ndarray:
    """Indices kept by non-maximum suppression by OKS within groups, ascending.

    Args:
        geometry: The detected key points; all count, labeled or not.
        scores: (N,) scores.
        groups: (N,) integers, such as the image.
        iou_thr: Objects with a higher OKS than this with a better one are suppressed.
        areas: (N,) areas of the objects, such as the product of mmpose's ``bbox_scales``. None: around the key points.

    Example:
        >>> from mm_metrics_plugin.functional.detection.geometry.keypoints import KeyPoints
        >>> points = KeyPoints([[[0, 0], [9, 9]], [[0, 0], [9, 9.1]], [[5, 0], [9, 9]]], sigmas=[0.1, 0.1])
        >>> oks_nms(points, [0.8, 0.9, 0.7], [0, 0, 0])
        array([1, 2])
    """
    sizes = geometry.extents() if areas is None else np.asarray(areas)
    return greedy_nms(lambda rows, best: geometry.pair_oks(rows, best, sizes), scores, groups, iou_thr)
