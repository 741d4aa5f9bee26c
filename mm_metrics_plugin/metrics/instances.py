"""Reads detections and objects as mmdet's and mmyolo's data samples carry them."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, Sequence, Tuple

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.metrics.sample_fields import (
    SampleName,
    exact_arrays,
    field_values,
    plain_value,
    real_value,
    same_kind,
    score_precision,
    to_host,
)

_FIELDS = (
    "pred_instances.bboxes",
    "pred_instances.scores",
    "pred_instances.labels",
    "gt_instances.bboxes",
    "gt_instances.labels",
)
_NOTHING = {"ignored_instances": {"bboxes": np.zeros((0, 4), np.float32), "labels": np.zeros(0, np.int64)}}


def read_images(samples: Sequence[Mapping], name: SampleName) -> DetectionBatch:
    """The boxes of a batch of images laid flat, fetched from the device in one copy.

    Args:
        samples: Each with ``pred_instances`` (bboxes, scores, labels), ``gt_instances`` (bboxes, labels) and possibly
            ``ignored_instances``; boxes are left, top, right, bottom, as tensors, arrays or mmdet's box objects.
        name: Tells how to speak of a sample.

    Raises:
        MetricInputError: A field is missing, or its shape does not fit.
    """
    found = _columns(samples, "pred_instances", ("bboxes", "scores", "labels"), name)
    there = _columns(samples, "gt_instances", ("bboxes", "labels"), name)
    held = [sample if "bboxes" in (sample.get("ignored_instances") or ()) else _NOTHING for sample in samples]
    crowds = _columns(held, "ignored_instances", ("bboxes", "labels"), name)
    objects = [regular + ignored for regular, ignored in zip(there, crowds)]
    boxes, scores, labels, object_boxes, object_labels = to_host(
        [_joined(column, field, len(samples), name) for column, field in zip((*found, *objects), _FIELDS)]
    )
    precision = np.repeat([score_precision(value) for value in found[1]], [len(value) for value in found[1]])
    regular, ignored = (_image_numbers(column) for column in (there[0], crowds[0]))
    return DetectionBatch(
        Detections(_image_numbers(found[0]), boxes, scores, labels, precision=precision),
        GroundTruths(
            np.concatenate([regular, ignored]),
            object_boxes,
            object_labels,
            crowd=np.repeat([False, True], [len(regular), len(ignored)]),
        ),
        len(samples),
    )


def scale_factor(sample: Mapping, name: str) -> Tuple[float, float]:
    """The factors of width and height by which the sample's image was resized; 1 where it does not say.

    Args:
        sample: Its ``scale_factor`` may be None, one number, or 2 or 4 numbers (mmdet 2 repeated width and height).
        name: How messages speak of the sample.

    Raises:
        MetricInputError: It is none of these, or a factor is not a positive number.
    """
    value = sample.get("scale_factor")
    if value is None:
        return 1.0, 1.0
    factors = _flat_numbers(value, "scale_factor", name)
    if len(factors) not in (1, 2, 4) or not all(0 < factor < np.inf for factor in factors):
        raise MetricInputError(
            f"'scale_factor' of {name} must be one positive number, or those of width and height (found {value!r})"
        )
    return factors[0], factors[min(1, len(factors) - 1)]


def original_shape(sample: Mapping, name: str) -> Tuple[float, float]:
    """Height and width of the sample's image before it was resized; infinite where it does not say.

    Args:
        sample: Its ``ori_shape`` may be None, or height, width and what follows.
        name: How messages speak of the sample.

    Raises:
        MetricInputError: It is neither.
    """
    value = sample.get("ori_shape")
    if value is None:
        return np.inf, np.inf
    sides = _flat_numbers(value, "ori_shape", name)[:2]
    if len(sides) < 2 or not all(0 <= side < np.inf for side in sides):
        raise MetricInputError(f"'ori_shape' of {name} must be height and width (found {value!r})")
    return sides[0], sides[1]


def _flat_numbers(value: Any, field: str, name: str) -> List[float]:
    """The numbers of a value in one list; none if it holds anything else."""
    if isinstance(value, (str, bytes)):
        return []
    try:
        array = to_host([plain_value(value, field, lambda _: name, 0)])[0].astype(np.float64)
    except MetricInputError:
        raise
    except (TypeError, ValueError):
        return []
    return np.ravel(array).tolist()


def _columns(samples: Sequence[Mapping], part: str, fields: Sequence[str], name: SampleName) -> List[List[Any]]:
    """The fields of a part of every sample, boxes first, as tensors or arrays of equal length in an image."""
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


def _joined(column: List[Any], field: str, num_images: int, name: SampleName) -> Any:
    """The values of all images, in one tensor or array; those of different dtypes are converted without rounding."""
    filled = [(index % num_images, value) for index, value in enumerate(column) if len(value)]
    values = [value for _, value in filled] or column[:1]
    if same_kind(values):
        return (
            torch.cat([v.detach() for v in values]) if isinstance(values[0], torch.Tensor) else np.concatenate(values)
        )
    return np.concatenate(exact_arrays(to_host(values), field, lambda index: name(filled[index][0])))


def _image_numbers(column: List[Any]) -> np.ndarray:
    return np.repeat(np.arange(len(column)), [len(value) for value in column])
