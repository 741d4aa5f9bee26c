"""Cases of DetectionPRF, with pycocotools and mmdet's confusion_matrix.py as references."""

from __future__ import annotations

import contextlib
import io
from functools import partial

import numpy as np
import torch

from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.testing import MetricCase
from tests.helpers.invalid_input import replaced, without

CLASSES = ("car", "person", "dog")
SCORE_THRESHOLD = 0.3


def detections(generator, count):
    """Boxes of whole pixels, so that scores and overlaps tie; some images without ground truths or detections."""
    samples = []
    for index in range(count):
        objects = int(generator.integers(0, 7)) if index % 5 else 0
        corner = generator.integers(0, 50, (objects, 2))
        gt_boxes = np.concatenate([corner, corner + generator.integers(4, 30, (objects, 2))], axis=1).astype(np.float32)
        gt_labels = generator.integers(0, len(CLASSES), objects)
        crowd = generator.random(objects) < 0.15
        boxes = gt_boxes[generator.integers(0, objects, 12)] if objects else np.float32([[5, 5, 20, 20]] * 3)
        boxes = (boxes + generator.integers(-2, 3, boxes.shape)).astype(np.float32)
        labels = generator.integers(0, len(CLASSES), len(boxes))
        for row in np.flatnonzero(generator.random(len(boxes)) < 0.7):
            if objects:
                labels[row] = gt_labels[np.abs(gt_boxes - boxes[row]).sum(axis=1).argmin()]
        if index % 7 == 3:
            boxes, labels = boxes[:0], labels[:0]
        scores = np.round(generator.random(len(boxes)), 1).astype(np.float32)
        fields = dict(
            pred_instances=dict(bboxes=boxes, scores=scores, labels=labels),
            gt_instances=dict(bboxes=gt_boxes[~crowd], labels=gt_labels[~crowd]),
            ignored_instances=dict(bboxes=gt_boxes[crowd], labels=gt_labels[crowd]),
        )
        samples.append(dict(img_id=index, **_map_arrays(fields)))
    return samples


def _map_arrays(fields):
    return {part: {name: torch.tensor(array) for name, array in arrays.items()} for part, arrays in fields.items()}


def distinct_detections(generator, count):
    """The same with scores that never tie, because the order of the copies of a resampled image would matter."""
    samples = detections(generator, count)
    for sample in samples:
        predictions = sample["pred_instances"]
        predictions["scores"] = torch.tensor(generator.random(len(predictions["scores"])).astype(np.float32))
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
    """The values of DetectionPRF, from counts per class."""
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


def run_coco(samples, min_score=None, iou_thrs=None):
    """The evaluation of pycocotools, and its results per image and class over all areas."""
    from tests.helpers.detection_problems import coco_eval

    options = {} if min_score is None else dict(min_score=min_score)
    evaluation = coco_eval(batch_of(samples), len(CLASSES), **options)
    if iou_thrs is not None:
        evaluation.params.iouThrs, evaluation.params.maxDets = np.array(iou_thrs), [1000]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
        if iou_thrs is None:
            evaluation.accumulate()
            evaluation.summarize()
    all_areas = evaluation.params.areaRng[0]
    return evaluation, [image for image in evaluation.evalImgs if image is not None and image["aRng"] == all_areas]


def coco_counts(samples, min_score=SCORE_THRESHOLD):
    """TP, FP and FN of each class at IoU 0.5, from the matches of pycocotools."""
    tp, fp, objects = np.zeros((3, len(CLASSES)))
    for image in run_coco(samples, min_score, [0.5])[1]:
        label, matched = image["category_id"], image["dtMatches"][0] > 0
        counted = ~image["dtIgnore"][0].astype(bool)
        tp[label] += (matched & counted).sum()
        fp[label] += (~matched & counted).sum()
        objects[label] += (image["gtIgnore"] == 0).sum()
    return tp, fp, objects - tp


def coco_reference(samples):
    return rates(*coco_counts(samples))


def coco_best_threshold(samples):
    """The greatest micro F1 over all possible thresholds: scores have one digit."""
    best = 0.0
    for tenth in range(1, 11):
        tp, fp, fn = (count.sum() for count in coco_counts(samples, tenth / 10))
        best = max(best, 2 * tp / (2 * tp + fp + fn))
    return {**coco_reference(samples), "operating_f_score": best}


