"""Putting what was found beside what is there, image by image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Tuple, TypeVar

import numpy as np

from mm_metrics_plugin.exceptions import ClassNamesError, MetricInputError, ResultFileError
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.io.budget import check_num_classes
from mm_metrics_plugin.io.class_order import CLASSES, LABELS
from mm_metrics_plugin.io.files import RowCounts
from mm_metrics_plugin.io.ground_truth import GroundTruth, ImageId, listing
from mm_metrics_plugin.io.results import DetectionResults

IMAGE_ID, IMAGE_PATH, POSITION = "image id", "image path", "position"
MOST_CLASSES = 1 << 16  # labels beyond are refused by name


@dataclass(frozen=True, eq=False)
class Joined:
    """Detections and objects of the same images.

    Args:
        batch (DetectionBatch): Both, with images counted in the order of the ground truth.
        classes (Tuple[str, ...]): Class names in the order of the labels.
        image_ids (Tuple): Id of each image.
        image_names (Tuple[str, ...]): File name of each image, "" where unknown.
        detections (RowCounts): Detections read, used and dropped.
        objects (RowCounts): Objects read, used and dropped.
        missing_images (int): Images without results, evaluated as images without detections. COCO results do not list
            images without detections, so they may have some.
        class_order (str): What labels follow: ``'annotations'``, ``'classes'`` or ``'metainfo'`` as in
            :class:`GroundTruth`, or ``'labels'`` where nobody names the classes.
        joined_by (str): ``'image id'``, ``'image path'`` where ids repeat, or ``'position'`` where the results have no
            ids (mmdet 2.x).
        image_sizes (np.ndarray, optional): (images, 2) height and width, 0 where unknown.
    """

    batch: DetectionBatch
    classes: Tuple[str, ...]
    image_ids: Tuple[ImageId, ...]
    image_names: Tuple[str, ...]
    detections: RowCounts
    objects: RowCounts
    missing_images: int
    class_order: str = LABELS
    joined_by: str = IMAGE_ID
    image_sizes: Optional[np.ndarray] = None


def join(
    truth: GroundTruth,
    results: DetectionResults,
    *,
    classes: Optional[Sequence[str]] = None,
    allow_missing: bool = False,
) -> Joined:
    """Join results to the ground truth by image id, by path where ids repeat, by position where results have no ids.

    mmdet 2.x tested COCO data sets in the order of the annotation file's images, and VOC data sets in the order of
    their image set. A folder of VOC files has no order of its own: results without ids need ``image_set``.

    Args:
        truth (GroundTruth): What is there; ``results.ground_truth`` where it came with the results.
        results (DetectionResults): What was found.
        classes (Sequence[str], optional): Class names for ground truth that has none.
        allow_missing (bool): Take images that the results do not speak of as without detections. Default False.
            COCO results name only images with detections, so none of theirs is missing.

    Raises:
        ResultFileError: Images are missing, unknown or come twice, labels are beyond the classes, or it is not known
            which order of classes they follow.

    Examples:
        >>> from mm_metrics_plugin.io.results import results_from_images
        >>> found = {"bboxes": np.array([[0, 0, 9, 9.5]]), "scores": np.array([0.9]), "labels": np.array([0])}
        >>> results = results_from_images([{"img_id": 7, "pred_instances": found, "gt_instances": found}], "a.pkl")
        >>> joined = join(results.ground_truth, results, classes=["cat"])
        >>> joined.batch.num_images, joined.classes, joined.detections.to_dict()
        (1, ('cat',), {'read': 1, 'used': 1, 'dropped': {}})
    """
    results = ids_as_in(truth, results)
    if truth.class_conflict and results.category_ids is None:
        raise ResultFileError(f"{results.source}: holds labels, not class names: {truth.class_conflict}")
    place, missing = _places(truth, results, allow_missing)
    names = _class_names(truth, results, classes)
    detections = results.detections
    tally = results.row_counts
    if results.category_ids is not None:
        detections, tally = _by_category(truth, results)
    detections = replace(detections, image=place[detections.image])
    for rows, source in ((detections, results.source), (truth.objects, truth.source)):
        _check_labels(rows.labels, rows.image, names, truth, source)
        try:
            rows.check(num_classes=len(names), names=truth.image_ids)
        except MetricInputError as error:
            raise ResultFileError(f"{source}: {error}") from None
    return Joined(
        batch=DetectionBatch(detections, truth.objects, len(truth.image_ids)),
        classes=names,
        image_ids=truth.image_ids,
        image_names=truth.image_names,
        image_sizes=truth.image_sizes,
        detections=tally,
        objects=truth.row_counts,
        missing_images=missing,
        class_order=truth.class_order or (CLASSES if classes else LABELS),
        joined_by=_joined_by(results),
    )


def ids_as_in(truth: GroundTruth, results: DetectionResults) -> DetectionResults:
    """Results whose images are named by path if those of the ground truth are, because ids repeat there.

    Examples:
        >>> from mm_metrics_plugin.io.results import results_from_images
        >>> found = {"bboxes": np.array([[0, 0, 9, 9.5]]), "scores": np.array([0.9]), "labels": np.array([0])}
        >>> image = {"img_id": 7, "img_path": "a/7.jpg", "pred_instances": found, "gt_instances": found}
        >>> results = results_from_images([image], "a.pkl")
        >>> ids_as_in(replace(results.ground_truth, image_ids=("a/7.jpg",)), results).image_ids
        ('a/7.jpg',)
    """
    by_path = any(truth.image_names) and tuple(truth.image_ids) == tuple(truth.image_names)
    if not by_path or results.image_ids is None or not all(results.image_names):
        return results
    return replace(results, image_ids=results.image_names)


def _joined_by(results: DetectionResults) -> str:
    if results.image_ids is None:
        return POSITION
    return IMAGE_PATH if results.image_ids and results.image_ids == results.image_names else IMAGE_ID


def _places(truth: GroundTruth, results: DetectionResults, allow_missing: bool) -> Tuple[np.ndarray, int]:
    """For every image of the results its number in the ground truth, and how many of the latter have none."""
    if results.image_ids is None:
        if not truth.images_ordered:
            raise ResultFileError(
                f"{results.source}: has no image ids (mmdet 2.x), and {truth.source} has no order of images; give the "
                "list of the test set with --image-set, such as ImageSets/Main/test.txt"
            )
        if results.num_images != len(truth.image_ids):
            raise ResultFileError(
                f"{results.source}: has no image ids and must have one entry for each of the {len(truth.image_ids)} "
                f"images of {truth.source} (found {results.num_images})"
            )
        return np.arange(results.num_images), 0
    number = {image_id: at for at, image_id in enumerate(truth.image_ids)}
    places: List[int] = [number.get(image_id, -1) for image_id in results.image_ids]
    place = np.array(places, dtype=np.int64)
    if (place < 0).any():
        unknown = [image_id for image_id, at in zip(results.image_ids, places) if at < 0]
        by_path = (
            "; image ids repeat in the results, so their images are named by path: give the config of the test set"
        )
        hint = f"{by_path} as TRUTH" if _joined_by(results) == IMAGE_PATH else ""
        raise ResultFileError(f"{results.source}: {listing('image', unknown)} not in {truth.source}{hint}")
    counts = np.bincount(place, minlength=len(truth.image_ids))
    if (counts > 1).any():
        twice = [truth.image_ids[at] for at in np.flatnonzero(counts > 1)]
        raise ResultFileError(f"{results.source}: {listing('image', twice)} more than once")
    absent = np.flatnonzero(counts == 0)
    if len(absent) and not allow_missing and results.dialect != "coco":
        missing = [truth.image_ids[at] for at in absent]
        raise ResultFileError(
            f"{results.source}: no results for {listing('image', missing)} of {truth.source} "
            f"(--allow-missing or allow_missing=True takes them as without detections)"
        )
    return place, len(absent)


def _class_names(truth: GroundTruth, results: DetectionResults, classes: Optional[Sequence[str]]) -> Tuple[str, ...]:
    names = truth.classes if truth.classes is not None else tuple(classes or ())
    if not names:
        names = tuple(map(str, range(max(classes_from_labels(results, truth), results.num_classes or 0))))
    if classes is None:
        check_num_classes(len(names), results.source, results.file_size, labels_only=False)
    if results.num_classes is not None and results.num_classes != len(names):
        raise ClassNamesError(
            f"{results.source}: has {results.num_classes} classes where {truth.source} has {len(names)}"
        )
    return names


def classes_from_labels(results: DetectionResults, truth: GroundTruth) -> int:
    """The number of classes, by the largest label, where nothing names the classes.

    Raises:
        ResultFileError: There are more than a file of this size explains.

    Examples:
        >>> from mm_metrics_plugin.io.results import results_from_images
        >>> found = {"bboxes": np.array([[0, 0, 9, 9.5]]), "scores": np.array([0.9]), "labels": np.array([3])}
        >>> results = results_from_images([{"img_id": 7, "pred_instances": found, "gt_instances": found}], "a.pkl")
        >>> classes_from_labels(results, results.ground_truth)
        4
    """
    labels = [results.detections.labels, truth.objects.labels]
    most = max([int(column.max()) + 1 for column in labels if len(column)], default=0)
    check_num_classes(most, results.source, results.file_size, labels_only=True)
    return min(max(most, 0), MOST_CLASSES)


def _by_category(truth: GroundTruth, results: DetectionResults) -> Tuple[Detections, RowCounts]:
    """Category ids to labels; detections of categories that were not chosen are left out."""
    if truth.category_ids is None:
        raise ResultFileError(f"{results.source}: COCO results need COCO ground truth, which {truth.source} is not")
    label_of = {category_id: label for label, category_id in enumerate(truth.category_ids)}
    category_ids = results.category_ids or ()
    known = set(truth.category_ids) | set(truth.unselected_categories)
    unknown = [category_id for category_id in category_ids if category_id not in known]
    if unknown:
        raise ResultFileError(f"{results.source}: {listing('category id', unknown)} not in {truth.source}")
    labels = np.array([label_of.get(category_id, -1) for category_id in category_ids], dtype=np.int64)
    detections = replace(results.detections, labels=labels[results.detections.labels])
    keep = detections.labels >= 0
    return detections.take(keep), results.row_counts.drop("class not chosen", int(np.count_nonzero(~keep)))


def _check_labels(labels: np.ndarray, image: np.ndarray, names: Sequence[str], truth: GroundTruth, source: str) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(wrong):
        shown = [f"{int(labels[row])} in image {truth.image_ids[image[row]]!a}" for row in wrong[:10]]
        raise ClassNamesError(
            f"{source}: {len(wrong)} labels are beyond the {len(names)} classes "
            f"({', '.join(shown)}{', ...' if len(wrong) > 10 else ''})"
        )


# -- selecting images -------------------------------------------------------------------------------------------------

_R = TypeVar("_R", Detections, GroundTruths)


def image_order(image_ids: Sequence[ImageId]) -> List[ImageId]:
    """Ids in the order that decides between equal scores: numbers ascending as in pycocotools, then text.

    Examples:
        >>> image_order([10, 9, "b", "a"])
        [9, 10, 'a', 'b']
    """
    return sorted(image_ids, key=lambda one: (isinstance(one, str), one))


def in_image_order(joined: Joined) -> Joined:
    """The same images in the order that decides between equal scores, whatever their order in the ground truth.

    Examples:
        >>> found, there = Detections([0, 1], np.zeros((2, 4)), [0.1, 0.2], [0, 0]), GroundTruths.empty()
        >>> batch, counts = DetectionBatch(found, there, 2), (RowCounts(2, 2), RowCounts(0, 0))
        >>> joined = Joined(batch, ("cat",), (9, 7), ("b", "a"), *counts, 0)
        >>> ordered = in_image_order(joined)
        >>> ordered.image_ids, ordered.image_names, ordered.batch.detections.image.tolist()
        ((7, 9), ('a', 'b'), [1, 0])
    """
    ordered = image_order(joined.image_ids)
    place = {image_id: at for at, image_id in enumerate(ordered)}
    places = np.array([place[image_id] for image_id in joined.image_ids], dtype=np.int64)
    names = dict(zip(joined.image_ids, joined.image_names))
    detections, objects = joined.batch.detections, joined.batch.ground_truths
    return replace(
        joined,
        batch=DetectionBatch(
            replace(detections, image=places[detections.image]),
            replace(objects, image=places[objects.image]),
            joined.batch.num_images,
        ),
        image_ids=tuple(ordered),
        image_names=tuple(names[image_id] for image_id in ordered),
        image_sizes=None if joined.image_sizes is None else joined.image_sizes[np.argsort(places)],
    )


def share_of_truth(truth: GroundTruth, image_ids: Sequence[ImageId]) -> GroundTruth:
    """The ground truth of some images only, in the order of the file. The tally stays that of the whole file.

    Examples:
        >>> there = GroundTruths([0, 1, 2], np.zeros((3, 4)), [5, 6, 7])
        >>> truth = GroundTruth("a.json", (7, 8, 9), ("", "", ""), np.zeros((3, 2), int), there, RowCounts(3, 3))
        >>> share = share_of_truth(truth, [9, 8])
        >>> share.image_ids, share.objects.image.tolist(), share.objects.labels.tolist()
        ((8, 9), [0, 1], [6, 7])
    """
    wanted = set(image_ids)
    chosen = np.array([one in wanted for one in truth.image_ids], dtype=bool)
    rows = np.flatnonzero(chosen)
    return replace(
        truth,
        image_ids=tuple(truth.image_ids[at] for at in rows),
        image_names=tuple(truth.image_names[at] for at in rows),
        image_sizes=truth.image_sizes[rows],
        objects=_renumbered(truth.objects, chosen),
    )


def share_of_joined(joined: Joined, rank: int, world_size: int) -> Joined:
    """Every ``world_size``-th image. What was counted while reading is left to the first share.

    Examples:
        >>> found, there = Detections([0, 1, 2], np.zeros((3, 4)), [0.1, 0.2, 0.3], [0, 0, 0]), GroundTruths.empty()
        >>> batch, tallies = DetectionBatch(found, there, 3), (RowCounts(3, 3), RowCounts(0, 0))
        >>> whole = Joined(batch, ("cat",), (7, 8, 9), ("", "", ""), *tallies, 0)
        >>> share = share_of_joined(whole, 1, 2)
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
    """The rows of the chosen images, which are counted anew."""
    places = np.cumsum(chosen) - 1
    rows = rows.take(chosen[rows.image])
    return replace(rows, image=places[rows.image])
