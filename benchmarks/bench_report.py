"""The whole report command, figures included, beside mmdet's own tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import List

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
# Saves the matrix the tool computes, which itself keeps only a picture of it.
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
    """Runs Python in the folder; what it prints is not shown."""
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def main() -> None:
    problem = make_problem()
    heading(
        f"Report: the whole command on {problem.num_images:,} images, {len(problem.labels):,} detections, "
        f"{problem.num_classes} classes, with figures"
    )
    with tempfile.TemporaryDirectory() as folder:
        write_results(problem, Path(folder, "results.pkl"))
        write_truth(problem, Path(folder, "truth.json"))
        names = [row["name"] for row in json.loads(Path(folder, "truth.json").read_text())["categories"]]
        Path(folder, "config.py").write_text(CONFIG.format(classes=tuple(names)))
        ours: List[str] = ["-m", "mm_metrics_command", "detection"]
        taken = {}
        for what, truth, options in (
            ("annotations, coco and mmdet", "truth.json", []),
            ("annotations, mmdet only", "truth.json", ["--matching", "mmdet"]),
            ("config, coco and mmdet", "config.py", []),
        ):
            out = ["results.pkl", "out", *options]
            taken[what], _ = seconds(lambda truth=truth, out=out: run(folder, *ours, truth, *out), repeat=2)
            print(f"{'mm-metrics detection, ' + what:<52}{taken[what]:9.3f} s", flush=True)
        report = json.loads(Path(folder, "out", "report.json").read_text())
        tool = Path(find_spec("mmdet").origin).parent / ".mim" / "tools" / "analysis_tools" / "confusion_matrix.py"
        stock = ["-c", KEEP_MATRIX, str(tool), "config.py", "results.pkl", "stock"]
        theirs, _ = seconds(lambda: run(folder, *stock))
        matrix = np.load(Path(folder, "matrix.npy"))
    same = np.array_equal(matrix, report["protocols"]["mmdet"]["confusion_matrix"])
    note = f"matrix {'identical' if same else 'DIFFERENT'}"
    versus(taken["annotations, coco and mmdet"], theirs, "mmdet's tool, whole command", 8, note)
    versus(taken["config, coco and mmdet"], theirs, "the same, to ours from the config", 8)


if __name__ == "__main__":
    main()
