"""Read detections and ground truths of data samples, as mmdet and mmyolo have them."""

from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import overlaps_by_scale
from mm_metrics_plugin.metrics.sample_fields import (
    Sample,
    SampleName,
    Samples,
    concatenate_values,
    exact_arrays,
    field_values,
    plain_value,
    real_value,
    same_kind,
    score_precision,
    to_host,
)
from mm_metrics_plugin.states.detection import NO_NUMBER, ImageBatch, encode_texts

_INSTANCE_FIELDS = (
    *("pred_instances.bboxes", "pred_instances.scores", "pred_instances.labels"),
    *("gt_instances.bboxes", "gt_instances.labels"),
)
_NO_CROWDS = {"ignored_instances": {"bboxes": np.zeros((0, 4), np.float32), "labels": np.zeros(0, np.int64)}}
_RESIZED_IMAGES_CHECKED = 64


def read_images(samples: Samples, name: SampleName) -> DetectionBatch:
    """The detections and ground truths of a batch of images, fetched from the device in one copy.

    Args:
        samples: Each with ``pred_instances`` (bboxes, scores, labels), ``gt_instances`` (bboxes, labels) and possibly
            ``ignored_instances``; boxes are left, top, right, bottom, as tensors, arrays or mmdet's box objects.
        name: The names of the samples in messages.

    Raises:
        MetricInputError: A field is missing, or its shape does not fit.
    """
    detections = _instance_columns(samples, "pred_instances", ("bboxes", "scores", "labels"), name)
    regular = _instance_columns(samples, "gt_instances", ("bboxes", "labels"), name)
    with_crowds = [sample if "bboxes" in (sample.get("ignored_instances") or ()) else _NO_CROWDS for sample in samples]
    crowds = _instance_columns(with_crowds, "ignored_instances", ("bboxes", "labels"), name)
    columns = [*detections, *(values + crowd_values for values, crowd_values in zip(regular, crowds))]
    boxes, scores, labels, gt_boxes, gt_labels = to_host(
        [_concatenated(column, field, len(samples), name) for column, field in zip(columns, _INSTANCE_FIELDS)]
    )
    precision = np.repeat([score_precision(value) for value in detections[1]], [len(value) for value in detections[1]])
    gt_image, crowd_image = _image_index(regular[0]), _image_index(crowds[0])
    return DetectionBatch(
        Detections(_image_index(detections[0]), boxes, scores, labels, precision=precision),
        GroundTruths(
            np.concatenate([gt_image, crowd_image]),
            gt_boxes,
            gt_labels,
            crowd=np.repeat([False, True], [len(gt_image), len(crowd_image)]),
        ),
        len(samples),
    )


def _instance_columns(samples: Samples, part: str, fields: Sequence[str], name: SampleName) -> list[list[Any]]:
    """The fields of a part of every sample, boxes first, as tensors or arrays of equal length per image."""
    columns = [field_values(samples, f"{part}.{field}", name) for field in fields]
    for field, column in zip(fields, columns):
        for index, value in enumerate(column):
            value = getattr(value, "tensor", value)  # mmdet's box objects
            value = real_value(value, f"{part}.{field}", name, index)
            boxes = value if field == "bboxes" else columns[0][index]
            rows = boxes.shape[0] if boxes.ndim else 1
            expected = (rows, 4) if field == "bboxes" else (rows,)
            if not rows and not math.prod(value.shape):
                value = value.reshape(expected)  # "no boxes" comes in many shapes
            if tuple(value.shape) != expected:
                raise MetricInputError(
                    f"'{part}.{field}' of {name(index)} must have shape {expected} (found {tuple(value.shape)})"
                )
            column[index] = value
    return columns


def _concatenated(column: list[Any], field: str, num_images: int, name: SampleName) -> Any:
    """The values of all images in one tensor or array; different dtypes are converted without rounding."""
    filled = [(index % num_images, value) for index, value in enumerate(column) if len(value)]
    values = [value for _, value in filled] or column[:1]
    if same_kind(values):
        return concatenate_values(values)
    return np.concatenate(exact_arrays(to_host(values), field, lambda index: name(filled[index][0])))


def _image_index(column: list[Any]) -> np.ndarray:
    return np.repeat(np.arange(len(column)), [len(value) for value in column])


