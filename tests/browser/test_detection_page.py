"""The page of ``mm-metrics detection``, used as a person would: opened from disk, clicked, moved, sorted, printed."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.cli import main
from tests.browser.conftest import (
    chart,
    check_sorting,
    class_rows,
    click_cell,
    open_cell,
    opening,
    table_rows,
    until,
    value,
)
from tests.helpers import result_files as files
from tests.helpers.result_files import printed

# Names as nobody should choose them.
CLASSES = (
    "<script>alert(1)</script>",
    'a "quoted" <b>bold</b> one',
    "cat & dog &lt;",
    "\u202e\u2028evil' onload='alert(2)",
)
NAMES = ["<img src=x onerror=alert(3)>.png", 'x" onerror="alert(4).png', "a/b'&amp;.png"]
SCORE = 0.37  # between the points of the grid
OPTIONS = ["--score-thr", str(SCORE), "--ci", "0.9", "--resamples", "20", "--operating-point", "f1"]


def shown_name(index):
    """As it stands on the page: what could turn the writing round is written out."""
    return CLASSES[index].replace("\u202e", "\\u202e").replace("\u2028", "\\u2028")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A report with its page, of images some of which are there, one of them broken."""
    place = tmp_path_factory.mktemp("page")
    made = files.problem(images=40)
    truth = files.truth_of(made, CLASSES)
    for number, image in enumerate(truth["images"]):
        if number < len(NAMES):
            image["file_name"] = NAMES[number]
    files.write_json(place / "truth.json", truth)
    files.write_pickle(place / "results.pkl", files.results_of(made))
    pictures = place / "pictures"
    (pictures / "a").mkdir(parents=True)
    for number, image in enumerate(truth["images"][:-6]):  # the last ones are missing
        picture = Image.effect_noise((640, 480), 60 + number)
        picture.convert("RGB").save(pictures / image["file_name"], format="PNG")
    (pictures / "5.jpg").write_bytes(b"no picture")
    (pictures / "6.jpg").write_bytes((pictures / "7.jpg").read_bytes()[:2000])
    protocols = [word for name in ("coco", "mmdet", "agnostic") for word in ("--matching", name)]
    arguments = [place / "truth.json", place / "results.pkl", place / "out", "--quiet", "--html", *OPTIONS, *protocols]
    assert main(["detection", *map(str, arguments), "--images", str(pictures)]) == 0
    return place


@pytest.fixture(scope="module")
def report(folder):
    return json.loads((folder / "out" / "report.json").read_text())


@pytest.fixture(scope="module")
def shared(browser, folder):
    """One opened page for many tests: opening it is most of their time."""
    with opening(browser, folder / "out" / "report.html") as one:
        yield one


RESET = """() => {
    const change = (id, value) => {
        const one = document.getElementById(id);
        one.value = value;
        one.dispatchEvent(new Event("change"));
    };
    document.querySelector('[data-search="class-table"]').value = "";
    document.querySelector('[data-search="class-table"]').dispatchEvent(new Event("input"));
    change("table-protocol", "0");
    change("curve-class", "");
    document.getElementById("as-reported").click();
    document.querySelector("#class-table thead th button").click();
    document.querySelector("#matrix-view input").click();
    change("matrix-protocol", "0");
    document.querySelector("#gallery-order input").click();
    for (const cell of document.querySelectorAll("#class-table [aria-sort]")) cell.removeAttribute("aria-sort");
    const body = document.querySelector("#class-table tbody");
    body.append(...[...body.rows].sort((a, b) => a.dataset.row - b.dataset.row));
    document.activeElement.blur();
    scrollTo(0, 0);
}"""


@pytest.fixture
def page(shared):
    shared.page.evaluate(RESET)
    yield shared.page
    shared.check()


def slide_to(page, place):
    page.evaluate(
        """(place) => { const slider = document.getElementById("score-thr"); slider.value = String(place);
            for (const name of ["input", "change"]) slider.dispatchEvent(new Event(name)); }""",
        place,
    )


def macro(page, key):
    return value(page, f"#readout [data-average=macro] [data-column={key}]")


def micro(page, key):
    return value(page, f"#readout [data-average=micro] [data-column={key}]")


def same_counts(rows, per_class):
    for row, expected in zip(rows, per_class):
        for key in ("ground_truths", "tp", "fp", "fn", "precision", "recall", "f1"):
            assert row[key] == expected[key], (row["name"], key)


# --- the numbers ------------------------------------------------------------------------------------------------------


