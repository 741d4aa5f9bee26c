"""Ground truth and results of detection, as readers return them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths, ImageId
from mm_metrics_plugin.row_counts import RowCounts

GROUP_OF_MESSAGE = (
    "boxes of a group (is_group_of in OpenImages) are evaluated as crowd regions: any number of detections may match "
    "one, and they are neither TP nor FP. This is not the rule of the OpenImages challenge"
)
_ROW_ARRAYS = ("boxes", "keypoints", "lengths", "sizes")  # of geometries, with one row per shape


@dataclass(frozen=True, eq=False)
class AnnotationSet:
    """The ground-truth objects of many images, flattened.

    Args:
        source: Name of the file or folder.
        image_ids: Id of each image, in the order of the file.
        image_names: File name of each image, "" if unknown.
        image_sizes: (images, 2) height and width, 0 if unknown.
        objects: The objects; ``image`` counts images in the order above.
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
        image_columns: Columns of ``DetectionBatch.image_columns``, such as the group of each image.
        frequency: The frequency of each class, which LVIS annotations have.
        libraries: The modules that read it.
        sha256: Of an annotation file or the files of a folder; None of a config and of objects in memory.
        image_set_sha256: Of the list of the test set, if one was given.
    """

    source: str
    image_ids: tuple[ImageId, ...]
    image_names: tuple[str, ...]
    image_sizes: np.ndarray
    objects: GroundTruths
    row_counts: RowCounts
    classes: tuple[str, ...] | None = None
    category_ids: tuple[ImageId | None, ...] | None = None
    unselected_categories: Mapping[ImageId, str] = field(default_factory=dict)
    class_order: str = ""
    class_conflict: str = ""
    images_ordered: bool = True
    image_folders: tuple[str, ...] = ()
    image_columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    frequency: tuple[str, ...] | None = None
    libraries: tuple[str, ...] = ()
    sha256: str | None = None
    image_set_sha256: str | None = None


@dataclass(frozen=True, eq=False)
class DetectionResults:
    """The detections of many images, flattened.

    Args:
        source: Name of the file.
        num_images: Images in the file.
        image_ids: Id of each image; None in files of mmdet 2.x, which have only an order.
        detections: ``image`` counts images in the order of the file. Labels are class indices or, if there are
            ``category_ids``, positions in these.
        row_counts: Detections read, used and dropped.
        image_names: Path of each image, "" if unknown.
        image_sizes: (images, 2) height and width, 0 if unknown.
        category_ids: The category ids of a file that has no labels, such as COCO results.
        lists_all_images: Whether the file also lists images without detections; COCO results do not.
        num_classes: Number of classes, if the file has it.
        ground_truth: The ground truth in the file, if it has one.
        file_size: In bytes; None if the content comes from no file.
        also: The fields of other shapes that the file holds, such as ``'masks'``, which were not read.
        sha256: Of the file; None if the content comes from no file.
    """

    source: str
    num_images: int
    image_ids: tuple[ImageId, ...] | None
    detections: Detections
    row_counts: RowCounts
    image_names: tuple[str, ...]
    image_sizes: np.ndarray
    category_ids: tuple[ImageId, ...] | None = None
    num_classes: int | None = None
    ground_truth: AnnotationSet | None = None
    file_size: int | None = None
    also: tuple[str, ...] = ()
    lists_all_images: bool = True
    sha256: str | None = None


def distinct_ids(ids: Sequence[ImageId], paths: Sequence[str]) -> Sequence[ImageId]:
    """The ids, or the paths if ids repeat and paths do not, as in a ConcatDataset of files that share ids."""
    repeat = len(set(ids)) < len(ids) and len(set(paths)) == len(paths) and all(paths)
    return paths if repeat else ids


def text_or_empty(value: Any) -> str:
    """The value if it is text, else ""."""
    return value if isinstance(value, str) else ""


def check_same_ground_truth(first: AnnotationSet, second: AnnotationSet) -> None:
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
            what = f"class, shape or crowd flag of object number {np.flatnonzero((mine != theirs).any(axis=1))[0]}"
        raise ResultFileError(
            f"{first.source} and {second.source}: differ in the ground truth of image {image_id!a} ({what}); "
            "give the annotations as ground_truth=..."
        )


def _rows_by_image(ground_truth: AnnotationSet) -> dict[ImageId, np.ndarray]:
    """Class, crowd flag and shape of the objects of each image, sorted. Masks by their boxes, areas and runs."""
    objects = ground_truth.objects
    geometry = objects.geometry
    arrays = (array for name, array in geometry.to_arrays().items() if name in _ROW_ARRAYS)
    columns = (*arrays, *geometry.bounding_boxes(), geometry.areas())
    shapes = [array.reshape(len(objects), int(np.prod(array.shape[1:]))) for array in columns]
    rows = np.column_stack([objects.image, objects.labels, objects.crowd, *shapes]).astype(np.float64)
    rows = rows[np.lexsort(rows.T[::-1])]
    starts = np.searchsorted(rows[:, 0], np.arange(1, len(ground_truth.image_ids)))
    return dict(zip(ground_truth.image_ids, np.split(rows[:, 1:], starts)))
