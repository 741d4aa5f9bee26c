"""Result pickles of mmdet 3.x and mmyolo: one dict per image, with ``pred_instances``.

The ground truth may be inside, as ``gt_instances`` and ``ignored_instances`` (mmyolo) or ``instances`` (OpenImages,
DSDL).
"""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

import numpy as np

from mm_metrics_plugin.conventions import DEFAULT_IOU_TYPE, IOU_TYPES
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.io.arrays import JsonRows, to_array
from mm_metrics_plugin.io.detection_data import (
    GROUP_OF_MESSAGE,
    AnnotationSet,
    DetectionResults,
    distinct_ids,
    text_or_empty,
)
from mm_metrics_plugin.io.files import check_num_boxes
from mm_metrics_plugin.io.formats import DETECTIONS, Format, ReadOptions, has_fields, predicted_with, rows_with
from mm_metrics_plugin.io.readers.shapes import OTHER_FIELDS, SWAPPED, has_swapped_corners
from mm_metrics_plugin.row_counts import RowCounts

FIELDS = {"boxes": "bboxes"}  # of mmdet, where they differ from those of geometries


class _Images:
    """A list of dicts, one per image."""

    def __init__(self, images: list[Any], options: ReadOptions) -> None:
        self.images, self.source, self.file_size = images, options.source, options.file_size
        self.iou_type, self.geometry = options.iou_type, geometry_of(options.iou_type)
        self.field = FIELDS.get(self.geometry.field, self.geometry.field)
        check_dicts(images, options.source, "image")
        self.names = tuple(text_or_empty(image.get("img_path")) for image in images)
        self.ids = tuple(distinct_ids(image_ids(images, options.source), self.names))

    def read(self) -> DetectionResults:
        images, source = self.images, self.source
        detections: Detections = self._instances("pred_instances", Detections)
        sizes = image_sizes(images)
        objects = self._ground_truths()
        ground_truth = None
        if objects is not None:
            keep, row_counts = RowCounts.select({SWAPPED: has_swapped_corners(objects.geometry)})
            ground_truth = AnnotationSet(source, self.ids, self.names, sizes, objects.take(keep), row_counts)
        predicted = [image["pred_instances"] for image in images]
        return DetectionResults(
            source=source,
            num_images=len(images),
            image_ids=self.ids,
            detections=detections,
            row_counts=RowCounts(len(detections), len(detections)),
            image_names=self.names,
            image_sizes=sizes,
            ground_truth=ground_truth,
            file_size=self.file_size,
            also=tuple(name for name in OTHER_FIELDS.values() if any(part.get(name) is not None for part in predicted)),
        )

    def _instances(self, key: str, kind: Any, optional: bool = False) -> Any:
        """One kind of instances of every image."""
        parts = [image.get(key) for image in self.images]
        for number, part in enumerate(parts):
            if optional and (part is None or (type(part) is dict and not part)):
                parts[number] = {self.field: [], "labels": []}  # an InstanceData without fields becomes an empty dict
            elif type(part) is not dict:
                raise self._error(number, key, "must be a dict", "nothing" if part is None else type(part).__name__)
            elif "masks" in part and self.field == "masks":
                parts[number] = {**part, "masks": plain_masks(part["masks"], self.geometry)}
        check_num_boxes(sum(number_of(part, self.field) for part in parts), self.source, self.file_size)
        return kind.from_images(
            parts,
            geometry=self.geometry,
            shapes=self.field,
            name=lambda number: f"image {self.ids[number]!a}",
            prefix=f"{key}.",
            to_array=to_array,
        )

    def _error(self, number: int, field: str, expected: str, found: Any) -> ResultFileError:
        return ResultFileError(f"{self.source}: '{field}' of image {self.ids[number]!a} {expected} (found {found})")

    def _ground_truths(self) -> GroundTruths | None:
        images = self.images
        if any(type(image.get("gt_instances")) is dict and image["gt_instances"] for image in images):
            objects: GroundTruths = self._instances("gt_instances", GroundTruths, optional=True)
            ignored: GroundTruths = self._instances("ignored_instances", GroundTruths, optional=True)
            return GroundTruths.concatenate([objects, ignored.as_crowd()])
        if self.iou_type == DEFAULT_IOU_TYPE and any(type(image.get("instances")) is list for image in images):
            return self._ground_truths_of_instances()
        return None

    def _ground_truths_of_instances(self) -> GroundTruths:
        for number, image in enumerate(self.images):
            if type(image.get("instances")) is not list:
                raise self._error(number, "instances", "must be a list", type(image.get("instances")).__name__)
        lists = [image["instances"] for image in self.images]
        objects = JsonRows(list(chain.from_iterable(lists)), self.source, "object")
        boxes, labels = objects.numbers("bbox", 4), objects.numbers("bbox_label")
        if (labels % 1).any() or (abs(labels) > 1 << 40).any():
            raise ResultFileError(f"{self.source}: 'bbox_label' of every object must be a whole number")
        groups = objects.flags("is_group_of")
        if groups.any():
            warnings.warn(f"{self.source}: {GROUP_OF_MESSAGE} (found {int(groups.sum())})", MetricWarning)
        crowd = objects.flags("ignore_flag") | groups
        return GroundTruths(np.repeat(np.arange(len(lists)), list(map(len, lists))), boxes, labels, crowd=crowd)


