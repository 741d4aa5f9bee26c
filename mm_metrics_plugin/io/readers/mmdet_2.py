"""Result pickles of mmdet 2.x: one list of arrays (n, 5) per image, one array per class, or tuples of that and masks.

They have no image ids.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError, pluralize
from mm_metrics_plugin.functional._inputs import score_precision
from mm_metrics_plugin.functional.detection.data import Detections
from mm_metrics_plugin.io.detection_data import DetectionResults
from mm_metrics_plugin.io.files import check_num_boxes
from mm_metrics_plugin.io.formats import DETECTIONS, Format, ReadOptions, first_of
from mm_metrics_plugin.row_counts import RowCounts


def _detect(content: Any) -> bool:
    image = first_of(content)
    image = first_of(image) if isinstance(image, tuple) else image
    return isinstance(image, list) and not isinstance(first_of(image), (int, float, str))


def _read(content: list[Any], options: ReadOptions) -> DetectionResults:
    source = options.source
    per_image = [image[0] if type(image) is tuple and image else image for image in content]
    num_classes = len(per_image[0]) if isinstance(per_image[0], list) else 0
    for number, image in enumerate(per_image):
        if type(image) is not list or len(image) != num_classes:
            found = len(image) if type(image) is list else type(image).__name__
            expected = f"a list of {pluralize(num_classes, 'array')}, one per class"
            raise ResultFileError(f"{source}: image number {number} must be {expected} (found {found})")
    arrays = list(chain.from_iterable(per_image))
    for number, array in enumerate(arrays):
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] != 5 or array.dtype.kind != "f":
            image, label = divmod(number, num_classes)
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            rotated = isinstance(array, np.ndarray) and array.ndim == 2 and array.shape[1] in (6, 9)
            hint = "; rotated boxes are not supported by this report" if rotated else ""
            raise ResultFileError(
                f"{source}: class {label} of image number {image} must be an array of numbers of shape (n, 5){hint} "
                f"(found {found})"
            )
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    count = int(lengths.sum())
    check_num_boxes(count, source, options.file_size)
    rows = np.asarray(np.concatenate(arrays)) if arrays else np.empty((0, 5), np.float32)
    precision = np.repeat(np.array([score_precision(array) for array in arrays], dtype=np.uint8), lengths)
    labels = np.tile(np.arange(num_classes), len(per_image))
    images = np.repeat(np.arange(len(per_image)), num_classes)
    return DetectionResults(
        source=source,
        num_images=len(per_image),
        image_ids=None,
        detections=Detections(
            np.repeat(images, lengths), rows[:, :4], rows[:, 4], np.repeat(labels, lengths), precision=precision
        ),
        row_counts=RowCounts(count, count),
        image_names=("",) * len(per_image),
        image_sizes=np.zeros((len(per_image), 2), np.int64),
        num_classes=num_classes,
        file_size=options.file_size,
        # Tuples of boxes and masks
        masks=sum(len(array) for image in content if type(image) is tuple and len(image) > 1 for array in image[0]),
    )


FORMATS = (Format("results of mmdet 2.x", _detect, DETECTIONS, _read),)
