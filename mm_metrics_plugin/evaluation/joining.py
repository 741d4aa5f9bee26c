"""Joins detections with the ground truth of the same images, and selects images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.exceptions import ClassNamesError, MetricInputError, ResultFileError, listing, pluralize
from mm_metrics_plugin.functional.detection.data import (
    DetectionBatch,
    Detections,
    GroundTruths,
    ImageId,
    image_order,
)
from mm_metrics_plugin.io.class_order import CLASSES, LABELS
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults
from mm_metrics_plugin.io.files import check_num_classes
from mm_metrics_plugin.row_counts import RowCounts

_R = TypeVar("_R", Detections, GroundTruths)
IMAGE_ID, IMAGE_PATH, POSITION = "image id", "image path", "position"
MAX_CLASSES = 1 << 16  # larger labels are errors


@dataclass(frozen=True, eq=False)
class JoinedImages:
    """Detections and ground truths of the same images."""

    batch: DetectionBatch
    classes: tuple[str, ...]  # in the order of the labels
    image_ids: tuple[ImageId, ...]
    image_names: tuple[str, ...]  # file names, "" if unknown
    detections: RowCounts
    without_results: np.ndarray  # (images,) bool; evaluated as images without detections
    class_order: str = LABELS  # that of the ground truth, or 'labels' if the classes have no names
    joined_by: str = IMAGE_ID
    image_sizes: np.ndarray | None = None  # (images, 2) height and width, 0 if unknown
    frequency: tuple[str, ...] | None = None  # of the classes of LVIS

    @property
    def missing_images(self) -> int:
        """Number of images without results."""
        return int(np.count_nonzero(self.without_results))


def join(
    ground_truth: AnnotationSet,
    results: DetectionResults,
    *,
    classes: Sequence[str] | None = None,
    allow_missing: bool = False,
) -> JoinedImages:
    """Join results to the ground truth by image id, by path if ids repeat, or by position if results have no ids.

    mmdet 2.x tested COCO data sets in the order of the annotation file's images, and VOC data sets in the order of
    their image set. A folder of VOC files has no order, so results without ids need ``image_set``. COCO results contain
    only images with detections, so other images may lack results in them.

    Raises:
        ResultFileError: Images are missing, unknown or repeated, labels are out of range, or the order of the classes
            is ambiguous.
    """
    results = match_image_ids(ground_truth, results)
    if ground_truth.class_conflict and results.category_ids is None:
        raise ResultFileError(f"{results.source}: holds labels, not class names: {ground_truth.class_conflict}")
    position, missing = _positions(ground_truth, results, allow_missing)
    names = _class_names(ground_truth, results, classes)
    detections = results.detections
    counts = results.row_counts
    if results.category_ids is not None:
        detections, counts = _labels_of_categories(ground_truth, results)
    detections = replace(detections, image=position[detections.image])
    for rows, source in ((detections, results.source), (ground_truth.objects, ground_truth.source)):
        _check_labels(rows, names, ground_truth.image_ids, source)
        try:
            rows.check(num_classes=len(names), names=ground_truth.image_ids)
        except MetricInputError as error:
            raise ResultFileError(f"{source}: {error}") from None
    objects = ground_truth.objects
    mismatch = detections.geometry.mismatch(detections.image, objects, ground_truth.image_sizes)
    if mismatch is not None:
        image, expected, found = mismatch
        field, name = detections.geometry.field, ground_truth.image_ids[image]
        raise ResultFileError(f"{results.source}: '{field}' of image {name!r} must {expected} (found {found})")
    detections = replace(detections, geometry=detections.geometry.drawn_like(objects.geometry))
    return JoinedImages(
        batch=DetectionBatch(detections, ground_truth.objects, len(ground_truth.image_ids), ground_truth.image_columns),
        classes=names,
        image_ids=ground_truth.image_ids,
        image_names=ground_truth.image_names,
        image_sizes=ground_truth.image_sizes,
        detections=counts,
        without_results=missing,
        class_order=ground_truth.class_order or (CLASSES if classes else LABELS),
        joined_by=_joined_by(results),
        frequency=ground_truth.frequency,
    )


def match_image_ids(ground_truth: AnnotationSet, results: DetectionResults) -> DetectionResults:
    """Results with paths as image ids if the ground truth has paths as ids, because ids repeat there."""
    by_path = any(ground_truth.image_names) and tuple(ground_truth.image_ids) == tuple(ground_truth.image_names)
    if not by_path or results.image_ids is None or not all(results.image_names):
        return results
    return replace(results, image_ids=results.image_names)


def _joined_by(results: DetectionResults) -> str:
    if results.image_ids is None:
        return POSITION
    return IMAGE_PATH if results.image_ids and results.image_ids == results.image_names else IMAGE_ID


def _positions(
    ground_truth: AnnotationSet, results: DetectionResults, allow_missing: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Index of each result image in the ground truth, and which images of the ground truth have no results."""
    if results.image_ids is None:
        if not ground_truth.images_ordered:
            raise ResultFileError(
                f"{results.source}: has no image ids (mmdet 2.x), and {ground_truth.source} has no order of images; "
                "give the list of the test set with image_set=..., such as ImageSets/Main/test.txt"
            )
        expected = len(ground_truth.image_ids)
        if results.num_images != expected:
            raise ResultFileError(
                f"{results.source}: has no image ids and must have one entry for each of the "
                f"{pluralize(expected, 'image')} of {ground_truth.source} (found {results.num_images})"
            )
        return np.arange(results.num_images), np.zeros(expected, dtype=bool)
    index_of = {image_id: index for index, image_id in enumerate(ground_truth.image_ids)}
    positions = np.array([index_of.get(image_id, -1) for image_id in results.image_ids], dtype=np.int64)
    if (positions < 0).any():
        unknown = [image_id for image_id in results.image_ids if image_id not in index_of]
        hint = (
            "; image ids repeat in the results, so their images are named by path: give the config of the test set as "
            "ground_truth=..."
        )
        raise ResultFileError(
            f"{results.source}: {listing('image', unknown)} not in {ground_truth.source}"
            f"{hint if _joined_by(results) == IMAGE_PATH else ''}"
        )
    counts = np.bincount(positions, minlength=len(ground_truth.image_ids))
    if (counts > 1).any():
        repeated = [ground_truth.image_ids[index] for index in np.flatnonzero(counts > 1)]
        raise ResultFileError(f"{results.source}: has {listing('image', repeated)} more than once")
    missing = [ground_truth.image_ids[index] for index in np.flatnonzero(counts == 0)]
    if missing and not allow_missing and results.lists_all_images:
        raise ResultFileError(
            f"{results.source}: no results for {listing('image', missing)} of {ground_truth.source} "
            f"(allow_missing=True takes them as without detections)"
        )
    return positions, counts == 0


