"""Random small detection problems: crowds, ties, copies of ground truths, boxes without area, uneven images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.settings import MATCHING_RULES, DetectionSettings


def match_table(batch, num_classes, **settings):
    """The match table of a batch, without details."""
    return match_images(batch, DetectionSettings(**settings), num_classes=num_classes, table="scores").table


def counts_at(batch, num_classes, score_thr, iou_thr=0.5):
    """TP, FP and FN of each class from the confusion matrix, matched anew at a score threshold."""
    settings = DetectionSettings(score_thr=float(score_thr), iou_thr=iou_thr)
    matrix = match_images(batch, settings, num_classes=num_classes, table="none").rules["coco"].matrix
    tp = matrix.diagonal()[:-1]
    return tp, matrix[:, :-1].sum(axis=0) - tp, matrix[:-1].sum(axis=1) - tp


def rows_as_given(table, batch):
    """Of each detection of a table: its row in the batch, and that of its ground truth (-1 without any).

    The batch must be sorted by image, and the table must have details.
    """
    first = np.searchsorted(batch.detections.image, np.arange(batch.num_images))[table.image]
    first_gt = np.searchsorted(batch.ground_truths.image, np.arange(batch.num_images))[table.image]
    gt_index = table.details.gt_index
    return first + table.details.det_index, np.where(gt_index < 0, -1, first_gt + gt_index)


@dataclass
class Problem:
    """A batch and what to match it with."""

    num_classes: int
    batch: DetectionBatch
    settings: DetectionSettings


def make_problem(seed: int) -> Problem:
    random = np.random.default_rng(seed)
    num_classes, num_images = int(random.integers(1, 4)), int(random.integers(1, 4))
    num_dets, num_gts = int(random.integers(0, 14)), int(random.integers(0, 10))

    def boxes(number: int) -> np.ndarray:
        corner = random.integers(0, 8, (number, 2))
        return np.concatenate([corner, corner + random.integers(-1, 8, (number, 2))], axis=1).astype(float)

    image, gt_image = (np.sort(random.integers(0, num_images, number)) for number in (num_dets, num_gts))
    det_boxes, gt_boxes = boxes(num_dets), boxes(num_gts)
    if num_gts and num_dets:  # most detections are near a ground truth
        near, copied = random.integers(0, num_gts, num_dets), random.random(num_dets) < 0.6
        shift = random.integers(-1, 2, (num_dets, 4)) * (random.random((num_dets, 4)) < 0.4)
        det_boxes[copied] = (gt_boxes[near] + shift)[copied]
        image = np.where(copied, gt_image[near], image)
    scores = random.integers(1, 6, num_dets) / 5  # many ties
    labels, gt_labels = (random.integers(0, num_classes, number) for number in (num_dets, num_gts))
    crowd = random.random(num_gts) < 0.2
    area = None if random.random() < 0.5 else random.choice([1.0, 1024.0, 2000.0, 9216.0, 20000.0], num_gts)
    settings = DetectionSettings(
        iou_thr=float(random.choice([0.3, 0.5, 0.55, 0.75, 1.0])),
        score_thr=float(random.choice([0.0, 0.4, 0.6, 1.0])),
        matching=("coco", "mmdet", "agnostic"),
    )
    return Problem(
        num_classes,
        DetectionBatch(
            Detections(image, det_boxes, scores, labels),
            GroundTruths(gt_image, gt_boxes, gt_labels, crowd, area),
            num_images,
        ),
        settings,
    )


def members_of(members, rule):
    """The members of the cells of one confusion matrix."""
    return members.take(np.flatnonzero(members.rule == MATCHING_RULES.index(rule)))
