"""Reads from the annotation file what mmdet's datasets do not keep: areas, and objects thinner than a pixel."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.io.files import RowCounts
from mm_metrics_plugin.io.ground_truth import GroundTruth, ImageId, read_ground_truth


def complete_from_annotation_files(
    dataset: Any, image_ids: Sequence[ImageId], objects: GroundTruths
) -> Tuple[GroundTruths, RowCounts]:
    """Add the annotations' areas, and the objects that mmdet leaves out because they are thin.

    mmdet's ``CocoDataset`` leaves out annotations whose width or height is below 1 or whose area is 0. pycocotools,
    and so mmdet's ``CocoMetric``, counts them.

    Args:
        dataset: The dataset that mmdet built. The parts of a ``ConcatDataset`` are read one by one.
        image_ids: Id of each image of the dataset.
        objects: The objects that the dataset holds, image by image, boxes as corners.

    Returns:
        The objects, with areas where an annotation file is known, and what was read, used
        and dropped.

    Example:
        >>> from types import SimpleNamespace
        >>> objects = GroundTruths([0], [[0, 0, 4, 4]], [0])
        >>> complete_from_annotation_files(SimpleNamespace(), [7], objects)[1].to_dict()
        {'read': 1, 'used': 1, 'dropped': {}}
    """
    parts = _parts(dataset)
    ends = np.cumsum([len(part) for part in parts]).tolist() if len(parts) > 1 else [len(image_ids)]
    completed: List[GroundTruths] = []
    counts: List[RowCounts] = []
    for part, start, end in zip(parts, [0, *ends], ends):
        own = objects.images(start, end)
        file = _annotation_file(part)
        result = (own, RowCounts(len(own), len(own)))
        if file is not None:
            result = _complete(own, file, part.cat2label, image_ids[start:end])
        completed.append(replace(result[0], image=result[0].image + start))
        counts.append(result[1])
    if any(one.area is not None for one in completed):
        completed = [_with_area(one) for one in completed]
    return GroundTruths.concatenate(completed), RowCounts.total(counts)


def _parts(dataset: Any) -> List[Any]:
    """The parts of a ``ConcatDataset`` in the order of its images, however deep; any other dataset by itself."""
    if not hasattr(dataset, "cumulative_sizes"):
        return [dataset]
    return [part for one in dataset.datasets for part in _parts(one)]


def _annotation_file(dataset: Any) -> Optional[GroundTruth]:
    """The COCO file of a dataset, read with all classes; None if it has none."""
    path = getattr(dataset, "ann_file", None)
    # Only datasets that are read from COCO files have category ids; XMLDataset has names alone.
    if not isinstance(path, str) or not hasattr(dataset, "cat_ids") or not hasattr(dataset, "cat2label"):
        return None
    from mmengine.fileio import get_local_path

    try:
        with get_local_path(path, backend_args=getattr(dataset, "backend_args", None)) as local:
            return read_ground_truth(local)
    except (ResultFileError, OSError) as error:
        warnings.warn(
            f"{path}: cannot be read for the areas of the objects; their size is that of their boxes ({error})",
            MetricWarning,
            stacklevel=2,
        )
        return None


def _complete(
    own: GroundTruths, file: GroundTruth, label_of: Dict[Any, int], image_ids: Sequence[ImageId]
) -> Tuple[GroundTruths, RowCounts]:
    number = {image_id: at for at, image_id in enumerate(image_ids)}
    image = np.array([number.get(image_id, -1) for image_id in file.image_ids], dtype=np.int64)[file.objects.image]
    labels = np.array([label_of.get(one, -1) for one in file.category_ids or ()], dtype=np.int64)[file.objects.labels]
    chosen = (image >= 0) & (labels >= 0)
    row_counts = file.row_counts.drop("class not chosen", int(np.count_nonzero(labels < 0)))
    row_counts = row_counts.drop("image not in the test set", int(np.count_nonzero((labels >= 0) & (image < 0))))
    rows = np.flatnonzero(chosen)[np.argsort(image[chosen], kind="stable")]
    shapes = file.objects.boxes.take(rows)
    width, height = shapes.array[:, 2:].T
    boxes = shapes.to_format("xyxy")  # mmdet's corners, to the last bit
    area = file.objects.area[rows]  # type: ignore[index]
    known = GroundTruths(image[rows], boxes, labels[rows], crowd=file.objects.crowd[rows], area=area)
    if np.array_equal(_table(known)[(width >= 1) & (height >= 1) & (area > 0)], _table(own)):
        return known, row_counts
    return _matched(own, known, row_counts)


def _matched(own: GroundTruths, known: GroundTruths, row_counts: RowCounts) -> Tuple[GroundTruths, RowCounts]:
    """A dataset with rules of its own: its objects, with the areas of the annotations that equal them."""
    waiting: Dict[Tuple[float, ...], List[float]] = {}
    areas: np.ndarray = known.area  # type: ignore[assignment]
    for key, area in zip(map(tuple, _table(known)[::-1].tolist()), areas[::-1].tolist()):
        waiting.setdefault(key, []).append(area)
    found = [waiting[key].pop() if waiting.get(key) else np.nan for key in map(tuple, _table(own).tolist())]
    strangers = np.isnan(np.array(found, dtype=np.float64))
    matched = replace(own, area=np.where(strangers, _box_area(own), found))
    if strangers.any():
        warnings.warn(
            f"{int(strangers.sum())} of {len(own)} objects of the test dataset are not in its annotation file; their "
            "size is that of their boxes",
            MetricWarning,
            stacklevel=2,
        )
        return matched, RowCounts(len(own), len(own))
    return matched, row_counts.drop("left out by the dataset", row_counts.used - len(own))


def _table(objects: GroundTruths) -> np.ndarray:
    return np.column_stack([objects.image, objects.labels, objects.crowd, objects.boxes.array])


def _with_area(objects: GroundTruths) -> GroundTruths:
    return objects if objects.area is not None else replace(objects, area=_box_area(objects))


def _box_area(objects: GroundTruths) -> np.ndarray:
    left, top, right, bottom = objects.boxes.array.T
    area: np.ndarray = (right - left) * (bottom - top)
    return area