def _class_names(
    ground_truth: AnnotationSet, results: DetectionResults, classes: Sequence[str] | None
) -> tuple[str, ...]:
    names = ground_truth.classes if ground_truth.classes is not None else tuple(classes or ())
    if not names:
        names = tuple(map(str, range(max(classes_from_labels(results, ground_truth), results.num_classes or 0))))
    if classes is None:
        check_num_classes(len(names), results.source, results.file_size, labels_only=False)
    if results.num_classes is not None and results.num_classes != len(names):
        raise ClassNamesError(
            f"{results.source}: has {pluralize(results.num_classes, 'class')} where {ground_truth.source} has "
            f"{len(names)}"
        )
    return names


def classes_from_labels(results: DetectionResults, ground_truth: AnnotationSet) -> int:
    """The number of classes by the largest label; a ResultFileError if a file of this size cannot have as many."""
    labels = [results.detections.labels, ground_truth.objects.labels]
    most = max([int(column.max()) + 1 for column in labels if len(column)], default=0)
    check_num_classes(most, results.source, results.file_size, labels_only=True)
    return min(max(most, 0), MAX_CLASSES)


def _labels_of_categories(ground_truth: AnnotationSet, results: DetectionResults) -> tuple[Detections, RowCounts]:
    """Convert category ids to labels; drop detections of categories that were not selected."""
    if ground_truth.category_ids is None:
        raise ResultFileError(
            f"{results.source}: COCO results need COCO annotations as ground truth (found {ground_truth.source})"
        )
    label_of = {category_id: label for label, category_id in enumerate(ground_truth.category_ids)}
    category_ids = results.category_ids or ()
    known = set(ground_truth.category_ids) | set(ground_truth.unselected_categories)
    unknown = [category_id for category_id in category_ids if category_id not in known]
    if unknown:
        raise ResultFileError(f"{results.source}: {listing('category id', unknown)} not in {ground_truth.source}")
    labels = np.array([label_of.get(category_id, -1) for category_id in category_ids], dtype=np.int64)
    detections = replace(results.detections, labels=labels[results.detections.labels])
    keep = detections.labels >= 0
    return detections.take(keep), results.row_counts.drop("class not chosen", int(np.count_nonzero(~keep)))


