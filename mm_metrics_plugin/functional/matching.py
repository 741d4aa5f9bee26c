"""Which detection is right about which object, under a named protocol.

- ``coco``: within a class, detections by descending score, each takes the free object it overlaps most; crowds come
  last and make a detection neither right nor wrong. What is left then meets across classes by the same rule: these
  pairs are confusions. The diagonal is COCO's number of true positives, every row sums to the objects of the class,
  every column to its detections. The background row holds detections without a match: on no object, or on an object
  that another detection has matched (:mod:`~mm_metrics_plugin.functional.false_positives` tells them apart).
- ``mmdet``: what mmdet's ``confusion_matrix.py`` counts: every overlapping pair, so duplicates and neighbours count
  again and again, and crowds count as ordinary objects.
- ``agnostic``: pairs by descending overlap whatever their classes, one to one.

Ties: score descending, then image order, then detection order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Sequence

import numpy as np

from mm_metrics_plugin.functional.assignment import (
    Pairs,
    by_preference,
    candidates,
    coco_pairs,
    gathered,
    mmdet_pairs,
    take_in_turn,
)
from mm_metrics_plugin.functional.boxes import Columns, coco_columns, group_starts, mmdet_columns, stable_order
from mm_metrics_plugin.functional.detection_batch import Detections, Objects, check_rows

PROTOCOLS = ("coco", "mmdet", "agnostic")


@dataclass(frozen=True, eq=False)
class Matches:
    """What :func:`match` found. Rows of the per-detection arrays are those of the detections given.

    Attributes:
        matrix: (C + 1, C + 1) int64; rows truth, columns prediction, background last.
        detections: Detections used: the sum of the columns without background (under ``mmdet`` they sum to more).
        detections_below_threshold: Those with a score below the threshold.
        detections_ignored: Those that met only a crowd.
        objects: Objects used: the sum of the rows without background (under ``mmdet`` they sum to more).
        objects_ignored: Crowds.
        detections_without_area: Detections used or not whose box is empty or inverted.
        objects_without_area: The same of objects.
        used: (N,) score at or above the threshold and not ignored.
        tp: (N,) took an object of its class.
        ignored: (N,) met only a crowd.
        matched_object: (N,) row of the object it took (of any class, crowds included), else -1.
        duplicates: Detections beyond the first of the right class on the same object: wrong under ``coco``, right
            under ``mmdet``. Known under ``mmdet`` only.
        objects_counted_again: How much more than the objects the rows sum to. 0 but under ``mmdet``.
        detections_counted_again: How much more than the detections the columns sum to. 0 but under ``mmdet``.
    """

    protocol: str
    iou_threshold: float
    score_threshold: float
    matrix: np.ndarray
    detections: int
    detections_below_threshold: int
    detections_ignored: int
    objects: int
    objects_ignored: int
    detections_without_area: int
    objects_without_area: int
    used: np.ndarray | None = None
    tp: np.ndarray | None = None
    ignored: np.ndarray | None = None
    matched_object: np.ndarray | None = None
    duplicates: int | None = None
    objects_counted_again: int = 0
    detections_counted_again: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Settings, counts and the matrix as plain Python values; the per-detection arrays are left out."""
        left_out = ("used", "tp", "ignored", "matched_object", "matrix")
        result = {key: value for key, value in vars(self).items() if key not in left_out}
        result["matrix"] = self.matrix.tolist()
        return result

    def __str__(self) -> str:
        hits = int(np.trace(self.matrix[:-1, :-1]))
        lines = [
            f"protocol {self.protocol}, IoU >= {self.iou_threshold:g}, score >= {self.score_threshold:g}",
            f"{self.detections} detections used, {self.detections_below_threshold} below the threshold, "
            f"{self.detections_ignored} ignored",
            f"{self.objects} objects, {self.objects_ignored} ignored",
            f"{hits} on the diagonal, {int(self.matrix[:-1, :-1].sum()) - hits} between classes, "
            f"{int(self.matrix[-1].sum())} detections without a match, {int(self.matrix[:, -1].sum())} objects without",
        ]
        if self.duplicates is not None:
            lines.append(
                f"{self.duplicates} duplicates counted as right, rows count {self.objects_counted_again} more than the "
                f"objects, columns {self.detections_counted_again} more than the detections"
            )
        return "\n".join(lines)


