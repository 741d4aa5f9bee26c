"""Reports on terminals of 60, 80 and 120 columns and in a pipe: nothing is cropped, and the default is one screen."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pytest
from rich.cells import cell_len

from benchmarks.detection_problem import make_problem
from mm_metrics_plugin import compare_runs, evaluate_classification, evaluate_detection
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.io.safe_pickle import read_pickle
from mm_metrics_plugin.render.comparison import interval_text, p_text, points
from mm_metrics_plugin.render.tables import OVERALL_NAMES
from mm_metrics_plugin.render.text import WIDTH
from tests.helpers import result_files as files
from tests.helpers.result_files import DEMO, ROOT

PATHS = DEMO / "annotations.json", DEMO / "results.pkl"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(params=[60, 80, 120, None], ids=str)  # None: a pipe
def window(request, monkeypatch):
    """Runs the command in a window; returns the plain lines."""

    def run(*arguments):
        stream = io.StringIO() if request.param is None else Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setenv("TERM", "xterm")
            if request.param is not None:
                patch.setenv("COLUMNS", str(request.param))
            assert main(list(map(str, arguments))) == 0
        return [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in stream.getvalue().splitlines()]

    run.width = request.param or WIDTH
    return run


def cells_of(lines, name):
    """The cells of all tables in the rows of a name."""
    rows = [re.split(r" {2,}", line) for line in lines]
    return [cell for row in rows if row[0] == name for cell in row[1:]]


def as_json(*arguments):
    return json.loads(files.printed(*arguments, "--format", "json"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs as in the README, and two in work_dirs: the files have the same name, so whole paths tell them apart."""
    folder = tmp_path_factory.mktemp("runs") / "work_dirs"
    results = read_pickle(PATHS[1])
    weaker = [{**one, "pred_instances": {**one["pred_instances"]}} for one in results]
    for one in weaker[250:]:
        one["pred_instances"]["scores"] = one["pred_instances"]["scores"] * np.float32(0.1)
    paths = []
    for config, content in (("rtmdet_tiny_8xb32-300e_coco", results), ("faster-rcnn_r50_fpn_1x_coco", weaker)):
        (folder / f"{config}_with_a_long_name").mkdir(parents=True)
        paths.append(files.write_pickle(folder / f"{config}_with_a_long_name" / "results.pkl", content))
    return {"README": [PATHS[1], ROOT / "demo" / "comparison" / "larger.json"], "work_dirs": paths}


@pytest.mark.parametrize("names", ["README", "work_dirs"])
def test_a_comparison_shows_every_name_and_number(names, window, runs):
    arguments = ("compare", PATHS[0], *runs[names], "--permutations", "40")
    lines = window(*arguments)
    (pair,) = as_json(*arguments)["comparisons"]
    joined = "".join(line.strip() for line in lines)
    for letter, run in zip("AB", (pair["first"], pair["second"])):
        assert f"{letter}:{run}" in joined.replace(" ", "")
    assert "…" not in joined
    for row in pair["overall"]:
        shown = cells_of(lines, OVERALL_NAMES[row["metric"]])
        assert {points(row["first"]), points(row["second"]), points(row["difference"], sign=True)} <= set(shown)
        assert interval_text(row["low"], row["high"]) in shown and p_text(row["p_value"]) in shown
    for row in pair["per_class"]:
        if row["metric"] in ("AP_50", "f1"):
            assert interval_text(row["low"], row["high"]) in cells_of(lines, row["class_name"])
    assert max(cell_len(line) for line in lines if "work_dirs" not in line) <= window.width


def test_digits_show_whether_a_difference_is_significant():
    nan = float("nan")
    assert [points(0.01234, sign=True), points(-0.02), points(0, sign=True), points(nan)] == [
        "+1.2",
        "-2.0",
        "±0.0",
        "–",
    ]
    p_values = [p_text(value) for value in (0.0031, 0.0004, 0.25, 0.0504, nan)]
    assert p_values == ["0.003", "< 0.001", "0.25", "0.0504", "–"]
    limits = [(0.004, 0.02), (-0.0004, 0.02), (0.0004, 0.02), (nan, nan)]
    assert [interval_text(*pair) for pair in limits] == ["[0.4, 2.0]", "[0.0, 2.0]", "[0.04, 2.0]", "–"]


