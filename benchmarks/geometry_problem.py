"""Random masks, rotated boxes and key points, and COCO's files of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask

from mm_metrics_plugin.functional.detection.geometry.masks import Masks

HEIGHT, WIDTH = 480, 640
JOINTS = 17
_CORNERS = 24  # of the outline of a mask


class Shapes(NamedTuple):
    """Outlines around a center, one row per object, and the other columns of a results file."""

    image: np.ndarray
    labels: np.ndarray
    center: np.ndarray  # (N, 2)
    size: np.ndarray  # (N, 2) half of width and height
    radius: np.ndarray  # (N, _CORNERS) of the outline, relative to the size
    scores: np.ndarray


def make_shapes(
    num_images: int = 1000, num_classes: int = 80, per_image: int = 60, objects_per_image: float = 7.0, seed: int = 0
) -> tuple[Shapes, Shapes]:
    """Ground truths, and detections of which two thirds are near one, with higher scores the nearer they are."""
    random = np.random.default_rng(seed)
    counts = np.minimum(random.geometric(1 / (objects_per_image + 1), num_images), 60)
    image = np.repeat(np.arange(num_images), counts)
    favorites = random.integers(0, num_classes, (num_images, 3))
    labels = favorites[image, random.choice(3, len(image), p=[0.6, 0.25, 0.15])]
    gts = _random_shapes(random, image, labels)

    image = np.repeat(np.arange(num_images), per_image)
    dets = _random_shapes(random, image, random.integers(0, num_classes, len(image)))
    near = random.random(len(image)) < 0.65
    chosen = (np.cumsum(counts) - counts)[image] + (random.random(len(image)) * counts[image]).astype(np.int64)
    spread = random.exponential(0.15, len(image))
    size = gts.size[chosen]
    target = (
        gts.center[chosen] + random.normal(size=size.shape) * spread[:, None] * size,
        size * np.exp(random.normal(size=size.shape) * spread[:, None]),
        gts.radius[chosen] * np.exp(random.normal(0, 0.05, gts.radius[chosen].shape)),
    )
    for values, moved in zip((dets.center, dets.size, dets.radius), target):
        values[near] = moved[near]
    same = near & (random.random(len(image)) < 0.8)
    dets.labels[same] = gts.labels[chosen[same]]
    quality = np.where(near, np.exp(-3 * spread), 0.05)
    dets.scores[:] = np.clip(quality * random.beta(2, 2, len(image)) * 1.2, 0.001, 0.999).round(6)
    order = np.lexsort((-dets.scores, image))  # as detectors sort them
    return gts, Shapes(*(column[order] for column in dets))


def _random_shapes(random: np.random.Generator, image: np.ndarray, labels: np.ndarray) -> Shapes:
    """Shapes with half sides from 4 to 150 pixels, log-uniform."""
    number = len(image)
    size = np.exp(random.uniform(np.log(4), np.log(150), (number, 2)))
    center = random.random((number, 2)) * [WIDTH, HEIGHT]
    angle = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    phase = random.random((2, number, 1)) * 2 * np.pi
    radius = 0.85 + 0.1 * np.sin(3 * angle + phase[0]) + 0.05 * np.sin(5 * angle + phase[1])
    return Shapes(image, labels, center, size, radius, np.ones(number))


def outlines_of(shapes: Shapes) -> np.ndarray:
    """(N, _CORNERS, 2) the corners, inside of the image."""
    angle = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    unit = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = shapes.center[:, None] + shapes.size[:, None] * shapes.radius[:, :, None] * unit
    return np.clip(points, 0, [WIDTH, HEIGHT]).round(2)


def rles_of(shapes: Shapes) -> list[dict[str, Any]]:
    """COCO's RLE dicts."""
    rles: list[dict[str, Any]] = mask.frPyObjects([points.ravel() for points in outlines_of(shapes)], HEIGHT, WIDTH)
    return rles


def write_annotations(shapes: Shapes, fields: list[dict[str, Any]], path: Path, **category: Any) -> None:
    """Write COCO annotations with these fields of each object."""
    columns = zip(shapes.image.tolist(), shapes.labels.tolist(), fields)
    content = {
        "images": [
            {"id": number + 1, "file_name": f"{number + 1:012d}.jpg", "height": HEIGHT, "width": WIDTH}
            for number in range(int(shapes.image.max()) + 1)
        ],
        "categories": [
            {"id": number + 1, "name": f"class {number}", **category} for number in range(int(shapes.labels.max()) + 1)
        ],
        "annotations": [
            {"id": row + 1, "image_id": image + 1, "category_id": label + 1, "iscrowd": 0, **field}
            for row, (image, label, field) in enumerate(columns)
        ],
    }
    path.write_text(json.dumps(content))


def write_results(shapes: Shapes, fields: list[dict[str, Any]], path: Path) -> None:
    """Write COCO results with these fields of each detection."""
    columns = zip(shapes.image.tolist(), shapes.labels.tolist(), shapes.scores.tolist(), fields)
    rows = [
        {"image_id": image + 1, "category_id": label + 1, "score": score, **field}
        for image, label, score, field in columns
    ]
    path.write_text(json.dumps(rows))


def write_masks(gts: Shapes, dets: Shapes, folder: Path) -> None:
    """Write ``truth.json`` with polygons and ``results.json`` with RLE."""
    masks = Masks.from_rle(rles_of(gts))
    left, top, right, bottom = masks.bounding_boxes()
    boxes = np.stack([left, top, right - left, bottom - top], axis=1)
    columns = zip(outlines_of(gts).reshape(len(masks), -1).tolist(), masks.areas().tolist(), boxes.tolist())
    fields = [{"segmentation": [points], "area": area, "bbox": box} for points, area, box in columns]
    write_annotations(gts, fields, folder / "truth.json")
    encoded = [{"segmentation": {**rle, "counts": rle["counts"].decode()}} for rle in rles_of(dets)]
    write_results(dets, encoded, folder / "results.json")


def write_keypoints(gts: Shapes, dets: Shapes, folder: Path) -> None:
    """Write ``truth.json`` and ``results.json`` with 17 key points on each outline."""
    random = np.random.default_rng(0)
    parts = []
    for shapes in (gts, dets):
        points = outlines_of(shapes)[:, :JOINTS]
        visible = np.where(random.random((len(points), JOINTS, 1)) < 0.8, 2, 0)
        parts.append(np.concatenate([points, visible], axis=2).reshape(len(points), -1).tolist())
    corner = gts.center - gts.size
    area = gts.size.prod(axis=1) * 2
    boxes = np.concatenate([corner, 2 * gts.size], axis=1).round(2).tolist()
    fields = [
        {"keypoints": points, "num_keypoints": sum(value > 0 for value in points[2::3]), "bbox": box, "area": one}
        for points, box, one in zip(parts[0], boxes, area.tolist())
    ]
    write_annotations(gts, fields, folder / "truth.json")
    write_results(dets, [{"keypoints": points} for points in parts[1]], folder / "results.json")