def number_of(part: dict[str, Any], field: str) -> int:
    """The length of a field; 0 if it has none."""
    value: Any = part.get(field)
    return len(value) if hasattr(value, "__len__") and getattr(value, "ndim", True) else 0


def check_dicts(content: list[Any], source: str, noun: str) -> None:
    """Raises an error unless all images or samples are dicts."""
    for number, value in enumerate(content):
        if type(value) is not dict:
            raise ResultFileError(f"{source}: {noun} number {number} must be a dict (found {type(value).__name__})")


def image_ids(images: list[Any], source: str) -> list[Any]:
    """The ``img_id`` of every image."""
    ids = [int(key) if isinstance(key, np.integer) else key for key in (image.get("img_id") for image in images)]
    return JsonRows(images, source, "image").ids("img_id", ids)


def image_sizes(images: list[Any]) -> np.ndarray:
    """(N, 2) height and width of every image; 0 if unknown."""
    return np.array([_size(image.get("ori_shape")) for image in images], dtype=np.int64)


def plain_masks(value: Any, geometry: Any) -> Any:
    """Mmdet's ``BitmapMasks`` as array, and ``PolygonMasks`` as masks; others unchanged.

    Both have ``masks``, ``height`` and ``width``, as keys if they are from a pickle.
    """
    fields = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    if not has_fields(fields, "masks", "height", "width"):
        return value
    masks = fields["masks"]
    if isinstance(masks, list):
        polygons = [[np.asarray(polygon).tolist() for polygon in mask] for mask in masks]
        return geometry.from_segmentations(polygons, [[fields["height"], fields["width"]]] * len(masks))
    return masks


def _size(shape: Any) -> tuple[int, int]:
    """Height and width; 0 if unknown."""
    if (
        isinstance(shape, (tuple, list))
        and len(shape) >= 2
        and all(isinstance(side, (int, np.integer)) for side in shape)
    ):
        return min(int(shape[0]), 1 << 40), min(int(shape[1]), 1 << 40)
    return 0, 0


def _read(content: list[Any], options: ReadOptions) -> DetectionResults:
    return _Images(content, options).read()


_HAS_KEY_POINTS, _HAS_MASKS = predicted_with("keypoints", without="labels"), predicted_with("masks", without="bboxes")
FORMATS = (
    Format("masks without boxes", _HAS_MASKS, DETECTIONS, _read, iou_types=("segm", "boundary")),
    Format(
        "results of mmdet",
        lambda content: rows_with("pred_instances")(content) and not (_HAS_KEY_POINTS(content) or _HAS_MASKS(content)),
        DETECTIONS,
        _read,
        iou_types=tuple(name for name in IOU_TYPES if name != "keypoints"),  # those of mmpose
    ),
)