def test_confidence_intervals_show_every_name_and_both_limits(window):
    arguments = ("detection", *PATHS, "--ci", "0.95", "--resamples", "30")
    lines, report = window(*arguments, "--verbose"), as_json(*arguments)
    for index, name in enumerate(report["classes"]):
        for metric in ("precision", "recall", "f1", "AP", "AP_50"):
            interval = report["intervals"]["per_class"][metric]
            assert f"[{interval['low'][index]:.4f}, {interval['high'][index]:.4f}]" in cells_of(lines, name)
    printed_by_numpy = ("Classes (", "Precision [", "Recall [")  # the published summary
    assert max(cell_len(line) for line in lines if not line.startswith(printed_by_numpy)) <= window.width


@pytest.mark.parametrize("verbose", [(), ("--verbose",)])
def test_long_class_names_are_wrapped_and_complete(window, verbose, tmp_path):
    names = ("x" * 300, "traffic light that is green or red or yellow or off", "中" * 90, "cat")
    problem = files.problem(8)
    truth = files.write_json(tmp_path / "t.json", files.truth_of(problem, names))
    results = files.write_pickle(tmp_path / "r.pkl", files.results_of(problem))
    lines = window("detection", truth, results, *verbose)
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("class  ")) :]
    letters = "".join("".join(re.split(r" {2,}", line)[0].split()) for line in table[2 : table.index("")])
    assert all("".join(name.split()) in letters for name in names) and not any("…" in line for line in lines)


def test_classes_of_changed_samples_are_wrapped_and_complete(window, tmp_path):
    classes = ["x" * 700, "two words of a name that is long"]
    (tmp_path / "names.txt").write_text("\n".join(classes), encoding="utf-8")
    samples = [{"pred_score": scores, "gt_label": np.array([0]), "img_path": "a.jpg"} for scores in np.eye(2)]
    runs = [files.write_pickle(tmp_path / f"{at}.pkl", [sample]) for at, sample in enumerate(samples)]
    lines = window("compare", *runs, "--classes", tmp_path / "names.txt", "--permutations", "9")
    shown = lines[next(at for at, line in enumerate(lines) if "classify differently" in line) :]
    assert max(map(cell_len, shown)) <= max(window.width, 80)
    assert "".join(shown).count("x") >= 1400 and set(classes[1].split()) <= set(" ".join(shown).split())


def test_the_default_report_is_one_screen_of_one_matching_rule(tmp_path):
    text = files.printed("detection", *PATHS, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(text.splitlines()) <= 40
    assert f"{report['average_precision']['mAP']:.4f}" in text and "0.4099" not in text  # mmdet's recall
    for words in ("macro", "micro", "frame → ring: 10", "TIDE", "dAP", "--verbose"):
        assert words in text
    assert "===Averaging" not in text and "===Averaging" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert set(report["matching_rules"]) == {"coco", "mmdet"}


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ([], ["--verbose", "--matching", "OUT_DIR", "--html"]),
        (["out"], ["--verbose", "--matching", "--html"]),
        (["out", "--html", "--matching", "coco"], ["--verbose"]),
        (["--verbose"], ["OUT_DIR", "--html"]),
        (["out", "--html", "--verbose"], []),
        (["merge"], ["--verbose", "OUT_DIR", "--html"]),
    ],
)
def test_the_last_line_suggests_what_was_not_given(given, suggested, tmp_path, monkeypatch):
    paths = files.pair(tmp_path, images=5)
    monkeypatch.chdir(tmp_path)
    if given == ["merge"]:
        files.printed("detection", *paths, "--save-state", "state.npz")
        text = files.printed("merge", "state.npz")
    else:
        text = files.printed("detection", *paths, *given)
    assert re.findall(r"--\w+|OUT_DIR", text.partition("More: ")[2]) == suggested and ("More: " in text) == bool(
        suggested
    )


@pytest.mark.parametrize(("options", "matching_rules"), [(["--verbose"], 2), (["--matching", "mmdet"], 1)])
def test_mmdets_counting_is_printed_on_request(options, matching_rules):
    text = files.printed("detection", *PATHS, *options)
    assert text.count("micro  ") == matching_rules
    assert "67 duplicates" in text and "55 crowd" in text and "AP: 0.4700065377550663" in text.splitlines()


def test_the_tool_prints_the_published_summary(tmp_path):
    text = files.succeeded(files.command(*PATHS, cwd=tmp_path, script=[ROOT / "tools" / "detection_report.py"]))
    assert "AP: 0.4700065377550663" in text and text.count("micro  ") == 1


@pytest.fixture(scope="module")
def many_classes(tmp_path_factory):
    """Inputs of detectors and classifiers with 80 classes."""
    folder = tmp_path_factory.mktemp("many")
    problem, names = make_problem(30, 80, 40, 8.0, seed=0), [f"class {index}" for index in range(80)]
    truth = files.write_json(folder / "t.json", files.truth_of(problem, names))
    results = files.write_pickle(folder / "r.pkl", files.results_of(problem))
    samples = files.write_pickle(folder / "c.pkl", files.samples(500, 80))
    return {"detection": (truth, results), "classification": (samples,)}