def test_the_headline_equals_the_json(page, report):
    coco, overall = report["protocols"]["coco"], report["intervals"]["overall"]
    expected = {**{key: report["average_precision"][key] for key in ("mAP", "mAP_50")}}
    expected.update({key: coco[key] for key in ("precision", "recall", "f1")})
    for key, number in expected.items():
        assert value(page, f'[data-key="{key}"]') == number
        assert value(page, f'[data-key="{key}_low"]') == overall[key]["low"]
        assert value(page, f'[data-key="{key}_high"]') == overall[key]["high"]
        assert page.locator(f'[data-key="{key}"]').first.inner_text() == f"{100 * number:.1f}\u202f%"
    for key in ("tp", "fp", "fn"):
        assert value(page, f'[data-key="{key}"]') == sum(row[key] for row in coco["per_class"])


def test_what_was_evaluated_is_said(page, report):
    text = page.locator("#provenance").inner_text()
    for role in ("ground_truth", "results"):
        assert report["inputs"][role]["file"] in text and report["inputs"][role]["sha256"] in text
    for what in ("images", "ground_truths", "detections"):
        for key in ("read", "used"):
            assert value(page, f'[data-key="{what}.{key}"]') == report["counts"][what][key]
        for reason, number in report["counts"][what]["dropped"].items():
            assert f"{number:,} {reason}" in text


def test_errors_and_sizes_equal_the_json(page, report):
    errors = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#error-table tbody tr")].map((row) =>
            [row.cells[0].firstChild.textContent.trim(),
             [...row.querySelectorAll("td")].map((cell) => Number(cell.dataset.value))]))"""
    )
    for kind, (at_score_thr, number, gain) in errors.items():
        assert at_score_thr == report["errors"]["at_score_thr"]["totals"][kind]
        assert number == report["errors"]["totals"][kind]
        assert gain == report["errors"]["dap"][kind]
    assert len(errors) == 6
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("#size-table tbody tr")].map((row) => Object.fromEntries(
            [...row.querySelectorAll("[data-column]")].map((cell) =>
                [cell.dataset.column, cell.dataset.value === "" ? null : Number(cell.dataset.value)])))"""
    )
    for row, expected in zip(sizes, report["sizes"]["overall"].values()):
        assert row == {key: expected[key] for key in row}
    assert len(sizes) == 4
    assert page.get_by_test_id("max-dets").count() == 1


# --- the slider -------------------------------------------------------------------------------------------------------


def test_the_slider_begins_at_the_reports_threshold_and_shows_its_numbers(page, report):
    assert value(page, "#score-thr-value") == SCORE
    coco = report["protocols"]["coco"]
    rows = class_rows(page)
    same_counts(rows, coco["per_class"])
    for row, expected in zip(rows, report["average_precision"]["per_class"]):
        assert (row["AP"], row["AP_50"]) == (expected["AP"], expected["AP_50"])
    for key in ("precision", "recall", "f1"):
        assert macro(page, key) == coco[key] and micro(page, key) == coco[f"{key}_micro"]


def test_moved_by_keys_it_says_what_a_run_at_that_threshold_says(page, folder):
    slider = page.locator("#score-thr")
    slider.focus()
    for keys in (["ArrowRight"] * 3, ["PageDown"], ["Home"]):
        before = value(page, "#score-thr-value")
        for key in keys:
            page.keyboard.press(key)
        threshold = value(page, "#score-thr-value")
        assert threshold != before
        again = json.loads(
            printed(
                "detection", folder / "truth.json", folder / "results.pkl", "--score-thr", repr(threshold),
                "--matching", "coco", "--matrix-only", "--format", "json",
            )
        )["protocols"]["coco"]  # fmt: skip
        same_counts(class_rows(page), again["per_class"])
        for key in ("precision", "recall", "f1"):
            assert macro(page, key) == again[key]


def test_the_curves_follow_the_slider_and_the_class(page):
    chart(page, "threshold-curves")
    assert page.locator("#threshold-curves .scatterlayer path").count() == 3
    mark = "() => document.getElementById('threshold-curves').layout.shapes[0].x0"
    until(page, f"() => ({mark})() === {SCORE}")  # a moved slider is drawn in the next frame
    slide_to(page, 3)
    threshold = value(page, "#score-thr-value")
    until(page, f"() => ({mark})() === {threshold!r}")
    page.select_option("#curve-class", "1")
    line = page.evaluate("() => document.getElementById('threshold-curves').data.map((one) => [...one.y])")
    assert line[0][3] == class_rows(page)[1]["precision"]
    assert line[1][3] == class_rows(page)[1]["recall"]


