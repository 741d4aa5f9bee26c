"""Cases of the detection metrics. The references are pycocotools and mmdet's own tool."""

from __future__ import annotations

import contextlib
import io
from functools import partial

import numpy as np
import torch

from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.testing import Damage, MetricCase

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
        object_boxes=[np.concatenate(pair) for pair in boxes],
        object_labels=[np.concatenate(pair) for pair in zip(regular, ignored)],
        object_crowd=[np.repeat([False, True], [len(a), len(b)]) for a, b in zip(regular, ignored)],
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
        "micro_precision": tp.sum() / (tp.sum() + fp.sum()),
        "micro_recall": tp.sum() / (tp.sum() + fn.sum()),
        "tp": tp.sum(),
        "fp": fp.sum(),
        "fn": fn.sum(),
    }


def coco_counts(samples, min_score=SCORE_THRESHOLD):
    """TP, FP and FN of each class at IoU 0.5, from pycocotools' own matches."""
    from tests.functional.detection_problems import coco_eval

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
    from tests.functional.detection_problems import coco_eval

    tp, fp, fn = coco_counts(samples)
    evaluation = coco_eval(batch_of(samples), len(CLASSES))
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {
        **rates(tp, fp, fn),
        **{f"tp_{name}": value for name, value in zip(CLASSES, tp)},
        **{f"recall_{name}": value for name, value in zip(CLASSES, tp / (tp + fn))},
        **dict(zip(("mAP", "mAP_50", "mAP_75"), evaluation.stats)),
    }


def coco_intervals(samples, resamples=20):
    """Images drawn again, and pycocotools run on each draw: the same images as NumPy's generator names them."""
    from tests.functional.detection_problems import coco_eval

    random, draws = np.random.default_rng(5), []
    for _ in range(resamples):
        # In the order of the images, which decides between equal scores.
        drawn = [samples[at] for at in np.sort(random.integers(0, len(samples), len(samples)))]
        evaluation = coco_eval(batch_of(drawn), len(CLASSES))
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        draws.append({**rates(*coco_counts(drawn)), "mAP": evaluation.stats[0], "mAP_50": evaluation.stats[1]})
    result = coco_classwise(samples)
    for key in ("f1", "precision", "recall", "f1_of_means", "micro_precision", "micro_recall", "mAP", "mAP_50"):
        low, high = np.quantile([draw[key] for draw in draws], [0.05, 0.95])
        if key.startswith("mAP"):  # draws overstate it once more than the data do
            low, high = max(2 * result[key] - high, 0), min(2 * result[key] - low, 1)
        result.update({f"{key}_low": low, f"{key}_high": high})
    return result


def stock_reference(samples):
    from tests.functional.detection_problems import StockDataset, stock_results, stock_tool

    batch = batch_of(samples)
    data = StockDataset(batch, len(CLASSES))
    matrix = stock_tool().calculate_confusion_matrix(data, stock_results(batch), SCORE_THRESHOLD, None, 0.5)
    tp = matrix.diagonal()[:-1]
    return rates(tp, matrix.sum(axis=0)[:-1] - tp, matrix.sum(axis=1)[:-1] - tp)


DAMAGES = (
    Damage("nan-box", lambda s: _box(s, [0.0, float("nan"), 5.0, 5.0]), ("boxes", "finite", "nan")),
    Damage("inf-score", lambda s: _box(s, [0.0, 0.0, 5.0, 5.0], score=float("inf")), ("scores", "finite", "inf")),
    Damage("label", lambda s: _box(s, [0.0, 0.0, 5.0, 5.0], label=3), ("labels", "between 0 and 2", "3")),
    Damage(
        "length",
        lambda s: s["pred_instances"].update(scores=torch.zeros(99)),
        ("pred_instances.scores", "found (99,)"),
    ),
    Damage("no-truth", lambda s: s.pop("gt_instances"), ("gt_instances",)),
    Damage(
        "shape", lambda s: s["gt_instances"].update(bboxes=torch.zeros(2, 5)), ("gt_instances.bboxes", "found (2, 5)")
    ),
)


def _box(sample, box, score=0.5, label=0):
    sample["pred_instances"] = dict(
        bboxes=torch.tensor([box]), scores=torch.tensor([score]), labels=torch.tensor([label])
    )


COUNTS = dict.fromkeys(("tp*", "fp*", "fn*", "classes_averaged", "operating_threshold*"))
MAKE = dict(samples=detections, classes=CLASSES, damages=DAMAGES, rules=COUNTS, dtypes=("float32", "float64", "numpy"))

DETECTION_CASES = [
    MetricCase("detection", DetectionPRF, reference=coco_reference, **MAKE),
    MetricCase("detection-ap", partial(DetectionPRF, ap=True, classwise=True), reference=coco_classwise, **MAKE),
    MetricCase(
        "detection-ci",
        partial(DetectionPRF, ap=True, classwise=True, ci=0.9, resamples=20, seed=5),
        reference=coco_intervals,
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
