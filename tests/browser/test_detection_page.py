"""The page of ``mm-metrics detection``: opened from disk, clicked, moved, sorted, searched, printed."""

from __future__ import annotations

import json
import re
from functools import partial

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin import DetectionEvaluator
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.conventions import IOU_TYPES
from mm_metrics_plugin.evaluation import DetectionReports
from mm_metrics_plugin.functional.detection.geometry.boundaries import Boundaries
from tests.browser.conftest import chart, click_cell, open_cell, rows_by_column, table_rows, traces, value
from tests.helpers import result_files as files
from tests.helpers.geometry_problems import bitmaps_of, keypoint_batch, mask_batch, rotated_batch
from tests.helpers.result_files import printed

CLASSES = (
    "<script>alert(1)</script>",
    'a "quoted" <b>bold</b> one',
    "cat & dog &lt;",
    "\u202e\u2028evil' onload='alert(2)",
)
PRINTABLE = (*CLASSES[:3], CLASSES[3].replace("\u202e", "\\u202e").replace("\u2028", "\\u2028"))
IMAGES = ["<img src=x onerror=alert(3)>.png", 'x" onerror="alert(4).png', "a/b'&amp;.png"]
SCORE_THR = 0.37  # between the points of the grid
COUNTS, RATES = ("ground_truths", "tp", "fp", "fn"), ("precision", "recall", "f1")


