"""COCO's average precision and recall, from the same matching as everything else.

In two steps, so that a data set can be seen a batch at a time: :func:`match_for_ap` leaves a few bytes for each
detection, :func:`average_precision` makes the numbers of all of them. They equal those of ``pycocotools``, but
undefined ones are NaN where it prints -1.

Every detection is matched. Only average precision and recall have a limit on the number of detections per class and
image (COCO's ``maxDets``). It is applied afterwards, by rank: a detection is matched after all detections of its class
and image with a higher score, so those below the limit never change the matches of those above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import position_in_group
from mm_metrics_plugin.functional.assignment import (
    Pairs,
    by_preference,
    candidates,
    coco_pairs,
    gathered,
    take_in_turn,
)
from mm_metrics_plugin.functional.boxes import coco_columns, group_starts, stable_order
from mm_metrics_plugin.functional.detection_batch import Detections, Objects, check_rows
from mm_metrics_plugin.functional.score_precision import reach

_WORD = 64
COCO_RANGE = (0.0, 1e10)
_SHORT = {"small": "s", "medium": "m", "large": "l"}


def _coco_thresholds() -> tuple[float, ...]:
    return tuple(np.linspace(0.5, 0.95, 10).tolist())


def _coco_areas() -> dict[str, tuple[float, float]]:
    return {"all": COCO_RANGE, "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}


@dataclass(frozen=True)
class APSettings:
    """What average precision is taken over. The defaults are COCO's.

    Args:
        num_classes: Number of classes.
        iou_thresholds: Ascending.
        area_ranges: Least and greatest area by name; the first is that of the headline numbers.
        max_detections: Numbers of detections per class and image, those with the highest scores, that average recall
            uses, ascending. Average precision uses the last one.

    Example:
        >>> settings = APSettings(num_classes=3)
        >>> len(settings.iou_thresholds), list(settings.area_ranges), settings.max_detections
        (10, ['all', 'small', 'medium', 'large'], (1, 10, 100))
    """

    num_classes: int
    iou_thresholds: Sequence[float] = field(default_factory=_coco_thresholds)
    area_ranges: dict[str, tuple[float, float]] = field(default_factory=_coco_areas)
    max_detections: Sequence[int] = (1, 10, 100)

    def __post_init__(self) -> None:
        for name in ("iou_thresholds", "max_detections"):
            values = list(getattr(self, name))
            if not values or values != sorted(values) or values[0] <= 0:
                raise ValueError(f"'{name}' must be positive and ascending (found {values})")

    @property
    def num_words(self) -> int:
        """64-bit words that hold one bit for each area range and IoU threshold."""
        return -(-len(self.area_ranges) * len(self.iou_thresholds) // _WORD)

    def _bits(self, wanted: np.ndarray) -> np.ndarray:
        """Packs (..., areas, thresholds) of bool into (..., words) of uint64."""
        flat = wanted.reshape(*wanted.shape[:-2], -1)
        padded = np.zeros((*flat.shape[:-1], self.num_words * _WORD), dtype=bool)
        padded[..., : flat.shape[-1]] = flat
        values = np.left_shift(np.uint64(1), np.arange(_WORD, dtype=np.uint64))
        words = padded.reshape(*flat.shape[:-1], self.num_words, _WORD)
        return np.where(words, values, np.uint64(0)).sum(axis=-1, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class APRecords:
    """What average precision needs to know of each detection, 8 x (2 x words) bytes and a few more.

    Attributes:
        image: (N,) image number; it decides between equal scores.
        label: (N,) class.
        score: (N,) confidence.
        rank: (N,) place among the detections of its class and image, from 0.
        matched: (N, words) bit ``area * thresholds + threshold``: took an object.
        ignored: (N, words) bit as above: neither right nor wrong.
        objects: (areas, classes) objects that count.
        precision: (N,) code of the precision in which each score was given; None: that of the dtype of ``score``.
    """

    image: np.ndarray
    label: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    matched: np.ndarray
    ignored: np.ndarray
    objects: np.ndarray
    precision: np.ndarray | None = None

    def reach(self, threshold: float) -> np.ndarray:
        """(N,) whether each score is at least the threshold, compared in the precision the score was given in."""
        return reach(self.score, threshold, self.precision)

    @property
    def most_detections(self) -> int:
        """The largest number of detections of one class in one image."""
        return int(self.rank.max()) + 1 if len(self.rank) else 0

    def best(self, max_dets: int) -> APRecords:
        """The records of the ``max_dets`` detections with the highest scores per class and image."""
        if self.most_detections <= max_dets:
            return self
        rows = np.flatnonzero(self.rank < max_dets)
        columns = {name: value[rows] for name, value in vars(self).items() if name != "objects"}
        return APRecords(objects=self.objects, **columns)


@dataclass(frozen=True, eq=False)
class AveragePrecision:
    """Average precision and recall. Undefined values are NaN.

    Attributes:
        settings: What they are taken over.
        precision: (areas, thresholds, classes, 101) greatest precision at recall 0, 0.01, … 1 or above.
        recall: (areas, max_detections, thresholds, classes) recall reached.
        objects: (areas, classes) objects that count.
    """

    settings: APSettings
    precision: np.ndarray
    recall: np.ndarray
    objects: np.ndarray

    @property
    def per_class(self) -> np.ndarray:
        """AP of each class over all IoU thresholds, in the first area range."""
        return self.precision[0].mean(axis=(0, 2))

    def at_iou(self, threshold: float) -> np.ndarray:
        """AP of each class at one of the IoU thresholds, in the first area range; NaN if it is not among them."""
        near = np.flatnonzero(np.isclose(self.settings.iou_thresholds, threshold, rtol=0, atol=1e-9))
        if not len(near):
            return np.full(self.settings.num_classes, np.nan)
        return self.precision[0, near[0]].mean(axis=1)

    def to_dict(self) -> dict[str, float]:
        """COCO's numbers, named as mmdet names them."""
        result = {
            "mAP": _mean(self.per_class),
            "mAP_50": _mean(self.at_iou(0.5)),
            "mAP_75": _mean(self.at_iou(0.75)),
        }
        names, most = list(self.settings.area_ranges), self.settings.max_detections[-1]
        for index, name in enumerate(names[1:], start=1):
            result[f"mAP_{_SHORT.get(name, name)}"] = _mean(self.precision[index].mean(axis=(0, 2)))
        for index, number in enumerate(self.settings.max_detections):
            result[f"AR@{number}"] = _mean(self.recall[0, index].mean(axis=0))
        for index, name in enumerate(names[1:], start=1):
            result[f"AR_{_SHORT.get(name, name)}@{most}"] = _mean(self.recall[index, -1].mean(axis=0))
        return result

    def __str__(self) -> str:
        lines = [f"{name:<10}{value:7.4f}" for name, value in self.to_dict().items()]
        lines.append(f"AP of the {self.settings.num_classes} classes: " + " ".join(f"{v:.4f}" for v in self.per_class))
        return "\n".join(lines)


