"""Cases of DetectionPRF with masks, rotated boxes and key points, with pycocotools and the evaluator as references."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from mm_metrics_plugin import DetectionEvaluator, DetectionPRF
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.keypoints import COCO_SIGMAS, KeyPoints
from mm_metrics_plugin.functional.detection.geometry.masks import Masks
from mm_metrics_plugin.functional.detection.keypoint_scores import oks_nms
from mm_metrics_plugin.testing import MetricCase
from tests.helpers.cases_detection import CLASSES, FIELDS
from tests.helpers.geometry_problems import (
    coco_of,
    evaluated,
    keypoint_fields,
    near_bitmap,
    random_bitmap,
    random_rotated_boxes,
    rles_of,
    segmentations,
    true_positives,
)
from tests.helpers.invalid_input import replaced, without

SCORE_THR = 0.3


def _scored(generator, shapes, gt_labels, chosen):
    """Detections with equal scores, most of them with the label of the ground truth that they are near."""
    labels = np.where(generator.random(len(chosen)) < 0.7, gt_labels[chosen], generator.integers(0, 3, len(chosen)))
    scores = np.round(generator.random(len(chosen)), 1).astype(np.float32)
    return dict(shapes, scores=torch.tensor(scores), labels=torch.tensor(labels))


def _targets(generator, field, shapes, labels):
    """Ground truths, some of them crowds."""
    crowd = generator.random(len(labels)) < 0.15
    parts = {"gt_instances": ~crowd, "ignored_instances": crowd}
    return {part: {field: shapes[rows], "labels": torch.tensor(labels[rows])} for part, rows in parts.items()}


def mask_samples(generator, count):
    """Images of different sizes; detections are RLE dicts or arrays, ground truths are arrays."""
    samples = []
    for index in range(count):
        height, width = generator.integers(8, 40, 2).tolist()
        gts = np.array([random_bitmap(generator, height, width) for _ in range(generator.integers(1, 5))])
        gt_labels, chosen = generator.integers(0, 3, len(gts)), generator.integers(0, len(gts), 6 if index % 7 else 0)
        masks = np.reshape([near_bitmap(generator, gts[row]) for row in chosen], (-1, height, width)) != 0
        shapes = {"masks": rles_of(Masks.from_bitmaps(masks)) if index % 2 else masks.astype(np.uint8)}
        samples.append(
            dict(
                img_id=index,
                ori_shape=(height, width),
                pred_instances=_scored(generator, shapes, gt_labels, chosen),
                **_targets(generator, "masks", gts, gt_labels),
            )
        )
    return samples


def rotated_samples(generator, count):
    """Rotated boxes; those of some images are quadrilaterals."""
    samples = []
    for index in range(count):
        gts = random_rotated_boxes(generator, int(generator.integers(1, 6))).astype(np.float32)
        gt_labels, chosen = generator.integers(0, 3, len(gts)), generator.integers(0, len(gts), 8 if index % 7 else 0)
        boxes = gts[chosen] + generator.integers(-1, 2, (len(chosen), 5)) * [1, 1, 0, 0, 0.1]
        shapes = {"bboxes": torch.tensor(boxes.astype(np.float32))}
        samples.append(
            dict(
                img_id=f"{index:05d}",
                pred_instances=_scored(generator, shapes, gt_labels, chosen),
                **_targets(generator, "bboxes", torch.tensor(gts), gt_labels),
            )
        )
    return samples


def person_samples(generator, count):
    """One sample per person, as top-down models of mmpose have them; the persons of an image are far apart in order."""
    samples = []
    for index in range(count):
        side = float(np.exp(generator.uniform(3.5, 5)))
        corner = generator.random(2) * 60
        points = np.round(corner + side * generator.random((17, 2)), 1)
        visibility = generator.integers(0, 3, (17, 1)) * (index % 9 > 0)
        keypoints = (points + generator.normal(0, side * generator.choice([0, 0.02, 0.1]), (17, 2))).astype(np.float32)
        annotation = dict(
            id=index + 1,
            image_id=index % 5 + index // 40 * 5,
            category_id=1,
            keypoints=np.concatenate([points, visibility], axis=1).ravel().tolist(),
            bbox=[*corner.tolist(), side, side],
            area=side * side * 0.6,
            iscrowd=int(index % 11 == 5),
        )
        samples.append(
            dict(
                id=index + 1,
                img_id=annotation["image_id"],
                category_id=np.array(1),
                raw_ann_info=annotation,
                gt_instances=dict(bbox_scales=np.full((1, 2), side * 1.25)),
                pred_instances=dict(
                    keypoints=torch.tensor(keypoints[None]),
                    keypoint_scores=torch.tensor(generator.integers(2, 17, (1, 17)).astype(np.float32) / 16),
                    bbox_scores=torch.tensor([generator.integers(1, 5) / 4], dtype=torch.float32),
                ),
            )
        )
    return samples


def mask_batch(samples):
    def column(part, kind, shapes):
        masks = Masks.empty().concatenate([shapes(sample[part]["masks"]) for sample in samples])
        image = np.repeat(np.arange(len(samples)), [len(sample[part]["labels"]) for sample in samples])
        fields = ("scores", "labels") if kind is Detections else ("labels",)
        return kind(image, masks, *(np.concatenate([sample[part][field] for sample in samples]) for field in fields))

    def bitmaps(value):
        if isinstance(value, list):
            return Masks.from_rle(value)
        return Masks.from_bitmaps(value) if len(value) else Masks.empty()

    gts = [column(part, GroundTruths, bitmaps) for part in ("gt_instances", "ignored_instances")]
    gts = GroundTruths.concatenate([gts[0], gts[1].as_crowd()])
    return DetectionBatch(column("pred_instances", Detections, bitmaps), gts, len(samples))


def _values(target, results, iou_type, num_classes):
    stats = evaluated(target, [dict(result) for result in results], iou_type).stats  # it changes the results
    at_half = evaluated(target, results, iou_type, iouThrs=np.array([0.5]))
    return {
        "tp": true_positives(at_half, num_classes, SCORE_THR).sum(),
        **dict(zip(("mAP", "mAP_50", "mAP_75"), stats)),
    }


def mask_reference(samples):
    return _values(*coco_of(mask_batch(samples), 3, segmentations), "segm", 3)


def rotated_reference(samples):
    evaluator = DetectionEvaluator(CLASSES, iou_type="rbox", olrp=False, froc=False)
    parts = [[sample[part] for sample in samples] for part in ("pred_instances", "gt_instances", "ignored_instances")]
    predictions = [dict(one, boxes=one["bboxes"]) for one in parts[0]]
    targets = [
        dict(
            boxes=torch.cat([regular["bboxes"], ignored["bboxes"]]),
            labels=torch.cat([regular["labels"], ignored["labels"]]),
            crowd=[False] * len(regular["labels"]) + [True] * len(ignored["labels"]),
        )
        for regular, ignored in zip(*parts[1:])
    ]
    evaluator.update(predictions, targets)
    return evaluator.compute().log_values()


def person_batch(samples):
    """Images in the order of their ids, persons in the order of theirs, scored by loops and after OKS-NMS."""
    samples = sorted(samples, key=lambda sample: (sample["img_id"], sample["id"]))
    image = np.unique([sample["img_id"] for sample in samples], return_inverse=True)[1]
    scores, areas, annotations = [], [], [sample["raw_ann_info"] for sample in samples]
    for sample in samples:
        joints = sample["pred_instances"]["keypoint_scores"].numpy()[0].astype(np.float64)
        mean = joints[joints > 0.2].mean() if (joints > 0.2).any() else 0
        scores.append(np.float32(float(sample["pred_instances"]["bbox_scores"]) * mean))
        areas.append(sample["gt_instances"]["bbox_scales"].prod())
    points = KeyPoints(np.concatenate([sample["pred_instances"]["keypoints"] for sample in samples]), COCO_SIGMAS)
    dets = Detections(image, points, np.array(scores), np.zeros(len(image)))
    array = np.reshape([one["keypoints"] for one in annotations], (-1, 17, 3))
    shapes = KeyPoints(array, COCO_SIGMAS, [one["bbox"] for one in annotations])
    columns = [np.array([one[field] for one in annotations]) for field in ("iscrowd", "area")]
    gts = GroundTruths(image, shapes, np.zeros(len(image)), columns[0] == 1, columns[1])
    kept = oks_nms(points, dets.scores, image, areas=np.array(areas))
    return DetectionBatch(dets.take(kept), gts, int(image.max()) + 1)


def person_reference(samples):
    return _values(*coco_of(person_batch(samples), 1, keypoint_fields), "keypoints", 1)


def _prediction(**fields):
    return replaced("pred_instances", {"scores": torch.tensor([0.5]), "labels": torch.tensor([0]), **fields})


BROKEN_RLE = [{"size": [3, 3], "counts": [4, 4]}]
BAD_MASKS = (
    (
        "masks of another size",
        replaced("gt_instances", dict(masks=np.ones((2, 3, 3), bool), labels=torch.tensor([0, 1]))),
        ("'gt_instances.masks'", "must have the size of the image", "found 3 x 3 of mask 0", "after Resize"),
    ),
    (
        "a broken RLE",
        _prediction(masks=BROKEN_RLE),
        ("pred_instances.masks", "mask 0 must have run lengths", "found 8"),
    ),
    (
        "scores as masks",
        _prediction(masks=torch.zeros(1, 3, 3)),
        ("boolean or integer", "found torch.float32 of shape"),
    ),
    ("no masks", without("gt_instances.masks"), ("'gt_instances.masks'",)),
)
BAD_BOXES = (
    (
        "a negative side",
        _prediction(bboxes=torch.tensor([[5.0, 5, -2, 3, 0]])),
        ("boxes", "have sides of at least 0", "found -2.0 at index 0"),
    ),
    ("a NaN angle", _prediction(bboxes=torch.tensor([[5.0, 5, 2, 3, np.nan]])), ("boxes", "finite", "nan at index 0")),
    ("upright boxes", _prediction(bboxes=torch.zeros(1, 4)), ("pred_instances.bboxes", "(1, 5)", "found (1, 4)")),
)
BAD_POINTS = (
    (
        "a key point too few",
        replaced("pred_instances.keypoints", torch.zeros(1, 16, 2)),
        ("pred_instances.keypoints", "for each of 17 sigmas", "found (1, 16, 2)"),
    ),
    (
        "a score too few",
        replaced("pred_instances.keypoint_scores", torch.zeros(1, 16)),
        ("pred_instances.keypoint_scores", "(1, 17)", "found (1, 16)"),
    ),
    (
        "a NaN score",
        replaced("pred_instances.keypoint_scores", torch.full((1, 17), np.nan)),
        ("pred_instances.keypoint_scores", "finite"),
    ),
    (
        "an annotation with a key point too few",
        replaced("raw_ann_info.keypoints", [1.0] * 48),
        ("raw_ann_info.keypoints", "annotation 0", "17 key points"),
    ),
    ("no annotation", without("raw_ann_info"), ("raw_ann_info",)),
)

FEW = dict(counts=(40, 33), many=0)
GEOMETRY_CASES = [
    MetricCase(
        f"detection-{iou_type}",
        partial(DetectionPRF, iou_type=iou_type, ap=True),
        **{**FIELDS, "samples": samples, "reference": reference, "invalid_inputs": invalid, "classes": classes, **FEW},
    )
    for iou_type, samples, reference, invalid, classes in (
        ("segm", mask_samples, mask_reference, BAD_MASKS, CLASSES),
        ("rbox", rotated_samples, rotated_reference, BAD_BOXES, CLASSES),
        ("keypoints", person_samples, person_reference, BAD_POINTS, ("person",)),
    )
]