def test_the_best_threshold_is_the_one_that_operating_points_find(page, report, folder):
    found = json.loads((folder / "out" / "thresholds.json").read_text())
    page.click("#best")
    assert value(page, "#score-thr-value") == found["threshold"]
    best = found["in_sample"]["overall"]
    for key in ("tp", "fp", "fn"):
        assert micro(page, key) == best[key]
    assert micro(page, "f1") == best["f_score"]
    assert [row["best"] for row in class_rows(page)] == list(found["per_class"].values())
    page.click("#as-reported")
    assert value(page, "#score-thr-value") == SCORE


def test_the_table_can_be_of_another_protocol(page, report):
    page.select_option("#table-protocol", "1")
    same_counts(class_rows(page), report["protocols"]["mmdet"]["per_class"])
    slide_to(page, 0)
    same_counts(class_rows(page), report["protocols"]["mmdet"]["per_class"])
    assert page.locator("#table-note").inner_text()
    page.select_option("#table-protocol", "0")
    assert class_rows(page)[0]["tp"] >= report["protocols"]["coco"]["per_class"][0]["tp"]


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_sorts_by_mouse_and_by_keys(page):
    check_sorting(page, "#class-table", "recall", lambda: [row["recall"] for row in class_rows(page)])
    slide_to(page, 5)  # the order follows the numbers
    found = [row["recall"] for row in class_rows(page)]
    assert found == sorted(found)


def test_the_table_is_searched(page):
    page.locator('[data-search="class-table"]').fill("CAT &")
    assert [row["name"] for row in class_rows(page, visible_only=True)] == [shown_name(2)]
    assert page.locator('[data-found="class-table"]').inner_text() == "1 of 4"
    page.locator('[data-search="class-table"]').fill("")
    assert len(class_rows(page, visible_only=True)) == 4


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_a_click_on_a_cell_lists_its_members_the_worst_first(page, report):
    matrix = report["protocols"]["coco"]["confusion_matrix"]
    click_cell(page, 4, 0)  # detections without a match
    rows = table_rows(page, "#cell-table")
    assert value(page, "#cell-summary") == matrix[4][0]
    assert len(rows) == min(matrix[4][0], 50) > 5
    scores = [float(row[3]) for row in rows]
    assert scores == sorted(scores, reverse=True) and min(scores) >= SCORE
    assert {row[2] for row in rows} == {shown_name(0)}
    click_cell(page, 1, 4)  # missed objects
    areas = page.evaluate(
        "() => [...document.querySelectorAll('#cell-table [data-area]')].map((row) => +row.dataset.area)"
    )
    assert len(areas) == min(matrix[1][4], 50) > 1
    assert all(first >= second * 0.98 for first, second in zip(areas, areas[1:]))  # sides are rounded


def test_cells_are_reached_by_keys_under_every_protocol(page, report):
    for place, (name, protocol) in enumerate(report["protocols"].items()):
        page.select_option("#matrix-protocol", str(place))
        for row, column in ((0, 0), (2, 1), (4, 2), (3, 4)):
            rows = open_cell(page, row, column)
            assert len(rows) == min(protocol["confusion_matrix"][row][column], 50), (name, row, column)


def test_a_detection_without_a_match_shows_the_object_it_overlaps_most(page):
    """It is background only if no object reaches the IoU threshold. The highest IoU is always shown."""
    types = {0: "confusion", 1: "duplicate", 2: "background"}
    seen = set()
    for label in range(4):
        rows = open_cell(page, 4, label)
        found = page.evaluate("() => [...document.querySelectorAll('[data-type]')].map((cell) => +cell.dataset.type)")
        for (_, ground_truth, _, _, overlap, _), kind in zip(rows, found):
            names = [shown_name(index) for index in range(4) if shown_name(index) in ground_truth]
            if types[kind] == "background":
                assert float(overlap) <= 0.5 and bool(names) == (float(overlap) > 0.005)
            else:
                assert float(overlap) >= 0.5 and names
            seen.add(types[kind])
    assert seen == set(types.values())


def test_false_positives_by_type_equal_the_json_under_every_protocol(page, report):
    for place, protocol in enumerate(report["protocols"].values()):
        page.select_option("#matrix-protocol", str(place))
        rows = page.evaluate(
            """() => [...document.querySelectorAll("#fp-table tbody tr")].map((row) => Object.fromEntries(
                [...row.querySelectorAll("[data-column]")].map(({dataset: one}) => [one.column, Number(one.value)])))"""
        )
        assert len(rows) == 4 and len(rows[0]) == 5
        for row, expected in zip(rows, protocol["per_class"]):
            assert row == {key: expected[key] for key in row}
            assert row["fp"] == sum(number for key, number in row.items() if key != "fp")


