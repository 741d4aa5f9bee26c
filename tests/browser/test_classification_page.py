"""The page of ``mm-metrics classification``, used as a person would: opened from disk, clicked, moved, sorted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from mm_metrics_plugin.cli import main
from tests.browser.conftest import (
    chart,
    check_sorting,
    class_rows,
    click_cell,
    open_cell,
    opening,
    table_rows,
    value,
)
from tests.helpers import result_files as files

# Names as nobody should choose them.
CLASSES = ("<script>alert(1)</script>", 'a "quoted" <b>bold</b> one', "\u202eevil' onload='alert(2)")
SHOWN = (*CLASSES[:2], CLASSES[2].replace("\u202e", "\\u202e"))
SAMPLE = "<img src=x onerror=alert(3)>.png"


def results():
    """Results as mmpretrain writes them, most with the path of a picture."""
    content = files.samples(200)
    for number, one in enumerate(content):
        one["sample_idx"] = 1000 + number
        if number:
            one["img_path"] = f"/data/val/{number % 3}/{SAMPLE if number < 60 else f'{number}.png'}"
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    files.write_pickle(place / "results.pkl", results())
    files.write_pickle(place / "logits.pkl", [{**one, "pred_score": 9 * one["pred_score"]} for one in results()])
    (place / "names.txt").write_text("\n".join(CLASSES), encoding="utf-8")
    return place


def make(folder, name, *options):
    arguments = [folder / f"{name}.pkl", folder / name, "--quiet", "--html", *options]
    assert main(["classification", *map(str, arguments)]) == 0
    return folder / name


@pytest.fixture(scope="module")
def made(folder):
    return make(folder, "results", "--ci", "0.9", "--resamples", "20", "--classes", folder / "names.txt")


@pytest.fixture(scope="module")
def report(made):
    return json.loads((made / "report.json").read_text())


@pytest.fixture(scope="module")
def shared(browser, made):
    with opening(browser, made / "report.html") as one:
        yield one


@pytest.fixture
def page(shared):
    yield shared.page
    shared.check()


def test_the_headline_equals_the_json(page, report):
    intervals = dict(report["intervals"]["overall"])
    intervals["accuracy"] = intervals["recall_micro"]
    for key in ("accuracy", "auc", "precision", "recall", "f1"):
        assert value(page, f'[data-key="{key}"]') == report[key]
        assert page.locator(f'[data-key="{key}"]').first.inner_text() == f"{100 * report[key]:.1f}\u202f%"
        for end in ("low", "high"):
            assert value(page, f'[data-key="{key}_{end}"]') == intervals[key][end]
    assert value(page, '[data-key="tp"]') == sum(row["tp"] for row in report["per_class"])
    text = page.locator("#provenance").inner_text()
    assert report["inputs"]["results"]["sha256"] in text and "results.pkl" in text
    assert value(page, '[data-key="samples.used"]') == report["counts"]["samples"]["used"] == 200


def test_the_table_equals_the_json_is_sorted_and_searched(page, report):
    rows = class_rows(page)
    keys = ("samples", "tp", "fp", "fn", "precision", "recall", "f1", "auc")
    assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in report["per_class"]]
    check_sorting(page, "#class-table", "recall", lambda: [row["recall"] for row in class_rows(page)])
    page.locator('[data-search="class-table"]').fill("BOLD")
    assert [row["name"] for row in class_rows(page, visible_only=True)] == [SHOWN[1]]
    page.locator('[data-search="class-table"]').fill("")


def cell_of(row, column):
    """The samples of a cell from the results themselves: names, scores of what was said, and of the truth."""
    found = []
    for number, one in enumerate(results()):
        label, said, scores = int(one["gt_label"][0]), int(one["pred_score"].argmax()), one["pred_score"]
        if (label, said) == (row, column):
            name = one.get("img_path", "").replace("/data/val/", "") or f"sample {1000 + number}"
            found.append((name, float(scores[said]), float(scores[label])))
    return sorted(found, key=lambda one: one[1] if row == column else -one[1])


def test_a_click_on_a_cell_lists_its_samples_the_worst_first(page, report):
    labels = [int(one["gt_label"][0]) for one in results()]
    decided = [int(one["pred_score"].argmax()) for one in results()]
    assert report["confusion_matrix"] == confusion_matrix(labels, decided).tolist()
    for row, column in ((2, 0), (1, 1)):
        click_cell(page, row, column)
        expected = cell_of(row, column)
        assert len(expected) == report["confusion_matrix"][row][column] == value(page, "#cell-summary")
        rows = table_rows(page, "#cell-table")
        assert len(rows) == min(50, len(expected)) > 5
        for (name, said, truth), shown in zip(expected, rows):
            assert shown[0] == name
            assert [float(shown[1]), float(shown[2])] == [round(said, 4), round(truth, 4)]


def test_cells_are_reached_by_keys_and_from_the_most_frequent_confusions(page, report):
    matrix = np.array(report["confusion_matrix"])
    assert len(open_cell(page, 1, 2)) == min(50, matrix[1, 2])
    first = report["top_confusions"][0]
    assert value(page, "#top-confusions button") == first["count"]
    page.locator("#top-confusions button").first.click()
    assert len(table_rows(page, "#cell-table")) == min(50, first["count"])


def test_the_slider_counts_as_a_threshold_does(page, report):
    scores = np.stack([one["pred_score"] for one in results()])
    labels = np.array([int(one["gt_label"][0]) for one in results()])
    for label in range(3):
        page.select_option("#curve-class", str(label))
        # It begins at Youden's threshold, which report.json has too.
        assert value(page, "#score-thr-value") == report["thresholds"][label]["ks_threshold"]
        page.locator("#score-thr").focus()
        for key in ("ArrowLeft", "PageUp", "Home"):
            page.keyboard.press(key)
            kept = scores[:, label] >= np.float32(value(page, "#score-thr-value"))
            shown = {
                key: value(page, f'#readout [data-column="{key}"]') for key in ("tp", "fp", "fn", "tn", "precision")
            }
            tp, fp = int((kept & (labels == label)).sum()), int((kept & (labels != label)).sum())
            positives = int((labels == label).sum())
            assert shown == dict(tp=tp, fp=fp, fn=positives - tp, tn=200 - positives - fp, precision=tp / (tp + fp))
            assert value(page, '#readout [data-column="recall"]') == tp / positives
    page.click("#youden")
    best = report["thresholds"][2]
    assert value(page, "#score-thr-value") == best["ks_threshold"]
    rates = [value(page, f'#readout [data-column="{key}"]') for key in ("recall", "specificity")]
    assert sum(rates) - 1 == pytest.approx(best["ks"], abs=1e-12)


def test_the_curves_end_where_they_must(page, report):
    chart(page, "roc")
    chart(page, "pr-curve")
    x, y = page.evaluate("() => { const {x, y} = document.getElementById('roc').data[1]; return [[...x], [...y]]; }")
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1) and x == sorted(x) and y == sorted(y)
    area = sum((b - a) * (c + d) / 2 for a, b, c, d in zip(x, x[1:], y, y[1:]))
    label = int(page.locator("#curve-class").input_value())
    assert area == pytest.approx(report["per_class"][label]["auc"], abs=1e-12)  # few points: none was left out
    recall = page.evaluate("() => [...document.getElementById('pr-curve').data[0].x]")
    assert recall[-1] == 1


def test_calibration_equals_the_json(page, report):
    found = report["calibration"]
    for key in ("ece", "mce", "brier", "nll"):
        assert value(page, f'[data-key="{key}"]') == found[key]
    chart(page, "reliability")
    chart(page, "confidences")
    assert page.evaluate("() => [...document.getElementById('confidences').data[0].y]") == found["counts"]
    assert page.evaluate("() => [...document.getElementById('reliability').data[0].y]") == found["accuracy"]
    assert sum(found["counts"]) == 200


def test_names_stay_text(page):
    chart(page, "matrix")
    assert {row["name"] for row in class_rows(page)} == set(SHOWN)
    for options in ("#cell-row option", "#cell-column option", "#curve-class option"):
        assert page.locator(options).all_text_contents() == list(SHOWN)
    shown = {name for row in range(3) for name, *_ in cell_of(row, row)[:50]}
    assert any(SAMPLE in name for name in shown)
    for row in range(3):
        assert {one[0] for one in open_cell(page, row, row)} <= shown
    assert page.locator("main script, main img, main [onerror], main [onload], main b").count() == 0


def test_scores_that_are_no_probabilities_have_no_calibration(opened, folder):
    page = opened(make(folder, "logits") / "report.html")
    assert json.loads((folder / "logits" / "report.json").read_text())["calibration"] is None
    assert page.get_by_test_id("no-calibration").is_visible()
    assert page.locator("#reliability").count() == 0
    assert value(page, "#score-thr-value") > 1


def test_several_classes_a_sample(opened, tmp_path):
    random = np.random.default_rng(0)
    content = []
    for _ in range(120):
        truth = random.integers(-1, 2, 4)
        truth[3] = 0  # a class that never occurs
        content.append({"pred_score": np.clip(truth * 0.3 + random.random(4), 0, 1), "gt_score": truth.astype(float)})
    files.write_pickle(tmp_path / "many.pkl", content)
    page = opened(make(tmp_path, "many") / "report.html")
    report = json.loads((tmp_path / "many" / "report.json").read_text())
    scores = np.stack([one["pred_score"] for one in content])
    truth = np.stack([one["gt_score"] for one in content])
    assert page.locator("#matrix").count() == 0 and page.locator("#calibration").count() == 0
    for place, (kind, key) in enumerate((("correct", "tp"), ("wrong", "fp"), ("missed", "fn"))):
        rows = open_cell(page, 1, place)
        assert len(rows) == min(50, report["per_class"][1][key]) > 3
        decided, there = scores[:, 1] >= 0.5, truth[:, 1]
        chosen = np.flatnonzero(
            {"correct": decided & (there == 1), "wrong": decided & (there == 0), "missed": ~decided & (there == 1)}[
                kind
            ]
        )
        order = chosen[np.argsort(scores[chosen, 1] * (-1 if kind == "wrong" else 1), kind="stable")]
        assert [row[0] for row in rows] == [f"sample {sample} of the file" for sample in order[:50]]
    page.select_option("#curve-class", "3")
    assert page.locator("#no-curve").is_visible()
    assert value(page, '#readout [data-column="recall"]') is None


def test_many_classes_have_a_list_instead_of_a_matrix(opened, tmp_path):
    files.write_pickle(tmp_path / "wide.pkl", files.samples(500, classes=205))
    page = opened(make(tmp_path, "wide") / "report.html")
    report = json.loads((tmp_path / "wide" / "report.json").read_text())
    assert not page.locator("#matrix").is_visible() and page.locator("#class-table tbody tr").count() == 205
    page.locator("#top-confusions button").first.click()
    assert len(table_rows(page, "#cell-table")) == report["top_confusions"][0]["count"]
    assert (tmp_path / "wide" / "report.html").stat().st_size < 15_000_000