def match(
    detections: Detections,
    objects: Objects,
    *,
    num_classes: int,
    protocol: str = "coco",
    iou_threshold: float = 0.5,
    score_threshold: float = 0.3,
    names: Sequence[Any] | None = None,
) -> Matches:
    """Matches detections to objects and counts who was taken for what.

    Args:
        detections: What was found, of any number of images.
        objects: What is there.
        num_classes: Number of classes without background.
        protocol: ``'coco'``, ``'mmdet'`` or ``'agnostic'``; see the module.
        iou_threshold: Least overlap of a pair, above 0 and at most 1.
        score_threshold: Least score of a detection that is used, compared in the precision of each score.
        names: Names of the images for error messages.

    Raises:
        MetricInputError: Something in the boxes, scores or labels is not usable; the message names image and field.

    Example:
        One cat that two cat boxes and one dog box lie on.

        >>> found = Detections([0, 0, 0], [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]], [0.9, 0.8, 0.7], [0, 0, 1])
        >>> there = Objects([0], [[0, 0, 10, 10]], [0])
        >>> match(found, there, num_classes=2).matrix
        array([[1, 0, 0],
               [0, 0, 0],
               [1, 1, 0]])
        >>> match(found, there, num_classes=2, protocol="mmdet").matrix
        array([[2, 1, 0],
               [0, 0, 0],
               [0, 0, 0]])
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"'protocol' must be one of {PROTOCOLS} (found {protocol!r})")
    if not 0 < iou_threshold <= 1:
        raise ValueError(f"'iou_threshold' must be above 0 and at most 1 (found {iou_threshold})")
    detections_without_area = check_rows(detections, num_classes=num_classes, names=names)
    objects_without_area = check_rows(objects, num_classes=num_classes, names=names)
    chosen = detections.reach(score_threshold)
    counts: dict[str, Any] = {
        "protocol": protocol,
        "iou_threshold": float(iou_threshold),
        "score_threshold": float(score_threshold),
        "detections_below_threshold": int(len(chosen) - np.count_nonzero(chosen)),
        "detections_without_area": detections_without_area,
        "objects_without_area": objects_without_area,
    }
    if protocol == "mmdet":
        return Matches(**counts, **_match_mmdet(detections, objects, chosen, num_classes, iou_threshold))
    matched, regular = np.full(len(detections), -1, dtype=np.int64), ~objects.crowd
    (_match_coco if protocol == "coco" else _match_agnostic)(
        detections, objects, chosen, num_classes, iou_threshold, matched
    )

    met = matched >= 0
    ignored = np.zeros(len(detections), dtype=bool)
    ignored[met] = objects.crowd[matched[met]]
    used = chosen & ~ignored
    truth = np.full(len(detections), num_classes, dtype=np.int64)
    truth[met] = objects.labels[matched[met]]
    missed = regular.copy()
    missed[matched[met]] = False
    matrix = _matrix(truth[used], detections.labels[used], num_classes)
    matrix[:, num_classes] += np.bincount(objects.labels[missed], minlength=num_classes + 1)
    return Matches(
        **counts,
        matrix=matrix,
        detections=int(np.count_nonzero(used)),
        detections_ignored=int(np.count_nonzero(ignored)),
        objects=int(np.count_nonzero(regular)),
        objects_ignored=int(np.count_nonzero(objects.crowd)),
        used=used,
        tp=used & (truth == detections.labels),
        ignored=ignored,
        matched_object=matched,
    )


def _matrix(truth: np.ndarray, prediction: np.ndarray, num_classes: int) -> np.ndarray:
    size = num_classes + 1
    return (
        np.bincount(truth * size + prediction, minlength=size * size).reshape(size, size).astype(np.int64, copy=False)
    )


# --- mmdet ------------------------------------------------------------------------------------------------------------


def _match_mmdet(
    detections: Detections, objects: Objects, chosen: np.ndarray, num_classes: int, iou_threshold: float
) -> dict[str, Any]:
    matrix = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    hits = np.zeros(len(objects), dtype=np.int64)
    background = chosen.copy()
    for found, there in overlapping_pairs(detections, objects, chosen, iou_threshold):
        truth, prediction = objects.labels[there], detections.labels[found]
        matrix += _matrix(truth, prediction, num_classes)
        hits += np.bincount(there[truth == prediction], minlength=len(objects))
        background[found] = False
    matrix[num_classes] += np.bincount(detections.labels[background], minlength=num_classes + 1)
    matrix[:, num_classes] += np.bincount(objects.labels[hits == 0], minlength=num_classes + 1)
    used = int(np.count_nonzero(chosen))
    return {
        "matrix": matrix,
        "detections": used,
        "detections_ignored": 0,
        "objects": len(objects),
        "objects_ignored": 0,
        "duplicates": int(np.maximum(hits - 1, 0).sum()),
        "objects_counted_again": int(matrix[:-1].sum()) - len(objects),
        "detections_counted_again": int(matrix[:, :-1].sum()) - used,
    }


def overlapping_pairs(
    detections: Detections, objects: Objects, chosen: np.ndarray, iou_threshold: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of the chosen detections and of the objects they overlap in mmdet's arithmetic, a block at a time.

    Example:
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 1])
        >>> there = Objects([0], [[0, 0, 10, 10]], [0])
        >>> list(overlapping_pairs(found, there, np.array([True, True]), 0.5))
        [(array([0, 1]), array([0, 0]))]
    """
    order = stable_order(objects.image)
    first, count = candidates(objects.image[order], detections.image)
    rows = np.flatnonzero(chosen & (count > 0))
    found = mmdet_columns(detections.boxes[rows], box_format=detections.box_format)
    there = mmdet_columns(objects.boxes[order], box_format=objects.box_format)
    for pairs in mmdet_pairs(found, there, first[rows], count[rows], iou_threshold):
        yield rows[pairs.detection], order[pairs.object]


