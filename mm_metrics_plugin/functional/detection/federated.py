"""Federated datasets such as LVIS, whose images are annotated for some classes only.

A class is judged in an image if it has ground truths there, or is known to be absent (``negative``). Detections of
other classes are left out. Where the annotation of a class is not exhaustive, unmatched detections are ignored. Leaving
out detections changes no match of the others, so this needs no matching of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Sequence

import numpy as np

from mm_metrics_plugin.conventions import PER_CLASS_AND_IMAGE
from mm_metrics_plugin.exceptions import MetricInputError, pluralize
from mm_metrics_plugin.functional._arrays import position_in_group, stable_order
from mm_metrics_plugin.settings import DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.data import DetectionBatch
    from mm_metrics_plugin.functional.detection.match_table import MatchTable

# (images, classes) columns of a batch, and the fields of LVIS annotations that give them.
COLUMNS = {"negative": "neg_category_ids", "not_exhaustive": "not_exhaustive_category_ids"}
_SMALLEST_LIMIT = 100  # fewer detections in every image are no limit of a model


def _rank_in_class_and_image(table: MatchTable) -> np.ndarray:
    # The rows are sorted by image and descending score, which a stable sort preserves.
    by_label = stable_order(table.label).astype(np.int32)
    group = table.image[by_label]
    starts = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (np.diff(table.label[by_label]) != 0)))
    rank = np.empty(len(by_label), dtype=np.int32)
    if len(rank):
        rank[by_label] = np.arange(len(rank)) - np.repeat(starts, np.diff(np.append(starts, len(rank))))
    return rank


def _rank_in_image(table: MatchTable) -> np.ndarray:
    return np.asarray(position_in_group(table.image), dtype=np.int32)


def _rank_in_class(table: MatchTable) -> np.ndarray:
    group = table.label.astype(np.int64) * table.num_runs + table.image % table.num_runs
    order = stable_order(group, -table.score)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = position_in_group(group[order])
    return rank


# What ``max_dets`` limits: (N,) the rank of each detection by score, from 0.
MAX_DETS_PER: dict[str, Callable[[MatchTable], np.ndarray]] = {
    PER_CLASS_AND_IMAGE: _rank_in_class_and_image,
    "image": _rank_in_image,
    "class": _rank_in_class,
}


def judged(table: MatchTable) -> np.ndarray:
    """(N,) whether the class of each detection is judged in its image."""
    classes = np.array(table.image_columns["negative"], dtype=bool)
    classes[table.gt_image, table.gt_label] = True
    return np.asarray(classes[table.image, table.label])


def not_exhaustive(table: MatchTable, rows: np.ndarray) -> np.ndarray:
    """Whether the class of each of these detections has ground truths without annotation in its image."""
    classes = table.image_columns["not_exhaustive"]
    return np.asarray(classes[table.image[rows], table.label[rows]], dtype=bool)


def check_federated(
    batch: DetectionBatch, settings: DetectionSettings, *, num_classes: int, names: Sequence[object] | None = None
) -> None:
    """Raises MetricInputError unless the images of a federated dataset say which classes are judged."""
    if settings.frequency is not None and len(settings.frequency) != num_classes:
        raise MetricInputError(
            f"'frequency' must have one entry for each of the {pluralize(num_classes, 'class')} "
            f"(found {len(settings.frequency)})"
        )
    if not settings.ap_convention.federated or not batch.num_images:
        return
    image = f"image {0 if names is None else names[0]!r}"
    for name, field in COLUMNS.items():
        column = batch.image_columns.get(name)
        if column is None:
            raise MetricInputError(
                f"convention={settings.convention!r} needs '{field}' of every image, from an LVIS annotation file, or "
                f"the image column '{name}' (found none of {image})"
            )
        if column.shape != (batch.num_images, num_classes) or column.dtype != bool:
            raise MetricInputError(
                f"'{name}' must be booleans of {pluralize(batch.num_images, 'image')} and "
                f"{pluralize(num_classes, 'class')} (found {column.dtype} of shape {column.shape})"
            )


def limited_model_message(table: MatchTable) -> str:
    """A message if classes have fewer detections than ``max_dets`` per class, because the model limits images."""
    settings = table.settings
    if settings.ap_convention.max_dets_per != "class" or not len(table.score):
        return ""
    per_image = np.bincount(table.image, minlength=table.num_images)
    most = int(per_image.max())
    at_limit = int(np.count_nonzero(per_image == most))
    with_gts = np.unique(table.gt_label)
    short = int(np.count_nonzero(np.bincount(table.label, minlength=table.num_classes)[with_gts] < settings.max_dets))
    if not short or at_limit < 2 or most < _SMALLEST_LIMIT:
        return ""
    return (
        f"{short} of {pluralize(len(with_gts), 'class')} have fewer than {settings.max_dets} detections, and "
        f"{pluralize(at_limit, 'image')} have exactly {most}, as from a model with a limit per image (max_per_img of "
        f"mmdet): AP by the convention {settings.convention!r} may be too low"
    )
