"""Every strategy of the property tests: samples of any metric, ways of feeding them, scores, detection problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Dict, List

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.testing import _cast, _map_tensors

MOST_SAMPLES = 17  # on 8 ranks some then have three, others two
MOST_RANKS = 8


class Roll:
    """Small numbers out of one string of bytes: a draw of Hypothesis takes its time, whatever its size.

    All zeros, to which Hypothesis shrinks, is the plainest case.
    """

    def __init__(self, drawn):
        self._drawn, self._used = drawn, 0

    def __repr__(self):
        return f"Roll({self._drawn!r})"

    def some(self, number):
        """The next bytes."""
        self._used += number
        assert self._used <= len(self._drawn), "the roll is too short"
        return np.frombuffer(self._drawn[self._used - number : self._used], dtype=np.uint8).astype(np.int64)

    def table(self, *shape):
        """The next bytes, in rows and columns."""
        return self.some(int(np.prod(shape))).reshape(shape)

    def below(self, limit):
        """A number from 0 up to the limit."""
        self._used += 1
        return self._drawn[self._used - 1] % limit

    def one_of(self, choices):
        """One of the choices; the first is the plainest."""
        return choices[self.below(len(choices))]

    def order(self, number):
        """A permutation."""
        return np.argsort(self.some(number), kind="stable")


LEAST_EXAMPLES = 200


def shared_by(number):
    """Settings for tests that share the examples there are to be, if there are many."""
    return settings(max_examples=max(settings.default.max_examples // number, LEAST_EXAMPLES))


_LONGEST = 256
rolls = st.binary(min_size=_LONGEST, max_size=_LONGEST).map(Roll)


# --- samples of any metric --------------------------------------------------------------------------------------------

# What the properties do not depend on, made small: bins then hold several scores, and nothing waits for draws.
_SMALLER = {"num_thresholds": 32, "resamples": 3}


def small_metric(case):
    """The case's metric, as cheap as it can be made without changing what it does."""
    metric = case.metric()
    for name, value in _SMALLER.items():
        if getattr(metric, name, None) is not None:
            setattr(metric, name, value)
    return metric


def read_only(tensor):
    """The tensor as an array that nobody may write to."""
    array = tensor.numpy().copy()
    array.setflags(write=False)
    return array


def samples_of(roll, case, *, rows_differ=False):
    """Samples of a case: none, one, few; all alike, or alike in one field; in any form the case allows.

    Args:
        roll: What decides.
        case: Whose samples.
        rows_differ: No two classes of a sample have equal scores.
    """
    count = min(roll.below(MOST_SAMPLES + 1), roll.below(MOST_SAMPLES + 1))  # mostly few, which is quicker
    seed, form = roll.below(DRAWS), roll.one_of(case.dtypes)
    indices = roll.some(count) % SAMPLES_DRAWN
    if count and roll.below(2):  # some again and again, others not at all: whole classes may be missing
        indices = indices[indices % count]
    odd = roll.some(count) % len(_ODD)
    samples = [
        dict(_sample(case.samples, seed, index, form, odd=kind, rows_differ=rows_differ))
        for index, kind in zip(indices.tolist(), odd.tolist())
    ]
    if not samples:
        return samples
    alike = roll.one_of([None, *samples[0]])
    if alike is not None:  # one class only, ties everywhere, the same objects in every image
        samples = [_with_field_of(sample, samples[0], alike) for sample in samples]
    for index, sample in enumerate(samples):
        if "img_id" in sample:
            sample["img_id"] = index
    return samples if form == "numpy" else _map_tensors(samples, torch.clone)  # arrays are read-only


# The samples are drawn from these many datasets of so many samples: making new ones takes longer than the checks.
DRAWS, SAMPLES_DRAWN = 128, 16


@lru_cache(maxsize=None)
def _drawn(make, seed):
    return make(np.random.default_rng(seed), SAMPLES_DRAWN)


@lru_cache(maxsize=None)
def _sample(make, seed, index, form, *, odd, rows_differ):
    """One of them in a form, made once."""
    sample = _drawn(make, seed)[index]
    if "gt_instances" in sample:
        sample = _ODD[odd](sample)
    if rows_differ:
        sample = _with_distinct_scores(sample, seed * SAMPLES_DRAWN + index)
    if form == "numpy":
        return _map_tensors(sample, read_only)
    return _map_tensors(sample, lambda tensor: _cast(tensor, getattr(torch, form)))