# --- coco -------------------------------------------------------------------------------------------------------------


def _match_coco(
    detections: Detections,
    objects: Objects,
    chosen: np.ndarray,
    num_classes: int,
    iou_threshold: float,
    matched: np.ndarray,
) -> None:
    """Fills ``matched``: first within the classes, crowds included, then what is left across them."""
    _turns(
        detections,
        objects,
        np.flatnonzero(chosen),
        np.arange(len(objects)),
        detections.image * num_classes + detections.labels,
        objects.image * num_classes + objects.labels,
        iou_threshold,
        matched,
    )
    free = ~objects.crowd
    free[matched[matched >= 0]] = False
    left = np.flatnonzero(chosen & (matched < 0))
    _turns(detections, objects, left, np.flatnonzero(free), detections.image, objects.image, iou_threshold, matched)


def _turns(
    detections: Detections,
    objects: Objects,
    rows: np.ndarray,
    object_rows: np.ndarray,
    groups: np.ndarray,
    object_groups: np.ndarray,
    iou_threshold: float,
    matched: np.ndarray,
) -> None:
    found, there, crowd, rows, object_rows, first, count = _prepare(
        detections, objects, rows, object_rows, groups, object_groups
    )
    taken = np.zeros(len(object_rows), dtype=np.uint8)
    threshold = min(iou_threshold, 1 - 1e-10)  # as pycocotools
    detection_groups = groups[rows]
    for pairs in gathered(coco_pairs(found, there, crowd, first, count, threshold)):
        pairs = by_preference(pairs, crowd)
        winners, _ = take_in_turn(pairs, detection_groups, np.ones(len(pairs.detection), np.uint8), taken, crowd)
        matched[rows[pairs.detection[winners]]] = object_rows[pairs.object[winners]]


