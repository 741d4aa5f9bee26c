"""Read detections and ground truths of data samples, as mmdet, mmrotate and mmyolo have them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._inputs import BFloat16Array, as_array
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.diagnosis import bounding_box_sample, num_located, rescaled
from mm_metrics_plugin.functional.detection.geometry import geometry_of_settings
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.geometry.masks import Masks
from mm_metrics_plugin.io.class_order import describe_orders, read_categories, same_labels
from mm_metrics_plugin.io.detection_data import GROUP_OF_MESSAGE
from mm_metrics_plugin.metrics.annotation_file import AnnotationFile, check_metainfo, judged_by_metainfo
from mm_metrics_plugin.metrics.runner_log import warn
from mm_metrics_plugin.metrics.sample_fields import (
    Sample,
    SampleName,
    Samples,
    field_values,
    plain_value,
    real_values,
    to_host,
)
from mm_metrics_plugin.settings import DetectionSettings, require
from mm_metrics_plugin.states.base import Batch, State
from mm_metrics_plugin.states.detection import NO_NUMBER, DetectionState, ImageBatch, encode_texts

WarnOnce = Callable[[str, str], None]  # a topic, and a message that is given once for it

_SAMPLE_FIELDS = {"boxes": "bboxes"}  # shapes that have another name in samples
_MASKS = "masks"  # they show the size of their image, and are too large to be fetched together
_REMEDY = "put LoadAnnotations after Resize in the test pipeline"
_RESIZED_IMAGES_CHECKED = 64


def sample_field(geometry: type[Any]) -> str:
    """The field of the shapes of a geometry in ``pred_instances`` and ``gt_instances``."""
    return str(_SAMPLE_FIELDS.get(geometry.field, geometry.field))


def read_images(
    samples: Samples, name: SampleName, geometry: type[Any] = Boxes, *, with_targets: bool = True
) -> DetectionBatch:
    """The detections and ground truths of a batch of images.

    Boxes, scores and labels are fetched from the device in one copy. Masks are converted to runs image by image.

    Args:
        samples: Each with ``pred_instances`` (bboxes or masks, scores, labels), ``gt_instances`` (bboxes or masks,
            labels) and possibly ``ignored_instances``. Boxes are left, top, right, bottom, or rotated: tensors, arrays,
            or box objects of mmdet and mmrotate. Masks are tensors, arrays, lists of COCO's RLE dicts, or mask objects
            of mmdet.
        name: The names of the samples in messages.
        geometry: The class of the shapes.
        with_targets: Also read the ground truth.

    Raises:
        MetricInputError: A field is missing, its shape does not fit, or a mask does not have the size of its image.
    """
    shapes, everywhere = sample_field(geometry), list(range(len(samples)))
    ignored = [sample.get("ignored_instances") or {} for sample in samples]
    with_ignored = [index for index, part in enumerate(ignored) if shapes in part or "labels" in part]
    rows = {"pred_instances": everywhere}
    if with_targets:
        rows.update(gt_instances=everywhere, ignored_instances=with_ignored)
    columns = {part: _field_values(samples, part, indices, geometry, name) for part, indices in rows.items()}
    fetched = [column for fields in columns.values() for field, column in fields.items() if field != _MASKS]
    arrays = iter(to_host([value for column in fetched for value in column]))
    for column in fetched:
        for index, value in enumerate(column):
            array = next(arrays)
            column[index] = array.view(BFloat16Array) if value.dtype is torch.bfloat16 else array

    def instances(kind: type[Any], part: str) -> Any:
        """The instances of a part of the samples."""
        indices, fields = rows[part], columns[part]
        read = kind.from_images(
            [dict(zip(fields, values)) for values in zip(*fields.values())],
            geometry=geometry,
            shapes=shapes,
            prefix=f"{part}.",
            name=lambda index: name(indices[index]),
            to_array=_to_array,
        )
        read = replace(read, image=np.array(indices, dtype=np.int64)[read.image])
        if geometry.field == _MASKS:
            _check_sizes(read, samples, part, name)
        return read

    dets = instances(Detections, "pred_instances")
    if not with_targets:
        return DetectionBatch(dets, GroundTruths.empty(dets.geometry.empty()), len(samples))
    gts = instances(GroundTruths, "gt_instances")
    if with_ignored:
        gts = GroundTruths.concatenate([gts, instances(GroundTruths, "ignored_instances").as_crowd()])
    return DetectionBatch(dets, gts, len(samples))


def _field_values(
    samples: Samples, part: str, indices: Sequence[int], geometry: type[Any], name: SampleName
) -> dict[str, list[Any]]:
    """Fields of a part of some samples: masks as they are, others as tensors or arrays."""
    chosen, fields = [samples[index] for index in indices], [sample_field(geometry), "labels"]
    own = geometry.score_field
    columns = {}

    def name_of(index: int) -> str:
        return name(indices[index])

    for field in [*fields, "scores"] if part == "pred_instances" else fields:
        values = field_values(chosen, f"{part}.{field}", name_of)
        if field == "scores" and own != field:  # an image without detections may lack its own scores
            parts = [sample[part] for sample in chosen]
            values = [one.get(own, value) for one, value in zip(parts, values)]
        if field != _MASKS:  # mmdet's box objects have a tensor
            values = [getattr(value, "tensor", value) for value in values]
            values = real_values(values, f"{part}.{field}", name_of)
        columns[field] = values
    return columns


def _to_array(value: Any) -> Any:
    """An array of a value; mmdet's polygon masks as :class:`Masks`."""
    masks = getattr(value, "masks", value)  # mmdet's mask objects
    if isinstance(masks, list) and masks is not value:
        return Masks.from_segmentations(masks, [(value.height, value.width)] * len(masks))
    return as_array(masks, "instances")


