"""What LVIS adds to COCO annotations: which classes are judged in an image, and how frequent they are."""

from __future__ import annotations

from itertools import chain
from typing import Any, Iterable, Mapping

import numpy as np

from mm_metrics_plugin.conventions import FREQUENCIES
from mm_metrics_plugin.functional.detection.federated import COLUMNS
from mm_metrics_plugin.io.arrays import JsonRows


def judged_classes(
    images: JsonRows, label_of: Mapping[Any, int], num_classes: int, category_ids: Iterable[Any]
) -> dict[str, np.ndarray]:
    """(images, classes) which classes are absent from an image, and which are not annotated exhaustively.

    Empty without the fields of LVIS. ``label_of`` has the label of each category id that was chosen, ``category_ids``
    are all of the file.
    """
    known = set(category_ids)
    columns = {}
    for name, field in COLUMNS.items():
        if not any(field in image for image in images.rows):
            continue
        values = images.column(field)
        for index, value in enumerate(values):
            if not isinstance(value, list) or any(isinstance(key, (list, dict)) for key in value):
                raise images.error(field, index, "be a list of category ids", value)
            if not known.issuperset(value):
                raise images.error(
                    field, index, "list ids of the categories of the file", sorted(set(value) - known, key=str)
                )
        labels = np.array([label_of.get(key, -1) for key in chain.from_iterable(values)], dtype=np.int64)
        image = np.repeat(np.arange(len(values)), list(map(len, values)))
        column = np.zeros((len(values), num_classes), dtype=bool)
        column[image[labels >= 0], labels[labels >= 0]] = True
        columns[name] = column
    return columns


def frequencies(categories: JsonRows, label_of: Mapping[Any, int], num_classes: int) -> tuple[str, ...] | None:
    """The frequency of each class, ``""`` of one without a category; None if no category has one."""
    if not any("frequency" in category for category in categories.rows):
        return None
    result = [""] * num_classes
    for index, (key, value) in enumerate(zip(categories.column("id"), categories.column("frequency"))):
        if value not in FREQUENCIES:
            raise categories.error("frequency", index, "be one of " + ", ".join(map(repr, FREQUENCIES)), value)
        if key in label_of:
            result[label_of[key]] = value
    return tuple(result)
