"""Result pickles of mmpose: one dict per image, or one per person, with ``pred_instances``.

The annotations may be inside, as ``raw_ann_info``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError, shortened
from mm_metrics_plugin.functional._inputs import InvalidValue
from mm_metrics_plugin.functional.detection.data import Detections
from mm_metrics_plugin.functional.detection.geometry.boxes import first_invalid
from mm_metrics_plugin.functional.detection.geometry.keypoints import KeyPoints
from mm_metrics_plugin.functional.detection.instances import flatten_instances, joined_rows, rows_of_images
from mm_metrics_plugin.functional.detection.keypoint_scores import (
    DEFAULT_SCORE_MODE,
    OKS_NMS_THR,
    keypoint_scores,
    oks_nms,
)
from mm_metrics_plugin.io.arrays import to_array
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults, text_or_empty
from mm_metrics_plugin.io.files import check_num_boxes
from mm_metrics_plugin.io.formats import DETECTIONS, Format, ReadOptions, predicted_with
from mm_metrics_plugin.io.readers.coco import numbered, read_annotations
from mm_metrics_plugin.io.readers.mmdet import check_dicts, image_ids, image_sizes, number_of
from mm_metrics_plugin.row_counts import RowCounts

_CATEGORY = 1  # of samples without one, as in mmpose
_MAX_CATEGORY = 1 << 16


class _Samples:
    """A list of dicts; of a person that several samples have, the first."""

    def __init__(self, content: list[Any], options: ReadOptions) -> None:
        self.options, self.source = options, options.source
        check_dicts(content, self.source, "sample")
        ids = image_ids(content, self.source)
        persons = [(image_id, str(sample.get("id"))) for image_id, sample in zip(ids, content)]
        first = {person: number for number, person in reversed(list(enumerate(persons)))}
        has_id = [sample.get("id") is not None for sample in content]
        chosen = [number for number, person in enumerate(persons) if first[person] == number or not has_id[number]]
        self.repeated = [content[number] for number in sorted(set(range(len(content))) - set(chosen))]
        self.samples = [content[number] for number in chosen]
        self.sample_ids = [ids[number] for number in chosen]
        self.predicted = [self._part(sample, "pred_instances") for sample in self.samples]
        self.annotated = [sample.get("gt_instances") or {} for sample in self.samples]

    def _part(self, sample: Any, key: str) -> dict[str, Any]:
        part = sample.get(key)
        if type(part) is not dict:
            raise ResultFileError(f"{self.source}: '{key}' of image {sample['img_id']!a} must be a dict")
        return part

    def read(self) -> DetectionResults:
        options, predicted = self.options, self.predicted
        check_num_boxes(sum(map(_length, predicted)), self.source, options.file_size)
        ids, image_of_sample = numbered(self.sample_ids)
        rows = predicted
        if all("bboxes" in part for part in predicted):
            rows = [{"keypoints": {**part, "boxes": _xywh(part["bboxes"])}} for part in predicted]
        found = flatten_instances(
            rows,
            "keypoints",
            (),
            partial(KeyPoints.from_images, sigmas=options.sigmas),
            name=self._name,
            prefix="pred_instances.",
            to_array=to_array,
        )
        categories = np.array([_category(sample) for sample in self.samples], dtype=np.int64)
        distinct, positions = np.unique(categories, return_inverse=True)
        labels = categories - 1 if options.ground_truth_inside else positions
        detections = Detections(
            image_of_sample[found.image],
            found.geometry,
            self._scores(len(found.geometry.sigmas)),
            labels.reshape(-1)[found.image],
        )
        detections.check(num_classes=_MAX_CATEGORY, names=ids)
        thr = OKS_NMS_THR if options.nms_iou_thr is None else options.nms_iou_thr
        kept = oks_nms(detections.geometry, detections.scores, detections.image, thr, self._areas(detections.geometry))
        repeated = sum(_length(self._part(sample, "pred_instances")) for sample in self.repeated)
        counts = RowCounts(len(detections) + repeated, len(detections) + repeated).drop("repeated sample", repeated)
        first_of = {image: number for number, image in reversed(list(enumerate(image_of_sample.tolist())))}
        firsts = [self.samples[first_of[image]] for image in range(len(ids))]
        return DetectionResults(
            source=self.source,
            lists_all_images=False,  # images without persons may have no sample
            num_images=len(ids),
            image_ids=tuple(ids),
            detections=detections.take(kept),
            row_counts=counts.drop("removed by OKS-NMS", len(detections) - len(kept)),
            image_names=tuple(text_or_empty(sample.get("img_path")) for sample in firsts),
            image_sizes=image_sizes(firsts),
            category_ids=None if options.ground_truth_inside else tuple(distinct.tolist()),
            ground_truth=self._ground_truth(firsts, ids) if options.ground_truth_inside else None,
            file_size=options.file_size,
        )

    def _name(self, number: int) -> str:
        return f"image {self.sample_ids[number]!a}"

    def _column(self, values: Sequence[Any], field: str, shape: tuple[int, ...]) -> np.ndarray:
        """A field of every sample with one row of ``shape`` per instance, of finite numbers."""
        lengths = list(map(_length, self.predicted))
        try:
            if any(value is None for value in values):
                raise InvalidValue([value is None for value in values].index(True), "be an array", "nothing")
            rows = joined_rows(rows_of_images(values, shape, to_array, lengths))
            invalid = first_invalid(rows)
            if invalid is not None:
                raise InvalidValue(int(np.repeat(np.arange(len(lengths)), lengths)[invalid[0]]), *invalid[1:])
            return rows
        except InvalidValue as error:
            raise error.named(field, self._name) from None

    def _scores(self, joints: int) -> np.ndarray:
        """The scores of all instances. Boxes without a score have that of the annotated box, or 1."""
        of_joints = [part.get("keypoint_scores") for part in self.predicted]
        boxes: list[Any] = []
        for part, annotated in zip(self.predicted, self.annotated):
            value: Any = part.get("bbox_scores", annotated.get("bbox_scores"))
            fits = "bbox_scores" in part or (hasattr(value, "__len__") and len(value) == _length(part))
            boxes.append(value if fits else np.ones(_length(part), dtype=np.float32))
        return keypoint_scores(
            self._column(boxes, "pred_instances.bbox_scores", ()),
            self._column(of_joints, "pred_instances.keypoint_scores", (joints,)),
            self.options.score_mode or DEFAULT_SCORE_MODE,
        )

    def _areas(self, geometry: KeyPoints) -> np.ndarray:
        """The areas for NMS: those of the boxes that key points were predicted in, else around the key points."""
        scales = [part.get("bbox_scales", ()) for part in self.annotated]
        lengths = list(map(_length, self.predicted))
        known = [np.shape(scale) == (length, 2) for scale, length in zip(scales, lengths)]
        values = [scale if fits else np.zeros((n, 2)) for scale, fits, n in zip(scales, known, lengths)]
        areas = self._column(values, "gt_instances.bbox_scales", (2,)).prod(axis=1)
        return np.where(np.repeat(known, lengths), areas, geometry.extents())

    def _ground_truth(self, firsts: Sequence[Any], ids: Sequence[Any]) -> AnnotationSet | None:
        """The annotations in ``raw_ann_info``, each once. Labels are category ids - 1."""
        if all(sample.get("raw_ann_info") is None for sample in self.samples):
            return None
        annotations: dict[str, Any] = {}
        for image_id, sample in zip(self.sample_ids, self.samples):
            raw = sample.get("raw_ann_info")
            for row in raw if isinstance(raw, (list, tuple)) else [raw]:
                if isinstance(row, dict):
                    annotations.setdefault(str(row.get("id", len(annotations))), {**row, "image_id": image_id})
        sizes = image_sizes(list(firsts)).tolist()
        most = max([_CATEGORY, *(category for category in map(_category, annotations.values()))])
        content = {
            "images": [{"id": key, "height": height, "width": width} for key, (height, width) in zip(ids, sizes)],
            "categories": [{"id": number, "name": str(number)} for number in range(1, most + 1)],
            "annotations": list(annotations.values()),
        }
        own = read_annotations(content, replace(self.options, classes=None, class_order=None))
        names = tuple(text_or_empty(sample.get("img_path")) for sample in firsts)
        return replace(own, classes=None, category_ids=None, class_order="", image_names=names)


def _length(part: dict[str, Any]) -> int:
    """Number of instances."""
    return number_of(part, "keypoints")


def _xywh(boxes: Any) -> np.ndarray:
    array = np.array(to_array(boxes))
    if array.ndim == 2 and array.shape[1] == 4:
        array[:, 2:] -= array[:, :2]
    return array


def _category(sample: dict[str, Any]) -> int:
    """The category id of a sample or an annotation."""
    value = sample.get("category_id", _CATEGORY)
    values = np.ravel(value).tolist() if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if all(one == values[0] for one in values):
        value = values[0] if values else _CATEGORY
    if not isinstance(value, (int, np.integer)) or not 1 <= value <= _MAX_CATEGORY:
        name = sample.get("img_id", sample.get("image_id"))
        raise MetricInputError(
            f"'category_id' of image {name!a} must be a whole number from 1 on (found {shortened(value)})"
        )
    return int(value)


def _read(content: list[Any], options: ReadOptions) -> DetectionResults:
    return _Samples(content, options).read()


FORMATS = (
    Format(
        "key points of mmpose",
        predicted_with("keypoints"),
        DETECTIONS,
        _read,
        options=("score_mode",),
        iou_types=("keypoints",),
    ),
)