def _check_sizes(instances: Any, samples: Samples, part: str, name: SampleName) -> None:
    """Raises MetricInputError if a mask has another size than its image."""
    shapes = np.array([_original_shape(sample, name(index)) for index, sample in enumerate(samples)])
    expected = shapes[instances.image]
    sizes = instances.geometry.sizes
    wrong = (sizes != expected) & np.isfinite(expected)
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        index = int(np.count_nonzero(instances.image[:row] == instances.image[row]))
        size, found = ("{:.0f} x {:.0f}".format(*values[row]) for values in (expected, sizes))
        raise MetricInputError(
            f"'{part}.{_MASKS}' of {name(int(instances.image[row]))} must have the size of the image, {size} (found "
            f"{found} of mask {index}){'' if part == 'pred_instances' else f': {_REMEDY}'}"
        )


class ImageReader:
    """Reads samples that are images, as those of mmdet, mmrotate and mmyolo.

    Args:
        settings: What is matched.
        ann_file: The COCO annotation file of the dataset, which numbers the labels. A federated convention takes the
            ground truth from it.
        score_mode: None; key points have one.
    """

    own_options: tuple[str, ...] = ()
    num_classes = 0  # of datasets without class names; 0: unknown

    def __init__(self, settings: DetectionSettings, ann_file: str | None, score_mode: str | None) -> None:
        for option, value in (("sigmas", settings.sigmas), ("score_mode", score_mode)):
            require(value is None or option in self.own_options, f"{option} needs iou_type='keypoints'")
        self.settings, self.ann_file = settings, ann_file
        self.geometry = geometry_of_settings(settings)[0]
        self._federated = settings.ap_convention.federated
        self._targets_of_file = self._federated and ann_file is not None
        self._files: dict[tuple[str, ...], AnnotationFile] = {}  # by class names
        self._resize_check = ResizeCheck()

    @property
    def target_fields(self) -> tuple[str, ...]:
        """The ground-truth fields that every sample must have."""
        if self._targets_of_file:
            return ()
        return f"gt_instances.{sample_field(self.geometry)}", "gt_instances.labels"

    def check_targets(self, samples: Samples, name: SampleName) -> None:
        """Raises MetricInputError unless the samples have the ground truth, besides ``target_fields``."""

    def metainfo(self, dataset_meta: Mapping[str, Any]) -> Mapping[str, Any]:
        """The metainfo with ``classes`` in the order of the labels."""
        if self.ann_file is None:
            if self._federated:
                check_metainfo(dataset_meta, self.settings.convention)
            return dataset_meta
        names = tuple(map(str, dataset_meta.get("classes") or ()))
        return {**dataset_meta, "classes": _label_names(self.ann_file, names)}

    def state(self, num_classes: int, dataset_meta: Any, keep: str) -> State:
        """A state without samples."""
        settings = self.settings
        if self._targets_of_file:
            settings = settings.with_frequency(self._annotation_file(dataset_meta).frequency)
        elif self._federated:
            settings = settings.with_frequency((dataset_meta or {}).get("frequency"))
        return DetectionState(num_classes, settings, keep=keep)

    def _annotation_file(self, dataset_meta: Any) -> AnnotationFile:
        """The annotation file, read with the classes of the dataset."""
        names = tuple((dataset_meta or {}).get("classes") or ())
        if names not in self._files:
            self._files = {names: AnnotationFile(str(self.ann_file), self.settings.iou_type, names)}
        return self._files[names]

    def read(
        self,
        samples: Samples,
        name: SampleName,
        indices: np.ndarray,
        num_classes: int,
        dataset_meta: Any,
        once: WarnOnce,
    ) -> Batch:
        """The instances of a batch of samples with these positions in the dataset."""
        batch = read_images(samples, name, self.geometry, with_targets=not self._targets_of_file)
        if self._federated and not self._targets_of_file:
            check_metainfo(dataset_meta or {}, self.settings.convention)
            columns = judged_by_metainfo(dataset_meta, samples, name, num_classes)
            batch = replace(batch, image_columns=columns)
        elif self._federated:
            gts, columns = self._annotation_file(dataset_meta).of_samples(samples, name)
            batch = DetectionBatch(batch.detections, gts, len(samples), columns)
        groups = _group_of(samples, batch)
        if groups.any():
            gts = batch.ground_truths
            batch = replace(batch, ground_truths=replace(gts, crowd=gts.crowd | groups))
            once("group-of boxes", GROUP_OF_MESSAGE)
        names = [name(index) for index in range(len(samples))]
        batch.check(num_classes=num_classes, names=names)
        message = self._resize_check.message(samples, batch, names)
        if message is not None:
            once("box_scale", message)  # the cause in a diagnosis
        order, texts = image_keys(samples, indices, names)
        return ImageBatch(batch, order, encode_texts(texts) if (order[:, 0] == NO_NUMBER).any() else None, names)

    def matched(self, state: Any) -> DetectionState:
        """The matches of the samples of a state."""
        matches: DetectionState = state
        return matches