def with_image_order(batch: DetectionBatch, samples: Samples, indices: np.ndarray, names: Sequence[str]) -> ImageBatch:
    """The images with the keys that break ties between equal scores.

    Images are ordered by ``img_id``: first numbers, as in pycocotools, then texts, then images without an id. Images
    with the same id are ordered by ``indices``, their positions in the dataset.
    """
    order = np.full((len(samples), 2), NO_NUMBER, dtype=np.int64)
    texts: list[str | None] = [None] * len(samples)
    order[:, 1] = indices
    for index, sample in enumerate(samples):
        image_id: Any = sample.get("img_id")
        if getattr(image_id, "ndim", None) == 0:  # a number or text of NumPy or torch
            image_id = image_id.item()
        if isinstance(image_id, str):
            texts[index] = image_id
        elif isinstance(image_id, int):
            if not -(1 << 63) <= image_id < 1 << 63:
                raise MetricInputError(
                    f"'img_id' of {names[index]} must be a 64-bit integer or text (found {image_id})"
                )
            order[index, 0], texts[index] = image_id, ""  # before all texts, if it is the largest number
    return ImageBatch(batch, order, encode_texts(texts) if (order[:, 0] == NO_NUMBER).any() else None, names)


class ResizeCheck:
    """Finds ground truths that are in the coordinates of the resized images, in the first resized images."""

    def __init__(self) -> None:
        self._images = self._matches = self._matches_rescaled = 0

    def message(self, samples: Samples, batch: DetectionBatch, names: Sequence[str], *, num_classes: int) -> str | None:
        """Check a batch; a message if the ground truths seem to be in the wrong coordinates."""
        factors = np.array([_scale_factor(sample, name) for sample, name in zip(samples, names)])
        resized = int((factors != 1).any(axis=1).sum())
        if not resized or self._images >= _RESIZED_IMAGES_CHECKED:
            return None
        matches, rescaled = overlaps_by_scale(batch, factors, num_classes=num_classes)
        self._images += resized
        self._matches += matches
        self._matches_rescaled += rescaled
        shapes = np.array([_original_shape(sample, name) for sample, name in zip(samples, names)])
        gts = batch.ground_truths
        outside = int((gts.boxes.array[:, 2:] > shapes[gts.image, ::-1] + 2).any(axis=1).sum())
        if not outside and not (self._matches_rescaled >= 5 and self._matches_rescaled > 3 * self._matches):
            return None
        return (
            "the boxes of 'gt_instances' seem to be in the coordinates of the resized images, while 'pred_instances' "
            f"are in those of the original images (ground truths outside their image: {outside}; matches: "
            f"{self._matches}, and {self._matches_rescaled} if the ground truths are scaled back): put LoadAnnotations "
            "after Resize in the test pipeline"
        )


def _scale_factor(sample: Sample, name: str) -> tuple[float, float]:
    """The factors of width and height by which the image was resized; 1 if the sample has none."""
    value = sample.get("scale_factor")
    if value is None:
        return 1.0, 1.0
    factors = _flat_numbers(value, "scale_factor", name)
    if len(factors) not in (1, 2, 4) or not all(0 < factor < np.inf for factor in factors):  # 4: mmdet 2
        raise MetricInputError(
            f"'scale_factor' of {name} must be one positive number, or those of width and height (found {value!r})"
        )
    return factors[0], factors[min(1, len(factors) - 1)]


def _original_shape(sample: Sample, name: str) -> tuple[float, float]:
    """Height and width of the image before it was resized; infinite if the sample has none."""
    value = sample.get("ori_shape")
    if value is None:
        return np.inf, np.inf
    sides = _flat_numbers(value, "ori_shape", name)[:2]
    if len(sides) < 2 or not all(0 <= side < np.inf for side in sides):
        raise MetricInputError(f"'ori_shape' of {name} must be height and width (found {value!r})")
    return sides[0], sides[1]


def _flat_numbers(value: Any, field: str, name: str) -> list[float]:
    """The numbers of a value in one list; empty if it holds anything else."""
    if isinstance(value, (str, bytes)):
        return []
    try:
        array = to_host([plain_value(value, field, lambda _: name, 0)])[0].astype(np.float64)
    except MetricInputError:
        raise
    except (TypeError, ValueError):
        return []
    return [float(number) for number in np.ravel(array)]
