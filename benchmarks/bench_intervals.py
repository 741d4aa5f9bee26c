"""Intervals and comparisons of a detector on 5,000 images, compared with matching again for every resample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.detection_problem import Problem, make_problem
from benchmarks.timing import heading, peak_bytes, reset_peak, seconds, versus
from mm_metrics_plugin.functional.classification.delong import delong_ci
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.matching import FULL, SCORES, match_images
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.detection.pr_curves import precision_recall_curves
from mm_metrics_plugin.functional.detection.results_by_size import results_by_size
from mm_metrics_plugin.functional.detection.tide import tide_errors
from mm_metrics_plugin.functional.statistics.bootstrap import bootstrap_ci
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.settings import COCO_IOU_THRS, DetectionSettings

RESAMPLES = 1000
TARGET_SECONDS = 10.0


def line(name: str, time: float, note: str = "") -> None:
    print(f"{name:<58}{time:9.3f} s   {note}", flush=True)


def batch_of(problem: Problem) -> DetectionBatch:
    return DetectionBatch(
        Detections(problem.image, problem.boxes, problem.scores, problem.labels),
        GroundTruths(problem.gt_image, problem.gt_boxes, problem.gt_labels, problem.gt_crowd),
        problem.num_images,
    )


def table_of(batch: DetectionBatch, classes: int, iou_thrs: tuple[float, ...], keep: str = SCORES) -> MatchTable:
    found = match_images(batch, DetectionSettings(iou_thrs=iou_thrs), num_classes=classes, keep=keep).table
    assert found is not None
    return found


def noisy(batch: DetectionBatch) -> DetectionBatch:
    """The same detector with a little noise in its scores."""
    random = np.random.default_rng(1)
    scores = batch.detections.scores
    shaken = np.clip(scores + random.normal(0, 0.02, len(scores)), 0, 1).astype(scores.dtype)
    return replace(batch, detections=replace(batch.detections, scores=shaken))


def pairwise_variance(scores: np.ndarray, positive: np.ndarray) -> float:
    """DeLong's variance over all pairs."""
    above, below = scores[positive], scores[~positive]
    kernel = (above[:, None] > below) + 0.5 * (above[:, None] == below)
    return float(kernel.mean(axis=1).var(ddof=1) / len(above) + kernel.mean(axis=0).var(ddof=1) / len(below))


def intervals(batch: DetectionBatch, classes: int, thresholds: tuple[float, ...], name: str) -> None:
    matching, table = seconds(lambda: table_of(batch, classes, thresholds))
    reset_peak()
    before = peak_bytes()
    time, _ = seconds(lambda: bootstrap_ci(table, resamples=RESAMPLES))
    met = "met" if matching + time <= TARGET_SECONDS else "MISSED"
    verdict = f"target {TARGET_SECONDS:g} s in all: {met}; " if len(thresholds) == 1 else ""
    line(f"matching once, at {len(thresholds)} IoU thresholds", matching)
    more = f"{(peak_bytes() - before) / 2**20:.0f} MiB more"
    line(f"intervals of {name}", time, verdict + more)
    once, _ = seconds(lambda: average_precision(table_of(batch, classes, COCO_IOU_THRS)))
    versus(time, once * RESAMPLES, "matching again for every resample (extrapolated)", 10)


def main() -> None:
    problem = make_problem()
    batch = batch_of(problem)
    classes = problem.num_classes
    size = f"{batch.num_images:,} images, {len(batch.detections):,} detections, {classes} classes"
    heading(f"{RESAMPLES:,} resamples of {size}")
    intervals(batch, classes, (0.5,), "P, R, F1 and mAP_50")
    intervals(batch, classes, COCO_IOU_THRS, "the same with mAP and mAP_75")

    heading("Other functions on the same data")
    first, second = (table_of(run, classes, (0.5,)) for run in (batch, noisy(batch)))
    time, result = seconds(lambda: paired_permutation_test(first, second))
    line(f"comparison of two runs, {result.permutations:,} permutations, with mAP_50", time)
    table = table_of(batch, classes, COCO_IOU_THRS, FULL)
    line("curves", seconds(lambda: precision_recall_curves(table))[0])
    line("operating points, five folds", seconds(lambda: operating_points(table))[0])
    line("error types", seconds(lambda: tide_errors(table))[0])
    line("results by size", seconds(lambda: results_by_size(table))[0])

    random = np.random.default_rng(0)
    positive = random.random(8000) < 0.3
    scores = random.normal(size=8000) + positive
    heading("DeLong's variance of 8,000 samples")
    mine, interval = seconds(lambda: delong_ci([scores[:, None]], positive[:, None].astype(int)), repeat=5)
    theirs, variance = seconds(lambda: pairwise_variance(scores, positive))
    line("from mid-ranks", mine)
    same = "equal" if np.isclose(interval.standard_error[0] ** 2, variance, rtol=1e-12) else "DIFFERENT"
    versus(mine, theirs, "over all pairs", 20, same)