def match_for_ap(
    detections: Detections, objects: Objects, settings: APSettings, *, names: Sequence[Any] | None = None
) -> APRecords:
    """Matches at every IoU threshold and area range at once and keeps what average precision needs.

    Every detection is matched and recorded, in the order of image, class and descending score.

    Args:
        detections: What was found.
        objects: What is there.
        settings: What average precision is taken over.
        names: Names of the images for error messages.

    Raises:
        MetricInputError: Something in the boxes, scores or labels is not usable; the message names image and field.

    Example:
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> there = Objects([0], [[0, 0, 10, 9]], [0])
        >>> records = match_for_ap(found, there, APSettings(num_classes=1))
        >>> [f"{bits:010b}" for bits in (records.matched[:, 0] & 0b1111111111).tolist()]
        ['0111111111', '1000000000']
    """
    check_rows(detections, num_classes=settings.num_classes, names=names)
    check_rows(objects, num_classes=settings.num_classes, names=names)
    groups = detections.image * settings.num_classes + detections.labels
    order = stable_order(groups, -detections.scores)
    rank = position_in_group(groups[order])
    groups = groups[order]
    found = coco_columns(detections.boxes[order], box_format=detections.box_format)

    object_groups = objects.image * settings.num_classes + objects.labels
    object_order = stable_order(object_groups)
    there = coco_columns(objects.boxes[object_order], box_format=objects.box_format)
    crowd = objects.crowd[object_order]
    area = there[4] if objects.area is None else objects.area[object_order]
    ranges = list(settings.area_ranges.values())
    counts = np.stack([~crowd & (area >= low) & (area <= high) for low, high in ranges], axis=-1)

    matched, ignored = _match_all(settings, found, there, crowd, counts, groups, object_groups[object_order])
    inside = np.stack([(found[4] >= low) & (found[4] <= high) for low, high in ranges], axis=-1)
    outside = _by_area(settings, ~inside)
    ignored |= outside & ~matched
    return APRecords(
        image=detections.image[order],
        label=detections.labels[order].astype(np.int32),
        score=detections.scores[order],
        precision=detections.precision[order],
        rank=rank.astype(np.int32),
        matched=matched,
        ignored=ignored,
        objects=np.stack(
            [
                np.bincount(objects.labels[object_order][counts[:, index]], minlength=settings.num_classes)
                for index in range(len(ranges))
            ]
        ),
    )