def test_the_matrix_shows_counts_and_shares(page, report):
    matrix = np.array(report["protocols"]["coco"]["confusion_matrix"])
    chart(page, "matrix")
    texts = (
        "() => [...document.querySelectorAll('#matrix .heatmap-label')].map((one) => one.textContent).filter(Boolean)"
    )
    until(page, f"() => ({texts})().length > 0")
    counts = sorted(f"{number:,}" for number in matrix[matrix > 0].tolist())
    assert sorted(page.evaluate(texts)) == counts
    for choice, shares in (
        ("ground_truth", matrix / matrix.sum(1, keepdims=True)),
        ("prediction", matrix / matrix.sum(0)),
    ):
        page.locator(f"#matrix-view input[value={choice}]").check(force=True)
        expected = sorted(f"{100 * share:.1f}\u202f%" for share in shares[matrix > 0].tolist())
        until(page, f"() => ({texts})().every((text) => text.endsWith('%'))")
        assert sorted(page.evaluate(texts)) == expected


def test_the_most_frequent_confusions_open_their_cells(page, report):
    first = report["protocols"]["coco"]["top_confusions"][0]
    assert value(page, "#top-confusions button") == first["count"]
    page.locator("#top-confusions button").first.click()
    assert len(table_rows(page, "#cell-table")) == min(first["count"], 50)


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_stay_text(page):
    assert [row["name"] for row in class_rows(page)] == [shown_name(index) for index in range(4)]
    chart(page, "matrix")
    ticks = page.locator("#matrix .ytick text").all_text_contents()
    for index in range(4):
        name = shown_name(index)
        assert (name if len(name) <= 24 else name[:12] + "…" + name[-11:]) in ticks
    assert page.locator("#matrix .ytick b, #matrix .ytick tspan[style*=bold]").count() == 0
    options = page.locator("#cell-row option").all_text_contents()
    assert options[:4] == [shown_name(index) for index in range(4)]
    assert page.locator("main script, main img[src='x'], main [onerror], main [onload], b").count() == 0
    names = page.locator("#images .name").all_text_contents()
    assert set(NAMES) & set(names)
    page.locator("#gallery").scroll_into_view_if_needed()


def test_hovering_shows_names_as_text(page):
    click_cell(page, 1, 1)
    page.wait_for_selector("#matrix .hoverlayer text")
    text = page.locator("#matrix .hoverlayer .hovertext").first.text_content()
    assert 'a "quoted" <…old</b> one' in text


# --- the gallery ------------------------------------------------------------------------------------------------------


def test_the_gallery_shows_the_worst_pictures_with_their_boxes(page, report):
    page.locator("#gallery").scroll_into_view_if_needed()
    loaded = "[...document.querySelectorAll('#images img')].every((one) => one.complete && one.naturalWidth)"
    until(page, f"() => {loaded}")
    shown = page.locator("#images figure:visible")
    missed = [int(one.get_attribute("data-value")) for one in shown.get_by_test_id("missed").all()]
    assert missed == sorted(missed, reverse=True) and missed[0] > 0
    assert page.get_by_test_id("gallery-remark").count() == 2  # some images are missing, some are damaged
    assert shown.first.locator("rect.fn").count() == missed[0]
    page.locator("#gallery-order input[value=score]").check(force=True)
    scores = [float(one.get_attribute("data-value")) for one in shown.get_by_test_id("highest-score").all()]
    assert scores == sorted(scores, reverse=True) and scores


def test_a_picture_opens_and_closes_by_keys(page):
    page.locator("#images figure:visible button").first.press("Enter")
    page.wait_for_selector("dialog[open]")
    assert page.locator("dialog .stage rect").count() > 0
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")


# --- how it looks -----------------------------------------------------------------------------------------------------