def _with_field_of(sample, other, field):
    if not field.endswith("instances") and _shapes(sample[field]) != _shapes(other[field]):
        return sample
    return {**sample, field: other[field]}


def _shapes(value):
    return {name: _shapes(part) for name, part in value.items()} if isinstance(value, dict) else np.shape(value)


def _only_crowds(sample):
    objects, crowds = sample["gt_instances"], sample["ignored_instances"]
    both = {name: torch.cat([objects[name], crowds[name]]) for name in objects}
    return {**sample, "gt_instances": {name: value[:0] for name, value in both.items()}, "ignored_instances": both}


def _nothing_found(sample):
    return {**sample, "pred_instances": {name: value[:0] for name, value in sample["pred_instances"].items()}}


def _nothing_there(sample):
    return {**sample, "gt_instances": {name: value[:0] for name, value in sample["gt_instances"].items()}}


def _without_area(sample):
    found = sample["pred_instances"]
    boxes = found["bboxes"].clone()
    boxes[::2, 2] = boxes[::2, 0]
    return {**sample, "pred_instances": {**found, "bboxes": boxes}}


_ODD = (dict, _only_crowds, _nothing_found, _nothing_there, _without_area)


def _with_distinct_scores(sample, seed):
    if "pred_score" not in sample or "mask" in sample:
        return sample
    number = len(sample["pred_score"])
    # Exact in every precision, and at most 1.
    scores = (np.random.default_rng(seed).permutation(number) + 1) / 2.0 ** (number - 1).bit_length()
    return {**sample, "pred_score": torch.tensor(scores, dtype=sample["pred_score"].dtype)}


# --- ways of feeding samples ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feeding:
    """A way through the samples.

    Attributes:
        order: In which they come.
        cuts: Where batches end; twice the same place is an empty batch.
        world_size: How many ranks there are.
        owners: The rank of each sample, if ``sharding`` is ``'any'``.
        batch_size: Of every rank, where they are dealt.
        sharding: ``'padded'`` or ``'uneven'`` (dealt with and without padding) or ``'any'`` (by ``owners``).
        ends: Where the first and the second of three parts end.
    """

    order: np.ndarray
    cuts: List[int]
    world_size: int
    owners: List[int]
    batch_size: int
    sharding: str
    ends: List[int]


def feeding_of(roll, count, *, padded=False):
    """A way through so many samples; ``padded``: only such that all ranks have as many."""
    world_size = roll.below(MOST_RANKS) + 1
    return Feeding(
        order=roll.order(count),
        cuts=sorted(roll.some(roll.below(4)) % (count + 1)),
        world_size=world_size,
        owners=(roll.some(count) % world_size).tolist(),
        batch_size=roll.below(4) + 1,
        sharding="padded" if padded else roll.one_of(["padded", "uneven", "any"]),
        ends=sorted(roll.some(2) % (count + 1)),
    )


def cut_at(samples, cuts):
    """The batches between the cuts."""
    return [samples[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(samples)])]


# --- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreMap:
    """A strictly growing map of the scores of a dataset, exact in their precision.

    Attributes:
        kind: ``'scaled'`` by a power of two; ``'ranks'``, whole numbers; ``'negative'``, whole numbers below 0;
            ``'neighbors'``, floats with no other between them.
        exponent: Of the power of two.
    """

    kind: str
    exponent: int

    def __call__(self, values, known):
        """The images of ``values``, all of which are among ``known``: the distinct scores, ascending."""
        if self.kind == "scaled":
            return values * values.dtype.type(2.0**self.exponent)
        places = np.searchsorted(known, values)
        if self.kind == "neighbors":
            steps = np.full(len(known), 0.5, dtype=known.dtype)
            for index in range(1, len(steps)):
                steps[index] = np.nextafter(steps[index - 1], known.dtype.type(1))
            return steps[places]
        return (places - (len(known) if self.kind == "negative" else 0)).astype(known.dtype)


def score_map_of(roll):
    """One of them."""
    return ScoreMap(roll.one_of(["ranks", "scaled", "negative", "neighbors"]), roll.one_of([1, -1, 2, -2, 3, -3]))


