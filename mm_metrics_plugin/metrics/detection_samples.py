"""Read detections and ground truths of data samples, as mmdet and mmyolo have them."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._inputs import BFloat16Array
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import overlaps_by_scale
from mm_metrics_plugin.metrics.sample_fields import (
    Sample,
    SampleName,
    Samples,
    field_values,
    plain_value,
    real_values,
    to_host,
)
from mm_metrics_plugin.states.detection import NO_NUMBER, ImageBatch, encode_texts

_PARTS = {"pred_instances": ("bboxes", "scores", "labels"), "gt_instances": ("bboxes", "labels")}
_NO_INSTANCES = {"bboxes": np.zeros((0, 4), np.float32), "labels": np.zeros(0, np.int64)}
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
    parts = [_field_values(samples, part, fields, name) for part, fields in _PARTS.items()]
    ignored = [sample.get("ignored_instances") or {} for sample in samples]
    with_ignored = [index for index, part in enumerate(ignored) if "bboxes" in part]
    parts.append(
        _field_values(
            [samples[index] for index in with_ignored],
            "ignored_instances",
            ("bboxes", "labels"),
            lambda index: name(with_ignored[index]),
        )
    )
    arrays = iter(to_host([value for columns in parts for column in columns.values() for value in column]))
    detections, ground_truths, crowds = (
        {field: [next(arrays) for _ in column] for field, column in columns.items()} for columns in parts
    )
    for index, value in enumerate(parts[0]["scores"]):
        if getattr(value, "dtype", None) is torch.bfloat16:
            detections["scores"][index] = detections["scores"][index].view(BFloat16Array)
    crowd_of_image: dict[int, Any] = dict.fromkeys(range(len(samples)), _NO_INSTANCES)
    crowd_of_image.update(zip(with_ignored, _images(crowds)))
    options: dict[str, Any] = {"shapes": "bboxes", "name": name}
    return DetectionBatch(
        Detections.from_images(_images(detections), prefix="pred_instances.", **options),
        GroundTruths.concatenate(
            [
                GroundTruths.from_images(_images(ground_truths), prefix="gt_instances.", **options),
                GroundTruths.from_images(
                    list(crowd_of_image.values()), prefix="ignored_instances.", **options
                ).as_crowd(),
            ]
        ),
        len(samples),
    )


def _field_values(samples: Samples, part: str, fields: Sequence[str], name: SampleName) -> dict[str, list[Any]]:
    """Fields of a part of every sample, as tensors or arrays."""
    columns = {}
    for field in fields:
        values = field_values(samples, f"{part}.{field}", name)
        # mmdet's box objects have a tensor.
        columns[field] = real_values([getattr(value, "tensor", value) for value in values], f"{part}.{field}", name)
    return columns


def _images(columns: dict[str, list[np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """One dict per image."""
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


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
