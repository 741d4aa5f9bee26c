"""Axis-aligned boxes: areas, and IoU in the arithmetic of COCO, mmdet and VOC.

Disjoint, empty and inverted boxes have an IoU of exactly 0.

- COCO: float64, on left, top, width and height. As in ``pycocotools``, the right edge is left + width, which can differ
  from the given edge in the last bit.
- mmdet: float32, on the four edges, with a union of at least 1e-6.
- VOC: the same, with sides one pixel longer.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.exceptions import MetricInputError, shortened
from mm_metrics_plugin.functional._arrays import Rows
from mm_metrics_plugin.functional._inputs import InvalidValue
from mm_metrics_plugin.functional.detection.geometry import Edges, Outlines
from mm_metrics_plugin.functional.detection.instances import ToArray, joined_rows, rows_of_images

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.data import GroundTruths

BOX_FORMATS = ("xyxy", "xywh")
MAX_COORDINATE = 1e100  # areas of larger boxes overflow float64
_MIN_UNION = np.float32(1e-6)
_LAST_PIXEL = np.float32(1)


class Boxes:
    """Axis-aligned boxes in pixels.

    Args:
        array: (N, 4), float32 or float64.
        box_format: ``'xyxy'`` (left, top, right, bottom) or ``'xywh'`` (left, top, width, height).

    Example:
        >>> boxes = Boxes([[0, 0, 10, 10], [5, 5, 4, 9]])
        >>> boxes.areas()
        array([100.,  -4.])
        >>> boxes.to_format("xywh")[1]
        array([ 5.,  5., -1.,  4.])
    """

    field: ClassVar[str] = "boxes"
    score_field: ClassVar[str] = "scores"
    options: ClassVar[tuple[str, ...]] = ()
    overlap_name: ClassVar[str] = "IoU"
    ignored_name: ClassVar[str] = "crowd region"
    prefiltered = True
    margins: ClassVar[Mapping[str, float]] = {"voc_overlaps": 1.0}

    def __init__(self, array: npt.ArrayLike, box_format: str = "xyxy") -> None:
        if box_format not in BOX_FORMATS:
            raise ValueError(f"'box_format' must be one of {BOX_FORMATS} (found {box_format!r})")
        values = floats(array, self.field)
        self.array = values.reshape(0, 4) if values.size == 0 else values
        self.box_format = box_format

    @classmethod
    def empty(cls) -> Boxes:
        """No boxes."""
        return cls(np.empty((0, 4)))

    @classmethod
    def from_images(cls, values: Sequence[Any], to_array: ToArray, box_format: str = "xyxy") -> tuple[Boxes, list[int]]:
        """The boxes of several images, each an (N, 4) array, and their numbers."""
        try:
            arrays = rows_of_images(values, (4,), to_array)
        except InvalidValue as error:
            if isinstance(error.found, tuple) and error.found[1:] in ((5,), (8,)):
                error.expected += "; rotated boxes need iou_type='rbox'"
            raise
        return cls(joined_rows(arrays), box_format), [len(array) for array in arrays]

    def __len__(self) -> int:
        return len(self.array)

    def check(self) -> str | None:
        """The end of an error message if the shape is invalid, else None."""
        return None if self.array.shape[1:] == (4,) else f"must have shape (N, 4) (found {self.array.shape})"

    def first_invalid(self) -> tuple[int, str, object] | None:
        """Row, expected and found value of the first coordinate that is NaN, infinite or above 1e100."""
        return first_invalid(self.array)

    def is_ignored(self) -> np.ndarray:
        """(N,) False."""
        return np.zeros(len(self), dtype=bool)

    def mismatch(self, image: np.ndarray, ground_truths: GroundTruths, image_sizes: np.ndarray | None = None) -> None:
        """None: all boxes can be compared."""

    def drawn_like(self, other: Boxes) -> Boxes:
        """These boxes."""
        return self

    def take(self, rows: Rows) -> Boxes:
        """The selected rows."""
        return Boxes(self.array[rows], self.box_format)

    def concatenate(self, others: Sequence[Boxes]) -> Boxes:
        """These boxes followed by those of ``others``, in the format of these."""
        return Boxes(
            np.concatenate([self.array, *(other.to_format(self.box_format) for other in others)]), self.box_format
        )

    def to_format(self, box_format: str) -> np.ndarray:
        """The (N, 4) array in the given format; a converted one is float64."""
        if box_format == self.box_format:
            return self.array
        result = np.array(self.array, dtype=np.float64)
        result[:, 2:] += result[:, :2] if box_format == "xyxy" else -result[:, :2]
        return result

    def areas(self) -> np.ndarray:
        """(N,) width x height as in ``pycocotools``; negative if one side is."""
        return self._coco[1]

    def ground_truth_areas(self) -> np.ndarray:
        """(N,) the areas."""
        return self.areas()

    def is_empty(self) -> np.ndarray:
        """(N,) whether a side is 0 or negative."""
        left, top, right, bottom = self.array.T
        empty = (right <= left) | (bottom <= top) if self.box_format == "xyxy" else (right <= 0) | (bottom <= 0)
        return np.asarray(empty)

    def bounding_boxes(self) -> Edges:
        """The edges as in ``pycocotools``."""
        return self._coco[0]

    @cached_property
    def _coco(self) -> tuple[Edges, np.ndarray]:
        """The edges and the areas in COCO's arithmetic."""
        left, top, width, height = np.array(self.array.T, dtype=np.float64, order="C").reshape(4, -1)
        if self.box_format == "xyxy":
            width -= left
            height -= top
        return Edges(left, top, left + width, top + height), width * height

    @cached_property
    def _mmdet(self) -> tuple[np.ndarray, np.ndarray]:
        """The (4, N) float32 edges, and the areas."""
        left, top, right, bottom = edges = np.array(self.to_format("xyxy").T, dtype=np.float32, order="C")
        return edges, (right - left) * (bottom - top)

    def scaled(self, factors: np.ndarray) -> Boxes:
        """The boxes with x and y multiplied by ``factors`` (N, 2)."""
        return Boxes(self.array * np.tile(factors, 2), self.box_format)

    def outlines(self) -> Outlines:
        """The four edges."""
        left, top, right, bottom = self.bounding_boxes()
        x, y = np.stack([left, right, right, left, left], axis=1), np.stack([top, top, bottom, bottom, top], axis=1)
        return Outlines(np.stack([x, y], axis=2).reshape(-1, 2), np.full(len(self), 5, dtype=np.int32))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The boxes in xywh format, as in COCO files."""
        return {"boxes": self.to_format("xywh")}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Boxes:
        """The inverse of :meth:`to_arrays`."""
        return cls(arrays["boxes"], "xywh")

    def overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) IoU in COCO's arithmetic; for a crowd, intersection / detection area."""
        return self._iou(ground_truths.geometry, rows, gt_rows, ground_truths.crowd[gt_rows])

    def _iou(self, gts: Boxes, rows: np.ndarray, gt_rows: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        (left, top, right, bottom), area = self._coco
        gt, gt_area = gts._coco
        width = np.minimum(right[rows], gt.right[gt_rows]) - np.maximum(left[rows], gt.left[gt_rows])
        height = np.minimum(bottom[rows], gt.bottom[gt_rows]) - np.maximum(top[rows], gt.top[gt_rows])
        intersection = width * height
        own_area = area[rows]
        union = np.where(crowd, own_area, own_area + gt_area[gt_rows] - intersection)
        result = np.zeros(len(rows))
        np.divide(intersection, union, out=result, where=(width > 0) & (height > 0))
        return result

    def mmdet_overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) float32 IoU in mmdet's arithmetic; NaN on overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            (edges, areas), (gt_edges, gt_areas) = self._mmdet, ground_truths.geometry._mmdet
            left, top, right, bottom = edges[:, rows]
            gt_left, gt_top, gt_right, gt_bottom = gt_edges[:, gt_rows]
            width = np.maximum(np.minimum(right, gt_right) - np.maximum(left, gt_left), 0)
            height = np.maximum(np.minimum(bottom, gt_bottom) - np.maximum(top, gt_top), 0)
            intersection = width * height
            union = np.maximum(areas[rows] + gt_areas[gt_rows] - intersection, _MIN_UNION)
            return np.asarray(intersection / union)

    def voc_overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) float32 IoU of boxes whose last pixel belongs to them, as in PASCAL VOC and mmdet's ``VOCMetric``."""
        edges, gt_edges = self._mmdet[0], ground_truths.geometry._mmdet[0]
        areas, gt_areas = self.voc_areas(), ground_truths.geometry.voc_areas()
        left, top, right, bottom = edges[:, rows]
        gt_left, gt_top, gt_right, gt_bottom = gt_edges[:, gt_rows]
        width = np.maximum(np.minimum(right, gt_right) - np.maximum(left, gt_left) + _LAST_PIXEL, 0)
        height = np.maximum(np.minimum(bottom, gt_bottom) - np.maximum(top, gt_top) + _LAST_PIXEL, 0)
        intersection = width * height
        return np.asarray(intersection / np.maximum(areas[rows] + gt_areas[gt_rows] - intersection, _MIN_UNION))

    def voc_areas(self) -> np.ndarray:
        """(N,) float32 areas of boxes whose last pixel belongs to them."""
        left, top, right, bottom = self._mmdet[0]
        return np.asarray((right - left + _LAST_PIXEL) * (bottom - top + _LAST_PIXEL))

    nms_overlaps = mmdet_overlaps


