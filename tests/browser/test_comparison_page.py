"""The page of ``mm-metrics compare``: its numbers are those of comparison.json, its images those that differ."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin import evaluate_detection
from mm_metrics_plugin.cli import main
from tests.browser.conftest import table_rows, traces
from tests.cli.test_compare import worse
from tests.helpers import result_files as files

CLASSES = ("<script>alert(1)</script>", "<b>bold</b>", "cat & dog", "\u202eevil")
pytestmark = pytest.mark.usefixtures("shown_warnings")
RUN = "<img src=x onerror=alert(3)>.pkl"
KEYS = ("first", "second", "difference", "low", "p_value")


def make(folder, *arguments):
    """Writes the page of a comparison; its path and the comparisons of comparison.json."""
    assert (
        main(["compare", *map(str, arguments), "--out", str(folder), "--quiet", "--html", "--permutations", "99"]) == 0
    )
    return folder / "report.html", json.loads((folder / "comparison.json").read_text())["comparisons"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Ground truth and the results of three detectors."""
    folder = tmp_path_factory.mktemp("compare")
    problem = files.problem(60)
    results = files.results_of(problem)
    files.write_json(folder / "truth.json", files.truth_of(problem, CLASSES))
    for name, content in (("good.pkl", results), (RUN, worse(results)), ("same.pkl", results)):
        files.write_pickle(folder / name, content)
    return [folder / name for name in ("truth.json", "good.pkl", RUN, "same.pkl")]


@pytest.fixture(scope="module")
def made(paths):
    return make(paths[0].parent / "out", *paths)


@pytest.fixture(scope="module")
def comparisons(made):
    return made[1]


@pytest.fixture
def page(opened, made):
    return opened(made[0])


def numbers(texts):
    return [float(text) if text else None for text in texts]


def test_the_differences_equal_the_json(page, comparisons):
    assert [pair["second"] for pair in comparisons] == [RUN, "same.pkl"]
    for place, pair in enumerate(comparisons):
        expected = {row["metric"]: [row[key] for key in KEYS] for row in pair["overall"]}
        metrics = page.evaluate(
            f"[...document.querySelectorAll('#overall-{place} tbody tr')].map((row) => row.dataset.metric)"
        )
        rows = table_rows(page, f"overall-{place}")
        assert {metric: numbers(row[1:6]) for metric, row in zip(metrics, rows)} == expected
        assert page.locator(f"#comparison-{place}").get_by_test_id("not-significant").count() == place
    for rows in zip(*(pair["overall"] for pair in comparisons)):
        shown = page.locator(f'#summary-table tr[data-metric="{rows[0]["metric"]}"] [data-value]').all()
        expected = [rows[0]["first"], *(row[key] for row in rows for key in ("second", "difference"))]
        assert numbers(element.get_attribute("data-value") for element in shown) == expected
    worst = page.locator('#summary-table tr[data-metric="recall"] .change').first
    assert "fp" in worst.get_attribute("class") and worst.get_attribute("title") == "B is worse"


def test_the_chart_shows_the_intervals(page, comparisons):
    ((middles,),) = traces(page, "chart-0", "x")
    ends = page.evaluate(
        "(({array, arrayminus}) => [[...array], [...arrayminus]])(document.getElementById('chart-0').data[0].error_x)"
    )
    limits = sorted((middle - below, middle + above) for middle, above, below in zip(middles, *ends))
    expected = sorted((100 * row["low"], 100 * row["high"]) for row in comparisons[0]["overall"])
    assert np.allclose(limits, expected)


