"""Examples for a report: the worst members of each cell of a confusion matrix, and the worst images.

The worst FP are the most confident, the worst FN the largest, the worst TP the least confident. Ties are broken by
image, detection and ground truth, so the worst of several shards merge to the worst of all.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import group_starts, worst_first
from mm_metrics_plugin.functional.detection.confusion_rules import (
    IGNORED,
    TP,
    OneToOne,
    RuleMatches,
)
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.match_table import NO_GT
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs
from mm_metrics_plugin.settings import MATCHING_RULES

MAX_PER_CELL = 50
MAX_MEMBERS = 48_000  # of all matching rules
BOX_KINDS = ("TP", "FP", "FN")


class Members(NamedTuple):
    """Members of the cells of confusion matrices, one row each."""

    rule: np.ndarray  # (K,) int8, index into ``MATCHING_RULES``
    cell: np.ndarray  # (K,) int64, ``row * (num_classes + 1) + column`` of the confusion matrix
    badness: np.ndarray  # (K,) float64, sort key; the worst has the largest
    image: np.ndarray  # (K,) int32
    det_index: np.ndarray  # (K,) int32, position of the detection in its image; -1 for a missed ground truth
    gt_index: np.ndarray  # (K,) int32, position of the matched, else the most overlapping ground truth, or -1
    overlap: np.ndarray  # (K,) float32, overlap of the two; NaN for a missed ground truth
    background_type: np.ndarray  # (K,) int8, index into ``BACKGROUND_TYPES`` in the background row, else -1
    label: np.ndarray  # (K,) int32, label of the detection, or -1
    score: np.ndarray  # (K,) float64, score of the detection, or NaN
    box: np.ndarray  # (K, 4) float64, box of the detection in xywh format, or NaN
    gt_label: np.ndarray  # (K,) int32, label of the ground truth, or -1
    gt_box: np.ndarray  # (K, 4) float64, box of the ground truth in xywh format, or NaN

    def take(self, rows: np.ndarray) -> Members:
        """The chosen rows."""
        return Members(*(column[rows] for column in self))

    def worst(self, num_rules: int) -> Members:
        """The worst members of each cell, sorted by rule and cell; ``num_rules`` rules share ``MAX_MEMBERS``."""
        kept: list[np.ndarray] = [np.empty(0, dtype=np.intp)]
        for rule in np.unique(self.rule):
            rows = np.flatnonzero(self.rule == rule)
            columns = (self.cell, self.badness, self.image, self.det_index, self.gt_index)
            worst, _ = worst_first(
                *(column[rows] for column in columns), per_group=MAX_PER_CELL, most=MAX_MEMBERS // num_rules
            )
            kept.append(rows[worst])
        return self.take(np.concatenate(kept))


class WorstImages(NamedTuple):
    """FN and FP of images."""

    image: np.ndarray  # (I,) int32
    missed: np.ndarray  # (I,) int64, number of FN
    confidence: np.ndarray  # (I,) float64, highest score of an FP; NaN without FP

    def most_missed(self) -> np.ndarray:
        """Rows of images with FN, by their number, then by the confidence of FP."""
        highest = np.where(np.isnan(self.confidence), -np.inf, self.confidence)
        order: np.ndarray = np.lexsort((self.image, -highest, -self.missed))
        return np.asarray(order[self.missed[order] > 0])

    def most_confident(self) -> np.ndarray:
        """Rows of images with FP, by the highest score."""
        order: np.ndarray = np.lexsort((self.image, -self.missed, -np.nan_to_num(self.confidence, nan=-np.inf)))
        return np.asarray(order[~np.isnan(self.confidence[order])])

    def worst(self, most: int) -> np.ndarray:
        """Rows of the ``most`` worst images by either order."""
        return np.unique(np.concatenate([self.most_missed()[:most], self.most_confident()[:most]]))


class ImageBoxes(NamedTuple):
    """Boxes of the worst images, for drawing."""

    image: np.ndarray  # (K,) int32
    kind: np.ndarray  # (K,) int8, index into ``BOX_KINDS``
    label: np.ndarray  # (K,) int32
    score: np.ndarray  # (K,) float64, NaN for ground truths
    box: np.ndarray  # (K, 4) float64, in xywh format


class Examples(NamedTuple):
    """The result of :func:`collect_examples`."""

    members: Members
    images: WorstImages
    boxes: ImageBoxes


class MatchedImages(NamedTuple):
    """Matched detections and ground truths with their overlapping pairs."""

    pairs: OverlapPairs  # all pairs with an overlap above 0
    detections: Detections  # sorted by image and descending score
    ground_truths: GroundTruths  # sorted by image
    det_index: np.ndarray  # (N,) position of each detection in its image
    gt_index: np.ndarray  # (M,) position of each ground truth in its image
    num_images: int


def collect_examples(
    images: MatchedImages, coco: OneToOne, rules: dict[str, RuleMatches], *, num_classes: int, worst_images: int
) -> Examples:
    """The worst members of the cells under every rule, and the worst images with their boxes."""
    parts = [_members(images, rule, matches, num_classes) for rule, matches in rules.items()]
    members = Members(*map(np.concatenate, zip(*parts))).worst(len(rules))
    worst = _worst_images(images, coco)
    worst = WorstImages(*(column[worst.worst(worst_images)] for column in worst))
    return Examples(members, worst, _boxes_of(images, coco, worst.image))


def _members(images: MatchedImages, rule: str, matches: RuleMatches, num_classes: int) -> Members:
    """The members of all cells of the matrix of a rule.

    An unmatched detection is shown with the ground truth of the highest overlap, of ties the same class first.
    """
    dets, gts = images.detections, images.ground_truths
    det, gt, fn = matches.det, matches.gt, np.flatnonzero(matches.missed)
    closest, closest_overlap = _closest_gts(images, rule, det, gt)
    det_row = np.concatenate([det, np.full(len(fn), NO_GT)])
    gt_row = np.concatenate([closest, fn])
    label, gt_label = np.append(dets.labels, -1)[det_row], np.append(gts.labels, -1)[gt_row]
    # Index -1 is the background, the last label.
    target = np.concatenate([np.append(gts.labels, num_classes)[gt], gts.labels[fn]])
    predicted = np.where(label < 0, num_classes, label)
    score = np.append(dets.scores.astype(np.float64), np.nan)[det_row]
    badness = np.where(target == predicted, -score, score)
    badness[len(det) :] = gts.areas()[fn]
    no_box = np.full((1, 4), np.nan)
    return Members(
        rule=np.full(len(det_row), MATCHING_RULES.index(rule), dtype=np.int8),
        cell=target * (num_classes + 1) + predicted,
        badness=badness,
        image=np.concatenate([dets.image[det], gts.image[fn]]).astype(np.int32),
        det_index=np.append(images.det_index, NO_GT)[det_row].astype(np.int32),
        gt_index=np.append(images.gt_index, NO_GT)[gt_row].astype(np.int32),
        overlap=np.concatenate([closest_overlap, np.full(len(fn), np.nan)]).astype(np.float32),
        background_type=np.concatenate([matches.background_type, np.full(len(fn), -1)]).astype(np.int8),
        label=label.astype(np.int32),
        score=score,
        box=np.concatenate([_xywh(dets), no_box])[det_row],
        gt_label=gt_label.astype(np.int32),
        gt_box=np.concatenate([_xywh(gts), no_box])[gt_row],
    )


def _closest_gts(images: MatchedImages, rule: str, det: np.ndarray, gt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ground truth of each row, else the one with the highest overlap; and that overlap, or 0."""
    pairs, labels, gts = images.pairs, images.detections.labels, images.ground_truths
    if rule != "mmdet":  # which uses crowds as ordinary ground truths
        pairs = pairs.select(np.flatnonzero(~gts.crowd[pairs.gt]))
    overlap: Any = pairs.mmdet_overlap if rule == "mmdet" else pairs.overlap
    other_class = labels[pairs.det] != gts.labels[pairs.gt]
    order = np.lexsort((pairs.gt, other_class, -overlap, pairs.det))
    first = order[group_starts(pairs.det[order])]
    best_gt = np.full(int(max(det.max(initial=-1), pairs.det.max(initial=-1))) + 1, NO_GT, dtype=np.int64)
    best_overlap = np.zeros(len(best_gt))
    best_gt[pairs.det[first]], best_overlap[pairs.det[first]] = pairs.gt[first], overlap[first]
    closest, closest_overlap = np.where(gt < 0, best_gt[det], gt), best_overlap[det]
    # The overlap of a matched pair is looked up by its unique key.
    size = int(pairs.gt.max(initial=0)) + 1
    keys = pairs.det.astype(np.int64) * size + pairs.gt
    by_key = np.argsort(keys, kind="stable")
    matched = np.flatnonzero(gt >= 0)
    rows = by_key[np.searchsorted(keys[by_key], det[matched].astype(np.int64) * size + gt[matched])]
    closest_overlap[matched] = overlap[rows]
    return closest, closest_overlap