TITLES = {
    "most frequent confusions": "Most frequent confusions",
    "error types": "Error types",
    "thresholds": "Thresholds",
    "calibration": "Calibration",
}


@pytest.mark.parametrize(
    ("subcommand", "options"),
    [
        ("detection", []),
        ("detection", ["--operating-point", "f1"]),
        ("detection", ["--ci", "0.95", "--resamples", "5"]),
        ("classification", []),
        ("classification", ["--ci", "0.95"]),
    ],
)
def test_many_classes_fit_one_screen_that_names_what_it_leaves_out(subcommand, options, many_classes):
    arguments = (subcommand, *many_classes[subcommand], *options)
    text, everything = files.printed(*arguments), files.printed(*arguments, "--verbose")
    assert len(text.splitlines()) <= 45
    left_out = re.findall(r"^not shown: (.*); --verbose prints all$", text, re.MULTILINE)
    left_out = left_out[0].split(", ") if left_out else []
    assert [name for name, title in TITLES.items() if title in everything and title not in text] == [
        name for name in TITLES if name in left_out
    ]
    assert ("confidence intervals per class" in left_out) == ("--ci" in options)
    tables = re.findall(r"of 80 classes, lowest (?:AP|F1) first; --verbose prints all", text)
    assert len(tables) == 1 + ("--operating-point" in options)
    assert "not shown" not in everything and "classes, lowest" not in everything
    assert all(f"\n{name} " in everything for name in as_json(*arguments)["classes"])


def test_sections_of_several_matching_rules_are_named_once_if_left_out(many_classes):
    text = files.printed("detection", *many_classes["detection"], "--matching", "coco", "--matching", "agnostic")
    (left_out,) = re.findall(r"^not shown: (.*); --verbose prints all$", text, re.MULTILINE)
    assert left_out.split(", ").count("most frequent confusions") == 1


def test_one_screen_shows_the_classes_of_the_lowest_ap_and_says_where_the_others_are(many_classes, tmp_path):
    text = files.printed("detection", *many_classes["detection"])
    rows = as_json("detection", *many_classes["detection"])["average_precision"]["per_class"]
    lowest = sorted(row["AP"] for row in rows if row["AP"] is not None)
    shown = [float(value) for value in re.findall(r"^class \d+ .* (\d\.\d{4})$", text, re.MULTILINE)]
    assert len(shown) >= 4 and shown == [round(value, 4) for value in lowest[: len(shown)]]
    assert f"{len(shown)} of 80 classes, lowest AP first; --verbose prints all" in text
    text = files.printed("detection", *many_classes["detection"], tmp_path)
    assert "lowest AP first; report.md has all" in text and "--verbose prints" not in text
    text = str(evaluate_detection(*many_classes["detection"]))
    assert "lowest AP first; to_markdown() has all" in text and not re.search(r"--\w|OUT_DIR", text)


def test_the_representations_of_reports_are_short():
    runs = [PATHS[1], ROOT / "demo" / "comparison" / "larger.json"]
    detection, comparison = evaluate_detection(*PATHS), compare_runs(PATHS[0], runs, permutations=9)
    classification = evaluate_classification((np.eye(21), np.arange(21)))
    assert (
        repr(detection) == "<DetectionReport: bbox, 300 images, 5 classes, mAP 0.3910, mAP_50 0.5451, macro F1 0.5437>"
    )
    assert repr(classification).startswith("<ClassificationReport: 21 samples, 21 classes, accuracy 1.0000, AUC 1.0000")
    assert re.fullmatch(
        r"<ComparisonReport: 300 images, \d+ of 10 differences significant, runs A: results.pkl, B: larger.json>",
        repr(comparison),
    )
    # One row per class and two of means, one per metric, and one per class up to 20.
    for report, rows, note in (
        (detection, 1 + 5 + 2, ""),
        (comparison, 1 + 10, ""),
        (classification, 1 + 20, "20 of 21 classes, lowest F1 first; to_markdown() has all"),
    ):
        html = report._repr_html_()
        assert repr(report).partition(": ")[2][:-1] in html and note in html
        assert html.count("<tr") == rows and html.count("<table style=") == 1
        # In the colors of the notebook, light or dark, and without scripts.
        assert not re.search(r"<script|<style|background:(?!none)|[;\"]color:|\son\w+=", html)
