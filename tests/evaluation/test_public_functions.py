"""The functions of ``mm_metrics_plugin`` and the command give the same reports; inputs in memory and files likewise."""

from __future__ import annotations

import builtins
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from mm_metrics_plugin import (
    DetectionSettings,
    compare_runs,
    evaluate_classification,
    evaluate_detection,
    merge_states,
)
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.io.writing import to_json
from mm_metrics_plugin.reports.base import Progress
from tests.helpers import result_files as files
from tests.helpers.result_files import ROOT

pytestmark = pytest.mark.usefixtures("shown_warnings")
TRUTH, RESULTS = ROOT / "demo/detections/annotations.json", ROOT / "demo/detections/results.pkl"


def written(folder, name="report.json"):
    return json.loads(Path(folder, name).read_text())


def without_inputs(report):
    """The content of the JSON file, whose text is the same where values are undefined, too."""
    return to_json({name: value for name, value in report.to_dict().items() if name != "inputs"})


@pytest.fixture(scope="module")
def scores():
    random = np.random.default_rng(0)
    values = random.dirichlet(np.ones(3), size=60).astype(np.float32)
    return values, random.integers(0, 3, size=60)


@pytest.fixture
def classification_file(scores, tmp_path):
    samples = [{"pred_score": row, "gt_label": np.array([label])} for row, label in zip(*scores)]
    path = tmp_path / "results.pkl"
    path.write_bytes(pickle.dumps(samples))
    return path, samples


@pytest.mark.parametrize(
    "flags, options",
    [
        ([], {}),
        (
            ["--score-thr", "0.5", "--ci", "0.95", "--matching", "agnostic"],
            dict(score_thr=0.5, ci=0.95, matching="agnostic"),
        ),
    ],
)
def test_detection_writes_what_the_command_writes(flags, options, tmp_path):
    assert main(["detection", str(TRUTH), str(RESULTS), str(tmp_path / "command"), "--quiet", *flags]) == 0
    files = evaluate_detection(TRUTH, RESULTS, **options).save(tmp_path / "python")
    assert written(tmp_path / "python") == written(tmp_path / "command")
    assert sorted(files) == sorted(path.name for path in (tmp_path / "command").iterdir())


def test_detection_of_what_is_in_memory(tmp_path):
    from_files = evaluate_detection(TRUTH, RESULTS)
    annotations, images = json.loads(TRUTH.read_text()), pickle.loads(RESULTS.read_bytes())
    in_memory = evaluate_detection(annotations, images)
    assert without_inputs(in_memory) == without_inputs(from_files)
    assert in_memory.inputs["results"]["sha256"] is None
    batch = DetectionBatch.from_images(
        boxes=[[[0, 0, 10, 10]]], scores=[[0.9]], labels=[[0]], gt_boxes=[[[0, 0, 10, 10]]], gt_labels=[[0]]
    )
    assert evaluate_detection(batch, classes=["cat"]).matching_rules[0].columns["tp"].tolist() == [1]


def test_merged_states_give_the_report_of_one_run(tmp_path):
    images = pickle.loads(RESULTS.read_bytes())
    options = dict(ci=0.9, resamples=20, operating_point="f1")
    for number, part in enumerate((images[::2], images[1::2])):
        path = tmp_path / f"part{number}.pkl"
        path.write_bytes(pickle.dumps(part))
        evaluate_detection(TRUTH, path, save_state=tmp_path / f"part{number}.npz", **options)
    merged = merge_states([tmp_path / "part0.npz", tmp_path / "part1.npz"])
    assert without_inputs(merged) == without_inputs(evaluate_detection(TRUTH, RESULTS, **options))


def test_classification_of_files_samples_and_arrays(scores, classification_file, tmp_path):
    path, samples = classification_file
    assert main(["classification", str(path), str(tmp_path / "command"), "--quiet"]) == 0
    report = evaluate_classification(path)
    report.save(tmp_path / "python")
    assert written(tmp_path / "python") == written(tmp_path / "command")
    for given in (samples, scores):
        assert without_inputs(evaluate_classification(given)) == without_inputs(report)


def test_comparison_writes_what_the_command_writes(tmp_path):
    other = ROOT / "demo/comparison/larger.json"
    arguments = [str(TRUTH), str(RESULTS), str(other), str(tmp_path / "command"), "--permutations", "100", "--quiet"]
    assert main(["compare", *arguments]) == 0
    compare_runs(TRUTH, [RESULTS, other], permutations=100).save(tmp_path / "python", html=True)
    assert written(tmp_path / "python", "comparison.json") == written(tmp_path / "command", "comparison.json")
    assert "<html" in (tmp_path / "python" / "report.html").read_text()


