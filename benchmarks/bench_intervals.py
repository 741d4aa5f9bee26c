"""Intervals and comparisons of a detector on 5,000 images, and what matching again for every draw would take."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from benchmarks.bench_detection import ap_of, batch_of
from benchmarks.detection_problem import make_problem
from benchmarks.timing import heading, peak_bytes, reset_peak, seconds, versus
from mm_metrics_plugin.functional.comparison import compare_detection
from mm_metrics_plugin.functional.curves import detection_curves
from mm_metrics_plugin.functional.delong import auc_intervals
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.error_types import error_types
from mm_metrics_plugin.functional.intervals import bootstrap_detection
from mm_metrics_plugin.functional.operating_points import operating_points
from mm_metrics_plugin.functional.scored_matches import COCO_IOU_THRESHOLDS, match_scores
from mm_metrics_plugin.functional.sizes import size_report

DRAWS = 1000
PROMISED_SECONDS = 10.0


def line(name: str, time: float, note: str = "") -> None:
    print(f"{name:<58}{time:9.3f} s   {note}", flush=True)


def noisy(batch: DetectionBatch) -> DetectionBatch:
    """The same detector with its scores a little shaken."""
    random = np.random.default_rng(1)
    scores = batch.detections.scores
    shaken = np.clip(scores + random.normal(0, 0.02, len(scores)), 0, 1).astype(scores.dtype)
    return DetectionBatch(batch.detections._with(scores=shaken), batch.objects, batch.num_images)


def pairwise_variance(scores: np.ndarray, positive: np.ndarray) -> float:
    """DeLong's variance over all pairs."""
    above, below = scores[positive], scores[~positive]
    kernel = (above[:, None] > below) + 0.5 * (above[:, None] == below)
    return float(kernel.mean(axis=1).var(ddof=1) / len(above) + kernel.mean(axis=0).var(ddof=1) / len(below))


def intervals(batch: DetectionBatch, classes: int, thresholds: Tuple[float, ...], name: str) -> None:
    matching, matches = seconds(lambda: match_scores(batch, num_classes=classes, iou_thresholds=thresholds))
    reset_peak()
    before = peak_bytes()
    time, _ = seconds(lambda: bootstrap_detection(matches, resamples=DRAWS))
    met = "met" if matching + time <= PROMISED_SECONDS else "MISSED"
    verdict = f"promised {PROMISED_SECONDS:g} s in all: {met}; " if len(thresholds) == 1 else ""
    line(f"matching once, at {len(thresholds)} IoU thresholds", matching)
    more = f"{(peak_bytes() - before) / 2**20:.0f} MiB more"
    line(f"intervals of {name}", time, verdict + more)
    once, _ = seconds(lambda: ap_of(batch, classes))
    versus(time, once * DRAWS, "matching again for every draw (one, times draws)", 10)


def main() -> None:
    problem = make_problem()
    batch = batch_of(problem)
    classes = problem.num_classes
    heading(f"{DRAWS:,} draws of {batch.num_images:,} images, {len(batch.detections):,} detections, {classes} classes")
    intervals(batch, classes, (0.5,), "P, R, F1 and mAP_50")
    intervals(batch, classes, COCO_IOU_THRESHOLDS, "the same with mAP and mAP_75")

    heading("Everything else on the same")
    matches = match_scores(batch, num_classes=classes)
    second = match_scores(noisy(batch), num_classes=classes)
    time, result = seconds(lambda: compare_detection(matches, second))
    line(f"comparison of two runs, {result.permutations:,} permutations, with mAP_50", time)
    line("curves", seconds(lambda: detection_curves(matches))[0])
    line("operating points, five folds", seconds(lambda: operating_points(matches))[0])
    line("kinds of error", seconds(lambda: error_types(batch, num_classes=classes))[0])
    line("by size", seconds(lambda: size_report(batch, num_classes=classes))[0])

    random = np.random.default_rng(0)
    positive = random.random(8000) < 0.3
    scores = random.normal(size=8000) + positive
    heading("DeLong's variance of 8,000 samples")
    mine, interval = seconds(lambda: auc_intervals([scores[:, None]], positive[:, None].astype(int)), repeat=5)
    theirs, variance = seconds(lambda: pairwise_variance(scores, positive))
    line("from mid-ranks", mine)
    same = "equal" if np.isclose(interval.standard_error[0] ** 2, variance, rtol=1e-12) else "DIFFERENT"
    versus(mine, theirs, "over all pairs", 20, same)


if __name__ == "__main__":
    main()