def _group_of(samples: Samples, batch: DetectionBatch) -> np.ndarray:
    """(M,) which ground truths are group-of boxes of OpenImages, by ``instances`` of the samples."""
    result = np.zeros(len(batch.ground_truths), dtype=bool)
    for index, sample in enumerate(samples):
        listed = sample.get("instances")
        if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
            continue
        flags = [bool(each.get("is_group_of")) for each in listed if not each.get("ignore_flag")]
        rows = np.flatnonzero(batch.ground_truths.image == index)
        if any(flags) and len(flags) <= len(rows):  # ignored ones follow
            result[rows[: len(flags)]] = flags
    return result


def image_keys(samples: Samples, indices: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, list[str | None]]:
    """The keys and texts of :class:`ImageBatch`, which order images and break ties between equal scores.

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
    return order, texts


class ResizeCheck:
    """Finds ground truths that are in the coordinates of the resized images, in the first resized images."""

    def __init__(self) -> None:
        self._images = self._located = self._located_rescaled = 0

    def message(self, samples: Samples, batch: DetectionBatch, names: Sequence[str]) -> str | None:
        """Check a batch; a message if the ground truths seem to be in the wrong coordinates."""
        if batch.ground_truths.geometry.field == _MASKS:
            return None  # their size is checked
        factors = np.array([_scale_factor(sample, name) for sample, name in zip(samples, names)])
        resized = int((factors != 1).any(axis=1).sum())
        if not resized or self._images >= _RESIZED_IMAGES_CHECKED:
            return None
        sample = bounding_box_sample(batch)
        self._images += resized
        self._located += num_located(sample)
        self._located_rescaled += num_located(rescaled(sample, 1 / factors, ground_truths=True))
        shapes = np.array([_original_shape(sample, name) for sample, name in zip(samples, names)])
        edges, (height, width) = batch.ground_truths.geometry.bounding_boxes(), shapes[batch.ground_truths.image].T
        outside = int(np.count_nonzero((edges.right > width + 2) | (edges.bottom > height + 2)))
        if not outside and not (self._located_rescaled >= 5 and self._located_rescaled > 3 * self._located):
            return None
        return (
            "the boxes of 'gt_instances' seem to be in the coordinates of the resized images, while 'pred_instances' "
            f"are in those of the original images (ground truths outside their image: {outside}; located by a "
            f"detection: {self._located}, and {self._located_rescaled} if they are scaled back): {_REMEDY}"
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


def _label_names(ann_file: str, names: Sequence[str]) -> Sequence[str]:
    """The class of each label of mmdet's ``CocoDataset`` with these ``metainfo['classes']``."""
    categories, source = read_categories(ann_file), os.path.basename(ann_file)
    listed = categories.numbered(names or categories.names)
    if not names or same_labels(listed, names):
        return names or listed
    orders = describe_orders(listed, source, names, "metainfo['classes']")
    if sorted(listed) != sorted(names):
        raise MetricInputError(
            f"{orders}: mmdet's CocoDataset numbers labels in the order of {source}, so the labels of a model that "
            "knows all of these classes do not fit; list every class in the annotation file, in the model's order"
        )
    warn(
        f"DetectionPRF: {orders}: mmdet's CocoDataset numbers labels in the order of {source}, so classes are "
        "named in that order; list metainfo['classes'] in the same order to make them agree"
    )
    return listed