def coco_classwise(samples):
    tp, fp, fn = coco_counts(samples)
    return {
        **rates(tp, fp, fn),
        **{f"tp/{name}": value for name, value in zip(CLASSES, tp)},
        **{f"recall/{name}": value for name, value in zip(CLASSES, tp / (tp + fn))},
        **dict(zip(("mAP", "mAP_50", "mAP_75"), run_coco(samples)[0].stats)),
    }


def olrp_and_froc(samples):
    """Plain loops over the matches of pycocotools."""
    from tests.helpers.olrp_froc_reference import FPS_PER_IMAGE, counted_detections, froc_of, olrp_of_class

    rows, num_gts = counted_detections(run_coco(samples, iou_thrs=[0.5])[0])
    per_class = np.array([olrp_of_class(rows[label], num_gts[label], 0.5) for label in range(len(CLASSES))])
    pooled = sorted((row for own in rows.values() for row in own), key=lambda row: -row[0])
    return {
        **coco_reference(samples),
        **dict(zip(("oLRP", "oLRP_Loc", "oLRP_FP", "oLRP_FN"), np.nanmean(per_class, axis=0))),
        **{f"oLRP/{name}": value for name, value in zip(CLASSES, per_class[:, 0])},
        **{f"oLRP_threshold/{name}": value for name, value in zip(CLASSES, per_class[:, 4])},
        **dict(
            zip(
                ("FROC", *(f"sensitivity@{fps:g}" for fps in FPS_PER_IMAGE)),
                froc_of(pooled, sum(num_gts.values()), len(samples)),
            )
        ),
        **{f"FROC/{name}": froc_of(rows[c], num_gts[c], len(samples))[0] for c, name in enumerate(CLASSES)},
    }


def coco_intervals(samples, resamples=20, level=0.9):
    """The formulas of the intervals, with counts, matches and resampled values of pycocotools."""
    from tests.helpers.interval_reference import Ratio, count_intervals, shrunken, wilson

    result = coco_classwise(samples)
    counts = np.stack([coco_counts([sample]) for sample in samples], axis=1)  # TP, FP, FN; images; classes
    intervals = count_intervals(*counts, level)
    tp, fp, fn = counts
    trials = {"precision": tp + fp, "recall": tp + fn}
    for key in ("f1", "precision", "recall", "f1_of_means", "f1_micro", "precision_micro", "recall_micro"):
        pooled = key in ("precision_micro", "recall_micro")
        enough = pooled or trials.get(key, tp + fp + fn).any(axis=1).sum() >= 30
        result[f"{key}_low"], result[f"{key}_high"] = intervals[key] if enough else (np.nan, np.nan)
    for label, name in enumerate(CLASSES):
        ends = Ratio(tp[:, label], (tp + fn)[:, label]).interval(level)
        result[f"recall_low/{name}"], result[f"recall_high/{name}"] = ends

    random, draws = np.random.default_rng(5), []
    values, hits, objects = coco_precision(samples)
    for _ in range(resamples):
        # In the order of the images, which breaks ties of scores.
        indices = np.sort(random.integers(0, len(samples), len(samples)))
        draws.append(coco_precision([samples[index] for index in indices])[0])
    images = sum(bool(row.any()) for row in objects)
    number = objects.sum(axis=0)
    weights = (objects / number).sum(axis=1)
    effective = weights.sum() ** 2 / (weights**2).sum()
    alone = weights[objects.sum(axis=1) == 1].sum() / weights.sum()
    # Resamples of few images vary too little.
    of_class, of_mean = (1 / (1 - 1 / np.maximum(few, 2)) for few in (number**2 / (objects**2).sum(axis=0), effective))
    biases = np.zeros(values.shape)
    for threshold, row in enumerate(values):
        for label, near in enumerate(shrunken(row, number)):
            for earlier, rank in enumerate(np.flatnonzero(hits[threshold][label])):
                share = (earlier + (1 + near) / 2) / (rank + 1)
                biases[threshold, label] += (1 - share) / (rank + 1) / number[label]
    for key, chosen in (("mAP", slice(None)), ("mAP_50", slice(0, 1)), ("mAP_75", slice(5, 6))):
        value, bias = values[chosen].mean(axis=0), biases[chosen].mean(axis=0).mean()
        drawn = np.stack([draw[chosen].mean(axis=0) for draw in draws])
        drawn = np.where(np.isnan(drawn), value, drawn)
        near = np.array(shrunken(value, number))
        missing = np.maximum(near * (1 - near) / number - of_class * drawn.var(axis=0), 0)
        total = of_mean * drawn.mean(axis=1).var() + missing.sum() / len(value) ** 2
        share, df = near.mean() - bias, max(1, effective * (1 + alone) - 1)
        ends = wilson(value.mean(), share * (1 - share) / total, df, level, center=value.mean() - bias)
        result[f"{key}_low"], result[f"{key}_high"] = ends if images >= 30 else (np.nan, np.nan)
    return result


