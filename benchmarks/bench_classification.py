"""Precision, recall and F1 compared with torchmetrics; time per batch of all classification metrics."""

from __future__ import annotations

import statistics
import time

import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassF1Score, MulticlassPrecision, MulticlassRecall

from benchmarks.timing import heading, seconds, versus
from mm_metrics_plugin import (
    CalibrationError,
    MultiLabelAUC,
    MultiLabelPRF,
    RecallAtK,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
)

NUM_CLASSES, BATCH, BATCHES = 1000, 64, 50
TARGET_MS = 3.0


def make_batches():
    """Softmax scores as in mmpretrain: one tensor per sample, all of them views of one tensor."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(BATCHES):
        labels = torch.randint(0, NUM_CLASSES, (BATCH,), generator=generator)
        logits = torch.randn(BATCH, NUM_CLASSES, generator=generator)
        logits[torch.arange(BATCH), labels] += 3
        scores = logits.softmax(dim=1)
        samples = [
            dict(pred_score=score, pred_label=score.argmax()[None], gt_label=label[None])
            for score, label in zip(scores, labels)
        ]
        batches.append((scores, labels, samples))
    return batches


def run_ours(metrics, batches):
    for _, _, samples in batches:
        for metric in metrics:
            metric.process(None, samples)
    return [metric.evaluate(len(batches) * BATCH) for metric in metrics]


def run_torchmetrics(collection, batches):
    for scores, labels, _ in batches:
        collection.update(scores, labels)
    values = {key: float(value) for key, value in collection.compute().items()}
    collection.reset()
    return values


def milliseconds_per_batch(metrics, batches, repeat=5):
    """The median over the batches."""
    times = []
    for _ in range(repeat):
        for _, _, samples in batches:
            start = time.perf_counter()
            for metric in metrics:
                metric.process(None, samples)
            times.append(time.perf_counter() - start)
        for metric in metrics:
            metric.results.clear()  # not part of this measurement
            metric._seen = 0
    return statistics.median(times) * 1000


def main() -> None:
    """Print both comparisons."""
    batches = make_batches()

    heading(f"SingleLabelPRF, {BATCHES} batches of {BATCH} x {NUM_CLASSES}, weighted precision, recall and F1")
    options = dict(num_classes=NUM_CLASSES, average="weighted")
    for checks, note in ((True, ""), (False, "validate_args=False")):
        peers = dict(
            precision=MulticlassPrecision(**options, validate_args=checks),
            recall=MulticlassRecall(**options, validate_args=checks),
            f1=MulticlassF1Score(**options, validate_args=checks),
        )
        # With compute groups, the three metrics share one set of counts: the fastest way in torchmetrics.
        collection = MetricCollection(peers, compute_groups=True)
        run_torchmetrics(collection, batches[:2])
        theirs, their_values = seconds(lambda collection=collection: run_torchmetrics(collection, batches), repeat=5)
        ours, (our_values,) = seconds(
            lambda: run_ours([SingleLabelPRF(average="weighted", convention="mmpretrain")], batches), repeat=5
        )
        if checks:
            print(f"{'SingleLabelPRF (and 7 more numbers)':<44}{ours:9.3f} s")
        versus(ours, theirs, "torchmetrics", 1, note)
        differences = [abs(our_values[f"single-label-prf/{key}_weighted"] - their_values[key]) for key in peers]
        print(f"largest difference of a value: {max(differences):.1e}")

    heading(f"All classification metrics together, a batch of {BATCH} x {NUM_CLASSES}")
    single = [SingleLabelAUC(), SingleLabelPRF(topk=(1, 5)), SingleLabelKS(), RecallAtK(), CalibrationError()]
    several = [MultiLabelAUC(), MultiLabelPRF()]
    for metric in [*single, *several]:
        print(f"{type(metric).__name__:<44}{milliseconds_per_batch([metric], batches):9.3f} ms")
    together = milliseconds_per_batch([*single, *several], batches)
    verdict = "met" if together < TARGET_MS else "MISSED"
    print(f"{'all seven':<44}{together:9.3f} ms (target under {TARGET_MS:g} ms: {verdict})")
