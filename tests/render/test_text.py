"""The reports in windows of 60, 80 and 120 columns and in a pipe: nothing is cropped, and the default is one screen."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pytest
from rich.cells import cell_len

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.io.safe_pickle import read_pickle
from mm_metrics_plugin.render.comparison import interval_text, p_text, points
from mm_metrics_plugin.render.sections import Section
from mm_metrics_plugin.render.tables import OVERALL_NAMES
from mm_metrics_plugin.render.text import WIDTH, to_text
from tests.helpers import result_files as files
from tests.helpers.result_files import DEMO, ROOT

WINDOWS = [60, 80, 120, None]  # None: a pipe
CONFIGS = ("rtmdet_tiny_8xb32-300e_coco_with_a_long_name", "faster-rcnn_r50_fpn_1x_coco_with_a_long_name")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(params=WINDOWS, ids=str)
def window(request, monkeypatch):
    """Runs the command in a window; gives the plain lines."""

    def printed(*arguments):
        stream = io.StringIO() if request.param is None else Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setenv("TERM", "xterm")
            if request.param is not None:
                patch.setenv("COLUMNS", str(request.param))
            assert main(list(map(str, arguments))) == 0
        return [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in stream.getvalue().splitlines()]

    printed.width = request.param or WIDTH
    return printed


def cells_of(lines, name):
    """The cells of all tables that stand beside a name."""
    found = [re.split(r" {2,}", line) for line in lines]
    return [cell for row in found if row[0] == name for cell in row[1:]]


@pytest.fixture(scope="module")
def work_dirs(tmp_path_factory):
    """Two runs where OpenMMLab's tools put them: the files have the same name, so whole paths tell them apart."""
    place = tmp_path_factory.mktemp("runs") / "work_dirs"
    paths = [place / name / "results.pkl" for name in CONFIGS]
    content = read_pickle(DEMO / "results.pkl")
    for path, kept in zip(paths, (len(content), 250)):
        path.parent.mkdir(parents=True)
        weaker = [{**one, "pred_instances": {**one["pred_instances"]}} for one in content]
        for one in weaker[kept:]:
            one["pred_instances"]["scores"] = one["pred_instances"]["scores"] * np.float32(0.1)
        files.write_pickle(path, weaker)
    return paths


@pytest.mark.parametrize("named", ["as in the README", "in work_dirs"])
def test_a_comparison_shows_every_name_and_number(named, window, work_dirs):
    runs = [DEMO / "results.pkl", ROOT / "demo" / "comparison" / "larger.json"]
    if named == "in work_dirs":
        runs = work_dirs
    options = ("--permutations", "40")
    lines = window("compare", DEMO / "annotations.json", *runs, *options)
    (versus,) = json.loads(files.printed("compare", DEMO / "annotations.json", *runs, *options, "--format", "json"))[
        "comparisons"
    ]
    joined = "".join(line.strip() for line in lines)
    for letter, run in zip("AB", (versus["first"], versus["second"])):
        assert f"{letter}:{run}" in joined.replace(" ", "")
    assert "…" not in joined
    for row in versus["overall"]:
        shown = cells_of(lines, OVERALL_NAMES[row["metric"]])
        assert {points(row["first"]), points(row["second"]), points(row["difference"], sign=True)} <= set(shown)
        assert interval_text(row["low"], row["high"]) in shown and p_text(row["p_value"]) in shown
    for row in versus["per_class"]:
        if row["metric"] in ("AP_50", "f1"):
            assert interval_text(row["low"], row["high"]) in cells_of(lines, row["class_name"])
    assert max(cell_len(line) for line in lines if "work_dirs" not in line) <= window.width


def test_intervals_of_a_detector_show_every_name_and_both_ends(window):
    options = ("--ci", "0.95", "--resamples", "30")
    paths = DEMO / "annotations.json", DEMO / "results.pkl"
    lines = window("detection", *paths, *options)
    report = json.loads(files.printed("detection", *paths, *options, "--format", "json"))
    for index, name in enumerate(report["classes"]):
        for figure in ("precision", "recall", "f1", "AP", "AP_50"):
            found = report["intervals"]["per_class"][figure]
            assert f"[{found['low'][index]:.4f}, {found['high'][index]:.4f}]" in cells_of(lines, name)
    assert max(map(cell_len, lines)) <= window.width


@pytest.mark.parametrize("verbose", [(), ("--verbose",)])
def test_long_class_names_are_folded_and_whole(window, verbose, tmp_path):
    names = ("x" * 300, "traffic light that is green or red or yellow or off", "中" * 90, "cat")
    made = files.problem(8)
    truth = files.write_json(tmp_path / "t.json", files.truth_of(made, names))
    results = files.write_pickle(tmp_path / "r.pkl", files.results_of(made))
    lines = window("detection", truth, results, *verbose)
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("class  ")) :]
    table = table[: table.index("")]
    letters = "".join("".join(re.split(r" {2,}", line)[0].split()) for line in table[2:])
    for name in names:
        assert "".join(name.split()) in letters
    assert not any("…" in line for line in lines)


