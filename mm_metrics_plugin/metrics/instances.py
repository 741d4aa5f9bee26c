"""Reads detections and objects as mmdet's and mmyolo's data samples carry them."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.metrics.fields import SampleName, field_values, not_numbers, to_host

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
    boxes, scores, labels, object_boxes, object_labels = to_host([_joined(column) for column in (*found, *objects)])
    regular, ignored = (_image_numbers(column) for column in (there[0], crowds[0]))
    return DetectionBatch(
        Detections(_image_numbers(found[0]), boxes, scores, labels),
        Objects(
            np.concatenate([regular, ignored]),
            object_boxes,
            object_labels,
            crowd=np.repeat([False, True], [len(regular), len(ignored)]),
        ),
        len(samples),
    )


def _columns(samples: Sequence[Mapping], part: str, fields: Sequence[str], name: SampleName) -> List[List[Any]]:
    """The fields of a part of every sample, boxes first, as tensors or arrays of equal length in an image."""
    columns = [field_values(samples, f"{part}.{field}", name) for field in fields]
    for field, column in zip(fields, columns):
        for index, value in enumerate(column):
            value = getattr(value, "tensor", value)  # mmdet's box objects
            value = value.detach() if isinstance(value, torch.Tensor) else np.asarray(value)
            rows = len(value) if field == "bboxes" else len(columns[0][index])
            expected = (rows, 4) if field == "bboxes" else (rows,)
            if not rows and not len(value):
                value = value.reshape(expected)  # "no boxes" comes in many shapes
            if tuple(value.shape) != expected:
                raise MetricInputError(
                    f"'{part}.{field}' of {name(index)} must have shape {expected} (found {tuple(value.shape)})"
                )
            if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
                raise not_numbers(value, f"{part}.{field}", name(index))
            column[index] = value
    return columns


def _joined(column: List[Any]) -> Any:
    devices = [value.device for value in column if isinstance(value, torch.Tensor)]
    if devices:
        return torch.cat([v if isinstance(v, torch.Tensor) else torch.as_tensor(v, device=devices[0]) for v in column])
    return np.concatenate(column)


def _image_numbers(column: List[Any]) -> np.ndarray:
    return np.repeat(np.arange(len(column)), [len(value) for value in column])
