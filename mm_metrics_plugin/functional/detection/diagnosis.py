"""What a sample of images shows about detections that match almost no ground truth.

Only bounding boxes are compared, regardless of the class, so every geometry has the same checks. A ground truth is
located if its box has an IoU of at least 0.5 with that of a detection. Each check counts the located ground truths as
if the input had one certain mistake, such as boxes in another format.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Mapping

import numpy as np

from mm_metrics_plugin.functional._arrays import group_starts, position_in_group, stable_order
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.pairs import candidate_ranges, find_pairs

LOCATED_IOU = 0.5
MAX_GTS, MAX_DETS = 50, 300  # of an image in the sample
_DETS_PER_GT, _MIN_DETS = 3, 20  # of an image in the sample, those with the highest scores
_SCALED_DETS_PER_GT = 2  # more of them would fit some factor by chance
_SAME_FACTOR, _FACTOR_BIN = 0.25, 0.05  # differences of logarithms
NO_DETECTION = -1

# By the format that the numbers are in, and the one that they were read in: the right boxes from the wrong ones.
FORMATS: Mapping[tuple[str, str], Callable[..., tuple[np.ndarray, ...]]] = {
    ("xywh", "xyxy"): lambda x, y, x2, y2: (x, y, x + x2, y + y2),
    ("xyxy", "xywh"): lambda x, y, x2, y2: (x, y, x2 - x, y2 - y),
    ("cxcywh", "xyxy"): lambda x, y, x2, y2: (x - x2 / 2, y - y2 / 2, x + x2 / 2, y + y2 / 2),
    ("cxcywh", "xywh"): lambda x, y, x2, y2: (x - (x2 - x) / 2, y - (y2 - y) / 2, (x + x2) / 2, (y + y2) / 2),
    ("yxyx", "xyxy"): lambda x, y, x2, y2: (y, x, y2, x2),
    ("yxyx", "xywh"): lambda x, y, x2, y2: (y, x, y2 - y, x2 - x),
}


def bounding_box_sample(batch: DetectionBatch) -> DetectionBatch:
    """The bounding boxes of a batch, sorted by image: some ground truths of each, and its most confident detections.

    Crowds and ignored objects are left out.

    Example:
        >>> batch = DetectionBatch(
        ...     Detections([0, 0], [[0, 0, 9, 9], [5, 5, 8, 8]], [0.2, 0.9], [0, 1]),
        ...     GroundTruths([0, 0], [[0, 0, 9, 9], [5, 5, 8, 8]], [0, 1], crowd=[True, False]), 1)
        >>> sample = bounding_box_sample(batch)
        >>> sample.detections.scores.tolist(), sample.ground_truths.labels.tolist()
        ([0.9, 0.2], [1])
    """
    detections, gts = batch.detections, batch.ground_truths
    rows = np.flatnonzero(~gts.ignored)
    rows = rows[stable_order(gts.image[rows])]
    number = np.bincount(gts.image[rows], minlength=batch.num_images)
    rows = rows[position_in_group(gts.image[rows]) < MAX_GTS]
    order = stable_order(detections.image, -detections.scores)
    most = np.clip(_DETS_PER_GT * number, _MIN_DETS, MAX_DETS)[detections.image[order]]
    order = order[position_in_group(detections.image[order]) < most]
    boxes, gt_boxes = (
        Boxes(np.stack(rows_of.geometry.take(chosen).bounding_boxes(), axis=1))
        for rows_of, chosen in ((detections, order), (gts, rows))
    )
    return DetectionBatch(
        Detections(detections.image[order], boxes, detections.scores[order], detections.labels[order]),
        GroundTruths(gts.image[rows], gt_boxes, gts.labels[rows]),
        batch.num_images,
    )


def located_by(sample: DetectionBatch) -> np.ndarray:
    """(M,) the most confident detection that locates each ground truth, or -1; arguments of `bounding_box_sample`."""
    pairs = find_pairs(sample.detections, sample.ground_truths, min_overlap=LOCATED_IOU)
    result = np.full(len(sample.ground_truths), NO_DETECTION)
    result[pairs.gt[::-1]] = pairs.det[::-1]  # of several, the first one is written last
    return result


def num_located(sample: DetectionBatch) -> int:
    """Number of ground truths that a detection locates."""
    return int(np.count_nonzero(located_by(sample) >= 0))


def rescaled(sample: DetectionBatch, factors: np.ndarray, *, ground_truths: bool = False) -> DetectionBatch:
    """The sample with x and y of its detections, or of its ground truths, multiplied by (images, 2) factors."""
    rows = sample.ground_truths if ground_truths else sample.detections
    return _with_boxes(sample, rows.geometry.scaled(factors[rows.image]), ground_truths)


@dataclass(frozen=True, eq=False)
class SampleCheck:
    """How many ground truths of a sample are located, as given and as if the input had a mistake."""

    images: int
    ground_truths: int
    located: int  # as given
    by_format: Mapping[tuple[str, str, bool], int]  # by keys of ``FORMATS``, and whether the ground truths are wrong
    by_scale: int  # with the detections of each image divided by a factor of its own
    scale: tuple[float, float]  # the median of these factors of x and y, NaN without any
    by_image: Mapping[int, int]  # with the detections of the image that is so many places further
    extent: float  # largest coordinate of the detections
    gt_extent: float  # and of the ground truths
    labels: np.ndarray  # (L,) labels of located ground truths
    predicted: np.ndarray  # (L,) and of the most confident detections that locate them
    detected_classes: np.ndarray  # labels of any detection


def check_sample(sample: DetectionBatch) -> SampleCheck:
    """Count the located ground truths of a sample of `bounding_box_sample`.

    Example:
        >>> gts = GroundTruths([0, 0], [[20, 10, 40, 40], [60, 30, 90, 50]], [0, 0])
        >>> found = [[20, 10, 20, 30], [60, 30, 30, 20]]  # left, top, width and height
        >>> batch = DetectionBatch(Detections([0, 0], found, [0.9, 0.8], [0, 0]), gts, 1)
        >>> check = check_sample(bounding_box_sample(batch))
        >>> check.located, check.by_format["xywh", "xyxy", False]
        (0, 2)
    """
    detections, gts = sample.detections, sample.ground_truths
    boxes, gt_boxes = detections.boxes.array, gts.boxes.array
    best = located_by(sample)
    located = np.flatnonzero(best >= 0)
    extents = {of_gts: float(np.abs(array).max(initial=0)) for of_gts, array in ((False, boxes), (True, gt_boxes))}
    by_format = {
        (*key, of_gts): num_located(_with_boxes(sample, _in_format(rows.boxes, convert), of_gts))
        for rows, others, of_gts in ((detections, gts, False), (gts, detections, True))
        for key, convert in FORMATS.items()
        if _looks_wrong(key, rows.boxes, others.boxes)
    }
    factors = _scale_factors(sample)
    scaled = located_by(rescaled(sample, 1 / factors))
    images = np.unique(gts.image[scaled >= 0])
    scale = np.median(factors[images], axis=0) if len(images) else np.full(2, np.nan)
    return SampleCheck(
        images=sample.num_images,
        ground_truths=len(gts),
        located=len(located),
        by_format=by_format,
        by_scale=int(np.count_nonzero(scaled >= 0)),
        scale=(float(scale[0]), float(scale[1])),
        by_image={step: num_located(_moved(sample, step)) for step in (-1, 1)},
        extent=extents[False],
        gt_extent=extents[True],
        labels=gts.labels[located],
        predicted=detections.labels[best[located]],
        detected_classes=np.unique(detections.labels),
    )


def class_mapping(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """(C,) the class that predictions have instead of each class, one-to-one, or -1.

    It is the most frequent prediction of the class if no other class has it more often.

    Example:
        >>> class_mapping(np.array([0, 0, 0, 1, 1]), np.array([1, 1, 0, 2, 2]), 3).tolist()
        [1, 2, -1]
    """
    cells, counts = np.unique(labels * num_classes + predicted, return_counts=True)
    rows, columns = np.divmod(cells, num_classes)
    most, most_of_column = np.zeros((2, num_classes), dtype=np.int64)
    np.maximum.at(most, rows, counts)
    np.maximum.at(most_of_column, columns, counts)
    chosen = np.flatnonzero((counts == most[rows]) & (counts == most_of_column[columns]))
    result = np.full(num_classes, -1)
    result[rows[chosen]] = columns[chosen]
    return result


def _with_boxes(sample: DetectionBatch, boxes: Boxes, of_gts: bool) -> DetectionBatch:
    """The sample with other boxes of its ground truths, or of its detections."""
    if of_gts:
        return replace(sample, ground_truths=replace(sample.ground_truths, geometry=boxes))
    return replace(sample, detections=replace(sample.detections, geometry=boxes))


def _looks_wrong(key: tuple[str, str], boxes: Boxes, others: Boxes) -> bool:
    """Whether boxes may be those that were read in the wrong format, and not the others in the opposite way.

    A width that is read as the right edge gives boxes without area, and a right edge that is read as the width gives
    boxes that reach too far.
    """
    is_format, read_format = key
    empty, others_empty = (float(part.is_empty().mean()) if len(part) else 0.0 for part in (boxes, others))
    if read_format == "xyxy" and is_format != "yxyx":
        return empty > others_empty
    if key == ("xyxy", "xywh"):
        farther = boxes.array.max(initial=0) > others.array.max(initial=0)
        return bool(farther) and others_empty <= empty
    return True


def _in_format(boxes: Boxes, convert: Callable[..., tuple[np.ndarray, ...]]) -> Boxes:
    return Boxes(np.stack(convert(*boxes.array.T), axis=1))


def _moved(sample: DetectionBatch, step: int) -> DetectionBatch:
    """The sample with the detections of each image in the image that is so many places further."""
    detections = sample.detections
    image = detections.image + step
    kept = np.flatnonzero((image >= 0) & (image < sample.num_images))
    return replace(sample, detections=replace(detections.take(kept), image=image[kept]))


def _scale_factors(sample: DetectionBatch) -> np.ndarray:
    """(images, 2) how much larger x and y of the detections are in most pairs with a ground truth, or 1.

    Only pairs whose sizes and centers differ by about the same factors count.
    """
    detections, gts = sample.detections, sample.ground_truths
    number = np.bincount(gts.image, minlength=sample.num_images)
    confident = np.flatnonzero(position_in_group(detections.image) < _SCALED_DETS_PER_GT * number[detections.image])
    first, count = candidate_ranges(gts.image, detections.image[confident])
    det = np.repeat(confident, count)
    gt = np.arange(len(det)) + np.repeat(first - (np.cumsum(count) - count), count)
    sides, centers = _logarithms(detections.boxes.array)
    gt_sides, gt_centers = _logarithms(gts.boxes.array)
    factor = centers[det] - gt_centers[gt]
    with np.errstate(invalid="ignore"):
        alike = np.abs(sides[det] - gt_sides[gt] - factor) < _SAME_FACTOR
    rows = np.flatnonzero(alike.all(axis=1))
    result = np.zeros((sample.num_images, 2))
    if not len(rows):
        return np.exp(result)
    keys = np.column_stack([detections.image[det[rows]], np.rint(factor[rows] / _FACTOR_BIN).astype(np.int64)])
    bins, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    total = np.zeros((len(bins), 2))
    np.add.at(total, inverse.reshape(-1), factor[rows])
    order = np.lexsort((-counts, bins[:, 0]))
    best = order[group_starts(bins[order, 0])]  # the largest bin of each image
    result[bins[best, 0]] = total[best] / counts[best, None]
    return np.exp(result)


def _logarithms(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, 2) logarithms of the sides and of the centers; NaN of what is not positive."""
    sides, centers = boxes[:, 2:] - boxes[:, :2], (boxes[:, 2:] + boxes[:, :2]) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sides > 0, np.log(sides), np.nan), np.where(centers > 0, np.log(centers), np.nan)
