"""MeanIoU compared with torchmetrics and mmseg; RegressionError compared with torchmetrics."""

from __future__ import annotations

import logging
import warnings
from typing import Callable

import numpy as np
import torch

from benchmarks.timing import heading, seconds, versus
from mm_metrics_plugin import MeanIoU, RegressionError

NUM_CLASSES = 19
SIZE = (512, 1024)
PICTURES = 8
BATCH = 2


def pictures(dtype: torch.dtype = torch.int64) -> list[dict]:
    """Samples of mmseg with regions; 10 % of the pixels are wrong and 5 % are ignored."""
    generator = np.random.default_rng(0)
    samples = []
    for _ in range(PICTURES):
        regions = generator.integers(0, NUM_CLASSES, (SIZE[0] // 32, SIZE[1] // 32))
        truth = np.kron(regions, np.ones((32, 32), dtype=np.int64))
        wrong = generator.random(SIZE) < 0.1
        predicted = np.where(wrong, generator.integers(0, NUM_CLASSES, SIZE), truth)
        truth[generator.random(SIZE) < 0.05] = 255
        samples.append(
            dict(
                pred_sem_seg=dict(data=torch.tensor(predicted[None], dtype=dtype)),
                gt_sem_seg=dict(data=torch.tensor(truth[None], dtype=dtype)),
            )
        )
    return samples


def batches(samples: list[dict]) -> list[list[dict]]:
    return [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]


def feed(metric: object, parts: list[list[dict]]) -> dict:
    """Process and evaluate, as in mmengine's loop."""
    metric.dataset_meta = {"classes": [str(index) for index in range(NUM_CLASSES)]}
    for part in parts:
        metric.process(None, part)
    return metric.evaluate(sum(map(len, parts)))


def torchmetrics_jaccard(parts: list[list[dict]], **options: bool) -> Callable[[], float]:
    from torchmetrics.classification import MulticlassJaccardIndex

    stacked = [
        [torch.stack([sample[field]["data"] for sample in part]) for field in ("pred_sem_seg", "gt_sem_seg")]
        for part in parts
    ]

    def run() -> float:
        metric = MulticlassJaccardIndex(NUM_CLASSES, ignore_index=255, **options)
        for predicted, truth in stacked:
            metric.update(predicted, truth)
        return float(metric.compute())

    return run


def mean_iou() -> None:
    from mmseg.evaluation import IoUMetric

    heading(f"mean IoU: {PICTURES} pictures of {SIZE[0]} x {SIZE[1]}, {NUM_CLASSES} classes, in batches of {BATCH}")
    for dtype in (torch.uint8, torch.int64):  # mmseg passes the last
        parts = batches(pictures(dtype))
        mine, found = seconds(lambda parts=parts: feed(MeanIoU(), parts), repeat=5)
        print(f"{f'MeanIoU, {dtype}':<44}{mine:9.3f} s   mIoU {found['sem-seg/mIoU']:.12f}")
        for peer, options in (("", {}), (", validate_args=False", {"validate_args": False})):
            theirs, expected = seconds(torchmetrics_jaccard(parts, **options), repeat=3)
            versus(mine, theirs, f"torchmetrics Jaccard{peer}", 1, f"mIoU {expected:.12f}")
    theirs, expected = seconds(lambda: feed(IoUMetric(), parts), repeat=3)
    versus(mine, theirs, "mmseg IoUMetric", 1, f"mIoU {expected['mIoU'] / 100:.4f} (rounded there)")


def regression() -> None:
    from torchmetrics import MetricCollection
    from torchmetrics.regression import (
        MeanAbsoluteError,
        MeanAbsolutePercentageError,
        MeanSquaredError,
        R2Score,
    )

    heading("regression: 8 maps of 512 x 1,024 float32; ours sums without rounding (no promise)")
    generator = torch.Generator().manual_seed(0)
    pairs = [[torch.rand(*SIZE, generator=generator) + 1 for _ in range(2)] for _ in range(PICTURES)]
    samples = [dict(pred_score=predicted, gt_score=target) for predicted, target in pairs]

    def ours() -> dict:
        metric = RegressionError()
        for sample in samples:
            metric.process(None, [sample])
        return metric.evaluate(len(samples))

    def theirs() -> dict:
        metrics = MetricCollection([MeanSquaredError(), MeanAbsoluteError(), MeanAbsolutePercentageError(), R2Score()])
        for predicted, target in pairs:
            metrics.update(predicted.reshape(-1), target.reshape(-1))
        return metrics.compute()

    mine, found = seconds(ours, repeat=3)
    taken, expected = seconds(theirs, repeat=3)
    print(f"{'RegressionError':<44}{mine:9.3f} s   mse {found['regression/mse']:.12f}")
    print(f"{'torchmetrics, four of the six':<44}{taken:9.3f} s   mse {float(expected['MeanSquaredError']):.12f}")


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.INFO)  # mmseg logs a table per run
        mean_iou()
        regression()
