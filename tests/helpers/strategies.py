"""Strategies of the property tests: samples of any metric, batches and ranks, scores, detection problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.testing import _cast, _map_tensors

MOST_SAMPLES = 17  # on 8 ranks some then have three, others two
MOST_RANKS = 8


class Roll:
    """Small numbers from one string of bytes, because each draw of Hypothesis is slow; all zeros is the simplest."""

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
        """The next bytes as an array of this shape."""
        return self.some(int(np.prod(shape))).reshape(shape)

    def below(self, limit):
        """An integer from 0 to ``limit - 1``."""
        self._used += 1
        return self._drawn[self._used - 1] % limit

    def one_of(self, choices):
        """One of the choices, the simplest first."""
        return choices[self.below(len(choices))]

    def order(self, number):
        """A permutation."""
        return np.argsort(self.some(number), kind="stable")


LEAST_EXAMPLES = 200


def shared_by(number):
    """Settings that divide the number of examples among several tests."""
    return settings(max_examples=max(settings.default.max_examples // number, LEAST_EXAMPLES))


_LONGEST = 256
rolls = st.binary(min_size=_LONGEST, max_size=_LONGEST).map(Roll)


# --- samples of any metric --------------------------------------------------------------------------------------------


def small_metric(case):
    """The metric of a case with few bins and resamples, which the properties do not depend on."""
    metric = case.metric()
    for name, value in {"num_thresholds": 32, "resamples": 3}.items():
        if getattr(metric, name, None) is not None:
            setattr(metric, name, value)
    return metric


def read_only(tensor):
    """The tensor as a read-only array."""
    array = tensor.numpy().copy()
    array.setflags(write=False)
    return array


def samples_of(roll, case, *, rows_differ=False):
    """Samples of a case: none, one or few; equal or equal in one field; of any dtype the case allows.

    With ``rows_differ``, no two classes of a sample have equal scores.
    """
    count = min(roll.below(MOST_SAMPLES + 1), roll.below(MOST_SAMPLES + 1))  # mostly few, which is faster
    seed, form = roll.below(DRAWS), roll.one_of(case.dtypes)
    indices = roll.some(count) % SAMPLES_DRAWN
    if count and roll.below(2):  # with repetition, so classes may be missing
        indices = indices[indices % count]
    odd = roll.some(count) % len(_ODD)
    samples = [
        dict(_sample(case.samples, seed, index, form, odd=kind, rows_differ=rows_differ))
        for index, kind in zip(indices.tolist(), odd.tolist())
    ]
    if not samples:
        return samples
    equal_field = roll.one_of([None, *samples[0]])
    if equal_field is not None:  # one class only, ties everywhere, or the same objects in every image
        samples = [_with_field_of(sample, samples[0], equal_field) for sample in samples]
    for index, sample in enumerate(samples):
        if "img_id" in sample:
            sample["img_id"] = index
    return samples if form == "numpy" else _map_tensors(samples, torch.clone)  # arrays are read-only


DRAWS, SAMPLES_DRAWN = 128, 16  # datasets and their samples, cached because new ones take longer than the checks


@lru_cache(maxsize=None)
def _drawn(make, seed):
    return make(np.random.default_rng(seed), SAMPLES_DRAWN)


@lru_cache(maxsize=None)
def _sample(make, seed, index, form, *, odd, rows_differ):
    """One sample of a dataset in a form (dtype or ``numpy``)."""
    sample = _drawn(make, seed)[index]
    if "ignored_instances" in sample:  # of a detector
        sample = _ODD[odd](sample)
    if rows_differ:
        sample = _with_distinct_scores(sample, seed * SAMPLES_DRAWN + index)
    if form == "numpy":
        return _map_tensors(sample, read_only)
    return _map_tensors(sample, lambda tensor: _cast(tensor, getattr(torch, form)))


def _with_field_of(sample, other, field):
    detector = "ignored_instances" in sample  # its images may have any number of instances
    if detector and sample.get("ori_shape") != other.get("ori_shape"):  # masks have the size of their image
        return sample
    if not (detector and field.endswith("instances")) and _shapes(sample[field]) != _shapes(other[field]):
        return sample
    return {**sample, field: other[field]}


def _shapes(value):
    return {name: _shapes(part) for name, part in value.items()} if isinstance(value, dict) else np.shape(value)


def _only_crowds(sample):
    objects, crowds = sample["gt_instances"], sample["ignored_instances"]
    both = {name: _joined(objects[name], crowds[name]) for name in objects}
    return {**sample, "gt_instances": {name: value[:0] for name, value in both.items()}, "ignored_instances": both}


def _joined(first, second):
    return torch.cat([first, second]) if isinstance(first, torch.Tensor) else np.concatenate([first, second])


def _nothing_found(sample):
    return {**sample, "pred_instances": {name: value[:0] for name, value in sample["pred_instances"].items()}}


def _nothing_there(sample):
    return {**sample, "gt_instances": {name: value[:0] for name, value in sample["gt_instances"].items()}}


def _without_area(sample):
    found = sample["pred_instances"]
    if "bboxes" not in found:
        return sample
    boxes = found["bboxes"].clone()
    boxes[::2, 2] = boxes[::2, 0] if boxes.shape[1] == 4 else 0  # right edges, or widths of rotated boxes
    return {**sample, "pred_instances": {**found, "bboxes": boxes}}


_ODD = (dict, _only_crowds, _nothing_found, _nothing_there, _without_area)


def _with_distinct_scores(sample, seed):
    if "pred_score" not in sample or "mask" in sample:
        return sample
    number = len(sample["pred_score"])
    # Exact in every precision, and at most 1.
    scores = (np.random.default_rng(seed).permutation(number) + 1) / 2.0 ** (number - 1).bit_length()
    return {**sample, "pred_score": torch.tensor(scores, dtype=sample["pred_score"].dtype)}


# --- batches and ranks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feeding:
    """The order of samples, and their batches and ranks."""

    order: np.ndarray
    cuts: list[int]  # ends of batches; equal ends are an empty batch
    world_size: int
    owners: list[int]  # rank of each sample, if ``sharding`` is ``'any'``
    batch_size: int  # of every rank
    sharding: str  # ``'padded'``, ``'uneven'`` (without padding) or ``'any'``
    ends: list[int]  # ends of the first and the second of three parts


def feeding_of(roll, count, *, padded=False):
    """A feeding of ``count`` samples; with ``padded``, all ranks have equally many."""
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
    """A strictly increasing map of the scores of a dataset, exact in their precision."""

    kind: (
        str  # ``'scaled'`` by a power of two, ``'ranks'``, ``'negative'`` integers or adjacent floats (``'neighbors'``)
    )
    exponent: int  # of the power of two

    def __call__(self, values, known):
        """The mapped ``values``; ``known`` are the distinct scores, ascending."""
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
    """A random map."""
    return ScoreMap(roll.one_of(["ranks", "scaled", "negative", "neighbors"]), roll.one_of([1, -1, 2, -2, 3, -3]))


def scored_labels_of(roll):
    """Scores and labels of 1 to 24 samples of 1 to 4 classes, with ties, adjacent scores and absent classes."""
    count, classes = roll.below(24) + 1, roll.below(4) + 1
    dtype = roll.one_of([np.float16, np.float32, np.float64])
    places = roll.table(count, classes)
    grids = [places % 11 / 10, 0.5 + places / 2**11, places / 255, np.where(places % 2, places / 2**22, 1.0)]
    return roll.one_of(grids).astype(dtype), roll.some(count) % classes


# --- detections -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DetectionProblem:
    """Detections and ground truths of a few images, and the number of classes."""

    batch: DetectionBatch
    num_classes: int

    def with_rows(self, *, detections=None, ground_truths=None):
        """The same with other rows."""
        changed: dict[str, Any] = {"detections": detections, "ground_truths": ground_truths}
        return replace(self, batch=replace(self.batch, **{k: v for k, v in changed.items() if v is not None}))


def detection_problem_of(roll, *, distinct=False, least_images=0):
    """Boxes on a coarse grid, most detections near a ground truth: ties, crowds, empty images, boxes without area.

    With ``distinct``, no two detections have the same score.
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
        # 3/4 are a ground truth with its right and lower edges moved, 3/4 of these with its class.
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
    """Boxes with sides of 0 to 20 pixels."""
    corner, sides = rows[:, 1:3] % 4 * 3, rows[:, 3:5] % 6 * 4
    return np.concatenate([corner, corner + sides], axis=1)


def order_of(roll, rows, *, within_images):
    """A permutation of rows, with or without changing the order within images."""
    order = roll.order(len(rows))
    if within_images:
        return order
    moved = order.copy()
    for image in np.unique(rows.image):
        places = np.flatnonzero(rows.image[order] == image)
        moved[places] = np.sort(order[places])
    return moved
