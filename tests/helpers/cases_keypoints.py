"""Cases of PCK, with a loop over key points as the reference."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from mm_metrics_plugin import PCK
from mm_metrics_plugin.testing import MetricCase
from tests.helpers.invalid_input import replaced, with_value, without

JOINTS = ("head", "neck", "hand", "foot")


def skeletons(generator, count, *, sized=True):
    """Objects with key points of whole pixels; some are not labeled, and if not ``sized`` some objects have no size."""
    samples = []
    for index in range(count):
        objects = 1 if index % 4 else int(generator.integers(0, 4))
        target = generator.integers(0, 60, (objects, len(JOINTS), 2))
        visible = generator.integers(0, 3, (objects, len(JOINTS))) * [1, 1, 1, generator.random() < 0.5]
        corner, side = generator.integers(0, 20, (objects, 2)), generator.integers(1, 60, (objects, 2))
        if sized:
            visible[:, :2] = 1
            target[:, 0] = target[:, 1] + 20
        else:
            side[generator.random(objects) < 0.2] = 0
        predicted = target + generator.integers(-6, 7, target.shape)
        boxes = np.concatenate([corner, corner + side], axis=1)
        truth = dict(keypoints=target, bboxes=boxes)
        truth = {name: torch.tensor(array, dtype=torch.float32) for name, array in truth.items()}
        truth["keypoints_visible"] = torch.tensor(visible)
        points = torch.tensor(predicted, dtype=torch.float32)
        samples.append(dict(img_id=index, pred_instances=dict(keypoints=points), gt_instances=truth))
    return samples


def counted(samples, thr, size):
    """PCK by joint index, and the number of objects without a size."""
    correct, labeled, without_size = [0] * len(JOINTS), [0] * len(JOINTS), 0
    for sample in samples:
        truth = {name: value.tolist() for name, value in sample["gt_instances"].items()}
        columns = (truth["keypoints"], truth["keypoints_visible"], truth["bboxes"])
        for points, target, visible, box in zip(sample["pred_instances"]["keypoints"].tolist(), *columns):
            length = size(target, visible, box)
            without_size += not length
            for joint in range(len(JOINTS)):
                if visible[joint] and length:
                    labeled[joint] += 1
                    correct[joint] += math.dist(points[joint], target[joint]) / length < thr
    shares = [c / n if n else math.nan for c, n in zip(correct, labeled)]
    defined = [share for share in shares if not math.isnan(share)]
    values = {"PCK": sum(defined) / len(defined), "joints_averaged": float(len(defined))}
    return values, shares, without_size


def by_box(target, visible, box):
    return max(box[2] - box[0], box[3] - box[1])


def by_neck(target, visible, box):
    return math.dist(target[0], target[1]) if visible[0] and visible[1] else 0


def pck_by_box(samples):
    values, shares, _ = counted(samples, 0.125, by_box)
    return {**values, **{f"PCK/{name}": share for name, share in zip(JOINTS, shares)}}


def pck_by_joints(samples):
    return counted(samples, 0.25, by_neck)[0]


INVALID = [
    ("no predictions", without("pred_instances.keypoints"), ["pred_instances.keypoints"]),
    ("no visibility", without("gt_instances.keypoints_visible"), ["gt_instances.keypoints_visible"]),
    ("no boxes", without("gt_instances.bboxes"), ["gt_instances.bboxes"]),
    ("NaN", with_value("pred_instances.keypoints", np.nan), ["'pred_instances.keypoints'", "finite"]),
    (
        "other objects",
        replaced("pred_instances.keypoints", torch.zeros(2, 4, 2)),
        ["'pred_instances.keypoints'", "(1, 4, 2)", "(2, 4, 2)"],
    ),
    ("other joints", replaced("gt_instances.keypoints", torch.zeros(1, 5, 2)), ["'gt_instances.keypoints'", "4", "5"]),
    ("no pairs", replaced("gt_instances.keypoints", torch.zeros(4, 2)), ["'gt_instances.keypoints'", "(4, 2)"]),
    ("other boxes", replaced("gt_instances.bboxes", torch.zeros(3, 4)), ["'gt_instances.bboxes'", "(1, 4)", "(3, 4)"]),
]
KEYPOINT_CASES = [
    MetricCase(
        "pck",
        partial(PCK, thr=0.125, joints=JOINTS, classwise=True),
        skeletons,
        pck_by_box,
        invalid_inputs=INVALID,
        rules={"joints_averaged": None},
    ),
    MetricCase(
        "pck-joints", partial(PCK, thr=0.25, norm=(0, 1)), skeletons, pck_by_joints, rules={"joints_averaged": None}
    ),
]
