"""What kind of error a detector makes, and what mending each kind would be worth, as TIDE defines it.

Detections of all classes of an image, by descending score, each take the free object of their class that they overlap
most, if by at least the threshold. A detection that takes none is, by the first of these that applies:

- ``localisation``: it overlaps an object of its class by at least the background threshold and not more than the other;
- ``class``: it overlaps an object of another class by at least the threshold;
- ``duplicate``: it overlaps an object of its class by at least the threshold, but that one is taken;
- ``background``: it overlaps no object by more than the background threshold;
- ``both``: anything else, wrong in class and in place.

An object that nothing took, and that no class or localisation error points at, is ``missed``. A class or localisation
error is mended by making the best detection that points at a free object right and dropping the others; the other
errors of detections by dropping them; a missed object by no longer counting it.

All detections are used, whatever their score and however many an image has; ``max_dets`` limits them per image, as
``tidecv`` does (to 100 by default).

Written to give the numbers of the ``tidecv`` package, crowds and ties included: detections on crowds (overlap with the
crowd above the threshold) count for nothing, but their kind of error is counted (``ignored`` says how many they are);
at exactly the threshold, an overlap with a taken object is a localisation error; between equal scores, what was mended
or left wrong comes before what was right. Two things differ by default and can be had as there: AP is a share, not in
percent, and classes without objects are left out of the mean instead of counting as 0.

Reference: D. Bolya, S. Foley, J. Hays, J. Hoffman, TIDE (ECCV 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import position_in_group
from mm_metrics_plugin.functional.assignment import Pairs, candidates, coco_pairs, take_in_turn
from mm_metrics_plugin.functional.boxes import coco_columns, stable_order
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, check_rows
from mm_metrics_plugin.functional.false_positives import best_of_each, best_overlaps

ERROR_TYPES = ("class", "localisation", "both", "duplicate", "background", "missed")
_CLASS, _LOCALISATION, _BOTH, _DUPLICATE, _BACKGROUND = range(5)
_NONE = -1
_LEVELS = np.arange(101) / 100


@dataclass(frozen=True, eq=False)
class ErrorTypes:
    """Errors by kind.

    Attributes:
        detections: How many detections were used.
        max_dets: Limit on the detections per image; None if there was none.
        iou_threshold: Least overlap of a pair.
        background_threshold: Overlap up to which a detection lies on background.
        average_precision: Mean over the classes, as they are.
        average_precision_per_class: (classes,); NaN for classes without objects.
        counts: By kind, (classes,): of the detections' class, of the object's for missed ones.
        ignored: By kind, (classes,): how many of these are on crowds and count for nothing.
        gains: By kind, how much mending all of them would add to the mean; never below 0.
        gains_per_class: By kind, (classes,) how much it would add to each class; NaN where undefined before or after.
        gain_false_positives: What dropping every wrong detection would add.
        gain_false_negatives: What not counting the objects that nothing took would add.
    """

    detections: int
    max_dets: Optional[int]
    iou_threshold: float
    background_threshold: float
    average_precision: float
    average_precision_per_class: np.ndarray
    counts: Dict[str, np.ndarray]
    ignored: Dict[str, np.ndarray]
    gains: Dict[str, float]
    gains_per_class: Dict[str, np.ndarray]
    gain_false_positives: float
    gain_false_negatives: float

    @property
    def totals(self) -> Dict[str, int]:
        """By kind, how many errors of all classes."""
        return {name: int(count.sum()) for name, count in self.counts.items()}

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        result: Dict[str, Any] = {"totals": self.totals}
        for name, value in vars(self).items():
            if isinstance(value, dict):
                result[name] = {kind: np.asarray(part).tolist() for kind, part in value.items()}
            else:
                result[name] = np.asarray(value).tolist()
        return result

    def __str__(self) -> str:
        lines = [f"AP {self.average_precision:.4f} at IoU {self.iou_threshold:g}"]
        lines += [f"{name:<14}{self.totals[name]:>8}{self.gains[name]:>+9.4f}" for name in ERROR_TYPES]
        lines.append(f"false positives {self.gain_false_positives:+.4f}, negatives {self.gain_false_negatives:+.4f}")
        return "\n".join(lines)


class _Overlaps(NamedTuple):
    """Of every detection: the greatest overlap with objects of its class, of other classes, and with taken ones."""

    own: np.ndarray
    own_object: np.ndarray
    other: np.ndarray
    other_object: np.ndarray
    taken: np.ndarray


class _Points(NamedTuple):
    """Detections that count: which, of which class, with which score, right or wrong."""

    row: np.ndarray
    label: np.ndarray
    score: np.ndarray
    right: np.ndarray


def error_types(
    batch: DetectionBatch,
    *,
    num_classes: int,
    iou_threshold: float = 0.5,
    background_threshold: float = 0.1,
    max_dets: Optional[int] = None,
    absent: str = "skip",
    names: Optional[Sequence[Any]] = None,
) -> ErrorTypes:
    """Says of every wrong detection and missed object what went wrong, and what mending it would be worth.

    Args:
        batch: Detections and objects of all images.
        num_classes: Number of classes without background.
        iou_threshold: Least overlap of a pair.
        background_threshold: Overlap up to which a detection lies on background.
        max_dets: Number of detections per image, of all classes together, that are used, those with the highest
            scores. None: all of them. ``tidecv`` uses 100 by default.
        absent: ``'skip'`` leaves classes without objects out of the mean; ``'zero'`` counts them as 0 if they have
            detections, as ``tidecv`` does.
        names: Names of the images for error messages.

    Raises:
        MetricInputError: Something in the boxes, scores or labels is not usable; the message names image and field.

    Example:
        A cat found, found again, and a dog taken for a cat.

        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [50, 0, 60, 10]]
        >>> there = Objects([0, 0], [boxes[0], boxes[2]], [0, 1])
        >>> found = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 0])
        >>> print(error_types(DetectionBatch(found, there, 1), num_classes=2))
        AP 0.5000 at IoU 0.5
        class                1  +0.5000
        localisation         0  +0.0000
        both                 0  +0.0000
        duplicate            1  +0.0000
        background           0  +0.0000
        missed               0  +0.0000
        false positives +0.0000, negatives +0.5000
    """
    if not 0 < background_threshold < iou_threshold <= 1:
        raise ValueError(
            "'background_threshold' must be above 0 and below 'iou_threshold', which is at most 1 "
            f"(found {background_threshold} and {iou_threshold})"
        )
    if absent not in ("skip", "zero"):
        raise ValueError(f"'absent' must be 'skip' or 'zero' (found {absent!r})")
    check_rows(batch.detections, num_classes=num_classes, names=names)
    check_rows(batch.objects, num_classes=num_classes, names=names)
    order = stable_order(batch.detections.image, -batch.detections.scores)
    if max_dets is not None:
        order = order[position_in_group(batch.detections.image[order]) < max_dets]
    found, there = batch.detections.take(order), batch.objects.take(stable_order(batch.objects.image))
    crowds, objects = there.take(there.crowd), there.take(~there.crowd)
    own_pairs = _own_pairs(found, objects, iou_threshold)
    matched = _match(own_pairs, found, objects)
    right = matched >= 0
    taken = np.zeros(len(objects), dtype=bool)
    taken[matched[right]] = True
    on_crowd = _on_crowd(found, crowds, iou_threshold) & ~right
    overlaps = _best_overlaps(own_pairs, found, objects, taken)
    kind = _kinds(overlaps, right, np.isin(found.image, objects.image), iou_threshold, background_threshold)
    target = np.where(kind == _LOCALISATION, overlaps.own_object, overlaps.other_object)
    target[(kind != _LOCALISATION) & (kind != _CLASS)] = _NONE
    target[~np.append(~taken, False)[target]] = _NONE  # an object that is taken needs no other detection
    mended = _best_of_each(target)
    pointed_at = np.zeros(len(objects), dtype=bool)
    pointed_at[target[target >= 0]] = True
    missed = ~taken & ~pointed_at

    number = np.bincount(objects.labels, minlength=num_classes)
    rows = np.arange(len(found))
    plain = _Points(*(column[~on_crowd] for column in (rows, found.labels, found.scores, right)))
    average = _Average(num_classes, absent)
    before = average(plain, number)
    gains, gains_per_class, counts, ignored = {}, {}, {}, {}
    wrong = ~right & ~on_crowd
    for index, name in enumerate(ERROR_TYPES):
        if name == "missed":
            counts[name] = np.bincount(objects.labels[missed], minlength=num_classes)
            ignored[name] = np.zeros_like(counts[name])
            points, left = _joined(found, (wrong, right)), number - counts[name]
        else:
            these = kind == index
            counts[name] = np.bincount(found.labels[these], minlength=num_classes)
            ignored[name] = np.bincount(found.labels[these & on_crowd], minlength=num_classes)
            labels = np.where(mended & these, np.append(objects.labels, 0)[target], found.labels)
            points = _joined(found, (wrong & ~these | mended & these, right), labels, mended & these | right)
            left = number
        after = average(points, left)
        gains[name] = max(average.mean(after) - average.mean(before), 0.0)
        gains_per_class[name] = after.value - before.value
    # Every right detection before every wrong one; and only the objects that were taken.
    pure = _joined(found, (wrong, right))
    pure = pure._replace(score=pure.right.astype(np.float64))
    seen = np.bincount(objects.labels[taken], minlength=num_classes)
    start = average.mean(before)
    return ErrorTypes(
        detections=len(found),
        max_dets=max_dets,
        iou_threshold=float(iou_threshold),
        background_threshold=float(background_threshold),
        average_precision=start,
        average_precision_per_class=before.value,
        counts=counts,
        ignored=ignored,
        gains=gains,
        gains_per_class=gains_per_class,
        gain_false_positives=average.mean(average(pure, number)) - start,
        gain_false_negatives=average.mean(average(_joined(found, (wrong, right)), seen)) - start,
    )


def _pair_blocks(found: Any, there: Any, crowd: np.ndarray, threshold: float) -> Iterator[Pairs]:
    """Pairs of an image that overlap by the threshold, in order of detections and then of objects."""
    first, count = candidates(there.image, found.image)
    return coco_pairs(
        coco_columns(found.boxes, box_format=found.box_format),
        coco_columns(there.boxes, box_format=there.box_format),
        crowd,
        first,
        count,
        threshold,
    )


def _own_pairs(found: Any, objects: Any, iou_threshold: float) -> Pairs:
    """Pairs of one class that overlap by the threshold. Only these are held in memory at once."""
    parts = [Pairs(*(np.empty(0, dtype=dtype) for dtype in (np.int64, np.int64, np.float64)))]
    for pairs in _pair_blocks(found, objects, np.zeros(len(objects), dtype=bool), iou_threshold):
        same = found.labels[pairs.detection] == objects.labels[pairs.object]
        parts.append(Pairs(*(column[same] for column in pairs)))
    return Pairs(*(np.concatenate(columns) for columns in zip(*parts)))


def _match(wanted: Pairs, found: Any, objects: Any) -> np.ndarray:
    """The object each detection took, or -1."""
    wanted = Pairs(*(column[np.lexsort((wanted.object, -wanted.overlap, wanted.detection))] for column in wanted))
    winners, _ = take_in_turn(
        wanted,
        found.image,
        np.ones(len(wanted.object), np.uint8),
        np.zeros(len(objects), np.uint8),
        np.zeros(len(objects), dtype=bool),
    )
    matched = np.full(len(found), _NONE, dtype=np.int64)
    matched[wanted.detection[winners]] = wanted.object[winners]
    return matched


def _on_crowd(found: Any, crowds: Any, iou_threshold: float) -> np.ndarray:
    result = np.zeros(len(found), dtype=bool)
    if len(crowds):
        for pairs in _pair_blocks(found, crowds, np.ones(len(crowds), dtype=bool), iou_threshold):
            same = found.labels[pairs.detection] == crowds.labels[pairs.object]
            result[pairs.detection[same & (pairs.overlap > iou_threshold)]] = True
    return result


def _best_overlaps(own_pairs: Pairs, found: Any, objects: Any, taken: np.ndarray) -> _Overlaps:
    best = best_overlaps(found, objects, np.arange(len(found)))
    on_taken = best_of_each(Pairs(*(column[taken[own_pairs.object]] for column in own_pairs)))
    overlap = np.zeros(len(found))  # below the threshold it is not asked for
    overlap[on_taken.detection] = on_taken.overlap
    return _Overlaps(*best, overlap)


def _kinds(
    overlaps: _Overlaps, right: np.ndarray, has_objects: np.ndarray, iou_threshold: float, background_threshold: float
) -> np.ndarray:
    conditions = [
        right,
        ~has_objects,
        (overlaps.own >= background_threshold) & (overlaps.own <= iou_threshold),
        overlaps.other >= iou_threshold,
        overlaps.taken >= iou_threshold,
        np.maximum(overlaps.own, overlaps.other) <= background_threshold,
    ]
    kinds = [_NONE, _BACKGROUND, _LOCALISATION, _CLASS, _DUPLICATE, _BACKGROUND]
    return np.select(conditions, kinds, default=_BOTH)


def _best_of_each(target: np.ndarray) -> np.ndarray:
    """Whether a detection is the first in order of score of those that point at the same free object."""
    pointing = np.flatnonzero(target >= 0)
    best = np.zeros(len(target), dtype=bool)
    _, first = np.unique(target[pointing], return_index=True)  # rows are by image and descending score
    best[pointing[first]] = True
    return best


def _joined(
    found: Any,
    groups: Tuple[np.ndarray, np.ndarray],
    labels: Optional[np.ndarray] = None,
    right: Optional[np.ndarray] = None,
) -> _Points:
    """The detections of the first mask and then of the second, which are right: ties fall in this order."""
    rows = np.concatenate([np.flatnonzero(group) for group in groups])
    labels = found.labels if labels is None else labels
    right = groups[1] if right is None else right
    return _Points(rows, labels[rows], found.scores[rows], right[rows])


class _ClassAverages(NamedTuple):
    value: np.ndarray  # NaN without objects
    present: np.ndarray  # whether it has objects or detections


class _Average:
    """Average precision of every class, 101 levels of recall, from points in any order."""

    def __init__(self, num_classes: int, absent: str) -> None:
        self.num_classes, self.absent = num_classes, absent

    def __call__(self, points: _Points, objects: np.ndarray) -> _ClassAverages:
        order = stable_order(points.label, -points.score)
        label, right = points.label[order], points.right[order]
        value = np.where(objects > 0, 0.0, np.nan)
        starts = np.searchsorted(label, np.arange(self.num_classes))
        hits = np.flatnonzero(right)
        of_class = label[hits]
        first = np.searchsorted(hits, starts)
        nth = np.arange(1, len(hits) + 1) - first[of_class]
        precision = nth / (hits + 1 - starts[of_class])
        edges = np.append(first, len(hits))
        for index in np.flatnonzero((objects > 0) & (edges[1:] > edges[:-1])):
            mine = precision[edges[index] : edges[index + 1]]
            envelope = np.append(np.maximum.accumulate(mine[::-1])[::-1], 0.0)
            recall = np.arange(1, len(mine) + 1) / objects[index]
            value[index] = envelope[np.searchsorted(recall, _LEVELS, side="left")].mean()
        return _ClassAverages(value, (objects > 0) | (np.bincount(label, minlength=self.num_classes) > 0))

    def mean(self, average: _ClassAverages) -> float:
        values = average.value if self.absent == "skip" else np.nan_to_num(average.value)[average.present]
        values = values[~np.isnan(values)]
        return float(values.mean()) if len(values) else float("nan")