def _check_labels(
    rows: Detections | GroundTruths, names: Sequence[str], image_ids: Sequence[ImageId], source: str
) -> None:
    labels, image = rows.labels, rows.image
    wrong = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(wrong):
        shown = [f"{int(labels[row])} in image {image_ids[image[row]]!a}" for row in wrong[:10]]
        raise ClassNamesError(
            f"{source}: {pluralize(len(wrong), 'label')} beyond the {pluralize(len(names), 'class')} "
            f"({', '.join(shown)}{', ...' if len(wrong) > 10 else ''})"
        )


# -- selecting images -------------------------------------------------------------------------------------------------


def in_image_order(joined: JoinedImages) -> JoinedImages:
    """The same images in the order that breaks score ties."""
    index_of = {image_id: index for index, image_id in enumerate(joined.image_ids)}
    return _take_images(joined, [index_of[image_id] for image_id in image_order(joined.image_ids)])


def images_of_rank(joined: JoinedImages, rank: int, world_size: int) -> JoinedImages:
    """Every ``world_size``-th image, from ``rank`` on. Rank 0 has the row counts of the file."""
    chosen = _take_images(joined, range(rank, len(joined.image_ids), world_size))
    return chosen if rank == 0 else replace(chosen, detections=RowCounts(0, 0))


def select_images(ground_truth: AnnotationSet, image_ids: Sequence[ImageId]) -> AnnotationSet:
    """The ground truth of some images, in the order of the file. The row counts stay those of the whole file."""
    selected = set(image_ids)
    chosen = [index for index, image_id in enumerate(ground_truth.image_ids) if image_id in selected]
    return replace(
        ground_truth,
        image_ids=tuple(ground_truth.image_ids[index] for index in chosen),
        image_names=tuple(ground_truth.image_names[index] for index in chosen),
        image_sizes=ground_truth.image_sizes[chosen],
        objects=_take_rows(ground_truth.objects, chosen, len(ground_truth.image_ids)),
        image_columns={name: np.asarray(column)[chosen] for name, column in ground_truth.image_columns.items()},
    )


def _take_images(joined: JoinedImages, chosen: Sequence[int]) -> JoinedImages:
    """The images with these indices, in this order."""
    batch = joined.batch
    if list(chosen) == list(range(batch.num_images)):
        return joined
    detections = _take_rows(batch.detections, chosen, batch.num_images)
    gts = _take_rows(batch.ground_truths, chosen, batch.num_images)
    return replace(
        joined,
        batch=DetectionBatch(detections, gts, len(chosen), batch.columns_of(list(chosen))),
        image_ids=tuple(joined.image_ids[index] for index in chosen),
        image_names=tuple(joined.image_names[index] for index in chosen),
        without_results=joined.without_results[list(chosen)],
        image_sizes=None if joined.image_sizes is None else joined.image_sizes[list(chosen)],
    )


def _take_rows(rows: _R, chosen: Sequence[int], num_images: int) -> _R:
    """The rows of the images with these indices, image by image."""
    positions = np.full(num_images, -1)
    positions[list(chosen)] = np.arange(len(chosen))
    image = positions[rows.image]
    order = np.argsort(image, kind="stable")
    order = order[image[order] >= 0]
    return replace(rows.take(order), image=image[order])
