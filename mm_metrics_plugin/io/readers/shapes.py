"""The shapes in rows of JSON objects: COCO's ``bbox``, ``segmentation`` and ``keypoints``.

Another IoU type is a class here and an entry of ``SHAPES``.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, pluralize
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.geometry._coco_rle import InvalidMask
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.geometry.keypoints import BOX_AREA_FACTOR, KeyPoints, sigmas_of
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes
from mm_metrics_plugin.io.arrays import JsonRows
from mm_metrics_plugin.io.formats import ReadOptions

SWAPPED = "corners swapped"


class JsonShapes:
    """The boxes of rows, and the base class of other shapes."""

    field = "bbox"  # of the rows

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def dropped(self, rows: JsonRows) -> dict[str, np.ndarray]:
        """Which rows are dropped, by reason."""
        return {f"without '{self.field}'": rows.without(self.field)}

    def dropped_ground_truths(self, rows: JsonRows, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Which ground truths are dropped, by reason; ``sizes`` (N, 2) are those of their images."""
        return self.dropped(rows)

    def detections(self, rows: JsonRows, image_ids: Sequence[Any]) -> Any:
        """The geometry of detections; ``image_ids`` are those of the rows."""
        raise NotImplementedError

    def ground_truths(
        self, rows: JsonRows, image_ids: Sequence[Any], sizes: np.ndarray, categories: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """The geometry of ground truths, and further columns."""
        return self.detections(rows, image_ids), {}


class _BoxShapes(JsonShapes):
    """Boxes as left, top, width and height. Without a box, a file is damaged."""

    def dropped(self, rows: JsonRows) -> dict[str, np.ndarray]:
        return {}

    def dropped_ground_truths(self, rows: JsonRows, sizes: np.ndarray) -> dict[str, np.ndarray]:
        # Objects thinner than a pixel or of area 0 are kept, as in pycocotools; mmdet's CocoDataset drops them.
        # Boxes that nothing can overlap are dropped, as in mmdet, and counted.
        self.boxes = rows.numbers("bbox", 4)
        left, top, width, height = self.boxes.T
        image_height, image_width = sizes.T
        inside_width = np.maximum(0, np.minimum(left + width, image_width) - np.maximum(left, 0))
        inside_height = np.maximum(0, np.minimum(top + height, image_height) - np.maximum(top, 0))
        area = rows.numbers("area", values=[row.get("area", 0) for row in rows.rows])
        return {
            "empty": (width <= 0) | (height <= 0) | (area < 0),
            "outside the image": inside_width * inside_height == 0,
        }

    def detections(self, rows: JsonRows, image_ids: Sequence[Any]) -> Boxes:
        return Boxes(rows.numbers("bbox", 4), "xywh")

    def ground_truths(
        self, rows: JsonRows, image_ids: Sequence[Any], sizes: np.ndarray, categories: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        return Boxes(self.boxes[rows.positions], "xywh"), {}


class _RotatedShapes(JsonShapes):
    """Boxes of 5 numbers, or quadrilaterals of 8."""

    def detections(self, rows: JsonRows, image_ids: Sequence[Any]) -> RotatedBoxes:
        return RotatedBoxes(rows.numbers("bbox", 8 if _length(rows, "bbox") == 8 else 5))


class _MaskShapes(JsonShapes):
    """RLE dicts; of ground truths also polygons."""

    field = "segmentation"

    def detections(self, rows: JsonRows, image_ids: Sequence[Any]) -> Any:
        return self._made(geometry_of(self.options.iou_type).from_rle, rows)

    def _made(self, make: Callable[..., Any], rows: JsonRows, *sizes: np.ndarray) -> Any:
        """The masks of rows; errors name the row."""
        try:
            return make(rows.column(self.field), *sizes)
        except InvalidMask as error:
            raise rows.error(self.field, error.row, error.expected, error.found) from None

    def ground_truths(
        self, rows: JsonRows, image_ids: Sequence[Any], sizes: np.ndarray, categories: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        sizes = np.minimum(sizes, 1 << 40).astype(np.int64)
        return self._made(geometry_of(self.options.iou_type).from_segmentations, rows, sizes), {}


class _KeyPointShapes(JsonShapes):
    """x, y and visibility or score of every key point."""

    field = "keypoints"

    def detections(self, rows: JsonRows, image_ids: Sequence[Any]) -> KeyPoints:
        # pycocotools takes the area of the box where there is one.
        boxes = rows.numbers("bbox", 4) if rows.rows and not rows.without("bbox").any() else None
        return self._points(rows, boxes, ())

    def _joints(self, rows: JsonRows) -> int:
        """The number of key points, that of the first row."""
        joints, rest = divmod(_length(rows, self.field), 3)
        if rows.rows and (rest or not joints):
            expected = "be x, y and visibility or score of every key point, one after the other"
            raise rows.error(self.field, 0, expected, rows.rows[0][self.field])
        return joints

    def _points(self, rows: JsonRows, boxes: np.ndarray | None, skeleton: Any) -> KeyPoints:
        joints = self._joints(rows)
        points = rows.numbers(self.field, 3 * joints).reshape(len(rows.rows), joints, 3)
        return KeyPoints(points, sigmas_of(joints, self.options.sigmas), boxes, skeleton)

    def ground_truths(
        self, rows: JsonRows, image_ids: Sequence[Any], sizes: np.ndarray, categories: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        without_area = int(sum("area" not in row for row in rows.rows))
        if without_area:
            warnings.warn(
                f"{self.options.source}: {without_area} of {pluralize(len(rows.rows), 'annotation')} have no 'area'; "
                f"{BOX_AREA_FACTOR} x the area of the box is used, as in xtcocotools",
                MetricWarning,
            )
        skeletons = (category.get("skeleton") for category in categories)
        skeleton = next((_pairs(pairs, self._joints(rows)) for pairs in skeletons if isinstance(pairs, list)), ())
        # pycocotools ignores objects without labeled key points by their number.
        labeled = rows.numbers("num_keypoints", values=[row.get("num_keypoints", 1) for row in rows.rows])
        return self._points(rows, rows.numbers("bbox", 4), skeleton), {"ignore": labeled == 0}


def _length(rows: JsonRows, field: str) -> int:
    """The length of a list in the first row; 0 if there is none."""
    first = rows.rows[0][field] if rows.rows else ()
    return len(first) if isinstance(first, (list, tuple, np.ndarray)) else 0


def _pairs(skeleton: Sequence[Any], joints: int) -> list[list[int]]:
    """The pairs of a skeleton, which counts key points from 1, without those of other key points."""
    pairs = [pair for pair in skeleton if isinstance(pair, (list, tuple)) and len(pair) == 2]
    return [[end - 1 for end in pair] for pair in pairs if all(type(end) is int and 1 <= end <= joints for end in pair)]


SHAPES: Mapping[str, type[JsonShapes]] = {
    "bbox": _BoxShapes,
    "segm": _MaskShapes,
    "boundary": _MaskShapes,
    "rbox": _RotatedShapes,
    "keypoints": _KeyPointShapes,
}
OTHER_FIELDS = {"segmentation": "masks", "keypoints": "keypoints"}  # the field of the geometry of each field of rows


def has_swapped_corners(geometry: Any) -> np.ndarray:
    """Which boxes have negative width or height. Nothing can match them. Of other shapes, none."""
    if not isinstance(geometry, Boxes):
        return np.zeros(len(geometry), dtype=bool)
    corners = geometry.to_format("xyxy")
    return np.asarray((corners[:, 2] < corners[:, 0]) | (corners[:, 3] < corners[:, 1]))
