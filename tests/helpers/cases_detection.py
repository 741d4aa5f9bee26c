"""Cases of the detection metrics. The references are pycocotools and mmdet's own tool."""

from __future__ import annotations

import contextlib
import io
from functools import partial

import numpy as np
import torch

from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.testing import InvalidInput, MetricCase

CLASSES = ("car", "person", "dog")
SCORE_THRESHOLD = 0.3


def detections(generator, count):
    """Images on a grid of whole pixels, so that scores and overlaps tie; some without objects or detections."""
    samples = []
    for index in range(count):
        objects = int(generator.integers(0, 7)) if index % 5 else 0
        corner = generator.integers(0, 50, (objects, 2))
        boxes = np.concatenate([corner, corner + generator.integers(4, 30, (objects, 2))], axis=1).astype(np.float32)
        labels = generator.integers(0, len(CLASSES), objects)
        crowd = generator.random(objects) < 0.15
        found = boxes[generator.integers(0, objects, 12)] if objects else np.tile(np.float32([5, 5, 20, 20]), (3, 1))
        found = (found + generator.integers(-2, 3, found.shape)).astype(np.float32)
        found_labels = generator.integers(0, len(CLASSES), len(found))
        for row in np.flatnonzero(generator.random(len(found)) < 0.7):
            if objects:
                nearest = np.abs(boxes - found[row]).sum(axis=1).argmin()
                found_labels[row] = labels[nearest]
        if index % 7 == 3:
            found, found_labels = found[:0], found_labels[:0]
        scores = np.round(generator.random(len(found)), 1).astype(np.float32)
        samples.append(
            dict(
                img_id=index,
                pred_instances=dict(
                    bboxes=torch.tensor(found), scores=torch.tensor(scores), labels=torch.tensor(found_labels)
                ),
                gt_instances=dict(bboxes=torch.tensor(boxes[~crowd]), labels=torch.tensor(labels[~crowd])),
                ignored_instances=dict(bboxes=torch.tensor(boxes[crowd]), labels=torch.tensor(labels[crowd])),
            )
        )
    return samples


def distinct_detections(generator, count):
    """The same with scores that never tie: a drawn image's copies would, and then their order matters."""
    samples = detections(generator, count)
    for sample in samples:
        found = sample["pred_instances"]
        found["scores"] = torch.tensor(generator.random(len(found["scores"])).astype(np.float32))
    return samples


def batch_of(samples):
    def column(part, field):
        return [sample[part][field].numpy() for sample in samples]

    regular, ignored = column("gt_instances", "labels"), column("ignored_instances", "labels")
    boxes = zip(column("gt_instances", "bboxes"), column("ignored_instances", "bboxes"))
    return DetectionBatch.from_images(
        boxes=column("pred_instances", "bboxes"),
        scores=column("pred_instances", "scores"),
        labels=column("pred_instances", "labels"),
        gt_boxes=[np.concatenate(pair) for pair in boxes],
        gt_labels=[np.concatenate(pair) for pair in zip(regular, ignored)],
        gt_crowd=[np.repeat([False, True], [len(a), len(b)]) for a, b in zip(regular, ignored)],
    )


def rates(tp, fp, fn):
    """The keys of DetectionPRF from counts per class, written out."""
    with np.errstate(invalid="ignore"):
        precision, recall, f1 = tp / (tp + fp), tp / (tp + fn), 2 * tp / (2 * tp + fp + fn)
    mean_precision, mean_recall = np.nanmean(precision), np.nanmean(recall)
    return {
        "f1": np.nanmean(f1),
        "precision": mean_precision,
        "recall": mean_recall,
        "f1_of_means": 2 * mean_precision * mean_recall / (mean_precision + mean_recall),
        "precision_micro": tp.sum() / (tp.sum() + fp.sum()),
        "recall_micro": tp.sum() / (tp.sum() + fn.sum()),
        "tp": tp.sum(),
        "fp": fp.sum(),
        "fn": fn.sum(),
    }


