"""The page of ``mm-metrics compare``: its numbers are those of comparison.json, and its images those that differ."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.render.comparison import points
from tests.browser.conftest import chart, check_sorting, opening, table_rows
from tests.cli.test_compare import worse
from tests.helpers import result_files as files

CLASSES = ("<script>alert(1)</script>", "<b>bold</b>", "cat & dog", "\u202eevil")
pytestmark = pytest.mark.usefixtures("shown_warnings")
RUN = "<img src=x onerror=alert(3)>.pkl"
QUICK = ("--permutations", "99")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three detectors of the same images, one of them under a name nobody should choose."""
    place = tmp_path_factory.mktemp("compare")
    made = files.problem(60)
    found = files.results_of(made)
    files.write_json(place / "truth.json", files.truth_of(made, CLASSES))
    files.write_pickle(place / "good.pkl", found)
    files.write_pickle(place / RUN, worse(found))
    files.write_pickle(place / "same.pkl", found)
    names = ["truth.json", "good.pkl", RUN, "same.pkl", "out"]
    assert main(["compare", *(str(place / name) for name in names), "--quiet", "--html", *QUICK]) == 0
    return place


@pytest.fixture(scope="module")
def report(folder):
    return json.loads((folder / "out" / "comparison.json").read_text())


@pytest.fixture(scope="module")
def shared(browser, folder):
    with opening(browser, folder / "out" / "report.html") as one:
        yield one


@pytest.fixture
def page(shared):
    yield shared.page
    shared.check()


def number(text):
    return float(text) if text else None


