"""Speed and memory of masks, key points and rotated boxes, beside pycocotools, faster-coco-eval and hotcoco."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.geometry_problem import HEIGHT, WIDTH, Shapes, make_shapes, rles_of, write_keypoints, write_masks
from benchmarks.timing import heading, seconds, versus
from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.evaluation.joining import join
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.geometry.masks import Masks
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import rotated_box_iou
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.io.readers import read_detections, read_ground_truth
from mm_metrics_plugin.settings import DetectionSettings

PEERS = {
    "pycocotools": ("pycocotools.coco", "pycocotools.cocoeval", "COCOeval"),
    "faster-coco-eval": ("faster_coco_eval", "faster_coco_eval", "COCOeval_faster"),
    "hotcoco": ("hotcoco", "hotcoco", "COCOeval"),
}
# Prints the seconds of evaluate to summarize, and the numbers.
PEER = """
import contextlib, importlib, io, json, sys, time
coco, module, name, iou_type = sys.argv[1:]
COCO, evaluator = importlib.import_module(coco).COCO, getattr(importlib.import_module(module), name)
with contextlib.redirect_stdout(io.StringIO()):
    truth = COCO("truth.json")
    results = truth.loadRes("results.json")
    start = time.perf_counter()
    evaluation = evaluator(truth, results, iou_type)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    taken = time.perf_counter() - start
print(json.dumps([taken, [float(value) for value in evaluation.stats]]))
"""


def run(folder: str, *arguments: str) -> str:
    """The output of Python in the folder."""
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def compare_files(folder: str, iou_type: str, targets: dict[str, float]) -> dict[str, float]:
    """Whole processes, from files to the numbers, one after the other; the seconds of the peers without loading."""
    command = ["-m", "mm_metrics_command", "detection", "truth.json", "results.json", "--iou-type", iou_type]
    mine, _ = seconds(lambda: run(folder, *command, "--quiet"), repeat=5)
    print(f"{'mm-metrics, AP, confusion matrix, error types':<52}{mine:9.3f} s", flush=True)
    report = json.loads(run(folder, *command, "--format", "json"))["average_precision"]
    expected = [report[key] for key in ("mAP", "mAP_50", "mAP_75")]
    evaluated = {}
    for peer, place in PEERS.items():
        theirs, printed = seconds(lambda place=place: run(folder, "-c", PEER, *place, iou_type), repeat=3)
        evaluated[peer], numbers = json.loads(printed)
        note = f"greatest difference of AP {np.abs(np.subtract(numbers[:3], expected)).max():.1e}"
        versus(mine, theirs, f"{peer}, AP only, from files", targets.get(peer, 1), note)
    return evaluated


def compare_evaluation(folder: str, iou_type: str, evaluated: dict[str, float], targets: dict[str, float]) -> None:
    """From loaded instances to AP."""
    truth = read_ground_truth(f"{folder}/truth.json", iou_type=iou_type)
    batch = join(truth, read_detections(f"{folder}/results.json", iou_type=iou_type)).batch
    settings = DetectionSettings(iou_type=iou_type)

    def evaluate() -> Any:
        table = match_images(batch, settings, num_classes=len(truth.classes), keep="scores").table
        assert table is not None
        return average_precision(table)

    mine, _ = seconds(evaluate, repeat=5)
    print(f"{'match_images and average_precision':<52}{mine:9.3f} s", flush=True)
    for peer, theirs in evaluated.items():
        versus(mine, theirs, f"{peer}, evaluate to summarize", targets.get(peer, 1))


def masks(folder: str) -> tuple[Shapes, Shapes]:
    gts, dets = make_shapes()
    write_masks(gts, dets, Path(folder))
    heading(f"Masks: 1,000 images of {HEIGHT} x {WIDTH}, {len(gts.image):,} polygons, {len(dets.image):,} RLE")
    compare_files(folder, "segm", {"faster-coco-eval": 3})
    return gts, dets


def keypoints(folder: str) -> None:
    gts, dets = make_shapes(5000, num_classes=1, per_image=20, objects_per_image=1.5, seed=1)
    write_keypoints(gts, dets, Path(folder))
    heading(f"Key points: 5,000 images, {len(gts.image):,} persons, {len(dets.image):,} detections")
    evaluated = compare_files(folder, "keypoints", {})
    compare_evaluation(folder, "keypoints", evaluated, {"pycocotools": 5})


def rotated_boxes() -> None:
    heading("Rotated boxes: IoU of pairs, two fifths of which overlap, on one core (target: 10 million a minute)")
    random = np.random.default_rng(0)

    def boxes(number: int) -> np.ndarray:
        columns = (random.uniform(0, 60, (number, 2)), random.uniform(5, 40, (number, 2)))
        return np.concatenate([*columns, random.uniform(-np.pi, np.pi, (number, 1))], axis=1)

    first, second = boxes(500_000), boxes(500_000)
    taken, overlap = seconds(lambda: rotated_box_iou(first, second), repeat=3)
    rate = 60 * len(overlap) / taken / 1e6
    verdict = "met" if rate >= 10 else "MISSED"
    print(f"{rate:.0f} million pairs a minute ({verdict}); {np.mean(overlap > 0):.0%} overlap", flush=True)


def samples_of(gts: Shapes, dets: Shapes, as_bitmaps: bool) -> list[dict]:
    """The images as mmengine passes them to a metric."""
    from pycocotools import mask

    samples = []
    for image in range(int(dets.image.max()) + 1):
        parts = []
        for shapes in (dets, gts):
            rows = np.flatnonzero(shapes.image == image)
            taken = Shapes(*(column[rows] for column in shapes))
            rles: Any = rles_of(taken)
            if as_bitmaps:
                rles = torch.from_numpy(np.ascontiguousarray(mask.decode(rles).transpose(2, 0, 1)) != 0)
            scores = torch.from_numpy(taken.scores.astype(np.float32))
            parts.append(dict(masks=rles, scores=scores, labels=torch.from_numpy(taken.labels)))
        samples.append(dict(img_id=image, ori_shape=(HEIGHT, WIDTH), pred_instances=parts[0], gt_instances=parts[1]))
    return samples


def one_batch() -> None:
    heading(f"DetectionPRF: a validation batch of 16 images of {HEIGHT} x {WIDTH} with 100 masks each (target: 15 ms)")
    gts, dets = make_shapes(16, per_image=100)
    for form, as_bitmaps in (("RLE", False), ("tensors of 491 MB", True)):
        samples = samples_of(gts, dets, as_bitmaps)
        for options in ({}, {"ap": True}):
            times = []
            for _ in range(20):
                metric = DetectionPRF(iou_type="segm", num_classes=80, **options)  # type: ignore[arg-type]
                began = time.perf_counter()
                metric.process(None, samples)
                times.append(time.perf_counter() - began)
            print(f"{form + ' ' + str(options or ''):<52}median {np.median(times) * 1e3:6.1f} ms", flush=True)


def memory(dets: Shapes) -> None:
    heading("Memory of kept masks (target: that of their RLE with 32 bits per number, and 24 bytes)")
    masks = Masks.from_rle(rles_of(dets))
    size = sum(array.nbytes for array in masks.to_arrays().values()) / len(masks)
    numbers = 2 * len(masks.runs) / len(masks)  # of background and foreground in turn
    verdict = "met" if size <= 4 * numbers + 24 else "MISSED"
    print(f"{size:.0f} bytes per mask, whose RLE has {numbers:.0f} numbers on average ({verdict})", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _, dets = masks(folder)
        memory(dets)
        keypoints(folder)
    rotated_boxes()
    one_batch()
