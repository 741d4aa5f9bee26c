"""Random problems of masks, rotated boxes and key points, and what pycocotools says about them."""

from __future__ import annotations

import contextlib
import io

import numpy as np
from pycocotools import mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.keypoints import COCO_SIGMAS, KeyPoints
from mm_metrics_plugin.functional.detection.geometry.masks import Masks
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes


def random_bitmap(random, height, width):
    """A rectangle, an ellipse with a hole, noise, a full or an empty mask."""
    kind = random.choice(["box", "ellipse", "noise", "full", "empty"], p=[0.4, 0.4, 0.1, 0.05, 0.05])
    if kind == "noise":
        return random.random((height, width)) < random.random()
    if kind in ("full", "empty"):
        return np.full((height, width), kind == "full")
    y, x = np.mgrid[:height, :width]
    center, radius = random.random(2) * [height, width], random.uniform(0.1, 0.6, 2) * [height, width]
    if kind == "box":
        return (np.abs(y - center[0]) < radius[0]) & (np.abs(x - center[1]) < radius[1])
    distance = ((y - center[0]) / radius[0]) ** 2 + ((x - center[1]) / radius[1]) ** 2
    return (distance < 1) & (distance > random.choice([-1, 0.1, 0.5]))


def near_bitmap(random, bitmap):
    """The same mask, a part of it, or one that was moved, so that masks are equal, nested or touch."""
    kind = random.integers(4)
    if kind == 0:
        return bitmap
    if kind == 1:
        return bitmap & (np.arange(bitmap.shape[0])[:, None] < random.integers(1, bitmap.shape[0] + 1))
    moved = np.roll(bitmap, random.integers(-3, 4, 2), axis=(0, 1))
    return moved if kind == 2 else bitmap ^ (random.random(bitmap.shape) < 0.1)


def bitmap_problem(seed, *, max_side=140, ties=True):
    """Images of different sizes: lists of bitmaps by image, and the other columns of detections and ground truths."""
    random = np.random.default_rng(seed)
    num_classes = int(random.integers(1, 4))
    images, scores = [], []
    for _ in range(int(random.integers(1, 6))):
        height, width = (int(side) for side in random.integers(2, max_side, 2))
        gts = [random_bitmap(random, height, width) for _ in range(random.integers(0, 7))]
        gt_labels = random.integers(0, num_classes, len(gts))
        dets, labels = [], []
        for _ in range(random.integers(0, 15)):
            near = int(random.integers(len(gts))) if gts and random.random() < 0.8 else None
            dets.append(random_bitmap(random, height, width) if near is None else near_bitmap(random, gts[near]))
            same = near is not None and random.random() < 0.8
            labels.append(gt_labels[near] if same else random.integers(num_classes))
        images.append((np.reshape(dets, (-1, height, width)), labels, np.reshape(gts, (-1, height, width)), gt_labels))
        scores.append(np.round(random.random(len(dets)), 1 if ties else 9))
    return images, scores, num_classes


def mask_batch(seed, *, crowds=True, geometry=Masks, **options):
    """Masks with crowds, annotated areas and equal scores."""
    images, scores, num_classes = bitmap_problem(seed, **options)
    random = np.random.default_rng(seed)
    columns = []
    for at in (0, 2):
        shapes = [geometry.from_bitmaps(image[at] != 0) for image in images]
        columns.append(
            (
                np.repeat(np.arange(len(images)), [len(part) for part in shapes]),
                geometry.empty().concatenate(shapes),
                np.concatenate([image[at + 1] for image in images]).astype(int),
            )
        )
    (image, shapes, labels), (gt_image, gt_shapes, gt_labels) = columns
    crowd = random.random(len(gt_image)) < (0.2 if crowds else 0)
    area = gt_shapes.areas() * random.uniform(0.8, 1.2, len(crowd))
    area[random.random(len(crowd)) < 0.1] = 32.0**2  # a boundary between area ranges
    detections = Detections(image, shapes, np.concatenate(scores), labels)
    return DetectionBatch(
        detections, GroundTruths(gt_image, gt_shapes, gt_labels, crowd, area), len(images)
    ), num_classes


