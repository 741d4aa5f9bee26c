"""Matching and average precision beside mmdet's tool, supervision and faster-coco-eval."""

from __future__ import annotations

import contextlib
import functools
import io
import time
from typing import Callable, Dict, List

import numpy as np
import torch

from benchmarks.detection_problem import Problem, make_problem
from benchmarks.timing import heading, seconds, versus
from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.functional.coco_ap import APSettings, AveragePrecision, average_precision, match_for_ap
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.matching import PROTOCOLS, Matches, match


def batch_of(problem: Problem) -> DetectionBatch:
    return DetectionBatch(
        Detections(problem.image, problem.boxes, problem.scores, problem.labels),
        Objects(problem.object_image, problem.object_boxes, problem.object_labels, problem.object_crowd),
        problem.num_images,
    )


def matching(batch: DetectionBatch, num_classes: int, protocol: str) -> Callable[[], Matches]:
    return lambda: match(batch.detections, batch.objects, num_classes=num_classes, protocol=protocol)


def ap_of(batch: DetectionBatch, num_classes: int) -> AveragePrecision:
    settings = APSettings(num_classes=num_classes)
    return average_precision(match_for_ap(batch.detections, batch.objects, settings), settings)


def supervision_inputs(problem: Problem):  # type: ignore[no-untyped-def]
    """One array an image, as ``ConfusionMatrix.from_tensors`` wants them."""
    found = np.column_stack([problem.boxes, problem.labels, problem.scores]).astype(np.float32)
    there = np.column_stack([problem.object_boxes, problem.object_labels]).astype(np.float32)
    edges = np.arange(1, problem.num_images)
    return (
        np.split(found, np.searchsorted(problem.image, edges)),
        np.split(there, np.searchsorted(problem.object_image, edges)),
    )


def compare_matching(problem: Problem, batch: DetectionBatch) -> None:
    import supervision

    from tests.functional.detection_problems import StockDataset, stock_results, stock_tool

    heading(
        f"Confusion matrix: {batch.num_images:,} images, {len(batch.objects):,} objects, "
        f"{len(batch.detections):,} detections, {problem.num_classes} classes, score >= 0.3"
    )
    times, results = {}, {}
    for protocol in PROTOCOLS:
        times[protocol], results[protocol] = seconds(matching(batch, problem.num_classes, protocol), repeat=7)
        used = results[protocol].detections
        print(f"{'match, ' + protocol:<44}{times[protocol]:9.3f} s   {used:,} detections used", flush=True)
    predictions, targets = supervision_inputs(problem)
    names = [str(index) for index in range(problem.num_classes)]
    theirs, _ = seconds(
        lambda: supervision.ConfusionMatrix.from_tensors(predictions, targets, names, 0.3, 0.5), repeat=2
    )
    versus(times["mmdet"], theirs, "supervision ConfusionMatrix, to mmdet", 4)
    versus(times["coco"], theirs, "supervision ConfusionMatrix, to coco", 3)
    tool, data_set, stock = stock_tool(), StockDataset(batch, problem.num_classes), stock_results(batch)
    theirs, matrix = seconds(lambda: tool.calculate_confusion_matrix(data_set, stock, 0.3, None, 0.5))
    same = "identical" if np.array_equal(matrix, results["mmdet"].matrix) else "DIFFERENT"
    versus(times["mmdet"], theirs, "mmdet's tool, matching only", 150, f"matrix {same}")


def compare_average_precision(problem: Problem, batch: DetectionBatch) -> None:
    from faster_coco_eval import COCO, COCOeval_faster

    from tests.functional.detection_problems import coco_eval

    heading("COCO AP on the same, all thresholds and area ranges")
    mine, result = seconds(lambda: ap_of(batch, problem.num_classes), repeat=5)
    numbers = np.array(list(result.to_dict().values()))
    print(f"{'match_for_ap + average_precision':<44}{mine:9.3f} s   mAP {numbers[0]:.12f}", flush=True)
    evaluation = coco_eval(batch, problem.num_classes, evaluator=COCOeval_faster, api=COCO)

    def evaluate() -> np.ndarray:
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        return np.array(evaluation.stats[:12])

    theirs, expected = seconds(evaluate)
    note = f"mAP {expected[0]:.12f}, greatest difference of the 12 numbers {np.abs(numbers - expected).max():.1e}"
    versus(mine, theirs, "faster-coco-eval, evaluate to summarize", 3, note)


def growth() -> None:
    heading("Detection: how time grows with the number of images")
    first: Dict[str, float] = {}
    for number in (1_000, 5_000, 20_000):
        problem = make_problem(number)
        batch = batch_of(problem)
        work = {protocol: matching(batch, problem.num_classes, protocol) for protocol in PROTOCOLS}
        work["AP"] = functools.partial(ap_of, batch, problem.num_classes)
        cells = []
        for name, function in work.items():
            taken, _ = seconds(function, repeat=3)
            first.setdefault(name, taken / number)
            cells.append(f"{name} {taken:.3f} s ({taken / number / first[name]:.2f}x an image)")
        print(f"{number:>8,} images   " + "   ".join(cells), flush=True)


def samples_of(batch: DetectionBatch) -> List[dict]:
    """The images as mmengine hands them to a metric."""
    samples = []
    for index in range(batch.num_images):
        image = batch.images(index, index + 1)
        found, there = image.detections, image.objects.take(~image.objects.crowd)
        samples.append(
            dict(
                img_id=index,
                pred_instances=dict(
                    bboxes=torch.from_numpy(found.boxes),
                    scores=torch.from_numpy(found.scores),
                    labels=torch.from_numpy(found.labels),
                ),
                gt_instances=dict(bboxes=torch.from_numpy(there.boxes), labels=torch.from_numpy(there.labels)),
            )
        )
    return samples


def one_batch() -> None:
    heading("DetectionPRF: process of a validation batch of 16 images (promised: under 3 ms)")
    problem = make_problem(16 * 40)
    samples = samples_of(batch_of(problem))
    for options in ({}, {"matching": "mmdet"}, {"matching": "agnostic"}, {"ap": True}):
        metric = DetectionPRF(num_classes=problem.num_classes, **options)
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


if __name__ == "__main__":
    main()
