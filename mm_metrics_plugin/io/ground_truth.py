"""Ground truth of detection: COCO annotation files and folders of VOC annotations."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, first_ten, listing
from mm_metrics_plugin.functional.detection.data import GroundTruths, ImageId
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.io.arrays import JsonRows, check_unique
from mm_metrics_plugin.io.class_order import ANNOTATIONS, CLASSES, coco_categories, label_names_of_file
from mm_metrics_plugin.io.contents import read_file
from mm_metrics_plugin.io.file_formats import VOC_FOLDER, recognize_file
from mm_metrics_plugin.io.files import PathLike
from mm_metrics_plugin.io.formats import (
    COCO_ANNOTATIONS,
    GROUND_TRUTH,
    SCORED_ANNOTATIONS,
    plain_content,
    recognize,
    refusal,
)
from mm_metrics_plugin.io.voc import read_voc
from mm_metrics_plugin.row_counts import RowCounts


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The ground-truth objects of many images, flattened.

    Args:
        source: Name of the file or folder.
        image_ids: Id of each image, in the order of the file.
        image_names: File name of each image, "" if unknown.
        image_sizes: (images, 2) height and width, 0 if unknown.
        objects: The objects; ``image`` counts images in the order above. Crowd, difficult and ignored
            objects are marked as ``crowd``.
        row_counts: Annotations read, used and dropped.
        classes: Class names in the order of the labels, None if the file has none.
        category_ids: COCO's category id of each label, None if the file lacks the class.
        unselected_categories: Names by category id of the classes of the file that were not chosen.
        class_order: The order of the labels: ``'annotations'`` (the file's categories), ``'classes'`` (the given class
            names), ``'metainfo'`` (the class names of a config), or ``''`` if the file names no classes.
        class_conflict: The error message for results with labels if two known class orders differ, else ``''``.
        images_ordered: Whether the images are in the order of the test set, so that results without image ids
            can be joined by position.
        image_folders: The image folders of a config. ``image_names`` are then paths.
        sha256: Of an annotation file; None of a folder, a config or objects in memory.
    """

    source: str
    image_ids: Tuple[ImageId, ...]
    image_names: Tuple[str, ...]
    image_sizes: np.ndarray
    objects: GroundTruths
    row_counts: RowCounts
    classes: Optional[Tuple[str, ...]] = None
    category_ids: Optional[Tuple[Optional[ImageId], ...]] = None
    unselected_categories: Mapping[ImageId, str] = field(default_factory=dict)
    class_order: str = ""
    class_conflict: str = ""
    images_ordered: bool = True
    image_folders: Tuple[str, ...] = ()
    sha256: Optional[str] = None


def distinct_ids(ids: Sequence[ImageId], paths: Sequence[str]) -> Sequence[ImageId]:
    """The ids, or the paths if ids repeat and paths do not, as in a ConcatDataset of files that share ids."""
    repeat = len(set(ids)) < len(ids) and len(set(paths)) == len(paths) and all(paths)
    return paths if repeat else ids


def read_ground_truth(
    path: PathLike,
    *,
    classes: Optional[Sequence[str]] = None,
    class_order: Optional[str] = None,
    image_set: Optional[PathLike] = None,
) -> GroundTruth:
    """Read COCO annotations (a ``.json`` file) or VOC annotations (a folder of ``.xml`` files).

    Args:
        path: The file or folder.
        classes: Names of the classes to use. Labels of VOC files follow this order; VOC files
            define none, so it must be given. For COCO files the default is all classes.
        class_order: For COCO files: ``'annotations'`` numbers labels in the order of the file's
            categories, as mmdet's ``CocoDataset`` does for any order of ``classes``; ``'classes'`` numbers them in
            the order of ``classes``, which may then contain names that the file lacks. By default as
            ``'annotations'``, and results with labels are refused if the orders differ.
        image_set: For VOC folders: the list of the test set, one image id per line, such as
            ``ImageSets/Main/test.txt``. Only these images are read, in this order. By default all files of the folder.
    """
    if isinstance(classes, str):
        raise ResultFileError(f"'classes' must be a list of names (found {classes!r})")
    path = Path(path)
    if recognize_file(path) is VOC_FOLDER:
        if class_order == ANNOTATIONS:
            raise ResultFileError(f"{path.name}: VOC annotations have no order of classes; labels follow classes=[...]")
        return _ground_truth_from_voc(path, classes, image_set)
    content, _, digest = read_file(path, GROUND_TRUTH)
    if image_set is not None:
        raise ResultFileError(f"{path.name}: image_set=... requires a folder of VOC files; this file lists its images")
    ground_truth = ground_truth_from_coco(content, path.name, classes=classes, class_order=class_order)
    return replace(ground_truth, sha256=digest)


