"""Percentage of correct key points (PCK)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import Result, divide, mean_over_classes


@dataclass(frozen=True)
class PCKResult(Result):
    """The share of correct key points; NaN where no key point is labeled."""

    pck: float  # mean of ``per_joint`` over the joints with labeled key points
    joints_averaged: int  # number of joints in ``pck``
    per_joint: np.ndarray  # (K,) share of the labeled key points that are correct
    labeled: np.ndarray  # (K,) number of labeled key points


def longer_sides(boxes: np.ndarray) -> np.ndarray:
    """(N,) the longer side of each box; ``boxes`` (N, 4) are left, top, right and bottom."""
    boxes = np.asarray(boxes, dtype=np.float64)
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).max(axis=1))


def joint_distances(points: np.ndarray, labeled: np.ndarray, pair: Sequence[int]) -> np.ndarray:
    """(N,) distance between two joints of each object; 0 if one of them is not labeled."""
    first, second = np.asarray(points, dtype=np.float64)[:, list(pair)].transpose(1, 0, 2)
    return np.where(labeled[:, list(pair)].all(axis=1), np.linalg.norm(first - second, axis=1), 0.0)


def correct_keypoints(
    predicted: np.ndarray, target: np.ndarray, labeled: np.ndarray, scale: np.ndarray, *, thr: float
) -> tuple[np.ndarray, np.ndarray]:
    """Which key points are correct, and which are counted, both (N, K); the arguments are those of :func:`pck`."""
    scale = np.asarray(scale, dtype=np.float64)[:, None]
    counted = np.asarray(labeled, dtype=bool) & (scale > 0)
    offset = np.asarray(predicted, dtype=np.float64) - np.asarray(target, dtype=np.float64)
    distance = np.divide(np.linalg.norm(offset, axis=2), scale, out=np.full(counted.shape, np.inf), where=counted)
    return distance < thr, counted


def pck_of_counts(correct: np.ndarray, labeled: np.ndarray) -> PCKResult:
    """PCK from the number of correct and of labeled key points of each joint."""
    per_joint = divide(correct, labeled)
    return PCKResult(
        pck=mean_over_classes(per_joint),
        joints_averaged=int(np.count_nonzero(labeled)),
        per_joint=per_joint,
        labeled=labeled,
    )


def pck(predicted: Any, target: Any, labeled: Any, scale: Any, *, thr: float = 0.05) -> PCKResult:
    """Percentage of correct key points: those whose distance to the target is below ``thr`` times the scale.

    Args:
        predicted: (N, K, 2) predicted key points of N objects with K joints.
        target: (N, K, 2) true key points.
        labeled: (N, K) whether a true key point is labeled; the others are left out.
        scale: (N,) the size of each object, such as the longer side of its box. Objects without one (0) are left out.
        thr: Distance / scale from which on a key point is wrong.

    Raises:
        MetricInputError: The shapes do not fit together.

    Example:
        >>> target = np.array([[[0, 0], [10, 0], [0, 10]]])
        >>> result = pck(target + [[0, 3], [0, 5], [0, 9]], target, [[True, True, False]], [50], thr=0.1)
        >>> result.pck, result.per_joint
        (0.5, array([ 1.,  0., nan]))
    """
    predicted, target, labeled, scale = map(np.asarray, (predicted, target, labeled, scale))
    shapes = [array.shape for array in (predicted, target, labeled, scale)]
    if target.ndim != 3 or shapes != [target.shape, target.shape, target.shape[:2], target.shape[:1]]:
        raise MetricInputError(
            "'predicted' and 'target' must have shape (N, K, 2), 'labeled' (N, K) and 'scale' (N,) "
            f"(found {', '.join(map(str, shapes))})"
        )
    correct, counted = correct_keypoints(predicted, target, labeled, scale, thr=thr)
    return pck_of_counts(correct.sum(axis=0), counted.sum(axis=0))