def rles_of(masks):
    """Compressed RLE dicts, encoded by pycocotools."""
    return [mask.encode(np.asfortranarray(bitmap.astype(np.uint8))) for bitmap in bitmaps_of(masks)]


def bitmaps_of(masks):
    """Boolean arrays."""
    for (height, width), runs in zip(masks.sizes.tolist(), np.split(masks.runs, np.cumsum(masks.lengths)[:-1])):
        edges = np.zeros(height * width + 1, dtype=np.int8)
        edges[runs[:, 0]], edges[runs[:, 1]] = 1, -1
        yield np.cumsum(edges[:-1]).reshape(width, height).T != 0


def keypoint_batch(seed, *, sigmas=COCO_SIGMAS, num_classes=1):
    """Key points of objects in all area ranges, with hidden, unlabeled and no labeled key points, crowds and ties."""
    random = np.random.default_rng(seed)
    joints, num_images = len(sigmas), int(random.integers(1, 6))
    gt_image = np.sort(random.integers(0, num_images, random.integers(0, 15)))
    number = len(gt_image)
    side = np.exp(random.uniform(2, 5.5, (number, 1, 2)))
    corner = random.random((number, 1, 2)) * 200
    points = np.round(corner + side * random.random((number, joints, 2)), int(random.integers(0, 3)))
    visibility = random.integers(0, 3, (number, joints, 1)) * (random.random((number, 1, 1)) < 0.85)
    boxes = np.concatenate([corner, side], axis=2).reshape(-1, 4)
    gts = np.concatenate([np.where(visibility > 0, points, 0), visibility], axis=2)
    image, dets = random.integers(0, num_images, random.integers(0, 60)), np.empty((0, joints, 3))
    labels, gt_labels = random.integers(0, num_classes, len(image)), random.integers(0, num_classes, number)
    if len(image):
        dets = np.concatenate([random.random((len(image), joints, 2)) * 200, np.ones((len(image), joints, 1))], axis=2)
        for row in range(len(image)):
            near = np.flatnonzero(gt_image == image[row])
            if len(near) and random.random() < 0.8:
                chosen = random.choice(near)
                noise = random.normal(0, side[chosen, 0].mean() * random.choice([0, 0.02, 0.1]), (joints, 2))
                dets[row, :, :2], labels[row] = points[chosen] + noise, gt_labels[chosen]
    scores, area = np.round(random.random(len(image)), 1), boxes[:, 2] * boxes[:, 3] * random.uniform(0.3, 1, number)
    crowd = random.random(number) < 0.1
    ground_truths = GroundTruths(gt_image, KeyPoints(gts, sigmas, boxes), gt_labels, crowd, area)
    return DetectionBatch(Detections(image, KeyPoints(dets, sigmas), scores, labels), ground_truths, num_images)


def random_rotated_boxes(random, number, max_side=50):
    """Boxes at any angle; a few have no width."""
    sides = random.uniform(1, max_side, (number, 2)) * (random.random((number, 2)) > 0.02)
    return np.concatenate([random.uniform(0, 60, (number, 2)), sides, random.uniform(-4, 4, (number, 1))], axis=1)


def rotated_batch(seed, max_side=50):
    """Rotated boxes with detections near ground truths, crowds and equal scores."""
    random = np.random.default_rng(seed)
    num_images, num_classes = int(random.integers(1, 5)), int(random.integers(1, 4))
    gt_image = np.sort(random.integers(0, num_images, 12))
    gts = random_rotated_boxes(random, 12, max_side)
    chosen = random.integers(0, 12, 40)
    boxes = gts[chosen] + random.normal(0, 1, (40, 5)) * [2, 2, 2, 2, 0.1] * random.choice([0, 0.5, 1], (40, 1))
    boxes[:, 2:4] = np.abs(boxes[:, 2:4])
    gt_labels = random.integers(0, num_classes, 12)
    labels = np.where(random.random(40) < 0.8, gt_labels[chosen], random.integers(0, num_classes, 40))
    detections = Detections(gt_image[chosen], RotatedBoxes(boxes), np.round(random.random(40), 1), labels)
    ground_truths = GroundTruths(gt_image, RotatedBoxes(gts), gt_labels, random.random(12) < 0.1)
    return DetectionBatch(detections, ground_truths, num_images), num_classes