@dataclass(frozen=True)
class ScoredLabels:
    """Scores (samples, classes) in 0 to 1 and their labels: classes, or (samples, classes) of 1, 0 and -1."""

    scores: np.ndarray
    labels: np.ndarray


def scored_labels_of(roll, *, several):
    """Few or many samples of one to four classes, scores that tie or stand close together, classes without samples."""
    count, classes = roll.below(24) + 1, roll.below(4) + 1
    dtype = roll.one_of([np.float16, np.float32, np.float64])
    places = roll.table(count, classes)
    # The places are 0, 1, tenths, and steps from 0.5 and from 0 that end up in the same bin or not.
    grids = [places % 11 / 10, 0.5 + places / 2**11, places / 255, np.where(places % 2, places / 2**22, 1.0)]
    scores = roll.one_of(grids).astype(dtype)
    if several:
        return ScoredLabels(scores, (roll.table(count, classes) % 3).astype(np.int8) - 1)
    return ScoredLabels(scores, roll.some(count) % classes)


# --- detections -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DetectionProblem:
    """Detections and ground truths of a few images, and how many classes there are."""

    batch: DetectionBatch
    num_classes: int

    def with_rows(self, *, detections=None, ground_truths=None):
        """The same with other rows."""
        changed: Dict[str, Any] = {"detections": detections, "ground_truths": ground_truths}
        return replace(self, batch=replace(self.batch, **{k: v for k, v in changed.items() if v is not None}))


def detection_problem_of(roll, *, distinct=False, least_images=0):
    """Boxes on a coarse grid, most detections near a ground truth: ties, crowds, empty images, boxes without area.

    Args:
        roll: What decides.
        distinct: No two detections have the same score.
        least_images: How many images there are at least.
    """
    num_images, num_classes = least_images + roll.below(4 - least_images), roll.below(3) + 1
    gt_rows = roll.table(roll.below(7) if num_images else 0, 7)
    rows = roll.table(roll.below(11) if num_images else 0, 7)
    crowds = roll.one_of([0, 4, 1])  # none, a quarter of the ground truths, all of them
    coordinates = roll.one_of([np.float32, np.float64])
    gts = GroundTruths(
        gt_rows[:, 0] % max(num_images, 1),
        _boxes(gt_rows).astype(coordinates),
        gt_rows[:, 5] % num_classes,
        crowd=gt_rows[:, 6] % crowds == 0 if crowds else None,
    )
    image, labels, boxes = rows[:, 0] % max(num_images, 1), rows[:, 5] % num_classes, _boxes(rows).astype(coordinates)
    if len(gts):
        # Three of four are a ground truth with its right and lower edges moved, three of four of these of its class.
        target = rows[:, 1] % len(gts)
        near = rows[:, 0] % 4 > 0
        image = np.where(near, gts.image[target], image)
        labels = np.where(near & (rows[:, 5] % 4 > 0), gts.labels[target], labels)
        edges = gts.boxes.array[target] + np.pad(rows[:, 3:5] % 5 - 2, ((0, 0), (2, 0)))
        boxes = np.where(near[:, None], edges, boxes).astype(coordinates)
    scores = (rows[:, 6] % 8 + 1) / 8
    if distinct:
        scores = (np.argsort(np.argsort(rows[:, 6], kind="stable"), kind="stable") + 1) / 16
    precision = roll.one_of([np.float16, np.float32, np.float64])
    detections = Detections(image, boxes, scores.astype(precision), labels)
    return DetectionProblem(DetectionBatch(detections, gts, num_images), num_classes)


def _boxes(rows):
    """Sides of 0 to 20 pixels; those of 0 make boxes without area."""
    corner, sides = rows[:, 1:3] % 4 * 3, rows[:, 3:5] % 6 * 4
    return np.concatenate([corner, corner + sides], axis=1)


def order_of(roll, rows, *, within_images):
    """Another order of rows: any, or one that keeps those of each image as they stand."""
    order = roll.order(len(rows))
    if within_images:
        return order
    moved = order.copy()
    for image in np.unique(rows.image):
        places = np.flatnonzero(rows.image[order] == image)
        moved[places] = np.sort(order[places])
    return moved