def _worst_images(images: MatchedImages, coco: OneToOne) -> WorstImages:
    detections, num_images = images.detections, images.num_images
    is_fp = (coco.outcome != TP) & (coco.outcome < IGNORED)
    missed = np.bincount(images.ground_truths.image[_is_fn(images, coco)], minlength=num_images)
    highest = np.full(num_images, -np.inf)
    np.maximum.at(highest, detections.image[is_fp], detections.scores[is_fp].astype(np.float64))
    confidence = np.where(np.isinf(highest), np.nan, highest)
    return WorstImages(np.arange(num_images, dtype=np.int32), missed, confidence)


def _is_fn(images: MatchedImages, coco: OneToOne) -> np.ndarray:
    fn = ~images.ground_truths.crowd
    fn[coco.gt[coco.outcome == TP]] = False
    return fn


def _boxes_of(images: MatchedImages, coco: OneToOne, chosen: np.ndarray) -> ImageBoxes:
    dets, gts = images.detections, images.ground_truths
    is_chosen = np.zeros(images.num_images, dtype=bool)
    is_chosen[chosen] = True
    masks: Sequence[tuple[Any, np.ndarray]] = (
        (dets, coco.outcome == TP),
        (dets, (coco.outcome != TP) & (coco.outcome < IGNORED)),
        (gts, _is_fn(images, coco)),
    )
    columns: list[list[np.ndarray]] = []
    for kind, (instances, mask) in enumerate(masks):
        rows = instances.take(np.flatnonzero(mask & is_chosen[instances.image]))
        scores: np.ndarray | None = getattr(rows, "scores", None)
        columns.append(
            [
                rows.image.astype(np.int32),
                np.full(len(rows), kind, dtype=np.int8),
                rows.labels.astype(np.int32),
                np.full(len(rows), np.nan) if scores is None else scores.astype(np.float64),
                _xywh(rows),
            ]
        )
    return ImageBoxes(*map(np.concatenate, zip(*columns)))


def _xywh(instances: Any) -> np.ndarray:
    left, top, right, bottom = instances.geometry.bounding_boxes()
    return np.stack([left, top, right - left, bottom - top], axis=1)