def coco_precision(samples):
    """AP (thresholds, classes); by threshold and class which ranked detections are TP; ground truths per image."""
    evaluation, images = run_coco(samples)
    precision = evaluation.eval["precision"][:, :, :, 0, -1]
    values = np.where(precision[0, :1] < 0, np.nan, precision.mean(axis=1))
    objects = np.zeros((len(samples), len(CLASSES)))
    for image in images:
        row = evaluation.params.imgIds.index(image["image_id"])
        objects[row, image["category_id"]] += (image["gtIgnore"] == 0).sum()
    hits = [[] for _ in evaluation.params.iouThrs]
    for label in range(len(CLASSES)):
        columns = [image for image in images if image["category_id"] == label]
        order = np.argsort(-np.concatenate([image["dtScores"] for image in columns]), kind="mergesort")
        matched, ignored = (
            np.concatenate([image[key] for image in columns], axis=1) for key in ("dtMatches", "dtIgnore")
        )
        for threshold, by_class in enumerate(hits):
            by_class.append((matched[threshold] > 0)[order][~ignored[threshold].astype(bool)[order]])
    return values, hits, objects


def mmdet_reference(samples):
    from tests.helpers.detection_problems import StockDataset, stock_results, stock_tool

    batch = batch_of(samples)
    data = StockDataset(batch, len(CLASSES))
    matrix = stock_tool().calculate_confusion_matrix(data, stock_results(batch), SCORE_THRESHOLD, None, 0.5)
    tp = matrix.diagonal()[:-1]
    return rates(tp, matrix.sum(axis=0)[:-1] - tp, matrix.sum(axis=1)[:-1] - tp)


def prediction(box=(0.0, 0.0, 5.0, 5.0), score=0.5, label=0):
    fields = dict(bboxes=torch.tensor([box]), scores=torch.tensor([score]), labels=torch.tensor([label]))
    return replaced("pred_instances", fields)


INVALID = (
    ("a NaN box", prediction(box=(0.0, np.nan, 5.0, 5.0)), ("boxes", "finite", "nan")),
    ("an infinite score", prediction(score=np.inf), ("scores", "finite", "inf")),
    ("a label out of range", prediction(label=3), ("labels", "between 0 and 2", "3")),
    ("other scores", replaced("pred_instances.scores", torch.zeros(99)), ("pred_instances.scores", "found (99,)")),
    ("no ground truth", without("gt_instances"), ("gt_instances",)),
    ("other boxes", replaced("gt_instances.bboxes", torch.zeros(2, 5)), ("gt_instances.bboxes", "found (2, 5)")),
)


COUNTS = dict.fromkeys(("tp*", "fp*", "fn*", "classes_averaged", "operating_threshold*", "oLRP_threshold*"))
FIELDS = dict(
    samples=detections, classes=CLASSES, invalid_inputs=INVALID, rules=COUNTS, dtypes=("float32", "float64", "numpy")
)

DETECTION_CASES = [
    MetricCase("detection", DetectionPRF, reference=coco_reference, **FIELDS),
    MetricCase("detection-ap", partial(DetectionPRF, ap=True, classwise=True), reference=coco_classwise, **FIELDS),
    MetricCase(
        "detection-ci",
        partial(DetectionPRF, ap=True, classwise=True, ci=0.9, resamples=20, seed=5),
        reference=coco_intervals,
        counts=(64, 33),  # the reference resamples with pycocotools
        **{**FIELDS, "samples": distinct_detections},
    ),
    MetricCase(
        "detection-operating-point",
        partial(DetectionPRF, operating_point="f1", classwise=True),
        reference=coco_best_threshold,
        **FIELDS,
    ),
    MetricCase(
        "detection-olrp-froc",
        partial(DetectionPRF, olrp=True, froc=True, classwise=True),
        reference=olrp_and_froc,
        reference_tolerance=1e-6,  # IoUs of single precision
        many=0,
        **{**FIELDS, "rules": {**COUNTS, "oLRP*": "less"}},
    ),
    MetricCase("detection-mmdet", partial(DetectionPRF, matching="mmdet"), reference=mmdet_reference, **FIELDS),
]
