"""The command with the conventions of LVIS."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from mm_metrics_plugin import compare_runs, evaluate_detection
from tests.evaluation.test_shards import torchrun
from tests.helpers import result_files as files
from tests.helpers.lvis_problems import lvis_problem

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")


@pytest.fixture
def folder(tmp_path):
    content, results = lvis_problem(6)
    files.write_json(tmp_path / "lvis.json", content)
    images = sorted({row["image_id"] for row in results})
    for part in range(2):
        files.write_json(tmp_path / f"{part}.json", [row for row in results if row["image_id"] in images[part::2]])
    files.write_json(tmp_path / "results.json", results)
    return tmp_path


def test_convention_is_a_flag_of_the_command(folder):
    names = ("lvis.json", "results.json")
    expected = evaluate_detection(*(str(folder / name) for name in names), convention="lvis")
    values = expected.analysis.average_precision.to_dict()
    assert 0 < values["mAP_r"] < 1 and "AR@300" in values
    report = files.report_of("detection", *(folder / name for name in names), "--convention", "lvis")
    printed = {key: report["average_precision"][key] for key in values}
    assert printed == {key: None if np.isnan(value) else value for key, value in values.items()}
    assert report["average_precision"]["most_detections_per_image"] == expected.analysis.most_detections
    text = files.printed("detection", *(folder / name for name in names), "--convention", "lvis")
    rare = expected.settings.frequency.count("r")
    assert f"mAP_r {values['mAP_r']:.4f} ({rare} rare classes), mAP_c" in " ".join(text.split())
    assert "AP uses at most 300 detections per image (max_dets); no image has more" in " ".join(text.split())


def test_two_processes_write_the_report_of_one(folder, tmp_path):
    options = ("--convention", "lvis-fixed", "--max-dets", "5", "--format", "json")
    one = json.loads(files.printed("detection", folder / "lvis.json", folder / "results.json", *options))
    parts = [folder / "0.json", folder / "1.json"]
    for results in (parts, [folder / "results.json"]):
        code, out, error = torchrun(2, "detection", folder / "lvis.json", *results, *options, cwd=folder)
        assert code == 0, error
        two = json.loads(out)
        assert {key for key, value in one.items() if two[key] != value} <= {"inputs"}


def test_page_and_files_are_written(folder):
    arguments = (folder / "lvis.json", folder / "results.json", folder / "out", "--html", "--convention", "lvis")
    files.printed("detection", *arguments)
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "rare classes" in page and "no image has more" in page and "report.json" in os.listdir(folder / "out")


@pytest.mark.parametrize("convention", ["lvis", "lvis-fixed"])
def test_runs_are_compared_by_the_convention(convention):
    content, results = lvis_problem(6)
    options = {"convention": convention, "max_dets": 6}
    report = compare_runs(content, [results, results[::2]], permutations=20, **options)
    value = report.comparisons[0].comparison.overall["mAP"]
    for run, rows in (("first", results), ("second", results[::2])):
        expected = evaluate_detection(content, rows, **options).analysis.average_precision.to_dict()["mAP"]
        assert getattr(value, run) == pytest.approx(expected, abs=1e-12)
    # All permutations of the results of one image have the same difference.
    content, results = lvis_problem(12)
    content["images"] = content["images"][:1]
    image_id = content["images"][0]["id"]
    content["annotations"] = [row for row in content["annotations"] if row["image_id"] == image_id]
    rows = [row for row in results if row["image_id"] == image_id]
    report = compare_runs(content, [rows, rows[1::3]], permutations=20, **options)
    value = report.comparisons[0].comparison.overall["mAP"]
    assert value.difference != 0 and value.p_value == 1
