"""Boxes: areas, overlaps in the two arithmetics people compare with, and suppression of duplicates.

Two boxes with no common area, and boxes with no area or inverted ones, overlap by exactly 0, never NaN.

- COCO's: float64, on left, top, width and height. ``pycocotools`` adds the width to the left edge again, which can
  differ from the right edge it was taken from in the last bit; so do these functions, and decisions at a threshold
  are the same bit by bit.
- mmdet's: float32, on the four edges, with the union at least 1e-6.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import group_starts

_SMALLEST_UNION = np.float32(1e-6)


def xyxy_to_xywh(boxes: np.ndarray) -> np.ndarray:
    """Edges to left, top, width and height, in float64 (as mmdet's ``CocoMetric`` does).

    Example:
        >>> xyxy_to_xywh(np.array([[10, 20, 30, 50]]))
        array([[10., 20., 20., 30.]])
    """
    result = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    result[:, 2:] -= result[:, :2]
    return result


def xywh_to_xyxy(boxes: np.ndarray) -> np.ndarray:
    """Left, top, width and height to edges, in float64.

    Example:
        >>> xywh_to_xyxy(np.array([[10, 20, 20, 30]]))
        array([[10., 20., 30., 50.]])
    """
    result = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    result[:, 2:] += result[:, :2]
    return result


def box_area(boxes: np.ndarray) -> np.ndarray:
    """Area of boxes given by their edges, in float64; 0 for inverted ones.

    Example:
        >>> box_area(np.array([[0, 0, 3, 4], [5, 5, 4, 4]]))
        array([12.,  0.])
    """
    sides = np.maximum(xyxy_to_xywh(boxes)[:, 2:], 0)
    return sides[:, 0] * sides[:, 1]


# --- the overlaps of aligned pairs ------------------------------------------------------------------------------------
# "Columns" are boxes turned into contiguous arrays: left, top, right, bottom and area. They are made once per box, and
# the overlaps are then taken over pairs of rows.

Columns = Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def coco_columns(boxes: np.ndarray, *, box_format: str = "xyxy") -> Columns:
    """Left, top, right, bottom and area as ``pycocotools`` reckons them.

    Example:
        >>> [column.tolist() for column in coco_columns(np.array([[1, 2, 4, 8]]))]
        [[1.0], [2.0], [4.0], [8.0], [18.0]]
    """
    left, top, width, height = np.array(np.asarray(boxes).T, dtype=np.float64, order="C").reshape(4, -1)
    if box_format == "xyxy":
        width -= left
        height -= top
    return left, top, left + width, top + height, width * height


def mmdet_columns(boxes: np.ndarray, *, box_format: str = "xyxy") -> Columns:
    """Left, top, right, bottom and area as mmdet's ``bbox_overlaps`` reckons them.

    Example:
        >>> [column.tolist() for column in mmdet_columns(np.array([[1, 2, 3, 6]]), box_format="xywh")]
        [[1.0], [2.0], [4.0], [8.0], [18.0]]
    """
    edges = np.asarray(boxes) if box_format == "xyxy" else xywh_to_xyxy(boxes)
    left, top, right, bottom = np.array(edges.T, dtype=np.float32, order="C").reshape(4, -1)
    return left, top, right, bottom, (right - left) * (bottom - top)


def box_iou(first: np.ndarray, second: np.ndarray, *, crowd: bool = False) -> np.ndarray:
    """COCO's overlap of boxes given by their edges, row by row.

    Args:
        first: (N, 4) detections.
        second: (N, 4) objects, one for each detection.
        crowd: Divide by the area of the detection instead of the union, as COCO does for crowds.

    Example:
        >>> box_iou(np.array([[0, 0, 2, 2], [0, 0, 2, 2]]), np.array([[1, 0, 3, 2], [2, 2, 2, 9]]))
        array([0.33333333, 0.        ])
        >>> box_iou(np.array([[0, 0, 2, 2]]), np.array([[0, 0, 9, 9]]), crowd=True)
        array([1.])
    """
    left, top, right, bottom, area = coco_columns(first)
    left_2, top_2, right_2, bottom_2, area_2 = coco_columns(second)
    width = np.minimum(right, right_2) - np.maximum(left, left_2)
    height = np.minimum(bottom, bottom_2) - np.maximum(top, top_2)
    common = width * height
    union = area if crowd else area + area_2 - common
    overlap = np.zeros(len(common))
    np.divide(common, union, out=overlap, where=(width > 0) & (height > 0))
    return overlap


def mmdet_overlap(common: np.ndarray, area: np.ndarray, area_2: np.ndarray) -> np.ndarray:
    """Intersection over union from the common and the two own areas, in mmdet's float32 arithmetic."""
    return common / np.maximum(area + area_2 - common, _SMALLEST_UNION)


# --- orders -----------------------------------------------------------------------------------------------------------


def stable_order(*keys: np.ndarray) -> np.ndarray:
    """Rows by the first key ascending, then the second, and so on, then as they stand.

    Sorts digit by digit in 16 bits, where NumPy's stable sort is a radix sort.

    Example:
        >>> stable_order(np.array([1, 0, 1]), np.array([0.5, 9.0, 0.25]))
        array([1, 2, 0])
    """
    order = None
    for key in reversed(keys):
        for digits in _digits(np.asarray(key)):
            step = np.argsort(digits if order is None else digits[order], kind="stable")
            order = step if order is None else order[step]
    return np.arange(len(keys[0])) if order is None else order


def _digits(key: np.ndarray):  # type: ignore[no-untyped-def]
    """The 16-bit digits of a key, lowest first, such that they sort as the key does; constant digits are left out."""
    if not len(key):
        return
    if key.dtype.kind == "f":
        unsigned = np.dtype(f"u{key.dtype.itemsize}")
        bits = (key + key.dtype.type(0)).view(unsigned)  # -0.0 and 0.0 become one
        top = unsigned.type(1) << unsigned.type(8 * unsigned.itemsize - 1)
        # Flip all bits of negative numbers and the sign of the others: then the bits sort as the numbers do.
        key = np.where(bits & top, ~bits, bits | top)
    else:
        if key.dtype.kind == "i":
            key = key.astype(np.int64, copy=False)  # differences of a narrow dtype could overflow
        key = (key - key.min()).astype(np.uint64) if key.dtype.kind != "b" else key.astype(np.uint64)
    high, shift = int(key.max()), 0
    lowest = int(key.min())
    while True:
        if (high >> shift) == (lowest >> shift):
            return
        yield (key >> key.dtype.type(shift)).astype(np.uint16)
        shift += 16


def nms(boxes: np.ndarray, scores: np.ndarray, groups: np.ndarray, *, iou_threshold: float) -> np.ndarray:
    """Non-maximum suppression within groups, with the result of ``mmcv.ops.nms`` on each.

    The best box of every group is kept and removes the boxes of its group that overlap it by more than the
    threshold; then the best of those left, and so on, all groups at once.

    Args:
        boxes: (N, 4) edges.
        scores: (N,) confidence; equal scores in the order given (mmcv leaves theirs to chance).
        groups: (N,) integers, such as ``image * num_classes + label``.
        iou_threshold: Overlap above which a box is removed.

    Returns:
        The rows that stay, ascending.

    Example:
        >>> boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 9]])
        >>> nms(boxes, np.array([0.8, 0.9, 0.7]), np.array([0, 0, 1]), iou_threshold=0.5)
        array([1, 2])
    """
    alive = stable_order(np.asarray(groups), -np.asarray(scores))
    columns = [column[alive] for column in mmdet_columns(boxes)]
    groups = np.asarray(groups)[alive]
    threshold = np.float32(iou_threshold)
    kept = []
    while len(alive):
        starts = group_starts(groups)
        kept.append(alive[starts])
        lengths = np.diff(np.append(starts, len(alive)))
        best = [np.repeat(column[starts], lengths) for column in columns]
        width = np.maximum(np.minimum(best[2], columns[2]) - np.maximum(best[0], columns[0]), 0)
        height = np.maximum(np.minimum(best[3], columns[3]) - np.maximum(best[1], columns[1]), 0)
        common = width * height
        with np.errstate(divide="ignore", invalid="ignore"):
            stays = ~(common / (best[4] + columns[4] - common) > threshold)
        stays[starts] = False
        alive, groups, columns = alive[stays], groups[stays], [column[stays] for column in columns]
    return np.sort(np.concatenate(kept)) if kept else np.empty(0, dtype=np.int64)
