"""Matching and average precision compared with mmdet's tool, supervision, faster-coco-eval and hotcoco."""

from __future__ import annotations

import contextlib
import functools
import io
import time
from typing import Any, Callable

import numpy as np
import torch

from benchmarks.detection_problem import Problem, make_problem
from benchmarks.timing import heading, seconds, versus
from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional.detection.average_precision import AveragePrecision, average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import FULL, MATRIX, SCORES
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.detection import DetectionState


def batch_of(problem: Problem) -> DetectionBatch:
    return DetectionBatch(
        Detections(problem.image, problem.boxes, problem.scores, problem.labels),
        GroundTruths(problem.gt_image, problem.gt_boxes, problem.gt_labels, problem.gt_crowd),
        problem.num_images,
    )


def state_of(batch: DetectionBatch, num_classes: int, keep: str, *rules: str) -> DetectionState:
    settings = DetectionSettings(matching=rules or ("coco",))
    return DetectionState(num_classes, settings, keep=keep).update(batch, np.arange(batch.num_images))


def matching(batch: DetectionBatch, num_classes: int, rule: str) -> Callable[[], DetectionState]:
    return lambda: state_of(batch, num_classes, MATRIX, rule)


def ap_of(batch: DetectionBatch, num_classes: int) -> AveragePrecision:
    return average_precision(state_of(batch, num_classes, SCORES).table())  # type: ignore[arg-type]


def supervision_inputs(problem: Problem):  # type: ignore[no-untyped-def]
    """One array per image, as ``ConfusionMatrix.from_tensors`` expects them."""
    detections = np.column_stack([problem.boxes, problem.labels, problem.scores]).astype(np.float32)
    ground_truths = np.column_stack([problem.gt_boxes, problem.gt_labels]).astype(np.float32)
    edges = np.arange(1, problem.num_images)
    return (
        np.split(detections, np.searchsorted(problem.image, edges)),
        np.split(ground_truths, np.searchsorted(problem.gt_image, edges)),
    )


def compare_matching(problem: Problem, batch: DetectionBatch) -> None:
    import supervision

    from tests.helpers.detection_problems import StockDataset, stock_results, stock_tool

    heading(
        f"Confusion matrix: {batch.num_images:,} images, {len(batch.ground_truths):,} ground truths, "
        f"{len(batch.detections):,} detections, {problem.num_classes} classes, score >= 0.3"
    )
    times, results = {}, {}
    for rule in MATCHING_RULES:
        times[rule], results[rule] = seconds(matching(batch, problem.num_classes, rule), repeat=7)
        used = results[rule].rule(rule).counts_by_name["detections"]
        print(f"{'confusion matrix, ' + rule:<44}{times[rule]:9.3f} s   {used:,} detections used", flush=True)
    predictions, targets = supervision_inputs(problem)
    names = [str(index) for index in range(problem.num_classes)]
    theirs, _ = seconds(
        lambda: supervision.ConfusionMatrix.from_tensors(predictions, targets, names, 0.3, 0.5), repeat=2
    )
    versus(times["mmdet"], theirs, "supervision ConfusionMatrix, to mmdet", 7.7)
    versus(times["coco"], theirs, "supervision ConfusionMatrix, to coco", 7.7)
    tool, data_set, stock = stock_tool(), StockDataset(batch, problem.num_classes), stock_results(batch)
    theirs, matrix = seconds(lambda: tool.calculate_confusion_matrix(data_set, stock, 0.3, None, 0.5))
    same = "identical" if np.array_equal(matrix, results["mmdet"].rule("mmdet").matrix) else "DIFFERENT"
    versus(times["mmdet"], theirs, "mmdet's tool, matching only", 217, f"matrix {same}")


