"""Result pickles of mmdet 2.x: one list of arrays (n, 5) per image, one array per class, or tuples of that and masks.

Those of mmrotate 0.x are arrays (n, 6), or (n, 9) of quadrilaterals. They have no image ids.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from mm_metrics_plugin.conventions import IOU_TYPES
from mm_metrics_plugin.exceptions import ResultFileError, pluralize
from mm_metrics_plugin.functional._inputs import InvalidValue, score_precision
from mm_metrics_plugin.functional.detection.data import Detections
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.instances import joined_rows, rows_of_images
from mm_metrics_plugin.io.arrays import to_array
from mm_metrics_plugin.io.detection_data import DetectionResults
from mm_metrics_plugin.io.files import check_num_boxes
from mm_metrics_plugin.io.formats import DETECTIONS, Format, ReadOptions, first_of
from mm_metrics_plugin.row_counts import RowCounts


def _detect(content: Any) -> bool:
    image = first_of(content)
    image = first_of(image) if isinstance(image, tuple) else image
    return isinstance(image, list) and not isinstance(first_of(image), (int, float, str))


def _read(content: list[Any], options: ReadOptions) -> DetectionResults:
    source, geometry = options.source, geometry_of(options.iou_type)
    per_image = [image[0] if type(image) is tuple and image else image for image in content]
    num_classes = len(per_image[0]) if isinstance(per_image[0], list) else 0
    for number, image in enumerate(per_image):
        if type(image) is not list or len(image) != num_classes:
            found = len(image) if type(image) is list else type(image).__name__
            expected = f"a list of {pluralize(num_classes, 'array')}, one per class"
            raise ResultFileError(f"{source}: image number {number} must be {expected} (found {found})")
    arrays = list(chain.from_iterable(per_image))
    widths = (6, 9) if options.iou_type == "rbox" else (5,)
    width = next(
        (array.shape[1] for array in arrays if np.ndim(array) == 2 and np.shape(array)[1] in widths), widths[0]
    )
    for number, array in enumerate(arrays):
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] != width or array.dtype.kind != "f":
            image, label = divmod(number, num_classes)
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            rotated = isinstance(array, np.ndarray) and array.ndim == 2 and array.shape[1] in (6, 9)
            hint = "; rotated boxes need iou_type='rbox'" if rotated and width == 5 else ""
            raise ResultFileError(
                f"{source}: class {label} of image number {image} must be an array of numbers of shape (n, {width})"
                f"{hint} (found {found})"
            )
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    count = int(lengths.sum())
    check_num_boxes(count, source, options.file_size)
    rows = np.asarray(np.concatenate(arrays)) if arrays else np.empty((0, width), np.float32)
    shapes, scores = geometry(rows[:, :-1]) if geometry.field == "boxes" else None, rows[:, -1]
    with_masks = [type(image) is tuple and len(image) > 1 for image in content]
    if shapes is None:
        if not all(with_masks):
            number = with_masks.index(False)
            raise ResultFileError(
                f"{source}: image number {number} has no masks, which iou_type={options.iou_type!r} needs"
            )
        shapes, mask_scores = _masks([image[1] for image in content], lengths, options)
        scores = scores if mask_scores is None else mask_scores
    labels = np.tile(np.arange(num_classes), len(per_image))
    images = np.repeat(np.arange(len(per_image)), num_classes)
    return DetectionResults(
        source=source,
        num_images=len(per_image),
        image_ids=None,
        detections=Detections(
            np.repeat(images, lengths),
            shapes,
            scores,
            np.repeat(labels, lengths),
            precision=np.repeat(np.array([score_precision(array) for array in arrays], dtype=np.uint8), lengths),
        ),
        row_counts=RowCounts(count, count),
        image_names=("",) * len(per_image),
        image_sizes=np.zeros((len(per_image), 2), np.int64),
        num_classes=num_classes,
        file_size=options.file_size,
        also=("masks",) if any(with_masks) else (),
    )


def _masks(per_image: list[Any], lengths: np.ndarray, options: ReadOptions) -> tuple[Any, np.ndarray | None]:
    """The masks of all images and classes, and their scores if there are any, as of Mask Scoring R-CNN."""
    has_scores = all(type(image) is tuple and len(image) == 2 for image in per_image)
    masks = _by_class([image[0] for image in per_image] if has_scores else per_image, "mask", lengths, options)
    names = np.repeat(np.arange(len(masks)) * len(per_image) // max(len(masks), 1), lengths)
    shapes = geometry_of(options.iou_type).from_rle(list(chain.from_iterable(masks)), names=names.tolist())
    if not has_scores:
        return shapes, None
    scores = _by_class([image[1] for image in per_image], "mask score", lengths, options)
    try:
        return shapes, joined_rows(rows_of_images(scores, (), to_array, lengths.tolist()))
    except InvalidValue as error:
        image, label = divmod(error.index, len(lengths) // len(per_image))
        raise error.named("mask scores", lambda _: f"class {label} of image number {image}") from None


def _by_class(per_image: list[Any], noun: str, lengths: np.ndarray, options: ReadOptions) -> list[Any]:
    """The lists of all images and classes, with one value per box."""
    num_classes = len(lengths) // len(per_image)
    for number, image in enumerate(per_image):
        if not isinstance(image, (list, tuple)) or len(image) != num_classes:
            found: Any = len(image) if isinstance(image, (list, tuple)) else type(image).__name__
            raise ResultFileError(
                f"{options.source}: the {noun}s of image number {number} must be {pluralize(num_classes, 'list')}, one "
                f"per class (found {found})"
            )
    lists = list(chain.from_iterable(per_image))
    for index, (part, length) in enumerate(zip(lists, lengths.tolist())):
        found = len(part) if isinstance(part, list) or np.ndim(part) else type(part).__name__
        if found != length:
            image, label = divmod(index, num_classes)
            raise ResultFileError(
                f"{options.source}: class {label} of image number {image} must have one {noun} per box, {length} "
                f"(found {found})"
            )
    return lists


FORMATS = (
    Format(
        "results of mmdet 2.x",
        _detect,
        DETECTIONS,
        _read,
        iou_types=tuple(name for name in IOU_TYPES if name != "keypoints"),
    ),
)