def coco_counts(samples, min_score=SCORE_THRESHOLD):
    """TP, FP and FN of each class at IoU 0.5, from pycocotools' own matches."""
    from tests.helpers.detection_problems import coco_eval

    evaluation = coco_eval(batch_of(samples), len(CLASSES), min_score=min_score)
    evaluation.params.iouThrs = np.array([0.5])
    evaluation.params.maxDets = [1000]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
    tp, fp, objects = np.zeros((3, len(CLASSES)))
    for image in evaluation.evalImgs:
        if image is not None and image["aRng"] == evaluation.params.areaRng[0]:
            label = image["category_id"]
            counts = ~image["dtIgnore"][0].astype(bool)
            matched = image["dtMatches"][0] > 0
            tp[label] += (matched & counts).sum()
            fp[label] += (~matched & counts).sum()
            objects[label] += (image["gtIgnore"] == 0).sum()
    return tp, fp, objects - tp


def coco_reference(samples):
    return rates(*coco_counts(samples))


def coco_best_threshold(samples):
    """The greatest pooled F1 over every threshold there can be: scores have one digit."""
    best = 0.0
    for tenth in range(1, 11):
        tp, fp, fn = (count.sum() for count in coco_counts(samples, tenth / 10))
        best = max(best, 2 * tp / (2 * tp + fp + fn))
    return {**coco_reference(samples), "operating_f_score": best}


def coco_classwise(samples):
    from tests.helpers.detection_problems import coco_eval

    tp, fp, fn = coco_counts(samples)
    evaluation = coco_eval(batch_of(samples), len(CLASSES))
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {
        **rates(tp, fp, fn),
        **{f"tp/{name}": value for name, value in zip(CLASSES, tp)},
        **{f"recall/{name}": value for name, value in zip(CLASSES, tp / (tp + fn))},
        **dict(zip(("mAP", "mAP_50", "mAP_75"), evaluation.stats)),
    }


def coco_intervals(samples, resamples=20, level=0.9):
    """The formulas written out, with counts, matches and resampled values of pycocotools."""
    from tests.helpers.interval_reference import Ratio, count_intervals, shrunken, wilson

    result = coco_classwise(samples)
    counts = np.stack([coco_counts([sample]) for sample in samples], axis=1)  # TP, FP, FN; images; classes
    found = count_intervals(*counts, level)
    tp, fp, fn = counts
    trials = {"precision": tp + fp, "recall": tp + fn}
    for key in ("f1", "precision", "recall", "f1_of_means", "f1_micro", "precision_micro", "recall_micro"):
        pooled = key in ("precision_micro", "recall_micro")
        enough = pooled or trials.get(key, tp + fp + fn).any(axis=1).sum() >= 30
        result[f"{key}_low"], result[f"{key}_high"] = found[key] if enough else (np.nan, np.nan)
    for label, name in enumerate(CLASSES):
        ends = Ratio(tp[:, label], (tp + fn)[:, label]).interval(level)
        result[f"recall_low/{name}"], result[f"recall_high/{name}"] = ends

    random, draws = np.random.default_rng(5), []
    values, hits, objects = _coco_areas(samples)
    for _ in range(resamples):
        # In the order of the images, which decides between equal scores.
        drawn = [samples[at] for at in np.sort(random.integers(0, len(samples), len(samples)))]
        draws.append(_coco_areas(drawn)[0])
    images = sum(bool(row.any()) for row in objects)
    number = objects.sum(axis=0)
    several = len(samples) / (len(samples) - 1)
    biases = np.zeros(values.shape)
    for at, row in enumerate(values):
        for label, near in enumerate(shrunken(row, number)):
            for earlier, place in enumerate(np.flatnonzero(hits[at][label])):
                share = (earlier + (1 + near) / 2) / (place + 1)
                biases[at, label] += (1 - share) / (place + 1) / number[label]
    for key, chosen in (("mAP", slice(None)), ("mAP_50", slice(0, 1)), ("mAP_75", slice(5, 6))):
        value, bias = values[chosen].mean(axis=0), biases[chosen].mean(axis=0).mean()
        drawn = np.stack([draw[chosen].mean(axis=0) for draw in draws])
        drawn = np.where(np.isnan(drawn), value, drawn)
        near = np.array(shrunken(value, number))
        missing = np.maximum(near * (1 - near) / number - several * drawn.var(axis=0), 0)
        total = several * drawn.mean(axis=1).var() + missing.sum() / len(value) ** 2
        share = near.mean() - bias
        ends = wilson(value.mean(), share * (1 - share) / total, images - 1, level, center=value.mean() - bias)
        result[f"{key}_low"], result[f"{key}_high"] = ends if images >= 30 else (np.nan, np.nan)
    return result


