"""Random detections and ground truths with localization errors, duplicates, confusions and crowds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Problem(NamedTuple):
    """Flat arrays sorted by ``image``. Boxes are x1, y1, x2, y2 in float32."""

    num_images: int
    num_classes: int
    image: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    gt_image: np.ndarray
    gt_boxes: np.ndarray
    gt_labels: np.ndarray
    gt_crowd: np.ndarray


def make_problem(
    num_images: int = 5000, num_classes: int = 80, per_image: int = 100, objects_per_image: float = 7.1, seed: int = 0
) -> Problem:
    """Images with ``per_image`` detections each, some of them without objects.

    An image has objects of few classes and all sizes. About two thirds of the detections are near objects, with higher
    scores the nearer they are, most with the right class; the others are anywhere with low scores.
    """
    random = np.random.default_rng(seed)
    counts = np.minimum(random.geometric(1 / (objects_per_image + 1), num_images) - 1, 60)
    gt_image = np.repeat(np.arange(num_images), counts)
    total = len(gt_image)
    favorites = random.integers(0, num_classes, (num_images, 3))
    gt_labels = favorites[gt_image, random.choice(3, total, p=[0.6, 0.25, 0.15])]
    gt_boxes = _boxes(random, total)
    crowd = random.random(total) < 0.01

    image = np.repeat(np.arange(num_images), per_image)
    rows = len(image)
    first = np.cumsum(counts) - counts
    has_objects = counts[image] > 0
    chosen = first[image] + (random.random(rows) * counts[image]).astype(np.int64)
    chosen = np.where(has_objects, chosen, 0)
    near = has_objects & (random.random(rows) < 0.65)
    boxes = _boxes(random, rows)
    spread = random.exponential(0.15, rows)
    target = gt_boxes[chosen]
    size = np.concatenate([target[:, 2:] - target[:, :2]] * 2, axis=1)
    jittered = target + random.normal(size=(rows, 4)) * spread[:, None] * size
    boxes[near] = jittered[near]
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    labels = random.integers(0, num_classes, rows)
    right = near & (random.random(rows) < 0.8)
    labels[right] = gt_labels[chosen[right]]
    quality = np.where(near, np.exp(-3 * spread), 0.05)
    scores = np.clip(quality * random.beta(2, 2, rows) * 1.2, 0.001, 0.999)
    order = np.lexsort((-scores, image))  # as detectors sort them
    return Problem(
        num_images,
        num_classes,
        image,
        boxes[order].astype(np.float32),
        scores[order].astype(np.float32),
        labels[order],
        gt_image,
        gt_boxes.astype(np.float32),
        gt_labels,
        crowd,
    )


def _boxes(random: np.random.Generator, number: int) -> np.ndarray:
    """Boxes in images of 640 x 480 with sides from 8 to 300 pixels, log-uniform."""
    sides = np.exp(random.uniform(np.log(8), np.log(300), (number, 2)))
    corner = random.random((number, 2)) * np.maximum(np.array([640, 480]) - sides, 1)
    return np.concatenate([corner, corner + sides], axis=1)
