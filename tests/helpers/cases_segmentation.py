"""Cases of MeanIoU and DiceScore."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from scipy.special import softmax
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, jaccard_score

from mm_metrics_plugin import DiceScore, MeanIoU
from mm_metrics_plugin.testing import MetricCase
from tests.helpers.invalid_input import replaced, with_value, without

NAMES = ("road", "car", "tree", "sky")
NUM_CLASSES = len(NAMES)


def label_maps(generator, count, *, num_classes=NUM_CLASSES):
    """Images of different sizes with ignored pixels and absent classes, as mmseg's samples."""
    samples = []
    for index in range(count):
        height, width = 5 + index % 3, 6 + index % 5
        target = generator.integers(0, num_classes, (1, height, width))
        noise = generator.integers(0, num_classes, target.shape)
        predicted = np.where(generator.random(target.shape) < 0.7, target, noise)
        target[generator.random(target.shape) < 0.1] = 255
        if index % 2:  # without class 2
            target[target == 2] = 1
            predicted[predicted == 2] = 0
        fields = dict(pred_sem_seg=dict(data=torch.tensor(predicted)), gt_sem_seg=dict(data=torch.tensor(target)))
        samples.append(dict(**fields, img_path=f"images/{index}.png"))
    return samples


def score_maps(generator, count):
    """Label maps with logits, and the scores and the mask of one region."""
    samples = label_maps(generator, count)
    for index, sample in enumerate(samples):
        shape = sample["gt_sem_seg"]["data"].shape[1:]
        sample["seg_logits"] = dict(data=torch.tensor(generator.normal(size=(NUM_CLASSES, *shape))).float())
        region = generator.random(shape) < (0.4 if index % 4 else 0.0)  # some regions are empty
        sample["mask"] = torch.tensor(region)
        sample["score"] = torch.tensor(np.where(region.any(), generator.random(shape), 0.0), dtype=torch.float32)
    return samples


def pixels(samples):
    """True and predicted labels of each image, without ignored pixels."""
    for sample in samples:
        target, predicted = (sample[field]["data"].numpy().ravel() for field in ("gt_sem_seg", "pred_sem_seg"))
        yield target[target != 255], predicted[target != 255]


def all_pixels(samples):
    return (np.concatenate(rows) for rows in zip(*pixels(samples)))


def iou(samples):
    target, predicted = all_pixels(samples)
    values = jaccard_score(target, predicted, average=None, labels=range(NUM_CLASSES))
    return {
        "mIoU": values.mean(),
        "aAcc": accuracy_score(target, predicted),
        "mAcc": balanced_accuracy_score(target, predicted),
        **{f"IoU/{name}": value for name, value in zip(NAMES, values)},
    }


def iou_of_present(samples):
    """Only three of seven classes occur."""
    target, predicted = all_pixels(samples)
    return {"mIoU": jaccard_score(target, predicted, average="macro", labels=range(3)), "classes_averaged": 3.0}


def dice_per_sample(samples, zero_division=1.0):
    options = dict(average=None, labels=range(NUM_CLASSES), zero_division=zero_division)
    values = np.nanmean([f1_score(target, predicted, **options) for target, predicted in pixels(samples)], axis=0)
    return {"mDice": values.mean(), **{f"Dice/{name}": value for name, value in zip(NAMES, values)}}


def dice_of_all(samples):
    target, predicted = all_pixels(samples)
    return {"mDice": f1_score(target, predicted, average="macro", labels=range(NUM_CLASSES))}


def soft_dice_of_labels(samples):
    values = []
    for sample in samples:
        target = sample["gt_sem_seg"]["data"].numpy().ravel()
        logits = sample["seg_logits"]["data"].double().numpy().reshape(NUM_CLASSES, -1)[:, target != 255]
        scores, target = softmax(logits, axis=0), np.eye(NUM_CLASSES)[target[target != 255]].T
        values.append(2 * (scores * target).sum(axis=1) / ((scores**2).sum(axis=1) + (target**2).sum(axis=1) + 0.5))
    return {"mDice": np.mean(values)}


def soft_dice_of_regions(samples, *, threshold=None):
    values = []
    for sample in samples:
        x, y = sample["score"].double().numpy(), sample["mask"].numpy().astype(float)
        x = x if threshold is None else (x > threshold).astype(float)
        size = (x**2).sum() + (y**2).sum()
        values.append(2 * (x * y).sum() / size if size else 1.0)
    return {"mDice": np.mean(values)}


