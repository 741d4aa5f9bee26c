"""How much memory the large cases take: the peak of a fresh process each, so that nothing else is in the figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List

from campaign.environments import ROOT
from campaign.part import Figures, Part

MB = 10**6


def peak_of(*arguments: str) -> int:
    """The most memory a Python process with these arguments held, in bytes; it must end well."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            output.seek(0)
            raise RuntimeError(f"{arguments} failed:\n{output.read().decode(errors='replace')[-3000:]}")
    return usage.ru_maxrss * 1024


def child(name: str, *arguments: str) -> Dict[str, float]:
    """Runs a function of this module in a process of its own and returns what it printed as JSON."""
    code = f"import sys; from campaign import memory; memory.{name}(*sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}


# --- the report -------------------------------------------------------------------------------------------------------


def write_detections(folder: str) -> None:
    """Results and annotations of 15,000 images with 100 detections each."""
    from benchmarks.bench_reading import write_results, write_truth
    from benchmarks.detection_problem import make_problem

    problem = make_problem(num_images=15_000)
    write_results(problem, Path(folder, "results.pkl"))
    write_truth(problem, Path(folder, "truth.json"))


def report(figures: Figures) -> None:
    """The whole command, with all its files."""
    with tempfile.TemporaryDirectory() as folder:
        child("write_detections", folder)
        files = [str(Path(folder, name)) for name in ("truth.json", "results.pkl", "out")]
        for what, options in (("with figures", []), ("with figures and the page", ["--html"])):
            peak = peak_of("-m", "mm_metrics_command", "detection", *files, *options)
            counted = json.loads(Path(folder, "out", "report.json").read_text())
            if "1500000" not in json.dumps(counted):
                raise RuntimeError("the report does not speak of 1,500,000 detections")
            ceiling(figures, f"report of 1,500,000 detections in 15,000 images, {what}: the whole process", 1500, peak)


# --- binned AUC -------------------------------------------------------------------------------------------------------


def softmax(count: int, classes: int, seed: int) -> tuple:
    """Scores with a signal on the true class, and the labels."""
    import numpy as np

    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    scores = generator.standard_normal((count, classes), dtype=np.float32)
    scores[np.arange(count), labels] += 2
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores, labels


def auc_without_torch() -> None:
    """The state and the function, as a process without torch uses them."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # as if it were not installed
    from benchmarks.timing import peak_bytes
    from mm_metrics_plugin.functional.classification.auc import histogram_auc
    from mm_metrics_plugin.states.scores import ScoreHistogramState

    state = ScoreHistogramState(4096)
    for seed in range(200_000 // 200):
        state.update(*softmax(200, 1_000, seed))
    value = histogram_auc(state.positives, state.totals)
    if "torch" in sys.modules and sys.modules["torch"] is not None:
        raise RuntimeError("torch was imported")
    print(json.dumps({"peak": peak_bytes(), "auc": float(value.value)}))


def auc_as_metric() -> None:
    """The metric in mmengine: what it holds beyond torch, mmengine and the batches."""
    import torch

    from benchmarks.timing import peak_bytes, reset_peak
    from mm_metrics_plugin import SingleLabelAUC

    def feed(metric: object, batches: int) -> None:
        for seed in range(batches):
            scores, labels = softmax(200, 1_000, seed)
            rows = zip(torch.from_numpy(scores), torch.from_numpy(labels)[:, None])
            metric.process(None, [dict(pred_score=score, gt_label=label) for score, label in rows])  # type: ignore

    warm = SingleLabelAUC(num_thresholds=2)
    feed(warm, 5)
    reset_peak()
    before = peak_bytes()
    metric = SingleLabelAUC(num_thresholds=4096)
    feed(metric, 200_000 // 200)
    value = metric.evaluate(200_000)
    print(json.dumps({"peak": peak_bytes() - before, "auc": value["single-label/auc"]}))


def binned_auc(figures: Figures) -> None:
    """Both ways; they must agree, or the memory is that of something else."""
    plain, metric = child("auc_without_torch"), child("auc_as_metric")
    if abs(plain["auc"] - metric["auc"]) > 1e-12 or not 0.7 < plain["auc"] < 1:
        raise RuntimeError(f"two ways to one AUC differ: {plain['auc']} and {metric['auc']}")
    what = "AUC of 200,000 x 1,000 scores in 4,096 bins"
    ceiling(figures, f"{what}, NumPy only: the whole process", 300, plain["peak"])
    ceiling(figures, f"{what}, SingleLabelAUC: beyond what torch and mmengine take", 300, metric["peak"])


# --- a long validation ------------------------------------------------------------------------------------------------


def validation() -> None:
    """Every classification metric that promises constant memory, in one evaluator of mmengine."""
    import torch
    from mmengine.evaluator import Evaluator

    from benchmarks.timing import peak_bytes, reset_peak
    from mm_metrics_plugin import (
        CalibrationError,
        FieldMean,
        MultiLabelAUC,
        MultiLabelPRF,
        RecallAtK,
        SingleLabelAUC,
        SingleLabelKS,
        SingleLabelPRF,
    )

    def samples(seed: int) -> Iterator[dict]:
        scores, labels = softmax(1_000, 10, seed)
        truth = torch.from_numpy(labels)
        one_hot = torch.nn.functional.one_hot(truth, 10)
        for score, label, row in zip(torch.from_numpy(scores), truth[:, None], one_hot):
            yield dict(pred_score=score, gt_label=label, gt_score=row, quality=score[:1])

    evaluator = Evaluator(
        [
            SingleLabelPRF(),
            SingleLabelAUC(num_thresholds=4096),
            SingleLabelAUC(thrs=0.5, prefix="thrs"),
            SingleLabelKS(num_thresholds=4096, prefix="ks"),
            CalibrationError(num_thresholds=4096, prefix="calibration"),
            RecallAtK(prefix="recall"),
            MultiLabelPRF(prefix="multi"),
            MultiLabelAUC(num_thresholds=4096, prefix="multi-auc"),
            FieldMean(field="quality", prefix="field"),
        ]
    )
    peaks: List[int] = []
    for seed in range(1_000):
        if seed in (100, 900):
            reset_peak()
        evaluator.process(data_samples=list(samples(seed)))
        if seed + 1 in (200, 1_000):
            peaks.append(peak_bytes())
    values = evaluator.evaluate(1_000_000)
    peaks.append(peak_bytes())
    print(json.dumps({"early": peaks[0], "late": peaks[1], "end": peaks[2], "numbers": len(values)}))


def long_validation(figures: Figures) -> None:
    """The peak must not grow with the samples."""
    found = child("validation")
    what = "validation of 1,000,000 samples x 10 classes with nine metrics"
    # 1.25 bytes of each of the 800,000 samples between the two: who keeps a number of each is found.
    ceiling(figures, f"{what}: more in the last 100,000 than in the second", 1, found["late"] - found["early"])
    ceiling(figures, f"{what}: the evaluation at its end", 8, found["end"] - found["late"])


def ceiling(figures: Figures, what: str, megabytes: int, peak: float) -> None:
    """Keeps a peak beside its ceiling."""
    figures.add(what, f"under {megabytes:,} MB", f"{peak / MB:,.1f} MB", peak < megabytes * MB)


def run() -> Figures:
    """All three."""
    figures = Figures()
    report(figures)
    binned_auc(figures)
    long_validation(figures)
    return figures


PART = Part(
    "memory",
    "Memory",
    "The most memory a fresh process held (its peak resident set); scores are made batch by batch, as a data loader"
    " would. 1 MB is a million bytes.",
    run,
)
