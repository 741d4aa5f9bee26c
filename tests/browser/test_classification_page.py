"""The page of ``mm-metrics classification``: opened from disk, clicked, moved. Sorting: test_detection_page.py."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from mm_metrics_plugin.cli import main
from tests.browser.conftest import chart, click_cell, open_cell, rows_by_column, traces, value
from tests.helpers import result_files as files

CLASSES = ("<script>alert(1)</script>", 'a "quoted" <b>bold</b> one', "\u202eevil' onload='alert(2)")
PRINTABLE = (*CLASSES[:2], CLASSES[2].replace("\u202e", "\\u202e"))
SAMPLE = "<img src=x onerror=alert(3)>.png"


def results():
    """Results as mmpretrain writes them, most with the path of an image."""
    content = files.samples(200)
    for number, sample in enumerate(content):
        sample["sample_idx"] = 1000 + number
        if number:
            sample["img_path"] = f"/data/val/{number % 3}/{SAMPLE if number < 60 else f'{number}.png'}"
    return content


def make(folder, content, *options):
    """Writes the page of some results; its path and the content of report.json."""
    results = files.write_pickle(folder / "results.pkl", content)
    assert main(["classification", *map(str, [results, folder / "out", "--quiet", "--html", *options])]) == 0
    return folder / "out" / "report.html", json.loads((folder / "out" / "report.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "names.txt").write_text("\n".join(CLASSES), encoding="utf-8")
    return make(folder, results(), "--ci", "0.9", "--resamples", "20", "--classes", folder / "names.txt")


@pytest.fixture(scope="module")
def report(made):
    return made[1]


@pytest.fixture
def page(opened, made):
    return opened(made[0])


def test_numbers_equal_the_json(page, report):
    intervals = dict(report["intervals"]["overall"])
    intervals["accuracy"] = intervals["recall_micro"]
    for key in ("accuracy", "auc", "precision", "recall", "f1"):
        assert value(page, f'[data-key="{key}"]') == report[key]
        for end in ("low", "high"):
            assert value(page, f'[data-key="{key}_{end}"]') == intervals[key][end]
    assert value(page, '[data-key="tp"]') == sum(row["tp"] for row in report["per_class"])
    assert report["inputs"]["results"]["sha256"] in page.locator("#provenance").inner_text()
    assert value(page, '[data-key="samples.used"]') == 200
    rows = rows_by_column(page, "class-table")
    assert len(rows) == 3 and len(rows[0]) == 10
    for row, expected in zip(rows, report["per_class"]):
        assert {**row, "name": ""} == {**{key: expected[key] for key in row}, "name": ""}
    calibration = report["calibration"]
    for key in ("ece", "mce", "brier", "nll"):
        assert value(page, f'[data-key="{key}"]') == calibration[key]
    assert traces(page, "confidences", "y")[0] == [calibration["counts"]] and sum(calibration["counts"]) == 200
    assert traces(page, "reliability", "y")[0] == [calibration["accuracy"]]


def cell_of(row, column):
    """The samples of a cell from the results: names, scores of the predicted and of the true class."""
    cell = []
    for number, sample in enumerate(results()):
        label, scores = int(sample["gt_label"][0]), sample["pred_score"]
        predicted = int(scores.argmax())
        if (label, predicted) == (row, column):
            name = sample.get("img_path", "").replace("/data/val/", "") or f"sample {1000 + number}"
            cell.append((name, float(scores[predicted]), float(scores[label])))
    return sorted(cell, key=lambda sample: sample[1] if row == column else -sample[1])


def test_cells_list_their_samples_worst_first(page, report):
    labels = [int(sample["gt_label"][0]) for sample in results()]
    matrix = confusion_matrix(labels, [int(sample["pred_score"].argmax()) for sample in results()])
    assert report["confusion_matrix"] == matrix.tolist()
    for open_it, row, column in ((click_cell, 2, 0), (click_cell, 1, 1), (open_cell, 1, 2)):
        rows = open_it(page, row, column)
        expected = [[name, *(round(score, 4) for score in scores)] for name, *scores in cell_of(row, column)]
        assert len(expected) == matrix[row, column] == value(page, "#cell-summary")
        assert [[row[0], *map(float, row[1:])] for row in rows] == expected[:50] and len(rows) > 5


def test_the_slider_counts_like_a_threshold(page, report):
    scores = np.stack([sample["pred_score"] for sample in results()])
    labels = np.array([int(sample["gt_label"][0]) for sample in results()])
    keys = ("tp", "fp", "fn", "tn", "precision", "recall")
    for label in range(3):
        page.select_option("#curve-class", str(label))
        assert value(page, "#score-thr-value") == report["thresholds"][label]["ks_threshold"]  # Youden's
        page.locator("#score-thr").focus()
        for key in ("ArrowLeft", "PageUp", "Home"):
            page.keyboard.press(key)
            threshold = np.float32(page.locator("#score-thr-value").inner_text())  # as shown, not the exact one
            positive = scores[:, label] >= threshold
            tp, fp = int((positive & (labels == label)).sum()), int((positive & (labels != label)).sum())
            fn = int((labels == label).sum()) - tp
            shown = [value(page, f'#readout [data-column="{key}"]') for key in keys]
            assert shown == [tp, fp, fn, 200 - tp - fp - fn, tp / (tp + fp), tp / (tp + fn)]
    page.click("#youden")
    rates = [value(page, f'#readout [data-column="{key}"]') for key in ("recall", "specificity")]
    assert sum(rates) - 1 == pytest.approx(report["thresholds"][2]["ks"], abs=1e-12)
    _, (x, y), *_ = traces(page, "roc", "x", "y")
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1) and x == sorted(x) and y == sorted(y)
    area = sum((b - a) * (c + d) / 2 for a, b, c, d in zip(x, x[1:], y, y[1:]))
    assert area == pytest.approx(report["per_class"][2]["auc"], abs=1e-12)  # few points: none was left out
    assert traces(page, "pr-curve", "x")[0][0][-1] == 1


def test_names_are_text(page):
    chart(page, "matrix")
    assert [row["name"] for row in rows_by_column(page, "class-table")] == list(PRINTABLE)
    for options in ("#cell-row option", "#cell-column option", "#curve-class option"):
        assert page.locator(options).all_text_contents() == list(PRINTABLE)
    assert any(SAMPLE in row[0] for row in open_cell(page, 0, 0))
    assert page.locator("main script, main img, main [onerror], main [onload], main b").count() == 0


def test_scores_that_are_not_probabilities_have_no_calibration(opened, tmp_path):
    path, report = make(tmp_path, [{**sample, "pred_score": 9 * sample["pred_score"]} for sample in results()])
    page = opened(path)
    assert report["calibration"] is None
    assert page.get_by_test_id("no-calibration").is_visible() and page.locator("#reliability").count() == 0
    assert value(page, "#score-thr-value") > 1


def test_multi_label(opened, tmp_path):
    random = np.random.default_rng(0)
    targets = random.integers(-1, 2, (120, 4)).astype(float)
    targets[:, 3] = 0  # a class without samples
    scores = np.clip(targets * 0.3 + random.random((120, 4)), 0, 1)
    path, report = make(tmp_path, [{"pred_score": row, "gt_score": target} for row, target in zip(scores, targets)])
    page = opened(path)
    assert page.locator("#matrix").count() == 0 and page.locator("#calibration").count() == 0
    predicted, target = scores[:, 1] >= 0.5, targets[:, 1]
    cells = {"tp": predicted & (target == 1), "fp": predicted & (target == 0), "fn": ~predicted & (target == 1)}
    for column, (key, members) in enumerate(cells.items()):
        rows = open_cell(page, 1, column)
        assert len(rows) == min(50, report["per_class"][1][key]) > 3
        order = sorted(np.flatnonzero(members), key=lambda at: scores[at, 1] * (-1 if key == "fp" else 1))
        assert [row[0] for row in rows] == [f"sample {sample} of the file" for sample in order[:50]]
    page.select_option("#curve-class", "3")
    assert page.locator("#no-curve").is_visible() and value(page, '#readout [data-column="recall"]') is None