def luminance(color):
    """Relative luminance of a CSS color, as WCAG defines it."""
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page, selector):
    color, back = page.evaluate(
        """(selector) => [getComputedStyle(document.querySelector(selector)).color,
            getComputedStyle(document.querySelector("section")).backgroundColor]""",
        selector,
    )
    high, low = sorted([luminance(color), luminance(back)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_width_by_day_and_night(opened, folder, tmp_path, scheme):
    page = opened(folder / "out" / "report.html", width=1280, height=844, color_scheme=scheme)
    chart(page, "matrix")
    open_cell(page, 0, 0)
    for width in (1280, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        until(page, "() => document.documentElement.scrollWidth <= innerWidth")
        picture = Image.open(io.BytesIO(page.screenshot(path=tmp_path / f"{width}.png", full_page=True)))
        assert picture.width == width and picture.height > 3000
        assert len(picture.convert("L").resize((64, 64)).getcolors()) > 8  # something is drawn
        corner = sum(picture.convert("RGB").getpixel((2, 2)))
        assert corner < 150 if scheme == "dark" else corner > 700
    for selector in ("p", ".note", ".tp", ".fp", ".fn", "td", "a"):
        assert contrast(page, selector) >= 4.5, selector


def test_it_prints_light_and_without_controls(opened, folder):
    page = opened(folder / "out" / "report.html", color_scheme="dark")
    chart(page, "threshold-curves")
    color = "() => getComputedStyle(document.querySelector('#threshold-curves .xtick text')).fill"
    assert luminance(page.evaluate(color)) > 0.5
    page.emulate_media(media="print", color_scheme="dark")
    until(page, f"() => ({color})() === 'rgb(0, 0, 0)'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#gallery-order").is_visible() and page.locator("#class-table").is_visible()
    page.wait_for_selector("#matrix .xtick text")  # charts that were never scrolled to are printed too
    assert page.pdf()[:5] == b"%PDF-"


def test_everything_is_reached_by_the_tab_key(page):
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"score-thr", "curve-class", "matrix-protocol", "cell-row", "cell-open", "sort", "thumbnail"} <= reached


# --- other ways to get a page -----------------------------------------------------------------------------------------


def test_without_an_analysis_there_is_a_matrix_and_a_table(opened, folder):
    arguments = [folder / "truth.json", folder / "results.pkl", folder / "plain", "--quiet", "--html", "--matrix-only"]
    assert main(["detection", *map(str, arguments), "--matching", "mmdet", "--matching", "agnostic"]) == 0
    page = opened(folder / "plain" / "report.html")
    report = json.loads((folder / "plain" / "report.json").read_text())
    same_counts(class_rows(page), report["protocols"]["mmdet"]["per_class"])
    page.select_option("#table-protocol", "1")
    same_counts(class_rows(page), report["protocols"]["agnostic"]["per_class"])
    assert page.locator("#score-thr, #errors, #sizes, #gallery").count() == 0
    click_cell(page, 0, 0)
    assert len(table_rows(page, "#cell-table")) == min(report["protocols"]["mmdet"]["confusion_matrix"][0][0], 50)


def test_nothing_found_and_nothing_there_is_a_page_too(opened, tmp_path):
    truth = {"images": [{"id": 1, "file_name": "a.jpg", "height": 9, "width": 9}], "annotations": []}
    files.write_json(tmp_path / "truth.json", {**truth, "categories": [{"id": 1, "name": "cat"}]})
    files.write_json(tmp_path / "results.json", [])
    arguments = [str(tmp_path / name) for name in ("truth.json", "results.json", "out")]
    assert main(["detection", *arguments, "--quiet", "--html"]) == 0
    page = opened(tmp_path / "out" / "report.html")
    assert page.locator("#best").is_hidden()
    assert page.locator('[data-key="mAP"]').inner_text() == "–"
    slide_to(page, 0)
    assert open_cell(page, 0, 0) == [] and value(page, "#cell-summary") == 0


def test_of_many_classes_no_matrix_is_drawn_but_cells_open(browser, tmp_path):
    classes = [f"class {index}" for index in range(1200)]
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(files.problem(30), classes))
    results = files.write_pickle(tmp_path / "results.pkl", files.results_of(files.problem(30)))
    printed("detection", truth, results, tmp_path / "out", "--quiet", "--html")
    path = tmp_path / "out" / "report.html"
    assert path.stat().st_size < 10_000_000
    matrix = json.loads((tmp_path / "out" / "report.json").read_text())["protocols"]["coco"]["confusion_matrix"]
    with opening(browser, path) as opened:
        page = opened.page
        assert not page.locator("#matrix").is_visible()
        assert len(open_cell(page, 0, 0)) == min(matrix[0][0], 50) > 0
        expected = max(matrix[row][column] for row in range(1200) for column in range(1200) if row != column)
        assert value(page, "#top-confusions button") == expected
        page.locator("#top-confusions button").first.click()
        assert len(table_rows(page, "#cell-table")) == min(expected, 50)
