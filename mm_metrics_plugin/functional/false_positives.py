"""Types of false positives: what lies under a detection that the confusion matrix counts in the background row.

Under ``coco`` and ``agnostic`` an object is matched at most once. A detection on an object that another detection has
matched stays without a match and is counted in the background row, although there is an object. Such a detection is, by
the first of these that applies (objects of its own class come first):

- ``duplicate``: an object of its class reaches the IoU threshold; that object is already matched;
- ``confusion_matched``: an object of another class reaches the IoU threshold; that object is already matched;
- ``background``: no object reaches the IoU threshold.

An object that is reached is always matched already; otherwise the detection would have matched it. Crowds are not
objects here. For every class the three counts add up to the background row of the matrix, and together with the
confusions (the column of the class without its diagonal and its background) to FP.

Under ``mmdet`` every overlapping pair has its own count in the matrix, and duplicates are on the diagonal. Nothing in
its background row overlaps an object by the threshold: all of it is ``background``.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

import numpy as np

from mm_metrics_plugin.functional.assignment import Pairs, candidates, coco_pairs
from mm_metrics_plugin.functional.boxes import coco_columns, group_starts, stable_order
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.matching import Matches

BACKGROUND_TYPES = ("confusion_matched", "duplicate", "background")
CONFUSION_MATCHED, DUPLICATE, NOTHING_REACHED = range(3)


class BestOverlaps(NamedTuple):
    """Of every chosen detection: the highest IoU with an object of its class and of other classes, and these objects.

    Rows of objects are -1, and IoUs 0, where no object overlaps it.
    """

    own: np.ndarray
    own_object: np.ndarray
    other: np.ndarray
    other_object: np.ndarray

    @property
    def best(self) -> np.ndarray:
        """The highest IoU with any object."""
        return np.maximum(self.own, self.other)

    @property
    def best_object(self) -> np.ndarray:
        """The object of the highest IoU, one of its own class first."""
        return np.where(self.own >= self.other, self.own_object, self.other_object)


def best_overlaps(
    detections: Detections, objects: Objects, rows: np.ndarray, *, least: float = 0.0, crowds: bool = False
) -> BestOverlaps:
    """The objects that detections overlap most.

    Args:
        detections: Detections of any number of images.
        objects: Objects of the same images.
        rows: (K,) which detections are wanted.
        least: IoUs below it are taken for 0.
        crowds: Take crowds for objects.

    Example:
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 5]], [0.9, 0.8], [0, 1])
        >>> there = Objects([0, 0], [[0, 0, 10, 10], [50, 0, 60, 10]], [0, 1])
        >>> best = best_overlaps(found, there, np.array([0, 1]))
        >>> best.own.tolist(), best.other.tolist(), best.best_object.tolist()
        ([1.0, 0.0], [0.0, 0.5], [0, 0])
    """
    object_rows = np.arange(len(objects)) if crowds else np.flatnonzero(~objects.crowd)
    object_rows = object_rows[stable_order(objects.image[object_rows])]
    first, count = candidates(objects.image[object_rows], detections.image[rows])
    found = coco_columns(detections.boxes[rows], box_format=detections.box_format)
    there = coco_columns(objects.boxes[object_rows], box_format=objects.box_format)
    labels, object_labels = detections.labels[rows], objects.labels[object_rows]
    overlap = np.zeros((2, len(rows)))
    place = np.full((2, len(rows)), -1, dtype=np.int64)
    # A block holds all pairs of its detections, so that the best pair of a detection is in one block.
    for pairs in coco_pairs(found, there, np.zeros(len(object_rows), dtype=bool), first, count, least):
        same = labels[pairs.detection] == object_labels[pairs.object]
        for index, chosen in enumerate((same, ~same)):
            best = best_of_each(Pairs(*(column[chosen] for column in pairs)))
            overlap[index, best.detection] = best.overlap
            place[index, best.detection] = object_rows[best.object]
    return BestOverlaps(overlap[0], place[0], overlap[1], place[1])


def best_of_each(pairs: Pairs) -> Pairs:
    """The pair of the highest overlap of each detection; of equal ones that of the first object.

    Example:
        >>> pairs = Pairs(np.array([0, 0, 2]), np.array([3, 4, 3]), np.array([0.5, 0.75, 0.25]))
        >>> [column.tolist() for column in best_of_each(pairs)]
        [[0, 2], [4, 3], [0.75, 0.25]]
    """
    order = np.lexsort((pairs.object, -pairs.overlap, pairs.detection))
    rows = order[group_starts(pairs.detection[order])]
    return Pairs(*(column[rows] for column in pairs))


def _unmatched(matches: Matches) -> np.ndarray:
    """Rows of the detections in the background row."""
    return np.flatnonzero(np.asarray(matches.used) & (np.asarray(matches.matched_object) < 0))


def _types(best: BestOverlaps, matches: Matches) -> np.ndarray:
    # The thresholds that the two protocols match with.
    threshold = min(matches.iou_threshold, 1 - 1e-10) if matches.protocol == "coco" else matches.iou_threshold
    return np.select([best.own >= threshold, best.other >= threshold], [DUPLICATE, CONFUSION_MATCHED], NOTHING_REACHED)


def background_types(detections: Detections, objects: Objects, matches: Matches) -> Tuple[np.ndarray, np.ndarray]:
    """The detections in the background row of the confusion matrix, and the type of each.

    Args:
        detections: What was matched.
        objects: What it was matched to.
        matches: Of :func:`~mm_metrics_plugin.functional.matching.match`, under ``coco`` or ``agnostic``.

    Returns:
        Rows of detections, and for each the index of its type in ``BACKGROUND_TYPES``.

    Example:
        One cat with two cat boxes and one dog box on it, and a dog box on nothing.

        >>> from mm_metrics_plugin.functional.matching import match
        >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8], [50, 50, 60, 60]]
        >>> found = Detections([0] * 4, boxes, [0.9, 0.8, 0.7, 0.6], [0, 0, 1, 1])
        >>> there = Objects([0], [[0, 0, 10, 10]], [0])
        >>> rows, types = background_types(found, there, match(found, there, num_classes=2))
        >>> dict(zip(rows.tolist(), [BACKGROUND_TYPES[index] for index in types]))
        {1: 'duplicate', 2: 'confusion_matched', 3: 'background'}
    """
    rows = _unmatched(matches)
    return rows, _types(best_overlaps(detections, objects, rows, least=matches.iou_threshold / 2), matches)


def count_background_types(detections: Detections, objects: Objects, matches: Matches) -> np.ndarray:
    """How many detections in the background row are of each type, per class.

    Args:
        detections: What was matched.
        objects: What it was matched to.
        matches: Of :func:`~mm_metrics_plugin.functional.matching.match`, under any protocol.

    Returns:
        (3, classes) in the order of ``BACKGROUND_TYPES``; over the types they add up to the matrix' background row.

    Example:
        >>> from mm_metrics_plugin.functional.matching import match
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> there = Objects([0], [[0, 0, 10, 10]], [0])
        >>> count_background_types(found, there, match(found, there, num_classes=1)).tolist()
        [[0], [1], [0]]
    """
    num_classes = len(matches.matrix) - 1
    counts = np.zeros((len(BACKGROUND_TYPES), num_classes), dtype=np.int64)
    if matches.protocol == "mmdet":
        counts[NOTHING_REACHED] = matches.matrix[-1, :-1]
        return counts
    rows, types = background_types(detections, objects, matches)
    cells = types * num_classes + detections.labels[rows]
    return np.bincount(cells, minlength=counts.size).reshape(counts.shape).astype(np.int64, copy=False)


def count_errors(
    batch: DetectionBatch, matches: Matches, *, background_threshold: float = 0.1
) -> Dict[str, np.ndarray]:
    """Errors at the score threshold by type, per class, such that they add up to the FP and FN of the matrix.

    - ``class``: confusions in the matrix, and confusions with a matched object;
    - ``duplicate``: as in :data:`BACKGROUND_TYPES`;
    - ``localisation``, ``both``, ``background``: no object reaches the IoU threshold; the detection overlaps an object
      of its class by at least the background threshold, else one of another class by more than it, else nothing;
    - ``missed``: objects that no detection is matched to, neither of their class nor of another one.

    The five types of detections add up to FP. ``missed`` and the confusions in the row of the class add up to FN.

    Args:
        batch: What was matched.
        matches: Of :func:`~mm_metrics_plugin.functional.matching.match` under ``coco``.
        background_threshold: IoU up to which a detection lies on background.

    Returns:
        By type, (classes,): of the class of the detection, of that of the object for ``missed``.

    Example:
        >>> from mm_metrics_plugin.functional.matching import match
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 3]], [0.9, 0.8], [0, 0])
        >>> batch = DetectionBatch(found, Objects([0], [[0, 0, 10, 10]], [0]), 1)
        >>> errors = count_errors(batch, match(found, batch.objects, num_classes=1))
        >>> {name: int(count.sum()) for name, count in errors.items()}
        {'class': 0, 'localisation': 1, 'both': 0, 'duplicate': 0, 'background': 0, 'missed': 0}
    """
    matrix, rows = matches.matrix, _unmatched(matches)
    best = best_overlaps(batch.detections, batch.objects, rows)
    types = _types(best, matches)
    nothing = types == NOTHING_REACHED
    place = nothing & (best.own >= background_threshold)
    both = nothing & ~place & (best.other > background_threshold)

    def count(chosen: np.ndarray) -> np.ndarray:
        return np.bincount(batch.detections.labels[rows[chosen]], minlength=len(matrix) - 1)

    inner = matrix[:-1, :-1]
    return {
        "class": inner.sum(axis=0) - inner.diagonal() + count(types == CONFUSION_MATCHED),
        "localisation": count(place),
        "both": count(both),
        "duplicate": count(types == DUPLICATE),
        "background": count(nothing & ~place & ~both),
        "missed": matrix[:-1, -1].copy(),
    }
