"""Joins detections with the ground truth of the same images, and selects images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from mm_metrics_plugin.exceptions import ClassNamesError, MetricInputError, ResultFileError, listing, pluralize
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.io.class_order import CLASSES, LABELS
from mm_metrics_plugin.io.files import RowCounts, check_num_classes
from mm_metrics_plugin.io.ground_truth import GroundTruth, ImageId
from mm_metrics_plugin.io.results import DetectionResults

IMAGE_ID, IMAGE_PATH, POSITION = "image id", "image path", "position"
MOST_CLASSES = 1 << 16  # labels beyond are refused by name


@dataclass(frozen=True, eq=False)
class JoinedImages:
    """Detections and ground truths of the same images.

    Attributes:
        batch: Both; images are numbered in the order of the ground truth.
        classes: Class names in the order of the labels.
        image_ids: Id of each image.
        image_names: File name of each image, "" if unknown.
        detections: Detections read, used and dropped.
        missing_images: Number of images without results, evaluated as images without detections.
        class_order: What the labels follow: ``'annotations'``, ``'classes'`` or ``'metainfo'`` as in
            :class:`GroundTruth`, or ``'labels'`` if the classes have no names.
        joined_by: ``'image id'``, ``'image path'`` if ids repeat, or ``'position'`` if the results have no ids
            (mmdet 2.x).
        image_sizes: (images, 2) height and width, 0 if unknown.
    """

    batch: DetectionBatch
    classes: Tuple[str, ...]
    image_ids: Tuple[ImageId, ...]
    image_names: Tuple[str, ...]
    detections: RowCounts
    missing_images: int
    class_order: str = LABELS
    joined_by: str = IMAGE_ID
    image_sizes: Optional[np.ndarray] = None


def join(
    ground_truth: GroundTruth,
    results: DetectionResults,
    *,
    classes: Optional[Sequence[str]] = None,
    allow_missing: bool = False,
) -> JoinedImages:
    """Join results to the ground truth by image id, by path where ids repeat, by position where results have no ids.

    mmdet 2.x tested COCO data sets in the order of the annotation file's images, and VOC data sets in the order of
    their image set. A folder of VOC files has no order of its own: results without ids need ``image_set``.

    Args:
        ground_truth: The ground truth; ``results.ground_truth`` if the results contain it.
        results: The detections.
        classes: Class names, if the ground truth has none.
        allow_missing: Evaluate images without results as images without detections. COCO results contain only images
            with detections, so none of their images is missing.

    Raises:
        ResultFileError: Images are missing, unknown or repeated, labels are out of range, or the order of the classes
            is ambiguous.

    Example:
        >>> from mm_metrics_plugin.io.results import results_from_images
        >>> boxes = {"bboxes": np.array([[0, 0, 9, 9.5]]), "scores": np.array([0.9]), "labels": np.array([0])}
        >>> results = results_from_images([{"img_id": 7, "pred_instances": boxes, "gt_instances": boxes}], "a.pkl")
        >>> joined = join(results.ground_truth, results, classes=["cat"])
        >>> joined.batch.num_images, joined.classes, joined.detections.to_dict()
        (1, ('cat',), {'read': 1, 'used': 1, 'dropped': {}})
    """
    results = match_image_ids(ground_truth, results)
    if ground_truth.class_conflict and results.category_ids is None:
        raise ResultFileError(f"{results.source}: holds labels, not class names: {ground_truth.class_conflict}")
    position, missing = _positions(ground_truth, results, allow_missing)
    names = _class_names(ground_truth, results, classes)
    detections = results.detections
    counts = results.row_counts
    if results.category_ids is not None:
        detections, counts = _by_category(ground_truth, results)
    detections = replace(detections, image=position[detections.image])
    for rows, source in ((detections, results.source), (ground_truth.objects, ground_truth.source)):
        _check_labels(rows, names, ground_truth.image_ids, source)
        try:
            rows.check(num_classes=len(names), names=ground_truth.image_ids)
        except MetricInputError as error:
            raise ResultFileError(f"{source}: {error}") from None
    return JoinedImages(
        batch=DetectionBatch(detections, ground_truth.objects, len(ground_truth.image_ids)),
        classes=names,
        image_ids=ground_truth.image_ids,
        image_names=ground_truth.image_names,
        image_sizes=ground_truth.image_sizes,
        detections=counts,
        missing_images=missing,
        class_order=ground_truth.class_order or (CLASSES if classes else LABELS),
        joined_by=_joined_by(results),
    )


def match_image_ids(ground_truth: GroundTruth, results: DetectionResults) -> DetectionResults:
    """Results with paths as image ids if the ground truth has paths as ids, because ids repeat there.

    Example:
        >>> from mm_metrics_plugin.io.results import results_from_images
        >>> instances = {"bboxes": np.array([[0, 0, 9, 9.5]]), "scores": np.array([0.9]), "labels": np.array([0])}
        >>> image = {"img_id": 7, "img_path": "a/7.jpg", "pred_instances": instances, "gt_instances": instances}
        >>> results = results_from_images([image], "a.pkl")
        >>> match_image_ids(replace(results.ground_truth, image_ids=("a/7.jpg",)), results).image_ids
        ('a/7.jpg',)
    """
    by_path = any(ground_truth.image_names) and tuple(ground_truth.image_ids) == tuple(ground_truth.image_names)
    if not by_path or results.image_ids is None or not all(results.image_names):
        return results
    return replace(results, image_ids=results.image_names)


def _joined_by(results: DetectionResults) -> str:
    if results.image_ids is None:
        return POSITION
    return IMAGE_PATH if results.image_ids and results.image_ids == results.image_names else IMAGE_ID


def _positions(ground_truth: GroundTruth, results: DetectionResults, allow_missing: bool) -> Tuple[np.ndarray, int]:
    """Index of each result image in the ground truth, and the number of images without results."""
    if results.image_ids is None:
        if not ground_truth.images_ordered:
            raise ResultFileError(
                f"{results.source}: has no image ids (mmdet 2.x), and {ground_truth.source} has no order of images; "
                "give the list of the test set with --image-set, such as ImageSets/Main/test.txt"
            )
        expected = len(ground_truth.image_ids)
        if results.num_images != expected:
            raise ResultFileError(
                f"{results.source}: has no image ids and must have one entry for each of the "
                f"{pluralize(expected, 'image')} of {ground_truth.source} (found {results.num_images})"
            )
        return np.arange(results.num_images), 0
    index_of = {image_id: index for index, image_id in enumerate(ground_truth.image_ids)}
    places: List[int] = [index_of.get(image_id, -1) for image_id in results.image_ids]
    place = np.array(places, dtype=np.int64)
    if (place < 0).any():
        unknown = [image_id for image_id, at in zip(results.image_ids, places) if at < 0]
        by_path = (
            "; image ids repeat in the results, so their images are named by path: give the config of the test set"
        )
        hint = f"{by_path} as GROUND_TRUTH" if _joined_by(results) == IMAGE_PATH else ""
        raise ResultFileError(f"{results.source}: {listing('image', unknown)} not in {ground_truth.source}{hint}")
    counts = np.bincount(place, minlength=len(ground_truth.image_ids))
    if (counts > 1).any():
        twice = [ground_truth.image_ids[at] for at in np.flatnonzero(counts > 1)]
        raise ResultFileError(f"{results.source}: {listing('image', twice)} more than once")
    absent = np.flatnonzero(counts == 0)
    if len(absent) and not allow_missing and results.dialect != "coco":
        missing = [ground_truth.image_ids[at] for at in absent]
        raise ResultFileError(
            f"{results.source}: no results for {listing('image', missing)} of {ground_truth.source} "
            f"(--allow-missing or allow_missing=True takes them as without detections)"
        )
    return place, len(absent)


def _class_names(
    ground_truth: GroundTruth, results: DetectionResults, classes: Optional[Sequence[str]]
) -> Tuple[str, ...]:
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


def classes_from_labels(results: DetectionResults, ground_truth: GroundTruth) -> int:
    """The number of classes by the largest label, if the classes have no names.

    Raises:
        ResultFileError: There are more classes than a file of this size can have.

    Example:
        >>> from mm_metrics_plugin.io.results import results_from_images
        >>> boxes = {"bboxes": np.array([[0, 0, 9, 9.5]]), "scores": np.array([0.9]), "labels": np.array([3])}
        >>> results = results_from_images([{"img_id": 7, "pred_instances": boxes, "gt_instances": boxes}], "a.pkl")
        >>> classes_from_labels(results, results.ground_truth)
        4
    """
    labels = [results.detections.labels, ground_truth.objects.labels]
    most = max([int(column.max()) + 1 for column in labels if len(column)], default=0)
    check_num_classes(most, results.source, results.file_size, labels_only=True)
    return min(max(most, 0), MOST_CLASSES)


def _by_category(ground_truth: GroundTruth, results: DetectionResults) -> Tuple[Detections, RowCounts]:
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
    rows: Union[Detections, GroundTruths], names: Sequence[str], image_ids: Sequence[ImageId], source: str
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

_R = TypeVar("_R", Detections, GroundTruths)


def image_order(image_ids: Sequence[ImageId]) -> List[ImageId]:
    """Image ids in the order that breaks score ties: numbers ascending as in pycocotools, then strings.

    Example:
        >>> image_order([10, 9, "b", "a"])
        [9, 10, 'a', 'b']
    """
    return sorted(image_ids, key=lambda one: (isinstance(one, str), one))


def in_image_order(joined: JoinedImages) -> JoinedImages:
    """The same images in the order that breaks score ties.

    Example:
        >>> dets, gts = Detections([0, 1], np.zeros((2, 4)), [0.1, 0.2], [0, 0]), GroundTruths.empty()
        >>> joined = JoinedImages(DetectionBatch(dets, gts, 2), ("cat",), (9, 7), ("b", "a"), RowCounts(2, 2), 0)
        >>> ordered = in_image_order(joined)
        >>> ordered.image_ids, ordered.image_names, ordered.batch.detections.image.tolist()
        ((7, 9), ('a', 'b'), [0, 1])
    """
    ordered = image_order(joined.image_ids)
    if tuple(ordered) == joined.image_ids:
        return joined
    place = {image_id: at for at, image_id in enumerate(ordered)}
    places = np.array([place[image_id] for image_id in joined.image_ids], dtype=np.int64)
    names = dict(zip(joined.image_ids, joined.image_names))
    detections, objects = joined.batch.detections, joined.batch.ground_truths
    return replace(
        joined,
        batch=DetectionBatch(
            _moved(detections, places),
            _moved(objects, places),
            joined.batch.num_images,
        ),
        image_ids=tuple(ordered),
        image_names=tuple(names[image_id] for image_id in ordered),
        image_sizes=None if joined.image_sizes is None else joined.image_sizes[np.argsort(places)],
    )


def _moved(rows: _R, places: np.ndarray) -> _R:
    """Rows with other image numbers, image by image."""
    image = places[rows.image]
    return replace(rows, image=image).take(np.argsort(image, kind="stable"))


def select_images(ground_truth: GroundTruth, image_ids: Sequence[ImageId]) -> GroundTruth:
    """The ground truth of some images, in the order of the file. The row counts stay those of the whole file.

    Example:
        >>> gts = GroundTruths([0, 1, 2], np.zeros((3, 4)), [5, 6, 7])
        >>> ground_truth = GroundTruth("a.json", (7, 8, 9), ("", "", ""), np.zeros((3, 2), int), gts, RowCounts(3, 3))
        >>> share = select_images(ground_truth, [9, 8])
        >>> share.image_ids, share.objects.image.tolist(), share.objects.labels.tolist()
        ((8, 9), [0, 1], [6, 7])
    """
    wanted = set(image_ids)
    chosen = np.array([one in wanted for one in ground_truth.image_ids], dtype=bool)
    rows = np.flatnonzero(chosen)
    return replace(
        ground_truth,
        image_ids=tuple(ground_truth.image_ids[at] for at in rows),
        image_names=tuple(ground_truth.image_names[at] for at in rows),
        image_sizes=ground_truth.image_sizes[rows],
        objects=_renumbered(ground_truth.objects, chosen),
    )


def every_nth_image(joined: JoinedImages, rank: int, world_size: int) -> JoinedImages:
    """Every ``world_size``-th image, from ``rank`` on. Row counts of the file stay with rank 0.

    Example:
        >>> dets, gts = Detections([0, 1, 2], np.zeros((3, 4)), [0.1, 0.2, 0.3], [0, 0, 0]), GroundTruths.empty()
        >>> whole = JoinedImages(DetectionBatch(dets, gts, 3), ("cat",), (7, 8, 9), ("", "", ""), RowCounts(3, 3), 0)
        >>> share = every_nth_image(whole, 1, 2)
        >>> share.image_ids, share.batch.detections.scores.tolist(), share.detections.read
        ((8,), [0.2], 0)
    """
    if world_size == 1:
        return joined
    chosen = np.arange(len(joined.image_ids)) % world_size == rank
    batch = DetectionBatch(
        _renumbered(joined.batch.detections, chosen),
        _renumbered(joined.batch.ground_truths, chosen),
        int(np.count_nonzero(chosen)),
    )
    nothing = RowCounts(0, 0)
    return replace(
        joined,
        batch=batch,
        image_ids=joined.image_ids[rank::world_size],
        image_names=joined.image_names[rank::world_size],
        image_sizes=None if joined.image_sizes is None else joined.image_sizes[rank::world_size],
        detections=joined.detections if rank == 0 else nothing,
        missing_images=joined.missing_images if rank == 0 else 0,
    )


def _renumbered(rows: _R, chosen: np.ndarray) -> _R:
    """The rows of the selected images, renumbered."""
    places = np.cumsum(chosen) - 1
    rows = rows.take(chosen[rows.image])
    return replace(rows, image=places[rows.image])
