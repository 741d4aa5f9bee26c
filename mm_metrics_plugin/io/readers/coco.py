"""COCO annotations and COCO results."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, first_ten, pluralize
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.io.arrays import JsonRows, check_unique
from mm_metrics_plugin.io.class_order import CLASSES, coco_categories, label_names_of_file
from mm_metrics_plugin.io.detection_data import GROUP_OF_MESSAGE, AnnotationSet, DetectionResults
from mm_metrics_plugin.io.formats import (
    DETECTIONS,
    GROUND_TRUTH,
    Format,
    ReadOptions,
    annotated_with,
    dict_with,
    rows_with,
)
from mm_metrics_plugin.io.readers.lvis import frequencies, judged_classes
from mm_metrics_plugin.io.readers.shapes import OTHER_FIELDS, SHAPES
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
    shapes = SHAPES[options.iou_type](options)
    image = lookup(annotations.column("image_id"), {image_id: number for number, image_id in enumerate(image_ids)})
    annotated = annotations.column("category_id")
    label = lookup(annotated, label_of)
    crowd, ignore = annotations.flags("iscrowd"), annotations.flags("ignore")
    groups = annotations.flags("is_group_of")
    if groups.any():
        warnings.warn(f"{source}: {GROUP_OF_MESSAGE} (found {int(groups.sum())})", MetricWarning)
        crowd |= groups
    row_sizes = sizes[image] if len(image_ids) else np.zeros((len(image), 2))
    keep, row_counts = RowCounts.select(
        {
            "image not in the file": image < 0,
            "marked 'ignore'": ignore,  # as in mmdet
            **shapes.dropped_ground_truths(annotations, row_sizes),
            "category not in the file": lookup(annotated, dict.fromkeys(categories.ids, 0)) < 0,
            "class not chosen": label < 0,
        }
    )
    _check_some(shapes.field, row_counts, "annotation", options)
    kept = annotations.take(np.flatnonzero(keep).tolist())
    geometry, columns = shapes.ground_truths(
        kept, [image_ids[index] for index in image[keep]], row_sizes[keep], content["categories"]
    )
    known = np.array(["area" in row for row in kept.rows], dtype=bool)
    area = kept.numbers("area", values=[row.get("area", 0) for row in kept.rows])
    if not known.all():
        area = np.where(known, area, geometry.ground_truth_areas())
    return AnnotationSet(
        source=source,
        image_ids=tuple(image_ids),
        image_names=tuple(names),
        image_sizes=np.clip(sizes, 0, 1 << 40).astype(np.int64),
        objects=GroundTruths(image[keep], geometry, label[keep], crowd=crowd[keep], area=area, **columns),
        row_counts=row_counts,
        classes=labels.names,
        category_ids=tuple(category_of.get(label) for label in range(len(labels.names))),
        unselected_categories={key: name for key, name in zip(*categories) if key not in label_of},
        class_order=labels.order,
        class_conflict=labels.conflict,
        image_columns=judged_classes(images, label_of, len(labels.names), categories.ids),
        frequency=frequencies(JsonRows(content["categories"], source, "category"), label_of, len(labels.names)),
    )


def lookup(values: Sequence[Any], indices: dict[Any, int]) -> np.ndarray:
    """The index of each value, -1 if it has none."""
    try:
        return np.array([indices.get(value, -1) for value in values], dtype=np.int64)
    except TypeError:  # lists and dicts are not hashable
        return np.array([indices.get(v, -1) if isinstance(v, (int, str)) else -1 for v in values], dtype=np.int64)


def _check_some(field: str, counts: RowCounts, noun: str, options: ReadOptions) -> None:
    """Raises an error if no row has the shapes that are asked for."""
    if counts.read and counts.dropped.get(f"without '{field}'") == counts.read:
        raise ResultFileError(
            f"{options.source}: no {noun} has '{field}', which iou_type={options.iou_type!r} needs "
            f"({pluralize(counts.read, noun)} without)"
        )


def _read_results(content: list[Any], options: ReadOptions) -> DetectionResults:
    rows = JsonRows(content, options.source, "detection")
    shapes = SHAPES[options.iou_type](options)
    ids = rows.ids("image_id")
    image_ids, image = numbered(ids)
    category_ids, labels = numbered(rows.ids("category_id"))
    scores = rows.numbers("score")
    keep, row_counts = RowCounts.select({"": np.zeros(len(ids), dtype=bool), **shapes.dropped(rows)})
    _check_some(shapes.field, row_counts, "detection", options)
    if not keep.all():
        chosen = np.flatnonzero(keep).tolist()
        rows, ids = rows.take(chosen), [ids[index] for index in chosen]
    return DetectionResults(
        source=options.source,
        lists_all_images=False,
        num_images=len(image_ids),
        image_ids=tuple(image_ids),
        detections=Detections(image[keep], shapes.detections(rows, ids), scores[keep], labels[keep]),
        row_counts=row_counts,
        image_names=("",) * len(image_ids),
        image_sizes=np.zeros((len(image_ids), 2), np.int64),
        category_ids=tuple(category_ids),
        file_size=options.file_size,
        also=tuple(name for field, name in OTHER_FIELDS.items() if not rows.without(field).all()),
    )


def numbered(values: list[Any]) -> tuple[list[Any], np.ndarray]:
    """The distinct values in order of appearance, and the index of each value among them."""
    different = list(dict.fromkeys(values))
    number = {value: at for at, value in enumerate(different)}
    return different, np.fromiter(map(number.__getitem__, values), np.int64, len(values))


_IOU_TYPES = tuple(SHAPES)
_HAS_MASKS = rows_with("image_id", "segmentation", without="bbox")
_HAS_KEY_POINTS = rows_with("image_id", "keypoints", without="bbox")
FORMATS = (
    # An empty list is COCO results without detections.
    Format(
        "an empty list",
        lambda content: isinstance(content, list) and not content,
        DETECTIONS,
        _read_results,
        iou_types=_IOU_TYPES,
    ),
    Format("COCO masks without boxes", _HAS_MASKS, DETECTIONS, _read_results, iou_types=("segm", "boundary")),
    Format("COCO key points without boxes", _HAS_KEY_POINTS, DETECTIONS, _read_results, iou_types=("keypoints",)),
    Format(
        "COCO results",
        lambda content: rows_with("image_id")(content) and not (_HAS_MASKS(content) or _HAS_KEY_POINTS(content)),
        DETECTIONS,
        _read_results,
        iou_types=_IOU_TYPES,
    ),
    Format(
        "COCO annotations with scores",
        annotated_with("score"),
        GROUND_TRUTH,
        read_annotations,
        remedy="COCO results are only their list 'annotations'",
        options=("class_order",),
        iou_types=_IOU_TYPES,
    ),
    Format(
        "COCO annotations",
        dict_with("images", "annotations", "categories"),
        GROUND_TRUTH,
        read_annotations,
        options=("class_order",),
        iou_types=_IOU_TYPES,
    ),
)