def _prepare(
    detections: Detections,
    objects: Objects,
    rows: np.ndarray,
    object_rows: np.ndarray,
    groups: np.ndarray,
    object_groups: np.ndarray,
) -> tuple[Columns, Columns, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sorts objects by group and detections that have candidates by group and descending score."""
    object_rows = object_rows[stable_order(object_groups[object_rows])]
    first, count = candidates(object_groups[object_rows], groups[rows])
    some = np.flatnonzero(count)
    some = some[stable_order(groups[rows[some]], -detections.scores[rows[some]])]
    rows = rows[some]
    found = coco_columns(detections.boxes[rows], box_format=detections.box_format)
    there = coco_columns(objects.boxes[object_rows], box_format=objects.box_format)
    return found, there, objects.crowd[object_rows], rows, object_rows, first[some], count[some]


# --- agnostic ---------------------------------------------------------------------------------------------------------


def _match_agnostic(
    detections: Detections,
    objects: Objects,
    chosen: np.ndarray,
    num_classes: int,
    iou_threshold: float,
    matched: np.ndarray,
) -> None:
    """Fills ``matched``: pairs by descending overlap, then crowds for what is left."""
    del num_classes
    regular, crowd = np.flatnonzero(~objects.crowd), np.flatnonzero(objects.crowd)
    _best_first(detections, objects, np.flatnonzero(chosen), regular, iou_threshold, matched)
    left = np.flatnonzero(chosen & (matched < 0))
    _turns(detections, objects, left, crowd, detections.image, objects.image, iou_threshold, matched)


def _best_first(
    detections: Detections,
    objects: Objects,
    rows: np.ndarray,
    object_rows: np.ndarray,
    iou_threshold: float,
    matched: np.ndarray,
) -> None:
    """Pairs by descending overlap, then in the order of detections, then of objects; each taken if both are free.

    Reached by proposals: every detection asks the objects it overlaps, the best first, and an object keeps the best
    that asked; who is turned away asks on. The order of pairs is strict, so that ends with the same pairs as going
    through all of them in order, and only a block of them is held at a time.
    """
    found, there, crowd, rows, object_rows, first, count = _prepare(
        detections, objects, rows, object_rows, detections.image, objects.image
    )
    holder = np.full(len(object_rows), len(rows), dtype=np.int64)  # a row of detections; len(rows) stands for nobody
    held = np.zeros(len(object_rows))
    waiting = np.arange(len(rows))
    while len(waiting):
        found_now: Columns = tuple(column[waiting] for column in found)  # type: ignore[assignment]
        outdone = []
        for pairs in gathered(coco_pairs(found_now, there, crowd, first[waiting], count[waiting], iou_threshold)):
            outdone.append(_propose(pairs._replace(detection=waiting[pairs.detection]), holder, held, len(rows)))
        waiting = np.sort(np.concatenate(outdone)) if outdone else np.empty(0, dtype=np.int64)
    taken = np.flatnonzero(holder < len(rows))
    matched[rows[holder[taken]]] = object_rows[taken]


def _propose(pairs: Pairs, holder: np.ndarray, held: np.ndarray, nobody: int) -> np.ndarray:
    """Changes ``holder`` and ``held`` in place; returns the detections of other blocks that lost their object."""
    hopeful = np.flatnonzero(_beats(*pairs, holder, held))
    order = hopeful[np.lexsort((pairs.object[hopeful], -pairs.overlap[hopeful], pairs.detection[hopeful]))]
    owner, thing, overlap = (column[order] for column in pairs)
    place = group_starts(owner)  # of the pair each detection asks for next
    ends = np.append(place[1:], len(owner))
    block = owner[place]
    asking = np.arange(len(block))
    outdone = []
    while len(asking):
        asked = place[asking]
        place[asking] += 1
        heard = asking[_beats(owner[asked], thing[asked], overlap[asked], holder, held)]
        asked = place[heard] - 1
        best = heard[np.lexsort((owner[asked], -overlap[asked], thing[asked]))]
        winner = best[group_starts(thing[place[best] - 1])]
        won = place[winner] - 1
        losers = holder[thing[won]]
        losers = losers[losers < nobody]
        slot = np.minimum(np.searchsorted(block, losers), len(block) - 1)
        here = block[slot] == losers
        outdone.append(losers[~here])
        holder[thing[won]], held[thing[won]] = owner[won], overlap[won]
        asking = np.concatenate([np.setdiff1d(asking, winner, assume_unique=True), slot[here]])
        asking = asking[place[asking] < ends[asking]]
    return np.concatenate(outdone) if outdone else np.empty(0, dtype=np.int64)


def _beats(
    detection: np.ndarray, thing: np.ndarray, overlap: np.ndarray, holder: np.ndarray, held: np.ndarray
) -> np.ndarray:
    """Whether a pair comes before the one its object is in."""
    return (overlap > held[thing]) | ((overlap == held[thing]) & (detection < holder[thing]))
