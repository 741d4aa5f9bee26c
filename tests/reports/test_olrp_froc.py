"""oLRP and FROC in every form of a report."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mm_metrics_plugin import DetectionSettings, evaluate_detection
from tests.helpers.result_files import ROOT

TRUTH, RESULTS = (str(ROOT / "demo/detections" / name) for name in ("annotations.json", "results.pkl"))
COLUMNS = {
    "olrp": ["oLRP", "oLRP_Loc", "oLRP_FP", "oLRP_FN", "oLRP_threshold"],
    "froc": ["FROC", *(f"sensitivity@{fps}" for fps in ("0.125", "0.25", "0.5", "1", "2", "4", "8"))],
}

LOGGED_PER_CLASS = {"olrp": ["oLRP", "oLRP_threshold"], "froc": ["FROC"]}
COUNTS = ("tp", "fp", "fn")


@pytest.fixture(scope="module")
def report():
    return evaluate_detection(TRUTH, RESULTS)


def test_log_json_csv_and_markdown_have_the_same_values(report, tmp_path):
    report.save(tmp_path)
    content = json.loads((tmp_path / "report.json").read_text())
    log, markdown = report.log_values(classwise=True), (tmp_path / "report.md").read_text()
    table = report.to_dataframe()
    for part, columns in COLUMNS.items():
        overall = {key: value for key, value in content[part].items() if key != "per_class"}
        assert overall == {key: log[key] for key in columns if key != "oLRP_threshold"}
        assert "| " + " | ".join(f"{value:.4f}" for value in overall.values()) + " |" in markdown
        for row, name in zip(content[part]["per_class"], report.classes):
            assert list(row) == ["name", *columns] and row["name"] == name
            logged = LOGGED_PER_CLASS[part]
            assert [row[key] for key in logged] == [log[f"{key}/{name}"] for key in logged]
            of_class = table[(table["name"] == name) & (table["matching"] == "coco")]
            assert of_class[columns].iloc[0].tolist() == list(row.values())[1:]
    assert (tmp_path / "froc_curves.png").stat().st_size > 5000


def test_values_agree_with_the_other_parts_of_the_report(report):
    """The best threshold as the score threshold gives oLRP; sensitivities are at most the recall of all detections."""
    classes = len(report.classes)
    for index, (olrp, threshold) in enumerate(zip(report.analysis.olrp.olrp, report.analysis.olrp.thresholds)):
        again = evaluate_detection(TRUTH, RESULTS, score_thr=float(threshold), matching=("coco",))
        columns, analysis = again.matching_rules[0].columns, again.analysis
        assert analysis.olrp.olrp.tolist() == report.analysis.olrp.olrp.tolist()
        error = 2 * columns["tp"][index] * analysis.olrp.localization[index]
        lrp = (error + columns["fp"][index] + columns["fn"][index]) / sum(columns[key][index] for key in COUNTS)
        assert lrp == pytest.approx(olrp, abs=1e-12)
    values = report.analysis.froc.class_values()
    curves = report.analysis.curves.per_class
    for index in range(classes):
        sensitivities = [values[key][index] for key in COLUMNS["froc"][1:]]
        assert sensitivities == sorted(sensitivities) and sensitivities[-1] <= curves[index].recall[-1]
        assert values["FROC"][index] == pytest.approx(np.mean(sensitivities), abs=1e-12)


def test_options_leave_them_out(report):
    without = evaluate_detection(TRUTH, RESULTS, olrp=False, froc=False)
    content = without.to_dict()
    assert content["olrp"] is None and content["froc"] is None
    assert not [key for key in without.log_values(classwise=True) if key.startswith(("oLRP", "FROC", "sensitivity"))]
    assert "froc_curves.png" not in without.figures() and "oLRP" not in without.to_markdown()
    assert set(report.to_dataframe().columns) - set(without.to_dataframe().columns) == {
        *COLUMNS["olrp"],
        *COLUMNS["froc"],
    }
    same = {key: value for key, value in report.to_dict().items() if key not in ("olrp", "froc", "settings")}
    assert {key: content[key] for key in same} == same


@pytest.mark.parametrize("name", ["olrp", "froc"])
def test_options_must_be_true_or_false(name):
    with pytest.raises(ValueError, match=rf"{name} must be True or False \(found 1\)"):
        DetectionSettings(**{name: 1})
