"""SingleLabelAUC compared with scikit-learn and torchmetrics."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import torch

from benchmarks.timing import heading, peak_bytes, reset_peak, seconds, versus
from mm_metrics_plugin import SingleLabelAUC

BATCH = 64


def problem(samples: int, classes: int, temperature: float = 1.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax scores with a signal on the true class; every class occurs."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    logits = torch.randn(samples, classes, generator=generator)
    logits[torch.arange(samples), labels] += 2
    return (logits.mul_(temperature)).softmax(dim=1), labels


def batches(scores: torch.Tensor, labels: torch.Tensor) -> list[list[dict]]:
    """The samples as mmengine passes them to a metric."""
    samples = [dict(pred_score=s, gt_label=y) for s, y in zip(scores.unbind(), labels[:, None].unbind())]
    return [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]


def ours(parts: list[list[dict]], **options: object) -> dict:
    metric = SingleLabelAUC(**options)
    for part in parts:
        metric.process(None, part)
    return metric.evaluate(sum(map(len, parts)))


def compare() -> None:
    from sklearn.metrics import roc_auc_score
    from torchmetrics.functional.classification import multiclass_auroc

    heading("AUC: 50,000 x 1,000 float32 scores, one-vs-rest, macro; ours is process + evaluate in batches of 64")
    scores, labels = problem(50_000, 1_000)
    scores = scores / scores.sum(dim=1, keepdim=True)  # scikit-learn needs rows that sum to 1
    parts = batches(scores, labels)
    mine, value = seconds(lambda: ours(parts), repeat=5)
    print(f"{'SingleLabelAUC':<44}{mine:9.3f} s   auc {value['single-label/auc']:.12f}")
    rows, truth = scores.numpy(), labels.numpy()
    theirs, expected = seconds(lambda: roc_auc_score(truth, rows, multi_class="ovr"))
    versus(mine, theirs, "scikit-learn roc_auc_score", 25, f"auc {expected:.12f}")
    theirs, expected = seconds(lambda: multiclass_auroc(scores, labels, num_classes=1_000))
    versus(mine, theirs, "torchmetrics multiclass_auroc, exact", 12, f"auc {float(expected):.12f}")
    binned, value = seconds(lambda: ours(parts, num_thresholds=4096))
    print(
        f"{'SingleLabelAUC(num_thresholds=4096)':<44}{binned:9.3f} s   auc {value['single-label/auc']:.12f} "
        f"within {value['single-label/auc_error']:.1e}"
    )


def growth() -> None:
    heading("AUC: how time grows with the number of samples (1,000 classes)")
    first = None
    for samples in (10_000, 50_000, 200_000):
        parts = batches(*problem(samples, 1_000))
        taken, _ = seconds(lambda parts=parts: ours(parts), repeat=2)
        first = first or taken
        print(f"{samples:>8,} samples{taken:9.3f} s   {taken / first:6.1f}x the time of 10,000", flush=True)


def one_batch() -> None:
    heading("AUC: process of one batch of 64 x 1,000 (target: under 2 ms)")
    part = batches(*problem(BATCH * 50, 1_000))
    for options in ({}, {"num_thresholds": 4096}, {"thrs": 0.5}):
        metric = SingleLabelAUC(**options)
        times = []
        for batch in part:
            start = time.perf_counter()
            metric.process(None, batch)
            times.append(time.perf_counter() - start)
        median, high = np.quantile(times, [0.5, 0.9]) * 1e3
        print(f"{options or 'exact'!s:<28}median {median:6.3f} ms, 90th percentile {high:6.3f} ms", flush=True)


def memory() -> None:
    heading("AUC: peak memory of process + evaluate over the scores' own bytes (target: at most 2.5x)")
    code = "from benchmarks.bench_auc import memory_child; memory_child()"
    print(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout, end="")


def memory_child() -> None:
    """Pass scores batch by batch, so that only the metric keeps them."""
    ours(batches(*problem(2_048, 1_000)))
    metric = SingleLabelAUC()
    reset_peak()
    before, total = peak_bytes(), 0
    for start in range(0, 50_000, BATCH):
        count = min(BATCH, 50_000 - start)
        scores, labels = problem(count, 1_000, seed=start)
        total += scores.numel() * scores.element_size()
        metric.process(None, batches(scores, labels)[0])
    held = peak_bytes() - before
    metric.evaluate(50_000)
    print(f"scores {total / 1e6:.0f} MB; held {held / total:.2f}x, peak {(peak_bytes() - before) / total:.2f}x")


def main() -> None:
    compare()
    one_batch()
    memory()
    growth()
