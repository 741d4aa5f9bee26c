"""Result pickles of mmdet 3.x and mmyolo: one dict per image, with ``pred_instances``.

The ground truth may be inside, as ``gt_instances`` and ``ignored_instances`` (mmyolo) or ``instances`` (OpenImages,
DSDL).
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.io.arrays import JsonRows, to_array
from mm_metrics_plugin.io.detection_data import (
    SWAPPED,
    AnnotationSet,
    DetectionResults,
    distinct_ids,
    has_swapped_corners,
    text_or_empty,
)
from mm_metrics_plugin.io.files import check_num_boxes
from mm_metrics_plugin.io.formats import DETECTIONS, Format, ReadOptions, rows_with
from mm_metrics_plugin.row_counts import RowCounts


class _Images:
    """A list of dicts, one per image."""

    def __init__(self, images: list[Any], options: ReadOptions) -> None:
        self.images, self.source, self.file_size = images, options.source, options.file_size
        for number, image in enumerate(images):
            if type(image) is not dict:
                found = type(image).__name__
                raise ResultFileError(f"{self.source}: image number {number} must be a dict (found {found})")
        ids = [int(key) if isinstance(key, np.integer) else key for key in (image.get("img_id") for image in images)]
        self.names = tuple(text_or_empty(image.get("img_path")) for image in images)
        self.ids = tuple(distinct_ids(JsonRows(images, self.source, "image").ids("img_id", ids), self.names))

    def read(self) -> DetectionResults:
        images, source = self.images, self.source
        detections: Detections = self._instances("pred_instances", Detections)
        sizes = np.array([_size(image.get("ori_shape")) for image in images], dtype=np.int64)
        objects = self._ground_truths()
        ground_truth = None
        if objects is not None:
            keep, row_counts = RowCounts.select({SWAPPED: has_swapped_corners(objects.boxes.array)})
            ground_truth = AnnotationSet(source, self.ids, self.names, sizes, objects.take(keep), row_counts)
        predicted = (image["pred_instances"] for image in images)
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
            masks=sum(len(part["bboxes"]) for part in predicted if part.get("masks") is not None),
        )

    def _instances(self, key: str, kind: Any, optional: bool = False) -> Any:
        """One kind of instances of every image."""
        parts = [image.get(key) for image in self.images]
        for number, part in enumerate(parts):
            if optional and (part is None or (type(part) is dict and not part)):
                parts[number] = _NO_OBJECTS  # an InstanceData without fields becomes an empty dict
            elif type(part) is not dict:
                raise self._error(number, key, "must be a dict", "nothing" if part is None else type(part).__name__)
        count = sum(len(part["bboxes"]) for part in parts if np.ndim(part.get("bboxes", 0)))
        check_num_boxes(count, self.source, self.file_size)
        try:
            return kind.from_images(
                parts,
                shapes="bboxes",
                name=lambda number: f"image {self.ids[number]!a}",
                prefix=f"{key}.",
                to_array=to_array,
            )
        except MetricInputError as error:
            raise ResultFileError(f"{self.source}: {error}") from None

    def _error(self, number: int, field: str, expected: str, found: Any) -> ResultFileError:
        return ResultFileError(f"{self.source}: '{field}' of image {self.ids[number]!a} {expected} (found {found})")

    def _ground_truths(self) -> GroundTruths | None:
        images = self.images
        if any(type(image.get("gt_instances")) is dict and image["gt_instances"] for image in images):
            objects: GroundTruths = self._instances("gt_instances", GroundTruths, optional=True)
            ignored: GroundTruths = self._instances("ignored_instances", GroundTruths, optional=True)
            return GroundTruths.concatenate([objects, ignored.as_crowd()])
        if any(type(image.get("instances")) is list for image in images):
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
        crowd = objects.flags("ignore_flag") | objects.flags("is_group_of")  # a group in OpenImages is a crowd in COCO
        return GroundTruths(np.repeat(np.arange(len(lists)), list(map(len, lists))), boxes, labels, crowd=crowd)


_NO_OBJECTS = {"bboxes": np.empty((0, 4), np.float32), "labels": np.empty(0, np.int64)}


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


FORMATS = (Format("results of mmdet", rows_with("pred_instances"), DETECTIONS, _read),)