def mindspore_dice(samples, batch_size=7):
    total = 0.0
    for start in range(0, len(samples), batch_size):
        batch = samples[start : start + batch_size]
        x = np.concatenate([sample["score"].double().numpy().ravel() for sample in batch])
        y = np.concatenate([sample["mask"].numpy().ravel() for sample in batch]).astype(float)
        total += 2 * x @ y / (x @ x + y @ y + 1e-5)
    return {"mDice": total / len(samples)}


MAP_INVALID = [
    ("no prediction", without("pred_sem_seg"), ["pred_sem_seg.data", "5.png"]),
    ("no target", without("gt_sem_seg.data"), ["gt_sem_seg.data"]),
    ("a target that is no class", with_value("gt_sem_seg.data", 9), ["'gt_sem_seg.data'", "0 to 3, or 255", "found 9"]),
    ("a negative target", with_value("gt_sem_seg.data", -1), ["'gt_sem_seg.data'", "found -1"]),
    ("a prediction that is no class", with_value("pred_sem_seg.data", 4), ["'pred_sem_seg.data'", "0 to 3", "found 4"]),
    (
        "NaN",
        with_value("pred_sem_seg.data", np.nan, torch.float32),
        ["'pred_sem_seg.data'", "whole numbers", "float32"],
    ),
    (
        "another shape",
        replaced("pred_sem_seg.data", torch.zeros(1, 2, 2, dtype=torch.int64)),
        ["'pred_sem_seg.data'", "(1, 2, 2)"],
    ),
]
SCORE_INVALID = [
    ("NaN", with_value("seg_logits.data", np.nan), ["'seg_logits.data'", "0 to 1", "nan"]),
    ("a target that is no class", with_value("gt_sem_seg.data", 4), ["'gt_sem_seg.data'", "found 4"]),
    ("too few channels", replaced("seg_logits.data", torch.zeros(2, 7, 6)), ["'seg_logits.data'", "4 channels"]),
    ("another shape", replaced("seg_logits.data", torch.zeros(4, 2, 2)), ["'gt_sem_seg.data'", "(4, 2, 2)"]),
]
REGION_INVALID = [
    ("logits", with_value("score", 1.5), ["'score'", "0 to 1", "activation", "found 1.5"]),
    ("a mask of 7", with_value("mask", 7, torch.uint8), ["'mask'", "0 to 1", "or be 255 to be ignored", "found 7"]),
    ("another shape", replaced("mask", torch.zeros(2, 2)), ["'score'", "'mask'", "(2, 2)"]),
]

label_case = partial(MetricCase, rules={"classes_*": None}, invalid_inputs=MAP_INVALID)
region_dice = partial(DiceScore, mode="soft", prediction_field="score", target_field="mask")

SEGMENTATION_CASES = [
    label_case("iou", partial(MeanIoU, classwise=True), label_maps, iou, classes=NAMES),
    MetricCase(
        "iou-absent",
        partial(MeanIoU, num_classes=7),
        partial(label_maps, num_classes=3),
        iou_of_present,
        rules={"classes_*": None},
    ),
    label_case("dice", partial(DiceScore, classwise=True), label_maps, dice_per_sample, classes=NAMES),
    label_case(
        "dice-skip",
        partial(DiceScore, classwise=True, empty="skip"),
        label_maps,
        partial(dice_per_sample, zero_division=np.nan),
        classes=NAMES,
    ),
    label_case("dice-dataset", partial(DiceScore, over="dataset"), label_maps, dice_of_all, classes=NAMES),
    MetricCase(
        "dice-soft",
        partial(DiceScore, mode="soft", activation="softmax", smooth=0.5),
        score_maps,
        soft_dice_of_labels,
        classes=NAMES,
        invalid_inputs=SCORE_INVALID,
    ),
    MetricCase("dice-region", region_dice, score_maps, soft_dice_of_regions, invalid_inputs=REGION_INVALID),
    MetricCase(
        "dice-threshold",
        partial(region_dice, threshold=0.625),  # equal in every precision
        score_maps,
        partial(soft_dice_of_regions, threshold=0.625),
    ),
    MetricCase(
        "dice-mindspore",
        partial(region_dice, convention="mindspore"),
        score_maps,
        mindspore_dice,
        tolerance=1e-12,
        order_matters=True,
    ),
]
