"""``mm-metrics detection`` compared with mmdet's tool: time with and without figures, memory per detection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.bench_reading import write_results, write_truth
from benchmarks.detection_problem import make_problem
from benchmarks.timing import heading, seconds, versus

CONFIG = """
default_scope = 'mmdet'
test_dataloader = dict(dataset=dict(
    type='CocoDataset', data_root='', ann_file='truth.json', data_prefix=dict(img=''), test_mode=True,
    metainfo=dict(classes={classes!r}), pipeline=[]))
"""
# Saves the matrix of the tool, which writes only a figure.
KEEP_MATRIX = """
import runpy, sys
import numpy as np
tool = runpy.run_path(sys.argv[1])
count = tool["calculate_confusion_matrix"]
def kept(*arguments, **options):
    matrix = count(*arguments, **options)
    np.save("matrix.npy", matrix)
    return matrix
tool["main"].__globals__["calculate_confusion_matrix"] = kept
sys.argv = sys.argv[1:]
tool["main"]()
"""


def run(folder: str, *arguments: str) -> None:
    """Run Python in the folder without showing its output."""
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def peak_of(folder: str, *arguments: str) -> int:
    """Peak memory of the command, in bytes."""
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_module('mm_metrics_command', run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "mm-metrics", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1]) * 1024


def memory() -> None:
    peaks, detections = [], []
    for images in (5_000, 40_000):
        problem = make_problem(images)
        with tempfile.TemporaryDirectory() as folder:
            write_results(problem, Path(folder, "results.pkl"))
            write_truth(problem, Path(folder, "truth.json"))
            peaks.append(peak_of(folder, "detection", "truth.json", "results.pkl", "--quiet"))
        detections.append(len(problem.labels))
        print(f"{images:>8,} images, {detections[-1]:,} detections{peaks[-1] / 2**20:9.0f} MiB", flush=True)
    each = (peaks[1] - peaks[0]) / (detections[1] - detections[0])
    print(f"{each:.0f} bytes per detection (target 150: {'met' if each <= 150 else 'MISSED'})", flush=True)


def main() -> None:
    problem = make_problem()
    heading(
        f"Report: the whole command on {problem.num_images:,} images, {len(problem.labels):,} detections, "
        f"{problem.num_classes} classes"
    )
    with tempfile.TemporaryDirectory() as folder:
        write_results(problem, Path(folder, "results.pkl"))
        write_truth(problem, Path(folder, "truth.json"))
        names = [row["name"] for row in json.loads(Path(folder, "truth.json").read_text())["categories"]]
        Path(folder, "config.py").write_text(CONFIG.format(classes=tuple(names)))
        ours: list[str] = ["-m", "mm_metrics_command", "detection"]
        taken = {}
        for what, truth, options in (
            ("no files", "truth.json", []),
            ("no files, --ci 0.95", "truth.json", ["--ci", "0.95"]),
            ("with figures", "truth.json", ["out"]),
            ("with figures, mmdet only", "truth.json", ["out", "--matching", "mmdet"]),
            ("with figures, from the config", "config.py", ["out"]),
            ("with figures and page", "truth.json", ["page", "--html"]),
        ):
            out = ["results.pkl", *options]
            taken[what], _ = seconds(lambda truth=truth, out=out: run(folder, *ours, truth, *out), repeat=3)
            limit = f"   (target 1.5 s: {'met' if taken[what] <= 1.5 else 'MISSED'})" if what == "no files" else ""
            print(f"{'mm-metrics detection, ' + what:<52}{taken[what]:9.3f} s{limit}", flush=True)
        report = json.loads(Path(folder, "page", "report.json").read_text())
        tool = Path(find_spec("mmdet").origin).parent / ".mim" / "tools" / "analysis_tools" / "confusion_matrix.py"
        stock = ["-c", KEEP_MATRIX, str(tool), "config.py", "results.pkl", "stock"]
        theirs, _ = seconds(lambda: run(folder, *stock))
        matrix = np.load(Path(folder, "matrix.npy"))
    same = np.array_equal(matrix, report["matching_rules"]["mmdet"]["confusion_matrix"])
    note = f"matrix {'identical' if same else 'DIFFERENT'}"
    versus(taken["with figures"], theirs, "mmdet's tool, whole command", 10, note)
    versus(taken["with figures, from the config"], theirs, "the same, to ours from the config", 4)
    heading("Report: memory of the whole command")
    memory()