def test_the_default_report_is_one_screen_of_one_protocol(tmp_path):
    paths = DEMO / "annotations.json", DEMO / "results.pkl"
    text = files.printed("detection", *paths, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    markdown = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 42
    assert f"{report['average_precision']['mAP']:.4f}" in text and "0.4099" not in text  # mmdet's recall
    for words in ("macro", "micro", "frame → ring: 10", "TIDE", "dAP", "--verbose"):
        assert words in text
    assert "===Averaging" not in text and "===Averaging" in markdown
    assert set(report["protocols"]) == {"coco", "mmdet"}


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ([], ["--verbose", "--matching", "OUT_DIR", "--html"]),
        (["out"], ["--verbose", "--matching", "--html"]),
        (["out", "--html", "--matching", "coco"], ["--verbose"]),
        (["--verbose"], ["OUT_DIR", "--html"]),
        (["out", "--html", "--verbose"], []),
    ],
)
def test_the_last_line_suggests_what_was_not_given(given, suggested, tmp_path, monkeypatch):
    truth, results = files.pair(tmp_path, images=5)
    monkeypatch.chdir(tmp_path)
    text = files.printed("detection", truth, results, *given)
    found = text.partition("More: ")[2]
    assert re.findall(r"--\w+|OUT_DIR", found) == suggested and ("More: " in text) == bool(suggested)


def test_merge_suggests_only_its_own_options(tmp_path):
    truth, results = files.pair(tmp_path, images=5)
    files.printed("detection", truth, results, "--save-state", tmp_path / "state.npz")
    found = files.printed("merge", tmp_path / "state.npz").partition("More: ")[2]
    assert re.findall(r"--\w+|OUT_DIR", found) == ["--verbose", "OUT_DIR", "--html"]


@pytest.mark.parametrize(("option", "protocols"), [("--verbose", 2), ("--matching", 1)])
def test_mmdets_counting_follows_on_request(option, protocols):
    words = [option, "mmdet"] if option == "--matching" else [option]
    text = files.printed("detection", DEMO / "annotations.json", DEMO / "results.pkl", *words)
    assert text.count("micro  ") == protocols
    assert "67 duplicates" in text and "55 crowd" in text and "AP: 0.4700065377550663" in text.splitlines()


def test_the_published_lines_end_the_report_of_the_tool(tmp_path):
    done = files.command(
        DEMO / "annotations.json", DEMO / "results.pkl", cwd=tmp_path, script=[ROOT / "tools" / "detection_report.py"]
    )
    text = files.succeeded(done)
    assert "AP: 0.4700065377550663" in text and text.count("micro  ") == 1


def test_many_classes_fit_one_screen_with_the_lowest_ap_first(tmp_path):
    from benchmarks.detection_problem import make_problem

    made = make_problem(30, 80, 40, 8.0, seed=0)
    names = [f"class {index}" for index in range(80)]
    truth = files.write_json(tmp_path / "t.json", files.truth_of(made, names))
    results = files.write_pickle(tmp_path / "r.pkl", files.results_of(made))
    text = files.printed("detection", truth, results)
    assert len(text.splitlines()) <= 60 and "20 of 80 classes, lowest AP first; --verbose prints all" in text
    everything = files.printed("detection", truth, results, "--verbose")
    assert all(f"\n{name} " in everything for name in names)
    report = json.loads(files.printed("detection", truth, results, "--format", "json"))
    each = {row["name"]: row["AP"] for row in report["average_precision"]["per_class"] if row["AP"] is not None}
    shown = re.findall(r"^(class \d+) .* (\d\.\d{4})$", text, re.MULTILINE)
    assert [float(value) for _, value in shown] == [round(value, 4) for value in sorted(each.values())[:20]]


def test_classes_that_changed_are_folded_and_whole(window, tmp_path):
    classes = ["x" * 700, "two words of a name that is long"]
    runs = []
    for decided in (0, 1):
        sample = {"pred_score": np.eye(2, dtype=np.float32)[decided], "gt_label": np.array([0]), "img_path": "a.jpg"}
        runs.append(files.write_pickle(tmp_path / f"{decided}.pkl", [sample]))
    (tmp_path / "names.txt").write_text("\n".join(classes), encoding="utf-8")
    lines = window("compare", *runs, "--classes", tmp_path / "names.txt", "--permutations", "9")
    shown = lines[next(at for at, line in enumerate(lines) if "decide differently" in line) :]
    assert max(map(cell_len, shown)) <= max(window.width, 80)
    assert "".join(shown).count("x") >= 1400 and set(classes[1].split()) <= set(" ".join(shown).split())


def test_markup_is_text():
    table = ["[red]", "[/y]"], [["x[/y]/r.pkl", "[i]1"]]
    text = to_text([Section("[bold]a[/bold] x[/y]", ["old[lr0.1].pkl [/] \\[x]"], table, means=[["[link=x]", 2]])])
    for words in (
        "[bold]a[/bold] x[/y]",
        "old[lr0.1].pkl [/] \\[x]",
        "[red]",
        "[/y]",
        "x[/y]/r.pkl",
        "[i]1",
        "[link=x]",
    ):
        assert words in text