def test_classes_are_compared_by_any_metric_sorted_and_searched(page, comparisons):
    for title, metric in (("F1", "f1"), ("recall", "recall"), ("AP_50", "AP_50")):
        page.select_option("#metric-0", label=title)
        expected = [row for row in comparisons[0]["per_class"] if row["metric"] == metric]
        rows = table_rows(page, "classes-0")
        assert [numbers(row[1:6]) for row in rows] == [[row[key] for key in KEYS] for row in expected]
        assert [row[0] for row in rows] == [row["class_name"].replace("\u202e", "\\u202e") for row in expected]
    page.locator("#classes-0 thead [data-column=difference] button").click()
    page.select_option("#metric-0", label="recall")  # the order follows the numbers
    differences = [float(row[3]) for row in table_rows(page, "classes-0")]
    assert differences == sorted(differences, reverse=True)
    page.locator('[data-search="classes-0"]').fill("DOG")
    assert [row[0] for row in table_rows(page, "classes-0")] == ["cat & dog"]


def counts_of(truth, run):
    """TP, FP and FN of each image, by a report on that image alone."""
    truth, results = json.loads(truth.read_text()), pickle.loads(run.read_bytes())
    counts = {}
    for image in truth["images"]:
        annotations = [annotation for annotation in truth["annotations"] if annotation["image_id"] == image["id"]]
        alone = {**truth, "images": [image], "annotations": annotations}
        own = [result for result in results if result["img_id"] == image["id"]]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no detection reaches")  # in this image
            columns = evaluate_detection(alone, own, matching=("coco",), matrix_only=True).matching_rules[0].columns
        counts[image["file_name"]] = [int(columns[key].sum()) for key in ("tp", "fp", "fn")]
    return counts


def test_the_images_that_differ_are_listed_worst_first(page, paths, comparisons):
    first, second = counts_of(*paths[:2]), counts_of(paths[0], paths[2])
    errors = {name: [sum(run[name][1:]) for run in (first, second)] for name in first}
    agreement = {
        "both": sum(a == b == 0 for a, b in errors.values()),
        "first": sum(a == 0 < b for a, b in errors.values()),
        "second": sum(b == 0 < a for a, b in errors.values()),
        "neither": sum(min(pair) > 0 for pair in errors.values()),
    }
    assert comparisons[0]["images_without_errors"] == agreement
    for key, count in agreement.items():
        shown = page.locator(f'#comparison-0 [data-key="images_without_errors.{key}"]').get_attribute("data-value")
        assert int(shown) == count
    for choice, sign in (("worse", 1), ("better", -1)):
        page.locator(f'#which-0 input[value="{choice}"]').check(force=True)
        change = {name: sign * (b - a) for name, (a, b) in errors.items()}
        expected = [name for name in sorted(change, key=lambda name: -change[name]) if change[name] > 0]
        rows = table_rows(page, "images-0")
        assert [row[0] for row in rows] == expected and len(expected) > 3
        assert [[int(text) for text in row[1:]] for row in rows] == [first[name] + second[name] for name in expected]
        assert page.locator("#images-summary-0").get_attribute("data-value") == str(len(expected))
    assert table_rows(page, "images-1") == []
    assert page.locator("#images-summary-1").get_attribute("data-value") == "0"