def make(folder, *options, results="results.pkl"):
    """Writes the page of truth.json and the results; its path and the content of report.json."""
    arguments = [folder / "truth.json", folder / results, folder / "out", "--quiet", "--html", *options]
    assert main(["detection", *map(str, arguments)]) == 0
    return folder / "out" / "report.html", json.loads((folder / "out" / "report.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ground truth, results, and images, some of which are missing or damaged."""
    folder = tmp_path_factory.mktemp("page")
    problem = files.problem(images=40)
    truth = files.truth_of(problem, CLASSES)
    for image, name in zip(truth["images"], IMAGES):
        image["file_name"] = name
    files.write_json(folder / "truth.json", truth)
    files.write_pickle(folder / "results.pkl", files.results_of(problem))
    (folder / "images" / "a").mkdir(parents=True)
    for number, image in enumerate(truth["images"][:-6]):  # the last ones are missing
        noise = Image.effect_noise((640, 480), 60 + number)
        noise.convert("RGB").save(folder / "images" / image["file_name"], format="PNG")
    (folder / "images" / "5.jpg").write_bytes(b"not an image")
    (folder / "images" / "6.jpg").write_bytes((folder / "images" / "7.jpg").read_bytes()[:2000])
    return folder


@pytest.fixture(scope="module")
def made(folder):
    options = ["--score-thr", SCORE_THR, "--ci", "0.9", "--resamples", "20", "--operating-point", "f1"]
    matching_rules = [word for name in ("coco", "mmdet", "agnostic") for word in ("--matching", name)]
    return make(folder, *options, *matching_rules, "--images", folder / "images")


@pytest.fixture(scope="module")
def report(made):
    return made[1]


@pytest.fixture
def page(opened, made):
    return opened(made[0])


def slide_to(page, place):
    page.evaluate(
        """(place) => { const slider = document.getElementById("score-thr"); slider.value = String(place);
            for (const name of ["input", "change"]) slider.dispatchEvent(new Event(name)); }""",
        place,
    )


def drawn(page, selector):
    """(left, top, right, bottom, color) of shapes in the coordinates of their drawing; each is visible."""
    shapes = page.evaluate(
        """(selector) => [...document.querySelectorAll(selector)].map((shape) => {
            const {x, y, width, height} = shape.getBBox(), seen = shape.getBoundingClientRect();
            return [[x, y, x + width, y + height, getComputedStyle(shape).stroke], seen.width + seen.height];
        })""",
        selector,
    )
    assert all(size > 0 for _, size in shapes)
    return [shape for shape, _ in shapes]


def readout(page, average, key):
    return value(page, f"#readout [data-average={average}] [data-column={key}]")


def assert_class_table(page, per_class):
    for row, expected in zip(rows_by_column(page, "class-table"), per_class):
        assert {key: row[key] for key in COUNTS + RATES} == {key: expected[key] for key in COUNTS + RATES}


# --- numbers and the slider -------------------------------------------------------------------------------------------


def test_numbers_equal_the_json(page, report):
    coco, intervals = report["matching_rules"]["coco"], report["intervals"]["overall"]
    values = {
        **{key: report["average_precision"][key] for key in ("mAP", "mAP_50")},
        **{key: coco[key] for key in RATES},
    }
    for key, number in values.items():
        assert value(page, f'[data-key="{key}"]') == number
        assert page.locator(f'[data-key="{key}"]').first.inner_text() == f"{100 * number:.1f}\u202f%"
        limits = [value(page, f'[data-key="{key}_{end}"]') for end in ("low", "high")]
        assert limits == [intervals[key]["low"], intervals[key]["high"]]
    for key in ("tp", "fp", "fn"):
        assert value(page, f'[data-key="{key}"]') == sum(row[key] for row in coco["per_class"])
    text = page.locator("#provenance").inner_text()
    for role in ("ground_truth", "results"):
        assert report["inputs"][role]["file"] in text and report["inputs"][role]["sha256"] in text
    for unit in ("images", "ground_truths", "detections"):
        for key in ("read", "used"):
            assert value(page, f'[data-key="{unit}.{key}"]') == report["counts"][unit][key]
        for reason, number in report["counts"][unit]["dropped"].items():
            assert f"{number:,} {reason}" in text
    errors, expected = rows_by_column(page, "error-table"), report["errors"]
    assert len(errors) == 6
    for row in errors:
        columns = expected["at_score_thr"]["totals"], expected["totals"], expected["dap"]
        assert [row["at_score_thr"], row["count"], row["dap"]] == [column[row["name"]] for column in columns]
    sizes = rows_by_column(page, "size-table")
    assert len(sizes) == 4
    for row, expected in zip(sizes, report["sizes"]["overall"].values()):
        assert all(row[key] == expected[key] for key in row if key != "name")


def test_the_slider_shows_the_numbers_of_its_threshold(page, report, folder):
    coco = report["matching_rules"]["coco"]
    assert value(page, "#score-thr-value") == SCORE_THR
    assert_class_table(page, coco["per_class"])
    for row, expected in zip(rows_by_column(page, "class-table"), report["average_precision"]["per_class"]):
        assert (row["AP"], row["AP_50"]) == (expected["AP"], expected["AP_50"])
    assert [readout(page, "micro", key) for key in RATES] == [coco[f"{key}_micro"] for key in RATES]
    page.locator("#score-thr").focus()
    for keys in (["ArrowRight"] * 3, ["PageDown"], ["Home"]):
        before = value(page, "#score-thr-value")
        for key in keys:
            page.keyboard.press(key)
        threshold = value(page, "#score-thr-value")
        options = ("--score-thr", repr(threshold), "--matching", "coco", "--matrix-only", "--format", "json")
        expected = json.loads(printed("detection", folder / "truth.json", folder / "results.pkl", *options))
        assert threshold != before
        assert_class_table(page, expected["matching_rules"]["coco"]["per_class"])
        assert [readout(page, "macro", key) for key in RATES] == [
            expected["matching_rules"]["coco"][key] for key in RATES
        ]


def test_the_curves_follow_the_slider_and_the_class(page):
    chart(page, "threshold-curves")
    line = "(x) => document.getElementById('threshold-curves').layout.shapes[0].x0 === x"
    page.wait_for_function(line, arg=SCORE_THR)
    slide_to(page, 3)
    page.wait_for_function(line, arg=value(page, "#score-thr-value"))
    page.select_option("#curve-class", "1")
    (precision,), (recall,), _ = traces(page, "threshold-curves", "y")
    row = rows_by_column(page, "class-table")[1]
    assert (precision[3], recall[3]) == (row["precision"], row["recall"])


def test_the_froc_curve_follows_the_slider_and_the_class(page, report):
    chart(page, "froc-curve")
    page.select_option("#curve-class", "1")
    slide_to(page, 3)
    row, images = rows_by_column(page, "class-table")[1], report["counts"]["images"]["used"]
    expected = [row["fp"] / images, row["recall"]]
    page.wait_for_function(
        """([x, y]) => { const [, slider] = document.getElementById("froc-curve").data;
            return slider.x[0] === x && slider.y[0] === y; }""",
        arg=expected,
    )
    (fps, sensitivity), _ = traces(page, "froc-curve", "x", "y")
    assert [fps[3], sensitivity[3]] == expected


@pytest.mark.parametrize(("section", "key"), [("more-1", "olrp"), ("more-2", "froc")])
def test_the_tables_of_olrp_and_froc_equal_the_json(page, report, section, key):
    shown = page.evaluate(
        """(id) => [...document.querySelectorAll(`#${id} tbody tr`)].map((row) => [...row.querySelectorAll("td")]
            .map(({dataset}) => (dataset.value === "" ? null : Number(dataset.value))))""",
        section,
    )
    content = report[key]
    rows = [{name: value for name, value in content.items() if name != "per_class"}, *content["per_class"]]
    assert shown == [[value for name, value in row.items() if name != "name"] for row in rows]


def test_the_best_threshold_is_the_operating_point(page, folder):
    points = json.loads((folder / "out" / "thresholds.json").read_text())
    page.click("#best")
    assert value(page, "#score-thr-value") == points["threshold"]
    best = points["in_sample"]["overall"]
    assert [readout(page, "micro", key) for key in ("tp", "fp", "fn")] == [best[key] for key in ("tp", "fp", "fn")]
    assert readout(page, "micro", "f1") == best["f_score"]
    assert [row["best"] for row in rows_by_column(page, "class-table")] == list(points["per_class"].values())


def test_the_table_of_another_matching_rule_does_not_follow_the_slider(page, report):
    page.select_option("#table-matching", "1")
    assert_class_table(page, report["matching_rules"]["mmdet"]["per_class"])
    slide_to(page, 0)
    assert_class_table(page, report["matching_rules"]["mmdet"]["per_class"])
    assert page.locator("#table-note").inner_text()
    page.select_option("#table-matching", "0")
    tp = rows_by_column(page, "class-table")[0]["tp"]
    assert tp >= report["matching_rules"]["coco"]["per_class"][0]["tp"]


def test_the_table_is_sorted_and_searched(page):
    header = page.locator("#class-table thead [data-column=recall]")

    def recalls():
        return [row["recall"] for row in rows_by_column(page, "class-table")]

    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending" and recalls() == sorted(recalls(), reverse=True)
    header.locator("button").press("Enter")
    assert header.get_attribute("aria-sort") == "ascending" and recalls() == sorted(recalls())
    slide_to(page, 5)  # the order follows the numbers
    assert recalls() == sorted(recalls())
    page.locator('[data-search="class-table"]').fill("CAT &")
    assert [row["name"] for row in rows_by_column(page, "class-table")] == [PRINTABLE[2]]
    assert page.locator('[data-found="class-table"]').inner_text() == "1 of 4"


# --- the confusion matrix ---------------------------------------------------------------------------------------------


def test_a_click_on_a_cell_lists_its_members_worst_first(page, report):
    matrix = report["matching_rules"]["coco"]["confusion_matrix"]
    rows = click_cell(page, 4, 0)  # detections without a match
    assert value(page, "#cell-summary") == matrix[4][0] and len(rows) == min(matrix[4][0], 50) > 5
    scores = [float(row[3]) for row in rows]
    assert scores == sorted(scores, reverse=True) and min(scores) >= SCORE_THR
    assert {row[2] for row in rows} == {PRINTABLE[0]}
    assert len(drawn(page, ".sketch path.fp")) == len(rows)
    click_cell(page, 1, 4)  # missed objects
    areas = page.evaluate("[...document.querySelectorAll('#cell-table [data-area]')].map((row) => +row.dataset.area)")
    assert len(areas) == min(matrix[1][4], 50) > 1
    assert all(first >= second * 0.98 for first, second in zip(areas, areas[1:]))  # sides are rounded
    page.wait_for_selector("#matrix .hoverlayer text")
    first = report["matching_rules"]["coco"]["top_confusions"][0]
    assert value(page, "#top-confusions button") == first["count"]
    page.locator("#top-confusions button").first.click()
    assert len(table_rows(page, "cell-table")) == min(first["count"], 50)


def test_cells_and_false_positives_of_every_matching_rule(page, report):
    for place, rule in enumerate(report["matching_rules"].values()):
        page.select_option("#matrix-matching", str(place))
        for row, column in ((0, 0), (2, 1), (4, 2), (3, 4)):
            assert len(open_cell(page, row, column)) == min(rule["confusion_matrix"][row][column], 50)
        rows = rows_by_column(page, "fp-table")
        assert len(rows) == 4 and len(rows[0]) == 6
        for row, expected in zip(rows, rule["per_class"]):
            counts = {key: number for key, number in row.items() if key != "name"}
            assert counts == {key: expected[key] for key in counts}
            assert 2 * counts["fp"] == sum(counts.values())


def test_a_detection_without_a_match_shows_the_object_it_overlaps_most(page):
    """It is background only if no object reaches the IoU threshold. The highest IoU is always shown."""
    types = {0: "confusion", 1: "duplicate", 2: "background"}
    seen = set()
    for label in range(4):
        rows = open_cell(page, 4, label)
        numbers = page.evaluate("[...document.querySelectorAll('[data-type]')].map((cell) => +cell.dataset.type)")
        for (_, ground_truth, _, _, overlap, _), number in zip(rows, numbers):
            named = any(name in ground_truth for name in PRINTABLE)
            if types[number] == "background":
                assert float(overlap) <= 0.5 and named == (float(overlap) > 0.005)
            else:
                assert float(overlap) >= 0.5 and named
            seen.add(types[number])
    assert seen == set(types.values())


def test_the_matrix_shows_counts_and_shares(page, report):
    matrix = np.array(report["matching_rules"]["coco"]["confusion_matrix"])
    views = {
        "counts": matrix,
        "ground_truth": matrix / matrix.sum(1, keepdims=True),
        "prediction": matrix / matrix.sum(0),
    }
    chart(page, "matrix")
    for view, values in views.items():
        numbers = values[matrix > 0].tolist()
        texts = [f"{number:,}" if view == "counts" else f"{100 * number:.1f}\u202f%" for number in numbers]
        page.locator(f"#matrix-view input[value={view}]").check(force=True)
        page.wait_for_function(
            """(texts) => [...document.querySelectorAll('#matrix .heatmap-label')].map((label) => label.textContent)
                .filter(Boolean).sort().join("|") === texts.sort().join("|")""",
            arg=texts,
        )


# --- names and images -------------------------------------------------------------------------------------------------


def test_names_are_text(page):
    assert [row["name"] for row in rows_by_column(page, "class-table")] == list(PRINTABLE)
    click_cell(page, 1, 1)
    page.wait_for_selector("#matrix .hoverlayer text")
    assert 'a "quoted" <…old</b> one' in page.locator("#matrix .hoverlayer .hovertext").first.text_content()
    ticks = page.locator("#matrix .ytick text").all_text_contents()
    assert ticks[:4] == [name if len(name) <= 24 else name[:12] + "…" + name[-11:] for name in PRINTABLE]
    assert page.locator("#matrix .ytick b, #matrix .ytick tspan[style*=bold]").count() == 0
    assert page.locator("#cell-row option").all_text_contents()[:4] == list(PRINTABLE)
    assert page.locator("main script, main img[src='x'], main [onerror], main [onload], b").count() == 0
    assert set(IMAGES) & set(page.locator("#images .name").all_text_contents())


def test_the_gallery_shows_the_worst_images_with_their_boxes(page):
    page.locator("#gallery").scroll_into_view_if_needed()
    page.wait_for_function("() => [...document.querySelectorAll('#images img')].every((image) => image.naturalWidth)")
    shown = page.locator("#images figure:visible")
    missed = [int(one.get_attribute("data-value")) for one in shown.get_by_test_id("missed").all()]
    assert missed == sorted(missed, reverse=True) and missed[0] > 0
    assert page.get_by_test_id("gallery-remark").count() == 2  # some images are missing, some are damaged
    assert shown.first.locator("path.fn").count() == missed[0]
    page.locator("#gallery-order input[value=score]").check(force=True)
    scores = [float(one.get_attribute("data-value")) for one in shown.get_by_test_id("highest-score").all()]
    assert scores == sorted(scores, reverse=True) and scores
    shown.first.locator("button").press("Enter")
    page.wait_for_selector("dialog[open]")
    assert drawn(page, "dialog .stage path")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")


# --- appearance -------------------------------------------------------------------------------------------------------


def luminance(color):
    """Relative luminance of a CSS color, as WCAG defines it."""
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_legible_in_both_color_schemes_at_every_width(opened, made, scheme):
    page = opened(made[0], color_scheme=scheme)
    chart(page, "matrix")
    open_cell(page, 0, 0)
    for width in (1280, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    for selector in ("p", ".note", ".tp", ".fp", ".fn", "td", "a"):
        colors = page.evaluate(
            """(selector) => [getComputedStyle(document.querySelector(selector)).color,
                getComputedStyle(document.querySelector("section")).backgroundColor]""",
            selector,
        )
        low, high = sorted(map(luminance, colors))
        assert (high + 0.05) / (low + 0.05) >= 4.5, selector
        assert (luminance(colors[1]) < 0.1) == (scheme == "dark")


def test_it_prints_light_and_without_controls(opened, made):
    page = opened(made[0], color_scheme="dark")
    chart(page, "threshold-curves")
    color = "getComputedStyle(document.querySelector('#threshold-curves .xtick text')).fill"
    assert luminance(page.evaluate(color)) > 0.5
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_function(f"() => {color} === 'rgb(0, 0, 0)'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#gallery-order").is_visible() and page.locator("#class-table").is_visible()
    page.wait_for_selector("#matrix .xtick text")  # charts that were never scrolled to are printed too
    assert page.pdf()[:5] == b"%PDF-"


def test_the_tab_key_reaches_every_control(page):
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"score-thr", "curve-class", "matrix-matching", "cell-row", "cell-open", "sort", "thumbnail"} <= reached


# --- other reports ----------------------------------------------------------------------------------------------------


def test_without_an_analysis(opened, folder, tmp_path):
    for name in ("truth.json", "results.pkl"):
        (tmp_path / name).symlink_to(folder / name)
    path, report = make(tmp_path, "--matrix-only", "--matching", "mmdet", "--matching", "agnostic")
    page = opened(path)
    assert_class_table(page, report["matching_rules"]["mmdet"]["per_class"])
    page.select_option("#table-matching", "1")
    assert_class_table(page, report["matching_rules"]["agnostic"]["per_class"])
    assert page.locator("#score-thr, #errors, #sizes, #gallery").count() == 0
    assert len(click_cell(page, 0, 0)) == min(report["matching_rules"]["mmdet"]["confusion_matrix"][0][0], 50)


@pytest.mark.filterwarnings("ignore:there are no ground truths")
def test_without_objects_and_detections(opened, tmp_path):
    image = {"id": 1, "file_name": "a.jpg", "height": 9, "width": 9}
    truth = {"images": [image], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    files.write_json(tmp_path / "truth.json", truth)
    files.write_json(tmp_path / "results.json", [])
    page = opened(make(tmp_path, results="results.json")[0])
    assert page.locator("#best").is_hidden() and page.locator('[data-key="mAP"]').inner_text() == "–"
    slide_to(page, 0)
    assert open_cell(page, 0, 0) == [] and value(page, "#cell-summary") == 0


def test_many_classes_have_a_list_instead_of_a_matrix(opened, tmp_path):
    problem = files.problem(30)
    files.write_json(tmp_path / "truth.json", files.truth_of(problem, [f"class {index}" for index in range(1200)]))
    files.write_pickle(tmp_path / "results.pkl", files.results_of(problem))
    path, report = make(tmp_path)
    assert path.stat().st_size < 10_000_000
    matrix = np.array(report["matching_rules"]["coco"]["confusion_matrix"])
    page = opened(path)
    assert not page.locator("#matrix").is_visible()
    assert len(open_cell(page, 0, 0)) == min(matrix[0][0], 50) > 0
    np.fill_diagonal(matrix, 0)
    assert value(page, "#top-confusions button") == matrix[:-1, :-1].max()
    page.locator("#top-confusions button").first.click()
    assert len(table_rows(page, "cell-table")) == min(matrix[:-1, :-1].max(), 50)


# --- geometries -------------------------------------------------------------------------------------------------------

PROBLEMS = {
    "segm": mask_batch,
    "boundary": partial(mask_batch, geometry=Boundaries),
    "rbox": rotated_batch,
    "keypoints": lambda seed: (keypoint_batch(seed, num_classes=2), 2),
}


def extents(shapes):
    """(left, top, right, bottom) of each shape that is drawn."""
    if hasattr(shapes, "runs"):
        places = (np.nonzero(bitmap.T) for bitmap in bitmaps_of(shapes))
        return [(x.min(), y.min(), x.max() + 1, y.max() + 1) for x, y in places if len(x)]
    points = shapes.corners() if hasattr(shapes, "corners") else [one[one[:, 2] > 0, :2] for one in shapes.array]
    return [(*each.min(axis=0), *each.max(axis=0)) for each in points if len(each)]


@pytest.mark.parametrize("iou_type", PROBLEMS)
def test_masks_rotated_boxes_and_key_points_are_drawn(opened, tmp_path, iou_type):
    batch, num_classes = next(
        problem for problem in map(PROBLEMS[iou_type], range(50)) if len(problem[0].detections) > 20
    )
    options = dict(iou_type=iou_type, matching=IOU_TYPES[iou_type].matching, score_thr=0.2, iou_thr=0.6)
    evaluator = DetectionEvaluator([f"class {index}" for index in range(num_classes)], worst_images=9, **options)
    names = [f"{index}.png" for index in range(batch.num_images)]
    evaluator.update(batch, image_names=names)
    for name in names:
        Image.new("RGB", (300, 300), "gray").save(tmp_path / name)
    report = evaluator.compute()
    report.save(tmp_path / "out", images=tmp_path)
    page = opened(tmp_path / "out" / "report.html")

    text, name = page.locator("main, header").all_inner_texts(), report.overlap_name
    assert f"Evaluated: {IOU_TYPES[iou_type].description}." in " ".join(text)
    assert f"its {name} with an object" in " ".join(text) and "mmdet" not in " ".join(text)
    assert page.locator("#cell-table th").all_text_contents()[4] == name
    matrix, colors = report.matching_rules[0].result.matrix, {}
    for row, column in np.argwhere(matrix).tolist():
        members = open_cell(page, row, column)
        assert len(members) == min(matrix[row, column], 50)
        kind = "tp" if row == column else "fn" if column == num_classes else "fp"
        shapes = drawn(page, f".sketch path.{kind}")
        # Empty masks, and objects that no line shows, have no sketch.
        assert len(members) >= len(shapes) >= 0.6 * len(members)
        colors.setdefault(kind, set()).update(shape[4] for shape in shapes)
    assert sorted(map(len, colors.values())) == [1, 1, 1] and len(set.union(*colors.values())) == 3

    page.evaluate("document.querySelectorAll('#images figure').forEach((figure) => { figure.hidden = false; })")
    expected = np.concatenate([extents(batch.detections.geometry), extents(batch.ground_truths.geometry)])
    colors = set()
    for kind in ("tp", "fp", "fn"):
        shapes = drawn(page, f'#images path.{kind}:not([d=""])')
        assert shapes
        for *edges, color in shapes:
            assert np.abs(expected - edges).max(axis=1).min() <= 6  # simplified contours, crosses of key points
            colors.add(color)
    assert len(colors) == 3


def test_the_pages_of_several_types_are_linked(opened, tmp_path):
    problems = {name: PROBLEMS[name](6) for name in ("segm", "boundary")}
    evaluators = [DetectionEvaluator("abc"[:number], iou_type=name) for name, (_, number) in problems.items()]
    for evaluator, (batch, _) in zip(evaluators, problems.values()):
        evaluator.update(batch)
    reports = DetectionReports({each.settings.iou_type: each.compute() for each in evaluators})
    assert {"report.html", "segm/report.html", "boundary/per_class.csv"} <= set(reports.save(tmp_path, html=True))
    page = opened(tmp_path / "report.html")
    for name in ("segm", "boundary"):
        assert value(page, f'[data-key="{name}.mAP"]') == reports[name].log_values()["mAP"]
    page.click("text=compared by boundary IoU")
    page.wait_for_selector("main[aria-busy=false] #confusions")
    assert page.url.endswith("/boundary/report.html")