def ground_truth_from_coco(
    content: Any, source: str, *, classes: Optional[Sequence[str]] = None, class_order: Optional[str] = None
) -> GroundTruth:
    """Ground truth from a dict of COCO annotations; ``source`` is its name in messages."""
    content = plain_content(content, source)
    form = recognize(content)
    if form is not COCO_ANNOTATIONS and form is not SCORED_ANNOTATIONS:
        raise refusal(source, content, GROUND_TRUTH)
    for part in ("images", "annotations", "categories"):
        if not isinstance(content[part], list):
            found = type(content[part]).__name__
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
    labels = label_names_of_file(categories, classes, class_order, source)
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
    image = _lookup(annotations.column("image_id"), {image_id: number for number, image_id in enumerate(image_ids)})
    annotated = annotations.column("category_id")
    label = _lookup(annotated, label_of)
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
            "category not in the file": _lookup(annotated, dict.fromkeys(categories.ids, 0)) < 0,
            "class not chosen": label < 0,
        }
    )
    return GroundTruth(
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


def _lookup(values: Sequence[Any], indices: Dict[Any, int]) -> np.ndarray:
    """The index of each value, -1 if it has none."""
    try:
        return np.array([indices.get(value, -1) for value in values], dtype=np.int64)
    except TypeError:  # lists and dicts are not hashable
        return np.array([indices.get(v, -1) if isinstance(v, (int, str)) else -1 for v in values], dtype=np.int64)


def _ground_truth_from_voc(
    folder: Path, classes: Optional[Sequence[str]], image_set: Optional[PathLike]
) -> GroundTruth:
    if (folder / "Annotations").is_dir():
        folder = folder / "Annotations"
    annotations = read_voc(folder, image_set)
    images, names, boxes, difficult = zip(*annotations.objects) if annotations.objects else ((),) * 4
    if classes is None:
        raise ResultFileError(
            f"{folder.name}: VOC annotations do not define the label of a class; list all classes of the model in the "
            "order of its labels with classes=[...], or give the config as ground_truth=... (the folder has objects of "
            f"{listing('class', sorted(set(names))) if names else 'no class'})"
        )
    labels = _lookup(names, {name: label for label, name in enumerate(classes)})
    corners, crowd = np.array(boxes, dtype=np.float64).reshape(-1, 4), np.array(difficult, dtype=bool)
    objects = GroundTruths(np.array(images, dtype=np.int64), corners, labels, crowd=crowd)
    keep, row_counts = RowCounts.select({SWAPPED: has_swapped_corners(corners), "class not chosen": labels < 0})
    return GroundTruth(
        source=folder.name,
        image_ids=annotations.image_ids,
        image_names=annotations.image_names,
        image_sizes=np.array(annotations.image_sizes, dtype=np.int64),
        objects=objects.take(keep),
        row_counts=row_counts,
        classes=tuple(classes),
        class_order=CLASSES,
        images_ordered=image_set is not None,
    )


SWAPPED = "corners swapped"


def has_swapped_corners(boxes: np.ndarray) -> np.ndarray:
    """Which boxes (left, top, right, bottom) have negative width or height. Nothing can match them."""
    return (boxes[:, 2] < boxes[:, 0]) | (boxes[:, 3] < boxes[:, 1])


def check_same_ground_truth(first: GroundTruth, second: GroundTruth) -> None:
    """Raise an error if two ground truths differ in an image that both contain.

    The order of images, and of the objects of an image, does not matter. Images in only one of them are
    checked when results are joined. The message names the first image that differs, in the order of ``first``.
    """
    rows, other_rows = _rows_by_image(first), _rows_by_image(second)
    for image_id in first.image_ids:
        mine, theirs = rows[image_id], other_rows.get(image_id)
        if theirs is None or np.array_equal(mine, theirs):
            continue
        what = f"{len(mine)} and {len(theirs)} objects"
        if len(mine) == len(theirs):
            what = f"class, box or crowd flag of object number {np.flatnonzero((mine != theirs).any(axis=1))[0]}"
        raise ResultFileError(
            f"{first.source} and {second.source}: differ in the ground truth of image {image_id!a} ({what}); "
            "give the annotations as ground_truth=..."
        )


def _rows_by_image(ground_truth: GroundTruth) -> Dict[ImageId, np.ndarray]:
    """Class, crowd flag and box of the objects of each image, sorted."""
    objects = ground_truth.objects
    rows = np.column_stack([objects.image, objects.labels, objects.crowd, objects.boxes.array]).astype(np.float64)
    rows = rows[np.lexsort(rows.T[::-1])]
    starts = np.searchsorted(rows[:, 0], np.arange(1, len(ground_truth.image_ids)))
    return dict(zip(ground_truth.image_ids, np.split(rows[:, 1:], starts)))