def test_verdicts_warnings_and_counts_equal_the_json(opened, paths, tmp_path):
    """The second run has no results for 20 images, and no detections in the others: its precision is undefined."""
    content = pickle.loads(paths[1].read_bytes())[:40]
    for one in content:
        one["pred_instances"] = {key: value[:0] for key, value in one["pred_instances"].items()}
    path, (pair,) = make(
        tmp_path / "out", *paths[:2], files.write_pickle(tmp_path / "b.pkl", content), "--allow-missing"
    )
    page, runs = opened(path), json.loads((tmp_path / "out" / "comparison.json").read_text())["runs"]

    def shown(row):
        return {"undefined": "undefined", "worse": "b.pkl is worse*"}.get(row["verdict"], f"{row['verdict']}*")

    verdicts = [shown(row) for row in pair["overall"]]
    assert sorted(row[6] for row in table_rows(page, "overall-0")) == sorted(verdicts)
    cells = page.locator("#overall-0 tbody td:last-child").all_inner_texts()
    assert sorted(cells) == sorted(verdicts) and "undefined" in cells and "b.pkl is worse*" in cells
    ((middles,),) = traces(page, "chart-0", "x")
    assert len(middles) == sum(row["difference"] is not None for row in pair["overall"]) < len(pair["overall"])
    page.select_option("#metric-0", label="precision")
    cells = page.locator("#classes-0 tbody td:last-child").all_inner_texts()
    assert cells == [shown(row) for row in pair["per_class"] if row["metric"] == "precision"]
    (warning,) = pair["warnings"]
    assert page.get_by_test_id("warning").inner_text() == f"* b.pkl: {warning['message']}."
    assert "macro precision is over 0 of 4 classes" in page.get_by_test_id("classes-averaged").inner_text()
    for run in runs:
        for unit, counts in run["counts"].items():
            for key in ("read", "used"):
                cell = page.locator(f"[data-key='{run['name']}: {unit}.{key}']")
                assert int(cell.get_attribute("data-value")) == counts[key]
    assert "20 images without results" in page.locator("header").inner_text()


def test_names_are_text(page):
    assert page.locator("#comparison-0 h2").inner_text() == "B against A"  # a run name is long
    assert f"B: {RUN}" in page.locator("header").inner_text()
    assert RUN in page.locator("#provenance").inner_text()
    assert page.locator("main script, main img, main [onerror], main b").count() == 0


def test_images_are_shown_beside_their_names(opened, paths, comparisons, tmp_path):
    names = {str(entry["image"]) for entry in comparisons[0]["changed_images"][:3]}
    for name in names:
        Image.new("RGB", (64, 48), (200, 30, 30)).save(tmp_path / name)
    page = opened(make(tmp_path / "out", *paths[:3], "--images", tmp_path)[0])
    shown = set()
    for choice in ("worse", "better"):
        page.locator(f'#which-0 input[value="{choice}"]').check(force=True)
        shown |= set(page.locator("#images-0 th:has(img)").all_inner_texts())
    assert shown and shown <= names
    assert page.evaluate("[...document.images].every((image) => image.src.startsWith('data:image/jpeg;base64,'))")
    assert page.locator("#comparison-0").get_by_test_id("gallery-remark").count() == 1


def test_classifiers_show_the_predictions_of_each_run(opened, tmp_path):
    runs = [files.samples(150, seed=0), files.samples(150, seed=0)]
    random = np.random.default_rng(5)
    for number, (sample, other) in enumerate(zip(*runs)):
        other["pred_score"] = other["pred_score"] + random.random(3).astype(np.float32) / 2
        sample["img_path"] = other["img_path"] = f"data/{number}.png"
    paths = [files.write_pickle(tmp_path / f"{name}.pkl", run) for name, run in zip("ab", runs)]
    page = opened(make(tmp_path / "out", "-", *paths, "--classes", "x,y,z")[0])
    truth = np.array([int(sample["gt_label"][0]) for sample in runs[0]])
    scores = [np.stack([sample["pred_score"] for sample in run]) for run in runs]
    predicted = [part.argmax(axis=1) for part in scores]
    for choice, wrong in (("worse", 1), ("better", 0)):
        page.locator(f'#which-0 input[value="{choice}"]').check(force=True)
        chosen = np.flatnonzero((predicted[wrong] != truth) & (predicted[1 - wrong] == truth))
        order = chosen[np.argsort(-scores[wrong].max(axis=1)[chosen], kind="stable")]
        rows = table_rows(page, "images-0")
        assert [row[0] for row in rows] == [f"{number}.png" for number in order] and len(order) > 5
        for row, number in zip(rows, order):
            assert [row[1], row[2], row[4]] == ["xyz"[label[number]] for label in (truth, *predicted)]
            assert float(row[3]) == round(float(scores[0][number].max()), 4)
