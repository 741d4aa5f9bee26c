"""Average precision of a federated dataset, as LVIS, compared with lvis-api and hotcoco."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.bench_detection import batch_of, coco_dataset
from benchmarks.detection_problem import make_problem
from benchmarks.timing import heading, peak_bytes, reset_peak, seconds, versus
from mm_metrics_plugin.functional.detection.average_precision import AveragePrecision, average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.detection import DetectionState

NUM_CLASSES = 1203
PER_IMAGE = 300
KEYS = {
    "AP": "mAP",
    "AP50": "mAP_50",
    "APs": "mAP_s",
    "APr": "mAP_r",
    "APc": "mAP_c",
    "APf": "mAP_f",
    "AR@300": "AR@300",
}


def federated_batch(num_images: int) -> tuple[DetectionBatch, tuple[str, ...]]:
    """A batch with about 15 absent classes and one that is not exhaustive in each image, and the class frequencies."""
    random = np.random.default_rng(0)
    batch = batch_of(make_problem(num_images, NUM_CLASSES, PER_IMAGE, objects_per_image=12))
    gts = batch.ground_truths.take(~batch.ground_truths.crowd)
    shape = num_images, NUM_CLASSES
    negative, not_exhaustive = (random.random(shape) < number / NUM_CLASSES for number in (15, 1))
    negative[gts.image, gts.labels] = False
    columns = {"negative": negative, "not_exhaustive": not_exhaustive}
    frequency = tuple(random.choice(["r", "c", "f"], NUM_CLASSES, p=[0.28, 0.38, 0.34]).tolist())
    return replace(batch, ground_truths=gts, image_columns=columns), frequency


def ours(batch: DetectionBatch, frequency: tuple[str, ...], convention: str) -> AveragePrecision:
    settings = DetectionSettings(convention=convention, frequency=frequency)
    state = DetectionState(NUM_CLASSES, settings, keep="scores").update(batch, np.arange(batch.num_images))
    return average_precision(state.table())  # type: ignore[arg-type]


def lvis_dataset(batch: DetectionBatch, frequency: tuple[str, ...]) -> dict[str, Any]:
    """The ground truths as the content of an LVIS annotation file."""
    content = coco_dataset(batch, NUM_CLASSES)
    for image in content["images"]:
        for field, name in (("neg_category_ids", "negative"), ("not_exhaustive_category_ids", "not_exhaustive")):
            image[field] = np.flatnonzero(batch.image_columns[name][image["id"]]).tolist()
    for category, value in zip(content["categories"], frequency):
        category["frequency"] = value
    return content


def difference(values: dict[str, float], expected: dict[str, float]) -> str:
    """The greatest difference to another tool, for a message."""
    pairs = [(values[key], expected[name]) for name, key in KEYS.items() if name in expected]
    return f"greatest difference of {len(pairs)} numbers {max(abs(mine - other) for mine, other in pairs):.1e}"


def compare_lvis(batch: DetectionBatch, frequency: tuple[str, ...], mine: float, values: dict[str, float]) -> None:
    import lvis

    setattr(np, "float", float)  # noqa: B010  # lvis 0.5.3 uses the name that NumPy 1.24 removed
    logging.getLogger("lvis").setLevel(logging.ERROR)
    ground_truth = lvis.LVIS.__new__(lvis.LVIS)
    ground_truth.logger, ground_truth.dataset = logging.getLogger("lvis"), lvis_dataset(batch, frequency)
    ground_truth._create_index()
    dets = batch.detections
    columns = (dets.image, dets.labels, dets.boxes.to_format("xywh").astype(np.float64), dets.scores)
    names = ("image_id", "category_id", "bbox", "score")
    rows = [dict(zip(names, values)) for values in zip(*(column.tolist() for column in columns))]

    def run() -> dict[str, float]:
        evaluation = lvis.LVISEval(ground_truth, lvis.LVISResults(ground_truth, copy.copy(rows)), "bbox")
        evaluation.run()
        return dict(evaluation.results)

    theirs, expected = seconds(run)
    versus(mine, theirs, "lvis-api, list of detections to results", 10, difference(values, expected))


def compare_hotcoco(batch: DetectionBatch, frequency: tuple[str, ...], mine: float, values: dict[str, float]) -> None:
    import hotcoco

    ground_truth = hotcoco.COCO(lvis_dataset(batch, frequency))
    dets = batch.detections
    rows = np.column_stack([dets.image, dets.boxes.to_format("xywh"), dets.scores, dets.labels])

    def run() -> dict[str, float]:
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation = hotcoco.LVISeval(ground_truth, ground_truth.loadRes(rows), "bbox")
            evaluation.run()
        return dict(evaluation.get_results())

    theirs, expected = seconds(run)
    versus(mine, theirs, "hotcoco, array of detections to results", 1, difference(values, expected))


def main() -> None:
    for number, peers in ((500, (compare_lvis, compare_hotcoco)), (20_000, (compare_hotcoco,))):
        batch, frequency = federated_batch(number)
        heading(
            f"LVIS: {number:,} images, {len(batch.ground_truths):,} ground truths, "
            f"{len(batch.detections):,} detections, {NUM_CLASSES:,} classes"
        )
        for convention in ("lvis-fixed", "lvis"):
            reset_peak()
            before = peak_bytes()
            mine, result = seconds(functools.partial(ours, batch, frequency, convention), repeat=2)
            memory = (peak_bytes() - before) / 2**20
            values = result.to_dict()
            print(f"{convention:<44}{mine:9.3f} s   mAP {values['mAP']:.12f}, {memory:,.0f} MB more", flush=True)
        for compare in peers:
            compare(batch, frequency, mine, values)
