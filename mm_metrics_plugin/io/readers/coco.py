"""COCO annotations and COCO results."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, first_ten
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.io.arrays import JsonRows, check_unique
from mm_metrics_plugin.io.class_order import CLASSES, coco_categories, label_names_of_file
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults
from mm_metrics_plugin.io.formats import (
    DETECTIONS,
    GROUND_TRUTH,
    Format,
    ReadOptions,
    annotated_with,
    dict_with,
    rows_with,
)
from mm_metrics_plugin.row_counts import RowCounts


def read_annotations(content: Any, options: ReadOptions) -> AnnotationSet:
    """The ground truth in a dict of COCO annotations.

    ``class_order='annotations'`` numbers labels in the order of the file's categories, as mmdet's ``CocoDataset`` does
    for any order of ``classes``; ``'classes'`` numbers them in the order of ``classes``, which may then contain names
    that the file lacks. The default is ``'annotations'``, and results with labels are refused if the orders differ.
    """
    source = options.source
    for part in ("images", "annotations", "categories"):
        if not isinstance(content.get(part), list):
            found = type(content.get(part)).__name__
            raise ResultFileError(f"{source}: '{part}' of COCO annotations must be a list (found {found})")
    images = JsonRows(content["images"], source, "image")
    image_ids = images.ids("id")
    check_unique(image_ids, "image id", source)
    sizes = np.stack([images.numbers("height"), images.numbers("width")], axis=1)
    names = [name if isinstance(name, str) else "" for name in (image.get("file_name", "") for image in images.rows)]

    categories = coco_categories(content, source)
    if not categories.ids:
        raise ResultFileError(f"{source}: 'categories' must list at least one class (found an empty list)")
    check_unique(categories.ids, "category id", source)
    repeated = sorted(name for name, number in Counter(categories.names).items() if number > 1)
    if repeated:
        warnings.warn(
            f"{source}: several categories have the same name ({first_ten(repeated)}); each is a class of its own",
            MetricWarning,
        )
    labels = label_names_of_file(categories, options.classes, options.class_order, source)
    if labels.order == CLASSES:
        label_of_name = {name: label for label, name in enumerate(labels.names)}
        label_of = {key: label_of_name[name] for key, name in zip(*categories) if name in label_of_name}
    else:
        chosen = set(labels.names)
        selected = [key for key, name in zip(*categories) if name in chosen]
        label_of = {key: label for label, key in enumerate(selected)}
    category_of = {label: key for key, label in label_of.items()}

    annotations = JsonRows(content["annotations"], source, "annotation")
    if any("id" in row for row in annotations.rows if isinstance(row, dict)):
        check_unique(annotations.ids("id"), "annotation id", source)
    boxes = annotations.numbers("bbox", 4)
    image = lookup(annotations.column("image_id"), {image_id: number for number, image_id in enumerate(image_ids)})
    annotated = annotations.column("category_id")
    label = lookup(annotated, label_of)
    area = annotations.numbers(
        "area", values=[row["area"] if "area" in row else row["bbox"][2] * row["bbox"][3] for row in annotations.rows]
    )
    crowd, ignore = annotations.flags("iscrowd"), annotations.flags("ignore")
    # Objects thinner than a pixel and objects of area 0 are kept, as in pycocotools; mmdet's CocoDataset drops them.
    # Boxes that nothing can overlap and annotations marked 'ignore' are dropped, as in mmdet, and counted.
    left, top, width, height = boxes.T
    image_height, image_width = sizes[image].T if len(image_ids) else np.zeros((2, len(image)))
    inside_width = np.maximum(0, np.minimum(left + width, image_width) - np.maximum(left, 0))
    inside_height = np.maximum(0, np.minimum(top + height, image_height) - np.maximum(top, 0))
    keep, row_counts = RowCounts.select(
        {
            "image not in the file": image < 0,
            "marked 'ignore'": ignore,
            "empty": (width <= 0) | (height <= 0) | (area < 0),
            "outside the image": inside_width * inside_height == 0,
            "category not in the file": lookup(annotated, dict.fromkeys(categories.ids, 0)) < 0,
            "class not chosen": label < 0,
        }
    )
    return AnnotationSet(
        source=source,
        image_ids=tuple(image_ids),
        image_names=tuple(names),
        image_sizes=np.clip(sizes, 0, 1 << 40).astype(np.int64),
        objects=GroundTruths(image[keep], Boxes(boxes[keep], "xywh"), label[keep], crowd=crowd[keep], area=area[keep]),
        row_counts=row_counts,
        classes=labels.names,
        category_ids=tuple(category_of.get(label) for label in range(len(labels.names))),
        unselected_categories={key: name for key, name in zip(*categories) if key not in label_of},
        class_order=labels.order,
        class_conflict=labels.conflict,
    )


def lookup(values: Sequence[Any], indices: dict[Any, int]) -> np.ndarray:
    """The index of each value, -1 if it has none."""
    try:
        return np.array([indices.get(value, -1) for value in values], dtype=np.int64)
    except TypeError:  # lists and dicts are not hashable
        return np.array([indices.get(v, -1) if isinstance(v, (int, str)) else -1 for v in values], dtype=np.int64)


def _read_results(content: list[Any], options: ReadOptions) -> DetectionResults:
    rows = JsonRows(content, options.source, "detection")
    image_ids, image = _numbered(rows.ids("image_id"))
    category_ids, labels = _numbered(rows.ids("category_id"))
    boxes, scores = rows.numbers("bbox", 4), rows.numbers("score")
    return DetectionResults(
        source=options.source,
        lists_all_images=False,
        num_images=len(image_ids),
        image_ids=tuple(image_ids),
        detections=Detections(image, Boxes(boxes, "xywh"), scores, labels),
        row_counts=RowCounts(len(boxes), len(boxes)),
        image_names=("",) * len(image_ids),
        image_sizes=np.zeros((len(image_ids), 2), np.int64),
        category_ids=tuple(category_ids),
        file_size=options.file_size,
        masks=sum(row.get("segmentation") is not None for row in content),
    )


def _numbered(values: list[Any]) -> tuple[list[Any], np.ndarray]:
    """The distinct values in order of appearance, and the index of each value among them."""
    different = list(dict.fromkeys(values))
    number = {value: at for at, value in enumerate(different)}
    return different, np.fromiter(map(number.__getitem__, values), np.int64, len(values))


FORMATS = (
    # An empty list is COCO results without detections.
    Format("an empty list", lambda content: isinstance(content, list) and not content, DETECTIONS, _read_results),
    Format("COCO results", rows_with("image_id"), DETECTIONS, _read_results),
    Format(
        "COCO annotations with scores",
        annotated_with("score"),
        GROUND_TRUTH,
        read_annotations,
        remedy="COCO results are only their list 'annotations'",
        options=("class_order",),
    ),
    Format(
        "COCO annotations",
        dict_with("images", "annotations", "categories"),
        GROUND_TRUTH,
        read_annotations,
        options=("class_order",),
    ),
)
