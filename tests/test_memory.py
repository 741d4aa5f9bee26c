"""Peak memory of large evaluations, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
MB = 10**6
ROOT = Path(__file__).resolve().parents[1]


def peak_of(*arguments):
    """The peak resident set of a Python process with these arguments, in bytes; it must succeed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        output.seek(0)
        assert status == 0, output.read().decode(errors="replace")[-3000:]
    return usage.ru_maxrss * 1024


def child(name, *arguments):
    """Runs a function of this module in its own process and returns the JSON it prints."""
    code = f"import sys; from tests import test_memory; test_memory.{name}(*sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}


def write_detections(folder):
    """Results and annotations of 15,000 images with 100 detections each."""
    from benchmarks.bench_reading import write_results, write_truth
    from benchmarks.detection_problem import make_problem

    problem = make_problem(num_images=15_000)
    write_results(problem, Path(folder, "results.pkl"))
    write_truth(problem, Path(folder, "truth.json"))


@pytest.fixture(scope="module")
def detections(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detections")
    child("write_detections", str(folder))
    return folder


@pytest.mark.parametrize("options", [[], ["--html"]], ids=["figures", "page"])
def test_report_of_1_500_000_detections(options, detections):
    files = [str(detections / name) for name in ("truth.json", "results.pkl", "out")]
    peak = peak_of("-m", "mm_metrics_command", "detection", *files, *options)
    report = json.loads((detections / "out" / "report.json").read_text())
    assert report["counts"]["detections"]["read"] == 1_500_000
    assert peak < 1500 * MB


def softmax(count, classes, seed):
    """Scores with a signal on the true class, and the labels."""
    import numpy as np

    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    scores = generator.standard_normal((count, classes), dtype=np.float32)
    scores[np.arange(count), labels] += 2
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores, labels


def auc_as_metric():
    """The memory of the metric, in addition to torch, mmengine and the batches."""
    import torch

    from benchmarks.timing import peak_bytes, reset_peak
    from mm_metrics_plugin import SingleLabelAUC

    def feed(metric, batches):
        for seed in range(batches):
            scores, labels = softmax(200, 1_000, seed)
            rows = zip(torch.from_numpy(scores), torch.from_numpy(labels)[:, None])
            metric.process(None, [dict(pred_score=score, gt_label=label) for score, label in rows])

    warm = SingleLabelAUC(num_thresholds=2)
    feed(warm, 5)
    reset_peak()
    before = peak_bytes()
    metric = SingleLabelAUC(num_thresholds=4096)
    feed(metric, 200_000 // 200)
    value = metric.evaluate(200_000)
    print(json.dumps({"peak": peak_bytes() - before, "auc": value["single-label/auc"]}))


def test_binned_auc_of_200_000_samples_and_1_000_classes():
    metric = child("auc_as_metric")
    assert 0.7 < metric["auc"] < 1
    assert metric["peak"] < 300 * MB  # in addition to torch and mmengine


def validation():
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

    def samples(seed):
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
    peaks = []
    for seed in range(1_000):
        if seed in (100, 900):
            reset_peak()
        evaluator.process(data_samples=list(samples(seed)))
        if seed + 1 in (200, 1_000):
            peaks.append(peak_bytes())
    values = evaluator.evaluate(1_000_000)
    peaks.append(peak_bytes())
    print(json.dumps({"early": peaks[0], "late": peaks[1], "end": peaks[2], "numbers": len(values)}))


def test_memory_of_a_long_validation_is_constant():
    peaks = child("validation")
    # 1.25 bytes for each of the 800,000 samples: less than a metric that keeps one number per sample needs.
    assert peaks["late"] - peaks["early"] < 1 * MB
    assert peaks["end"] - peaks["late"] < 8 * MB