def first_invalid(array: np.ndarray) -> tuple[int, str, object] | None:
    """Row, expected and found value of the first number that is NaN, infinite or above 1e100; None if all are valid."""
    # If any number is NaN or too large, so is the minimum or the maximum.
    if not array.size or (float(array.min()) >= -MAX_COORDINATE and float(array.max()) <= MAX_COORDINATE):
        return None
    rows = array.reshape(len(array), -1).astype(np.float64)
    row, place = np.argwhere(~(np.abs(rows) <= MAX_COORDINATE))[0]
    found = float(rows[row, place])
    return int(row), f"be at most {MAX_COORDINATE:g} in size" if np.isfinite(found) else "be finite", found


def floats(values: npt.ArrayLike, name: str) -> np.ndarray:
    """The values as float32 if it is exact, else as float64; MetricInputError unless they are real numbers."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of several lengths
        array = np.empty(0, dtype=object)
    if array.dtype in (np.float32, np.float64):  # in native byte order
        return array
    if array.dtype.kind in "cmMOSU":
        found = shortened(values.tolist() if isinstance(values, np.ndarray) else values)
        raise MetricInputError(f"'{name}' must be an array of real numbers (found {found})")
    narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if narrow else np.float64)


def box_iou(first: npt.ArrayLike, second: npt.ArrayLike, *, crowd: bool = False) -> np.ndarray:
    """Pairwise (row by row) IoU of boxes in xyxy format, as in COCO.

    Args:
        first: (N, 4) detections.
        second: (N, 4) ground truths.
        crowd: Divide by the area of the detection instead of the union, as in COCO for crowds.

    Example:
        >>> box_iou([[0, 0, 2, 2], [0, 0, 2, 2]], [[1, 0, 3, 2], [2, 2, 2, 9]])
        array([0.33333333, 0.        ])
    """
    boxes, others = Boxes(first), Boxes(second)
    if len(boxes) != len(others):
        raise MetricInputError(f"'first' and 'second' must have the same length (found {len(boxes)} and {len(others)})")
    rows = np.arange(len(boxes))
    return boxes._iou(others, rows, rows, np.full(len(boxes), crowd))