def coco_of(batch, num_classes, shapes_of):
    """The ground truths and detections as COCO's dicts; ``shapes_of(instances)`` are the fields of each instance."""
    gts, dets = batch.ground_truths, batch.detections
    sizes = {}
    for instances in (gts, dets):
        for image, shape in zip(instances.image.tolist(), getattr(instances.geometry, "sizes", np.empty(0)).tolist()):
            sizes[image] = dict(zip(("height", "width"), shape))
    columns = zip(gts.image.tolist(), gts.labels.tolist(), gts.crowd.astype(int).tolist(), gts.areas().tolist())
    annotations = [
        {"id": row + 1, "image_id": image, "category_id": label, "iscrowd": crowd, "area": area, **shape}
        for row, ((image, label, crowd, area), shape) in enumerate(zip(columns, shapes_of(gts)))
    ]
    columns = zip(dets.image.tolist(), dets.labels.tolist(), dets.scores.tolist())
    results = [
        {"image_id": image, "category_id": label, "score": score, **shape}
        for (image, label, score), shape in zip(columns, shapes_of(dets))
    ]
    target = {
        "images": [{"id": image, **sizes.get(image, {})} for image in range(batch.num_images)],
        "categories": [{"id": index, "name": str(index)} for index in range(num_classes)],
        "annotations": annotations,
    }
    return target, results


def segmentations(instances):
    """The fields of masks in COCO's files."""
    rles = rles_of(instances.geometry)
    boxes = np.reshape(mask.toBbox(rles), (-1, 4)).tolist()
    fields = [{"segmentation": {**rle, "counts": rle["counts"].decode()}} for rle in rles]
    if isinstance(instances, GroundTruths):
        return [{**field, "bbox": box} for field, box in zip(fields, boxes)]
    return fields


def keypoint_fields(instances):
    """The fields of key points in COCO's files."""
    shapes = instances.geometry
    columns = (shapes.array.reshape(len(shapes), 3 * len(shapes.sigmas)), shapes.labeled.sum(axis=1), shapes.boxes)
    names = ("keypoints", "num_keypoints", "bbox")
    fields = [dict(zip(names, values)) for values in zip(*(column.tolist() for column in columns))]
    return fields if isinstance(instances, GroundTruths) else [{"keypoints": field["keypoints"]} for field in fields]


def rotated_fields(instances):
    """The fields of rotated boxes in hotcoco's files."""
    shapes = instances.geometry
    left, top, right, bottom = shapes.bounding_boxes()
    boxes = np.stack([left, top, right - left, bottom - top], axis=1).tolist()
    fields = [{"obb": obb} for obb in shapes.array.tolist()]
    if isinstance(instances, GroundTruths):
        return [{**field, "bbox": box} for field, box in zip(fields, boxes)]
    return fields  # with a box, the area would be that of the box


def evaluated(target, results, iou_type, *, api=COCO, evaluator=COCOeval, **params):
    """The evaluation of pycocotools, or of another package with its interface."""
    with contextlib.redirect_stdout(io.StringIO()):
        gt = api()
        gt.dataset = target
        gt.createIndex()
        if results:
            dt = gt.loadRes(results)
        else:
            dt = api()
            dt.dataset = {**target, "annotations": []}
            dt.createIndex()
        evaluation = evaluator(gt, dt, iou_type)
        for name, value in params.items():
            setattr(evaluation.params, name, value)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def true_positives(evaluation, num_classes, score_thr):
    """(classes,) TP of pycocotools at the first IoU threshold."""
    result = np.zeros(num_classes, dtype=int)
    for image in evaluation.evalImgs:
        if image is not None and image["aRng"] == evaluation.params.areaRng[0]:
            is_tp = (image["dtMatches"][0] > 0) & ~image["dtIgnore"][0] & (np.array(image["dtScores"]) >= score_thr)
            result[image["category_id"]] += int(is_tp.sum())
    return result