def compare_average_precision(problem: Problem, batch: DetectionBatch) -> None:
    import faster_coco_eval
    import hotcoco

    from tests.helpers.detection_problems import coco_eval

    heading("COCO AP on the same, all thresholds and area ranges, from arrays to the 12 numbers")
    mine, result = seconds(lambda: ap_of(batch, problem.num_classes), repeat=7)
    numbers = np.array(list(result.to_dict().values()))
    print(f"{'average_precision, matching included':<44}{mine:9.3f} s   mAP {numbers[0]:.12f}", flush=True)

    def evaluate(evaluation: Any) -> np.ndarray:
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        return np.array(evaluation.stats[:12])

    evaluation = coco_eval(
        batch, problem.num_classes, evaluator=faster_coco_eval.COCOeval_faster, api=faster_coco_eval.COCO
    )
    theirs, expected = seconds(lambda: evaluate(evaluation))
    note = f"greatest difference of the 12 numbers {np.abs(numbers - expected).max():.1e}"
    versus(mine, theirs, "faster-coco-eval, evaluate to summarize", 3, note)
    ground_truth = hotcoco.COCO(coco_dataset(batch, problem.num_classes))
    boxes = batch.detections.boxes.to_format("xywh")
    rows = np.column_stack([batch.detections.image, boxes, batch.detections.scores, batch.detections.labels])

    def run_hotcoco(load: bool) -> np.ndarray:
        return evaluate(hotcoco.COCOeval(ground_truth, ground_truth.loadRes(rows) if load else loaded, "bbox"))

    theirs, expected = seconds(lambda: run_hotcoco(load=True), repeat=5)
    note = f"greatest difference of the 12 numbers {np.abs(numbers - expected).max():.1e}"
    versus(mine, theirs, "hotcoco, array of detections to summarize", 1, note)
    loaded = ground_truth.loadRes(rows)
    theirs, _ = seconds(lambda: run_hotcoco(load=False), repeat=5)
    versus(mine, theirs, "hotcoco, evaluate to summarize only", 1)


def coco_dataset(batch: DetectionBatch, num_classes: int) -> dict[str, Any]:
    """The ground truths as the content of a COCO annotation file."""
    gts = batch.ground_truths
    columns = (gts.image, gts.labels, gts.boxes.to_format("xywh"), gts.crowd.astype(int), gts.areas())
    names = ("image_id", "category_id", "bbox", "iscrowd", "area")
    rows = zip(*(column.tolist() for column in columns))
    return {
        "images": [{"id": index, "width": 640, "height": 480} for index in range(batch.num_images)],
        "categories": [{"id": index, "name": str(index)} for index in range(num_classes)],
        "annotations": [{"id": number + 1, **dict(zip(names, row))} for number, row in enumerate(rows)],
    }


def growth() -> None:
    heading("Detection: how time grows with the number of images")
    first: dict[str, float] = {}
    for number in (1_000, 5_000, 20_000):
        problem = make_problem(number)
        batch = batch_of(problem)
        work: dict[str, Callable[[], Any]] = {
            rule: matching(batch, problem.num_classes, rule) for rule in MATCHING_RULES
        }
        work["AP"] = functools.partial(ap_of, batch, problem.num_classes)
        work["full table"] = functools.partial(state_of, batch, problem.num_classes, FULL)
        cells = []
        for name, function in work.items():
            taken, _ = seconds(function, repeat=3)
            first.setdefault(name, taken / number)
            cells.append(f"{name} {taken:.3f} s ({taken / number / first[name]:.2f}x per image)")
        print(f"{number:>8,} images   " + "   ".join(cells), flush=True)


def samples_of(batch: DetectionBatch) -> list[dict]:
    """The images as mmengine passes them to a metric."""
    samples = []
    for _, image in batch.blocks(1):
        dets, gts = image.detections, image.ground_truths.take(~image.ground_truths.crowd)
        samples.append(
            dict(
                img_id=len(samples),
                pred_instances=dict(
                    bboxes=torch.from_numpy(dets.boxes.array.copy()),
                    scores=torch.from_numpy(dets.scores.copy()),
                    labels=torch.from_numpy(dets.labels.copy()),
                ),
                gt_instances=dict(
                    bboxes=torch.from_numpy(gts.boxes.array.copy()), labels=torch.from_numpy(gts.labels.copy())
                ),
            )
        )
    return samples


def one_batch() -> None:
    heading("DetectionPRF: process of a validation batch of 16 images (target: under 3 ms for P, R and F1)")
    problem = make_problem(16 * 40)
    samples = samples_of(batch_of(problem))
    for options in ({}, {"matching": "mmdet"}, {"matching": "agnostic"}, {"ap": True}, {"ap": True, "ci": 0.95}):
        metric = DetectionPRF(num_classes=problem.num_classes, **options)  # type: ignore[arg-type]
        times = []
        for start in range(0, len(samples), 16):
            began = time.perf_counter()
            metric.process(None, samples[start : start + 16])
            times.append(time.perf_counter() - began)
        median, high = np.quantile(times[1:], [0.5, 0.9]) * 1e3
        print(f"{options or 'coco'!s:<44}median {median:6.3f} ms, 90th percentile {high:6.3f} ms", flush=True)


def main() -> None:
    problem = make_problem()
    batch = batch_of(problem)
    compare_matching(problem, batch)
    compare_average_precision(problem, batch)
    growth()
    one_batch()