def _coco_areas(samples):
    """AP (thresholds, classes); by threshold and class which detections are hits, best first; objects per image."""
    from tests.helpers.detection_problems import coco_eval

    evaluation = coco_eval(batch_of(samples), len(CLASSES))
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, -1]
    values = np.where(precision[0, :1] < 0, np.nan, precision.mean(axis=1))
    objects = np.zeros((len(samples), len(CLASSES)))
    rows = [[] for _ in CLASSES]
    for image in evaluation.evalImgs:
        if image is not None and image["aRng"] == evaluation.params.areaRng[0]:
            objects[evaluation.params.imgIds.index(image["image_id"]), image["category_id"]] += (
                image["gtIgnore"] == 0
            ).sum()
            rows[image["category_id"]].append(image)
    hits = [[] for _ in evaluation.params.iouThrs]
    for images in rows:
        scores = np.concatenate([image["dtScores"] for image in images])
        order = np.argsort(-scores, kind="mergesort")
        matched, ignored = (
            np.concatenate([image[key] for image in images], axis=1) for key in ("dtMatches", "dtIgnore")
        )
        for at, part in enumerate(hits):
            part.append((matched[at] > 0)[order][~ignored[at].astype(bool)[order]])
    return values, hits, objects


def stock_reference(samples):
    from tests.helpers.detection_problems import StockDataset, stock_results, stock_tool

    batch = batch_of(samples)
    data = StockDataset(batch, len(CLASSES))
    matrix = stock_tool().calculate_confusion_matrix(data, stock_results(batch), SCORE_THRESHOLD, None, 0.5)
    tp = matrix.diagonal()[:-1]
    return rates(tp, matrix.sum(axis=0)[:-1] - tp, matrix.sum(axis=1)[:-1] - tp)


INVALID = (
    InvalidInput("nan-box", lambda s: _box(s, [0.0, float("nan"), 5.0, 5.0]), ("boxes", "finite", "nan")),
    InvalidInput("inf-score", lambda s: _box(s, [0.0, 0.0, 5.0, 5.0], score=float("inf")), ("scores", "finite", "inf")),
    InvalidInput("label", lambda s: _box(s, [0.0, 0.0, 5.0, 5.0], label=3), ("labels", "between 0 and 2", "3")),
    InvalidInput(
        "length",
        lambda s: s["pred_instances"].update(scores=torch.zeros(99)),
        ("pred_instances.scores", "found (99,)"),
    ),
    InvalidInput("no-truth", lambda s: s.pop("gt_instances"), ("gt_instances",)),
    InvalidInput(
        "shape", lambda s: s["gt_instances"].update(bboxes=torch.zeros(2, 5)), ("gt_instances.bboxes", "found (2, 5)")
    ),
)


def _box(sample, box, score=0.5, label=0):
    sample["pred_instances"] = dict(
        bboxes=torch.tensor([box]), scores=torch.tensor([score]), labels=torch.tensor([label])
    )


COUNTS = dict.fromkeys(("tp*", "fp*", "fn*", "classes_averaged", "operating_threshold*"))
MAKE = dict(
    samples=detections, classes=CLASSES, invalid_inputs=INVALID, rules=COUNTS, dtypes=("float32", "float64", "numpy")
)

DETECTION_CASES = [
    MetricCase("detection", DetectionPRF, reference=coco_reference, **MAKE),
    MetricCase("detection-ap", partial(DetectionPRF, ap=True, classwise=True), reference=coco_classwise, **MAKE),
    MetricCase(
        "detection-ci",
        partial(DetectionPRF, ap=True, classwise=True, ci=0.9, resamples=20, seed=5),
        reference=coco_intervals,
        counts=(64, 33),  # the reference resamples with pycocotools
        **{**MAKE, "samples": distinct_detections},
    ),
    MetricCase(
        "detection-operating-point",
        partial(DetectionPRF, operating_point="f1", classwise=True),
        reference=coco_best_threshold,
        **MAKE,
    ),
    MetricCase("detection-mmdet", partial(DetectionPRF, matching="mmdet"), reference=stock_reference, **MAKE),
]