def test_the_differences_equal_the_json(page, report):
    assert [one["second"] for one in report["comparisons"]] == [RUN, "same.pkl"]
    for place, versus in enumerate(report["comparisons"]):
        rows = {row["metric"]: row for row in versus["overall"]}
        shown = page.evaluate(
            """(selector) => [...document.querySelectorAll(selector + " tbody tr")].map((row) => [row.dataset.metric,
                ...[...row.querySelectorAll("[data-column]")].map((cell) => cell.dataset.value),
                row.querySelector("[data-high]").dataset.high])""",
            f"#overall-{place}",
        )
        assert {row[0] for row in shown} == set(rows)
        for metric, *values in shown:
            expected = [rows[metric][key] for key in ("first", "second", "difference", "low", "p_value", "high")]
            assert [number(text) for text in values] == expected, metric
    beside = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#summary-table tbody tr")].map((row) =>
            [row.dataset.metric, [...row.querySelectorAll("[data-value]")].map((one) => Number(one.dataset.value))]))"""
    )
    for rows in zip(*(versus["overall"] for versus in report["comparisons"])):
        expected = [rows[0]["first"], *(row[key] for row in rows for key in ("second", "difference"))]
        assert beside[rows[0]["metric"]] == expected
    worst = page.locator('#summary-table tr[data-metric="recall"] .change').first
    assert "fp" in worst.get_attribute("class") and "B" in worst.get_attribute("title")
    assert page.locator("#comparison-0").get_by_test_id("not-significant").count() == 0
    assert page.locator("#comparison-1").get_by_test_id("not-significant").count() == 1


def test_the_chart_shows_the_intervals(page, report):
    chart(page, "chart-0")
    found = page.evaluate(
        """() => { const {x, error_x: e} = document.getElementById("chart-0").data[0];
            return [[...x], [...e.array], [...e.arrayminus]]; }"""
    )
    rows = {row["difference"]: row for row in report["comparisons"][0]["overall"]}
    for middle, above, below in zip(*found):
        row = rows[min(rows, key=lambda difference: abs(100 * difference - middle))]
        assert middle + above == pytest.approx(100 * row["high"]) and middle - below == pytest.approx(100 * row["low"])


def test_classes_are_compared_by_any_metric_sorted_and_searched(page, report):
    per_class = report["comparisons"][0]["per_class"]
    for title, metric in (("F1", "f1"), ("recall", "recall"), ("AP_50", "AP_50")):
        page.select_option("#metric-0", label=title)
        expected = [row for row in per_class if row["metric"] == metric]
        rows = table_rows(page, "#classes-0")
        assert len(rows) == len(expected) == 4
        for shown, row in zip(rows, expected):
            values = [number(text) for text in shown[1:6]]
            assert values == [row[key] for key in ("first", "second", "difference", "low", "p_value")]
            assert shown[0] == row["class_name"].replace("\u202e", "\\u202e")
    check_sorting(page, "#classes-0", "difference", lambda: [float(row[3]) for row in table_rows(page, "#classes-0")])
    page.select_option("#metric-0", label="recall")  # the order follows the numbers
    found = [float(row[3]) for row in table_rows(page, "#classes-0")]
    assert found == sorted(found)
    page.locator('[data-search="classes-0"]').fill("DOG")
    assert [row[0] for row in table_rows(page, "#classes-0")] == ["cat & dog"]
    page.locator('[data-search="classes-0"]').fill("")


def errors_of(folder, run):
    """Right, wrong and missed boxes of every image, each by a report on that image alone."""
    truth = json.loads((folder / "truth.json").read_text())
    found = {}
    for image in truth["images"]:
        alone = {
            **truth,
            "images": [image],
            "annotations": [one for one in truth["annotations"] if one["image_id"] == image["id"]],
        }
        results = [one for one in pickle.loads((folder / run).read_bytes()) if one["img_id"] == image["id"]]
        files.write_json(folder / "one.json", alone)
        files.write_pickle(folder / "one.pkl", results)
        text = files.printed(
            "detection",
            folder / "one.json",
            folder / "one.pkl",
            "--matching",
            "coco",
            "--matrix-only",
            "--format",
            "json",
        )
        rows = json.loads(text)["protocols"]["coco"]["per_class"]
        found[image["file_name"]] = [sum(row[key] for row in rows) for key in ("tp", "fp", "fn")]
    return found


def test_the_images_that_differ_are_listed_the_worst_first(page, folder, report):
    first, second = errors_of(folder, "good.pkl"), errors_of(folder, RUN)
    wrong = {name: [sum(run[name][1:]) for run in (first, second)] for name in first}
    right = report["comparisons"][0]["images_without_errors"]
    assert right == {
        "both": sum(a == b == 0 for a, b in wrong.values()),
        "first": sum(a == 0 < b for a, b in wrong.values()),
        "second": sum(b == 0 < a for a, b in wrong.values()),
        "neither": sum(min(pair) > 0 for pair in wrong.values()),
    }
    for key, count in right.items():
        shown = page.locator(f'#comparison-0 [data-key="images_without_errors.{key}"]').get_attribute("data-value")
        assert int(shown) == count
    for choice, sign in (("worse", 1), ("better", -1)):
        page.locator(f'#which-0 input[value="{choice}"]').check(force=True)
        change = {name: sign * (b - a) for name, (a, b) in wrong.items()}
        expected = [name for name in sorted(change, key=lambda name: -change[name]) if change[name] > 0]
        rows = table_rows(page, "#images-0")
        assert [row[0] for row in rows] == expected and len(expected) > 3
        assert [[int(text) for text in row[1:]] for row in rows] == [first[name] + second[name] for name in expected]
        assert page.locator("#images-summary-0").get_attribute("data-value") == str(len(expected))
    assert table_rows(page, "#images-1") == []
    assert page.locator("#images-summary-1").get_attribute("data-value") == "0"


def test_names_stay_text(page):
    assert page.locator("#comparison-0 h2").inner_text() == "B against A"  # a run name is long
    assert f"B: {RUN}" in page.locator("header").inner_text()
    assert RUN in page.locator("#provenance").inner_text()
    assert page.locator("main script, main img, main [onerror], main b").count() == 0


def test_images_are_shown_beside_their_names(opened, folder, tmp_path):
    pictures = tmp_path / "images"
    pictures.mkdir()
    listed = json.loads((folder / "out" / "comparison.json").read_text())["comparisons"][0]["changed_images"]
    for entry in listed[:3]:
        Image.new("RGB", (64, 48), (200, 30, 30)).save(pictures / str(entry["image"]))
    names = ["truth.json", "good.pkl", RUN]
    arguments = [*(str(folder / name) for name in names), str(tmp_path / "out"), "--images", str(pictures)]
    assert main(["compare", *arguments, "--quiet", "--html", *QUICK]) == 0
    page = opened(tmp_path / "out" / "report.html")
    shown = set()
    for choice in ("worse", "better"):
        page.locator(f'#which-0 input[value="{choice}"]').check(force=True)
        shown |= set(page.locator("#images-0 th:has(img)").all_inner_texts())
    assert shown <= {str(entry["image"]) for entry in listed[:3]} and shown
    assert page.evaluate("() => [...document.images].every((one) => one.src.startsWith('data:image/jpeg;base64,'))")
    assert page.locator("#comparison-0").get_by_test_id("gallery-remark").count() == 1


def test_classifiers_show_what_each_run_said(opened, tmp_path):
    runs = [files.samples(150, seed=0), files.samples(150, seed=0)]
    random = np.random.default_rng(5)
    for number, one in enumerate(runs[1]):
        one["pred_score"] = one["pred_score"] + random.random(3).astype(np.float32) / 2
        for run in runs:
            run[number]["img_path"] = f"data/{number}.png"
    for name, run in zip("ab", runs):
        files.write_pickle(tmp_path / f"{name}.pkl", run)
    arguments = ["-", *(str(tmp_path / name) for name in ("a.pkl", "b.pkl", "out"))]
    assert main(["compare", *arguments, "--quiet", "--html", "--classes", "x,y,z", *QUICK]) == 0
    page = opened(tmp_path / "out" / "report.html")
    truth = np.array([int(one["gt_label"][0]) for one in runs[0]])
    scores = [np.stack([one["pred_score"] for one in run]) for run in runs]
    said = [part.argmax(axis=1) for part in scores]
    for choice, wrong in (("worse", 1), ("better", 0)):
        page.locator(f'#which-0 input[value="{choice}"]').check(force=True)
        chosen = np.flatnonzero((said[wrong] != truth) & (said[1 - wrong] == truth))
        order = chosen[np.argsort(-scores[wrong].max(axis=1)[chosen], kind="stable")]
        rows = table_rows(page, "#images-0")
        assert [row[0] for row in rows] == [f"{number}.png" for number in order] and len(order) > 5
        for row, number in zip(rows, order):
            assert row[1] == "xyz"[truth[number]] and [row[2], row[4]] == ["xyz"[run[number]] for run in said]
            assert float(row[3]) == round(float(scores[0][number].max()), 4)
    report = json.loads((tmp_path / "out" / "comparison.json").read_text())
    row = next(one for one in report["comparisons"][0]["overall"] if one["metric"] == "auc")
    cell = page.locator('#overall-0 tr[data-metric="auc"] [data-column="difference"]')
    assert float(cell.get_attribute("data-value")) == row["difference"]
    assert cell.inner_text() == points(row["difference"], sign=True)