def _by_area(settings: APSettings, wanted: np.ndarray) -> np.ndarray:
    """(N, areas) of bool to (N, words): all thresholds of an area range at once."""
    number = len(settings.area_ranges)
    masks = settings._bits(np.repeat(np.eye(number, dtype=bool)[:, :, None], len(settings.iou_thresholds), axis=2))
    result = np.zeros((len(wanted), settings.num_words), dtype=np.uint64)
    for index, mask in enumerate(masks):
        result |= np.where(wanted[:, index, None], mask, np.uint64(0))
    return result


def _match_all(
    settings: APSettings,
    found: Any,
    there: Any,
    crowd: np.ndarray,
    counts: np.ndarray,
    groups: np.ndarray,
    object_groups: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Bits of the detections that took an object, and of those whose object does not count."""
    thresholds = np.minimum(settings.iou_thresholds, 1 - 1e-10)  # as pycocotools
    reached = np.arange(len(thresholds)) < np.arange(len(thresholds) + 1)[:, None]
    possible = settings._bits(np.repeat(reached[:, None, :], len(settings.area_ranges), axis=1))
    regular, skipped = _by_area(settings, counts), _by_area(settings, ~counts)
    matched = np.zeros((len(groups), settings.num_words), dtype=np.uint64)
    ignored = np.zeros_like(matched)
    taken = np.zeros((settings.num_words, len(crowd)), dtype=np.uint64)
    first, count = candidates(object_groups, groups)
    some = np.flatnonzero(count)
    found, groups = tuple(column[some] for column in found), groups[some]
    for pairs in gathered(coco_pairs(found, there, crowd, first[some], count[some], float(thresholds[0]))):
        pairs = by_preference(pairs, np.zeros(len(crowd), dtype=bool))
        level = np.searchsorted(thresholds, pairs.overlap, side="right")
        for word in range(settings.num_words):
            bits = possible[level, word]
            # A pair stands once among the objects that count and once among those that do not, each time with the
            # area ranges for which it is so; a detection looks at all of the former before any of the latter.
            both = np.concatenate([bits & regular[pairs.object, word], bits & skipped[pairs.object, word]])
            rows = np.flatnonzero(both)
            pair = np.where(rows < len(bits), rows, rows - len(bits))
            order = stable_order(pairs.detection[pair])
            rows, pair = rows[order], pair[order]
            twice = Pairs(*(column[pair] for column in pairs))
            winners, gain = take_in_turn(twice, groups, both[rows], taken[word], crowd)
            owner, thing = some[twice.detection[winners]], twice.object[winners]
            order = stable_order(owner)
            owner, gain, thing = owner[order], gain[order], thing[order]
            starts = group_starts(owner)
            if len(starts):
                matched[owner[starts], word] = np.bitwise_or.reduceat(gain, starts)
                ignored[owner[starts], word] = np.bitwise_or.reduceat(gain & skipped[thing, word], starts)
    return matched, ignored


def order_images(image_keys: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Orders images by key and then by position.

    Args:
        image_keys: (rows, 2) key and position of images. Rows that are equal are one image.

    Returns:
        The keys in order, and a function that turns (rows, 2) of keys and positions into numbers of images in this
        order.

    Example:
        Two images of key 7, at positions 0 and 2.

        >>> keys, number = order_images(np.array([[7, 0], [3, 1], [7, 2]]))
        >>> keys.tolist(), number(np.array([[7, 0], [3, 1], [7, 2], [7, 2]])).tolist()
        ([3, 7, 7], [1, 0, 2, 2])
    """
    keys, positions = np.unique(image_keys[:, 0]), np.unique(image_keys[:, 1])

    def code(rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(keys, rows[:, 0]) * len(positions) + np.searchsorted(positions, rows[:, 1])

    known = np.unique(code(image_keys))
    ordered = keys[known // max(1, len(positions))]
    return ordered, lambda rows: np.searchsorted(known, code(rows))


def average_precision(records: APRecords, settings: APSettings) -> AveragePrecision:
    """COCO's average precision and recall of the best ``max_detections[-1]`` detections per class and image.

    Args:
        records: Of :func:`match_for_ap`; those of several batches may be joined if image numbers differ.
        settings: The same as there, but for ``max_detections``.

    Example:
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> there = Objects([0], [[0, 0, 10, 9]], [0])
        >>> settings = APSettings(num_classes=1)
        >>> result = average_precision(match_for_ap(found, there, settings), settings)
        >>> round(result.to_dict()["mAP"], 6)
        0.95
    """
    records = records.best(settings.max_detections[-1])
    keys = [records.label, -records.score]
    if (np.diff(records.image) < 0).any():
        keys.append(records.image)
    order = stable_order(*keys)
    label, rank = records.label[order], records.rank[order]
    class_starts = np.searchsorted(label, np.arange(settings.num_classes))
    num_areas, num_thresholds = len(settings.area_ranges), len(settings.iou_thresholds)
    precision = np.full((num_areas, num_thresholds, settings.num_classes, 101), np.nan)
    recall = np.full((num_areas, len(settings.max_detections), num_thresholds, settings.num_classes), np.nan)
    for word in range(settings.num_words):
        ignored = records.ignored[order, word]
        true = records.matched[order, word] & ~ignored
        for bit in range(min(_WORD, num_areas * num_thresholds - word * _WORD)):
            area, threshold = divmod(word * _WORD + bit, num_thresholds)
            one = np.uint64(1) << np.uint64(bit)
            hits = np.flatnonzero((true & one) != 0)
            # Recall rises at hits only, and precision peaks there: nothing else need be looked at.
            used = np.concatenate([[0], np.cumsum((ignored & one) == 0)])
            of_class = label[hits]
            first_hit = np.searchsorted(hits, class_starts)
            nth = np.arange(1, len(hits) + 1) - first_hit[of_class]
            seen = used[hits + 1] - used[class_starts][of_class]
            _curve(nth / (seen + np.spacing(1)), first_hit, records.objects[area], precision[area, threshold])
            defined = records.objects[area] > 0
            for index, most in enumerate(settings.max_detections):
                within = np.bincount(of_class[rank[hits] < most], minlength=settings.num_classes)
                recall[area, index, threshold, defined] = within[defined] / records.objects[area][defined]
    return AveragePrecision(settings, precision, recall, records.objects)


def _curve(precision: np.ndarray, first_hit: np.ndarray, objects: np.ndarray, out: np.ndarray) -> None:
    """Fills (classes, 101): the greatest precision among the hits at which the recall is at least 0, 0.01, … 1.

    Args:
        precision: At every hit, class after class.
        first_hit: Where the hits of each class begin.
        objects: Of each class.
        out: Left as it is where a class has no objects.
    """
    defined = np.flatnonzero(objects > 0)
    if not len(defined):
        return
    levels = np.linspace(0.0, 1.0, 101)
    number = objects[defined][:, None].astype(np.float64)
    # The least number of hits whose recall, as a float, reaches the level.
    needed = np.ceil(levels * number)
    needed -= (needed - 1) / number >= levels
    needed += needed / number < levels
    skip = np.maximum(needed - 1, 0).astype(np.int64)
    hits = np.diff(np.append(first_hit, len(precision)))[defined][:, None]
    # Greatest from each level up to the next one, the last up to where the next class begins; then from each level on.
    place = first_hit[defined][:, None] + np.minimum(skip, hits)
    best = np.maximum.reduceat(np.append(precision, 0.0), place.ravel()).reshape(place.shape)
    best[skip >= hits] = 0
    out[defined] = np.maximum.accumulate(best[:, ::-1], axis=1)[:, ::-1]


def _mean(values: np.ndarray) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")