def test_to_dict_is_the_content_of_the_json_file(scores, tmp_path):
    annotations = json.loads(TRUTH.read_text())
    reports = {
        "report.json": [
            evaluate_detection({**annotations, "annotations": annotations["annotations"][:5]}, [], ci=0.9, resamples=9),
            evaluate_classification(scores[0], np.zeros(60, dtype=int), ci=0.9),
        ],
        "comparison.json": [compare_runs(TRUTH, [RESULTS, []], permutations=10)],
    }
    for name, made in reports.items():
        for report in made:
            report.save(tmp_path)
            text = (tmp_path / name).read_text(encoding="utf-8")
            assert report.to_dict() == json.loads(text) == json.loads(json.dumps(report.to_dict(), allow_nan=False))
            assert "null" in text and "NaN" not in text


def test_reports_in_a_notebook(scores, monkeypatch):
    report = evaluate_classification(scores, classes=["cat", "<b>", "dog"])
    assert "&lt;b&gt;" in report._repr_html_() and "<script" not in report._repr_html_()
    assert str(report) and report.to_markdown().startswith("#")
    assert set(report.figures()) == {"confusion_matrix.png", "curves.png"}
    table = report.to_dataframe()
    assert list(table["name"]) == ["cat", "<b>", "dog"]
    assert report.to_dataframe("confusion_matrix").shape == (3, 4)
    with pytest.raises(ValueError, match="per_class, confusion_matrix"):
        report.to_dataframe("nothing")
    imported = builtins.__import__

    def without_pandas(name, *rest, **more):
        if name == "pandas":
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(ImportError, match="pip install pandas"):
        report.to_dataframe()


def test_settings_and_options_are_the_same():
    settings = DetectionSettings(score_thr=0.5)
    assert evaluate_detection(TRUTH, RESULTS, settings=settings).settings == settings
    assert evaluate_detection(TRUTH, RESULTS, settings=settings, iou_thr=0.7).settings.iou_thr == 0.7


class RecordedProgress(Progress):
    """Keeps the steps, the number of batches of each loop, and the fractions."""

    def __init__(self):
        self.steps, self.loops, self.fractions = [], {}, []

    def step(self, description):
        self.steps.append(description)

    def track(self, items):
        self.loops[self.steps[-1]] = len(items)
        return items

    def fraction(self, value):
        self.fractions.append(value)


def test_long_loops_report_their_progress(tmp_path):
    truth, results = files.pair(tmp_path, images=2500)
    progress = RecordedProgress()
    evaluate_detection(truth, results, ci=0.95, progress=progress)
    assert progress.loops["computing metrics"] > 1  # batches of resamples
    assert 0 < progress.fractions[0] < progress.fractions[-1] <= 1  # of the result file
    progress = RecordedProgress()
    compare_runs(truth, [results, results], permutations=500, progress=progress)
    assert progress.loops["comparing run 2 with run 1"] > 1  # batches of permutations


@pytest.mark.parametrize("iou_thrs, iou_thr", [((0.75,), 0.5), ((0.3, 0.5, 0.75), 0.75), ((0.42, 0.6), 0.1)])
def test_all_functions_average_over_the_given_iou_thresholds(iou_thrs, iou_thr, tmp_path):
    made = files.problem()
    truth, results, options = files.truth_of(made), files.results_of(made), {"iou_thrs": iou_thrs, "iou_thr": iou_thr}
    report = evaluate_detection(truth, results, **options)
    alone = [evaluate_detection(truth, results, iou_thrs=(value,)).analysis.average_precision for value in iou_thrs]
    expected = np.mean([ap.to_dict()["mAP"] for ap in alone])
    for number, part in enumerate((results[:15], results[15:])):
        evaluate_detection(truth, part, save_state=tmp_path / f"{number}.npz", **options)
    merged = merge_states([tmp_path / f"{number}.npz" for number in range(2)])
    for found in (report, merged):
        assert found.analysis.average_precision.to_dict()["mAP"] == pytest.approx(expected, abs=1e-12)
        assert found.to_dict()["settings"]["iou_thrs"] == list(iou_thrs)
        assert f"mean over the IoU threshold{'s' * (len(iou_thrs) > 1)} {iou_thrs[0]}" in found.to_markdown()
    report = compare_runs(truth, [results, results[::-1]], permutations=2, **options)
    assert f"mAP: mean over the IoU threshold{'s' * (len(iou_thrs) > 1)} {iou_thrs[0]}" in report.to_markdown()
    comparison = report.to_dict()
    compared = {row["metric"]: row for row in comparison["comparisons"][0]["overall"]}
    assert compared["mAP"]["first"] == pytest.approx(expected, abs=1e-12)
    assert comparison["settings"]["iou_thrs"] == list(iou_thrs)
