"""Thousands of classes: size of figures and files, memory, and figures that cannot be drawn."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.render.figures import confusion_matrix as figures
from tests.helpers import result_files as files

pytestmark = pytest.mark.usefixtures("shown_warnings")


def classified(folder, classes, samples=120, seed=0):
    """Results of a classifier; half of the decisions are wrong."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, samples)
    scores = np.zeros((samples, classes), dtype=np.float32)
    decided = np.where(random.random(samples) < 0.5, labels, random.integers(0, classes, samples))
    scores[np.arange(samples), decided] = random.uniform(0.5, 0.9, samples)
    content = [
        {"pred_score": score, "pred_label": np.array([one]), "gt_label": np.array([label])}
        for score, one, label in zip(scores, decided, labels)
    ]
    return files.write_pickle(folder / f"{classes}-{seed}.pkl", content), labels, decided


@pytest.mark.parametrize("classes", [1000, 10_000])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_many_classes_work(tmp_path, classes):
    path, labels, decided = classified(tmp_path, classes)
    files.printed("classification", path, tmp_path / "out", "--html", "--quiet")
    names = {"report.json", "report.md", "report.html", "per_class.csv", "confusion_matrix.csv", "confusion_matrix.png"}
    assert set(os.listdir(tmp_path / "out")) == names
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["accuracy"] == np.mean(labels == decided)
    expected = sorted(zip(labels.tolist(), decided.tolist()))
    if classes == 1000:
        rows, columns = np.nonzero(report["confusion_matrix"])
        assert report["confusion_cells"] is None
        assert sum(map(sum, report["confusion_matrix"])) == len(labels)
    else:
        cells = report["confusion_cells"]
        rows, columns = cells["row"], cells["column"]
        assert report["confusion_matrix"] is None and sum(cells["count"]) == len(labels)
        with open(tmp_path / "out" / "confusion_matrix.csv", newline="") as file:
            written = {
                (int(row["ground_truth"]), int(row["prediction"])): int(row["count"]) for row in csv.DictReader(file)
            }
        assert written == dict(zip(zip(rows, columns), cells["count"]))
    assert sorted(set(expected)) == sorted((int(row), int(column)) for row, column in zip(rows, columns))
    assert max(Image.open(tmp_path / "out" / "confusion_matrix.png").size) <= 4000
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) < 40_000_000


MEASURED = """
import re, sys
from mm_metrics_command import load
main = load("mm_metrics_plugin.cli").main
for line in sys.argv[1:]:
    assert main(line.split("|")) == 0
# Not ru_maxrss, which is at least the memory of the process that started this one.
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1)) * 1024)
"""


def peak(*lines):
    """Peak memory of a process that runs some commands."""
    arguments = ["|".join(map(str, line)) for line in lines]
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_report_of_many_classes_holds_one_matrix(tmp_path):
    """4,000 classes need one more matrix of 8 bytes per cell than 100 classes."""
    small, large = (classified(tmp_path, classes)[0] for classes in (100, 4000))
    line = ("--html", "--quiet", "--ci", "0.95")
    base = peak(("classification", small, tmp_path / "small", *line))
    more = peak(("classification", large, tmp_path / "large", *line)) - base
    assert more < 1.3 * 8 * 4000**2


def test_a_comparison_of_many_classes_keeps_no_copy_of_the_scores(tmp_path):
    samples, classes = 4000, 1000
    paths = [classified(tmp_path, classes, samples, seed)[0] for seed in (0, 0)]
    small = classified(tmp_path, 10, 100)[0]
    line = ("--quiet", "--permutations", "9")
    base = peak(("compare", small, small, tmp_path / "small", *line))
    more = peak(("compare", *paths, tmp_path / "large", *line)) - base
    assert more < 4.9 * 4 * samples * classes


def test_detectors_of_many_classes(tmp_path):
    classes = [f"class {index}" for index in range(2100)]
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(files.problem(6), classes=classes))
    results = files.write_pickle(tmp_path / "results.pkl", files.results_of(files.problem(6)))
    files.printed("detection", truth, results, tmp_path / "out", "--quiet")
    assert max(Image.open(tmp_path / "out" / "confusion_matrix.png").size) <= 4000
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    cells = report["matching_rules"]["coco"]["confusion_cells"]
    used = report["counts"]["detections"]["used"]
    counts = report["matching_rules"]["coco"]["counts"]
    in_columns = sum(count for column, count in zip(cells["column"], cells["count"]) if column < len(classes))
    assert in_columns == used - counts.get("detections_ignored", 0)


def test_a_figure_that_cannot_be_drawn_is_a_warning(tmp_path, monkeypatch, capsys):
    path, _, _ = classified(tmp_path, 5)
    files.printed("classification", path, tmp_path / "whole", "--quiet")

    def fail(*arguments, **options):
        raise MemoryError("Unable to allocate 26 GiB")

    monkeypatch.setattr(figures, "confusion_figure", fail)
    assert main(["classification", str(path), str(tmp_path / "out")]) == 0
    out, error = capsys.readouterr()
    assert "accuracy" in out
    assert "confusion_matrix.png cannot be drawn (MemoryError: Unable to allocate 26 GiB)" in error
    assert "wrote report.json" in error and "confusion_matrix.png" not in error.split("wrote ")[1]
    assert set(os.listdir(tmp_path / "whole")) - set(os.listdir(tmp_path / "out")) == {"confusion_matrix.png"}
    for name in os.listdir(tmp_path / "out"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert main(["classification", str(path), str(tmp_path / "whole")]) == 0
    assert "the folder has confusion_matrix.png of an older report" in capsys.readouterr().err
