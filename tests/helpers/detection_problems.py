"""Random detection problems that are rich in the cases two programs can differ on."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.thresholding import PRECISIONS, round_thresholds
from mm_metrics_plugin.settings import DetectionSettings


def random_batch(seed, *, crowds=True, odd_boxes=True, ties=True):
    """A few images on a coarse grid: equal scores and IoUs, duplicates, crowds, empty images, few or many classes."""
    random = np.random.default_rng(seed)
    num_classes = int(random.choice([1, 2, 3, 80]))
    num_images = int(random.integers(1, 7))
    grid = (
        int(random.choice([1, 1, 4, 1000])) if ties else 10**6
    )  # often whole pixels, so that IoUs are tied or equal to thresholds
    images = []
    for _ in range(num_images):
        gt_boxes = _boxes(random, 0 if random.random() < 0.2 else int(random.integers(1, 9)), grid)
        gt_labels = random.integers(0, num_classes, len(gt_boxes))
        number = 0 if random.random() < 0.2 else int(random.integers(1, 25))
        boxes, labels = _boxes(random, number, grid), random.integers(0, num_classes, number)
        if len(gt_boxes) and number:
            near = random.random(number) < 0.75
            chosen = random.integers(0, len(gt_boxes), number)
            moved = gt_boxes[chosen] + np.round(random.normal(0, 1.5, (number, 4)) * grid) / grid
            boxes = np.where(near[:, None], moved, boxes)
            labels = np.where(near & (random.random(number) < 0.7), gt_labels[chosen], labels)
            if odd_boxes and random.random() < 0.3:
                boxes[0] = gt_boxes[0][[2, 3, 0, 1]]  # inverted
                boxes[-1, 2] = boxes[-1, 0]  # no width
            if ties and random.random() < 0.3:
                boxes[number // 2 :] = boxes[: number - number // 2]  # duplicates
        scores = np.round(random.random(number), int(random.choice([1, 6])))
        crowd = random.random(len(gt_boxes)) < (0.25 if crowds else 0)
        images.append((boxes.astype(np.float32), scores.astype(np.float32), labels, gt_boxes, gt_labels, crowd))
    return _batch_of(images), num_classes


def problems(number):
    """Random batches with and without annotated areas, and settings at which overlaps and scores tie."""
    for seed in range(number):
        batch, num_classes = random_batch(seed)
        iou_thr, score_thr = [0.3, 0.5, 0.55, 0.75, 1.0][seed % 5], [0.0, 0.4, 0.6, 1.0][seed % 4]
        settings = DetectionSettings(iou_thr=iou_thr, score_thr=score_thr, matching=tuple(MATCHING_RULES))
        yield seed, with_areas(batch, seed) if seed % 2 else batch, num_classes, settings


def with_areas(batch, seed):
    """The batch with annotated areas of masks, some on a boundary between area ranges, and some thin boxes."""
    random, gts = np.random.default_rng(seed), batch.ground_truths
    area = gts.areas() * random.uniform(0.4, 1, len(gts))
    area[random.random(len(gts)) < 0.1] = 32.0**2
    boxes = gts.boxes.array.astype(np.float64)
    thin = random.random(len(gts)) < 0.1  # less than a pixel wide
    boxes[thin, 2] = boxes[thin, 0] + random.uniform(0.05, 0.9, thin.sum())
    return replace(batch, ground_truths=replace(gts, geometry=Boxes(boxes), area=area))


def _batch_of(images):
    names = ("boxes", "scores", "labels", "gt_boxes", "gt_labels", "gt_crowd")
    return DetectionBatch.from_images(**dict(zip(names, zip(*images))))


def _boxes(random, number, grid):
    corner = random.integers(0, 40 * grid, (number, 2)) / grid
    sides = random.integers(4 * grid, 150 * grid if random.random() < 0.2 else 20 * grid, (number, 2)) / grid
    return np.concatenate([corner, corner + sides], axis=1)


def everywhere(seed, *, num_classes=3, num_images=12):
    """A batch in which every class has ground truths, with several detections near each."""
    random = np.random.default_rng(seed)
    number, per_gt = num_images * 6, 4
    image = np.repeat(np.arange(num_images), 6)
    corner = random.random((number, 2)) * 60
    boxes = np.concatenate([corner, corner + 5 + random.random((number, 2)) * 25], axis=1)
    labels = np.arange(number) % num_classes
    chosen = np.repeat(np.arange(number), per_gt)
    moved = boxes[chosen] + random.normal(size=(len(chosen), 4)) * random.choice([0.5, 3, 12], (len(chosen), 1))
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
    guess = np.where(random.random(len(chosen)) < 0.75, labels[chosen], random.integers(0, num_classes, len(chosen)))
    keep = random.random(len(chosen)) < 0.8
    detections = Detections(image[chosen], moved, random.random(len(chosen)), guess).take(keep)
    return DetectionBatch(detections, GroundTruths(image, boxes, labels, random.random(number) < 0.1), num_images)


def dense_batch(seed, *, num_images=3, ties=True, crowds=True):
    """Hundreds of ground truths and detections per image: several detections on most, many of the wrong class."""
    random = np.random.default_rng(seed)
    num_classes = int(random.choice([1, 2, 3]))
    images = []
    for _ in range(num_images):
        number = int(random.integers(150, 320))
        corner = random.integers(0, 500, (number, 2)).astype(float)
        gt_boxes = np.concatenate([corner, corner + random.integers(8, 40, (number, 2))], axis=1)
        gt_labels = random.integers(0, num_classes, number)
        chosen = random.integers(0, number, int(random.integers(300, 800)))
        noise = random.normal(0, random.choice([0.5, 2, 6], (len(chosen), 1)), (len(chosen), 4))
        boxes = gt_boxes[chosen] + (np.round(noise) if ties else noise)
        wrong = random.random(len(chosen)) < 0.3
        labels = np.where(wrong, random.integers(0, num_classes, len(chosen)), gt_labels[chosen])
        scores = random.random(len(chosen))
        crowd = random.random(number) < (0.05 if crowds else 0)
        images.append((boxes, np.round(scores, 2) if ties else scores, labels, gt_boxes, gt_labels, crowd))
    return _batch_of(images), num_classes


def crowded_images(*, images=5, side=20, columns=16, rows=15):
    """Images with 240 ground truths of one class, each detected exactly, with distinct scores from 0.5 to 1."""
    corner = np.array([[x, y] for x in range(columns) for y in range(rows)], dtype=float) * (side + 4)
    boxes = np.concatenate([corner, corner + side], axis=1)
    number = len(boxes) * images
    image, boxes = np.repeat(np.arange(images), len(boxes)), np.tile(boxes, (images, 1))
    scores = 1 - np.arange(number) / (2 * number)
    labels = np.zeros(number, dtype=int)
    return DetectionBatch(Detections(image, boxes, scores, labels), GroundTruths(image, boxes, labels), images)


@functools.lru_cache(maxsize=None)
def stock_tool():
    """The real ``confusion_matrix.py``, from the installed mmdet."""
    import mmdet

    path = Path(mmdet.__file__).parent / ".mim" / "tools" / "analysis_tools" / "confusion_matrix.py"
    spec = importlib.util.spec_from_file_location("stock_confusion_matrix", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ProgressBar = functools.partial(module.ProgressBar, file=io.StringIO())  # it would write to the real stdout
    return module


class StockDataset:
    """A dataset with the methods that the stock tool uses."""

    def __init__(self, batch, num_classes):
        self.metainfo = {"classes": tuple(str(index) for index in range(num_classes))}
        self._infos = []
        for index in range(batch.num_images):
            gts = batch.ground_truths.images(index, index + 1)
            columns = zip(gts.boxes.to_format("xyxy").tolist(), gts.labels.tolist(), gts.crowd.tolist())
            instances = [{"bbox": box, "bbox_label": label, "ignore_flag": int(crowd)} for box, label, crowd in columns]
            self._infos.append({"instances": instances})

    def __len__(self):
        return len(self._infos)

    def get_data_info(self, index):
        return self._infos[index]


def stock_results(batch):
    """Predictions as ``tools/test.py --out`` leaves them."""
    import torch
    from mmengine.structures import InstanceData

    results = []
    for index in range(batch.num_images):
        dets = batch.detections.images(index, index + 1)
        columns = {"bboxes": dets.boxes.to_format("xyxy"), "scores": dets.scores, "labels": dets.labels}
        instances = InstanceData(**{name: torch.from_numpy(column) for name, column in columns.items()})
        results.append({"pred_instances": instances})
    return results


def coco_eval(batch, num_classes, *, min_score=None, evaluator=COCOeval, api=COCO):
    """The evaluation of pycocotools on the batch, fed as mmdet's ``CocoMetric`` feeds it. ids count rows from 1."""
    gts, dets = batch.ground_truths, batch.detections
    xywh = gts.boxes.to_format("xywh")
    area = xywh[:, 2] * xywh[:, 3] if gts.area is None else gts.area
    columns = (gts.image, gts.labels, xywh, gts.crowd.astype(int), area)
    names = ("image_id", "category_id", "bbox", "iscrowd", "area")
    target = {
        "images": [{"id": index} for index in range(batch.num_images)],
        "categories": [{"id": index, "name": str(index)} for index in range(num_classes)],
        "annotations": [
            {"id": row + 1, **dict(zip(names, values))}
            for row, values in enumerate(zip(*(column.tolist() for column in columns)))
        ],
    }
    columns = (dets.image, dets.labels, dets.boxes.to_format("xywh"), dets.scores)
    predictions = [
        dict(zip(("image_id", "category_id", "bbox", "score"), values))
        for values in zip(*(column.tolist() for column in columns))
        if min_score is None or np.float32(values[-1]) >= np.float32(min_score)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        gt = api()
        gt.dataset = target
        gt.createIndex()
        dt = gt.loadRes(predictions) if predictions else api()
        if not predictions:
            dt.dataset = {**target, "annotations": []}
            dt.createIndex()
        return evaluator(gt, dt, "bbox")


def accumulated(batch, num_classes, **params):
    """The accumulated results of pycocotools."""
    evaluation = coco_eval(batch, num_classes)
    for name, value in params.items():
        setattr(evaluation.params, name, value)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation.eval


def undefined_as_nan(values):
    """The values of pycocotools, which are -1 where undefined."""
    return np.where(np.asarray(values) == -1, np.nan, values)


def coco_summary(batch, num_classes):
    """The twelve numbers of pycocotools, and its accumulated results."""
    evaluation = coco_eval(batch, num_classes)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats, evaluation.eval


def mixed_precision(batch, seed):
    """The batch with few distinct scores, close together, in a random precision in each image."""
    random, dets = np.random.default_rng(seed), batch.detections
    scores = np.round(dets.scores.astype(np.float64), 1) + random.choice([-2e-3, -1e-4, 0, 1e-4, 2e-3], len(dets))
    precision = random.integers(0, len(PRECISIONS), batch.num_images)[dets.image].astype(np.uint8)
    scores = round_thresholds(scores)[precision, np.arange(len(scores))]
    return replace(batch, detections=replace(dets, scores=scores, precision=precision))


def empty_batch(num_images=1):
    """Images without instances."""
    return DetectionBatch(Detections.empty(), GroundTruths.empty(), num_images)


def match_table(batch, num_classes, **settings):
    """The match table of a batch, without details."""
    return match_images(batch, DetectionSettings(**settings), num_classes=num_classes, keep="scores").table


def counts_at(batch, num_classes, score_thr, iou_thr=0.5):
    """TP, FP and FN of each class from the confusion matrix, after a new matching at a score threshold."""
    settings = DetectionSettings(score_thr=float(score_thr), iou_thr=iou_thr)
    matrix = match_images(batch, settings, num_classes=num_classes, keep="matrix").rules["coco"].matrix
    tp = matrix.diagonal()[:-1]
    return tp, matrix[:, :-1].sum(axis=0) - tp, matrix[:-1].sum(axis=1) - tp


def rows_as_given(table, batch):
    """The rows of each detection of a table with details, and of its ground truth or -1, in a batch sorted by image."""
    first = np.searchsorted(batch.detections.image, np.arange(batch.num_images))[table.image]
    first_gt = np.searchsorted(batch.ground_truths.image, np.arange(batch.num_images))[table.image]
    gt_index = table.details.gt_index
    return first + table.details.det_index, np.where(gt_index < 0, -1, first_gt + gt_index)


def members_of(members, rule):
    """The members of the cells of one confusion matrix."""
    return members.take(np.flatnonzero(members.rule == list(MATCHING_RULES).index(rule)))
