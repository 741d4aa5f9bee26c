"""The page of ``mm-metrics detection``, used as a person would: opened from disk, clicked, moved, sorted, printed."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.cli import main
from tests.browser.conftest import chart, opening, until
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
    body.append(...[...body.rows].sort((a, b) => a.dataset.class - b.dataset.class));
    document.activeElement.blur();
    scrollTo(0, 0);
}"""


@pytest.fixture
def page(shared):
    shared.page.evaluate(RESET)
    yield shared.page
    shared.check()


def value(page, selector):
    """The number an element stands for, in full."""
    text = page.locator(selector).first.get_attribute("data-value")
    return float(text) if text else None


def class_rows(page, *, shown_only=False):
    """The table of classes as it stands: one dict a row, in its order."""
    rows = page.evaluate(
        """() => [...document.querySelectorAll("#class-table tbody tr")].map((row) => ({
            name: row.cells[0].textContent, hidden: row.hidden, shown: row.cells[5].textContent,
            ...Object.fromEntries([...row.querySelectorAll("[data-column]")]
                .map(({dataset}) => [dataset.column, dataset.value === "" ? null : Number(dataset.value)]))}))"""
    )
    return [row for row in rows if not (shown_only and row["hidden"])]


def slide_to(page, place):
    page.evaluate(
        """(place) => { const slider = document.getElementById("confidence"); slider.value = String(place);
            for (const name of ["input", "change"]) slider.dispatchEvent(new Event(name)); }""",
        place,
    )


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
    text = page.locator("#evaluated").inner_text()
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
            [row.querySelector("th").firstChild.textContent.trim(),
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
    assert page.locator("[data-max-dets]").count() == 1


# --- the slider -------------------------------------------------------------------------------------------------------


def test_the_slider_begins_at_the_reports_threshold_and_shows_its_numbers(page, report):
    assert value(page, "#confidence-shown") == SCORE
    coco = report["protocols"]["coco"]
    rows = class_rows(page)
    same_counts(rows, coco["per_class"])
    for row, expected in zip(rows, report["average_precision"]["per_class"]):
        assert (row["AP"], row["AP_50"]) == (expected["AP"], expected["AP_50"])
    for key in ("precision", "recall", "f1", "precision_micro", "recall_micro", "f1_micro"):
        assert value(page, f'#readout [data-column="{key}"]') == coco[key]


def test_moved_by_keys_it_says_what_a_run_at_that_threshold_says(page, folder):
    slider = page.locator("#confidence")
    slider.focus()
    for keys in (["ArrowRight"] * 3, ["PageDown"], ["Home"]):
        before = value(page, "#confidence-shown")
        for key in keys:
            page.keyboard.press(key)
        threshold = value(page, "#confidence-shown")
        assert threshold != before
        again = json.loads(
            printed(
                "detection", folder / "truth.json", folder / "results.pkl", "--score-thr", repr(threshold),
                "--matching", "coco", "--matrix-only", "--format", "json",
            )
        )["protocols"]["coco"]  # fmt: skip
        same_counts(class_rows(page), again["per_class"])
        for key in ("precision", "recall", "f1"):
            assert value(page, f'#readout [data-column="{key}"]') == again[key]


def test_the_curves_follow_the_slider_and_the_class(page):
    chart(page, "confidence-curves")
    assert page.locator("#confidence-curves .scatterlayer path").count() == 3
    mark = "() => document.getElementById('confidence-curves').layout.shapes[0].x0"
    until(page, f"() => ({mark})() === {SCORE}")  # a moved slider is drawn in the next frame
    slide_to(page, 3)
    threshold = value(page, "#confidence-shown")
    until(page, f"() => ({mark})() === {threshold!r}")
    page.select_option("#curve-class", "1")
    line = page.evaluate("() => document.getElementById('confidence-curves').data.map((one) => [...one.y])")
    assert line[0][3] == class_rows(page)[1]["precision"]
    assert line[1][3] == class_rows(page)[1]["recall"]


def test_the_best_threshold_is_the_one_that_operating_points_find(page, report, folder):
    found = json.loads((folder / "out" / "thresholds.json").read_text())
    page.get_by_role("button", name=re.compile("best F1")).click()
    assert value(page, "#confidence-shown") == found["threshold"]
    best = found["in_sample"]["overall"]
    for key in ("tp", "fp", "fn"):
        assert value(page, f'#readout [data-column="{key}"]') == best[key]
    assert value(page, '#readout [data-column="f1_micro"]') == best["f_score"]
    assert [row["best"] for row in class_rows(page)] == list(found["per_class"].values())
    page.get_by_role("button", name=re.compile("as reported")).click()
    assert value(page, "#confidence-shown") == SCORE


def test_the_table_can_be_of_another_protocol(page, report):
    page.select_option("#table-protocol", label=f"mmdet at {SCORE}")
    same_counts(class_rows(page), report["protocols"]["mmdet"]["per_class"])
    slide_to(page, 0)
    same_counts(class_rows(page), report["protocols"]["mmdet"]["per_class"])
    assert "does not move it" in page.locator("#table-note").inner_text()
    page.select_option("#table-protocol", label="coco")
    assert class_rows(page)[0]["tp"] >= report["protocols"]["coco"]["per_class"][0]["tp"]


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_sorts_by_mouse_and_by_keys(page, report):
    per_class = report["protocols"]["coco"]["per_class"]
    header = page.locator("#class-table thead th").filter(has_text="recall")
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    expected = sorted((row["recall"] for row in per_class), reverse=True)
    assert [row["recall"] for row in class_rows(page)] == expected
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert [row["recall"] for row in class_rows(page)] == expected[::-1]
    slide_to(page, 5)  # the order follows the numbers
    found = [row["recall"] for row in class_rows(page)]
    assert found == sorted(found)


def test_the_table_is_searched(page):
    page.get_by_label("Search classes").fill("CAT &")
    assert [row["name"] for row in class_rows(page, shown_only=True)] == [shown_name(2)]
    assert page.locator('[data-found="class-table"]').inner_text() == "1 of 4"
    page.get_by_label("Search classes").fill("")
    assert len(class_rows(page, shown_only=True)) == 4


# --- the matrix -------------------------------------------------------------------------------------------------------


def click_cell(page, row, column):
    """A real click on the middle of a cell."""
    chart(page, "matrix")
    where = page.evaluate(
        """([row, column]) => {
            const chart = document.getElementById("matrix"), {xaxis, yaxis} = chart._fullLayout;
            const box = chart.getBoundingClientRect();
            return [box.left + xaxis._offset + xaxis.d2p(column), box.top + yaxis._offset + yaxis.d2p(row)];
        }""",
        [row, column],
    )
    page.mouse.move(*where)
    # A click selects the cell that the chart knows to be under the mouse, which it finds out some time after the move.
    page.wait_for_function(
        """([row, column]) => (document.getElementById("matrix")._hoverdata || [])
            .some((point) => point.y === row && point.x === column)""",
        arg=[row, column],
    )
    page.mouse.click(*where)


def members(page):
    return page.evaluate(
        """() => [...document.querySelectorAll("#cell-table tbody tr")].map((row) =>
            [...row.cells].map((cell) => cell.dataset.value || cell.textContent))"""
    )


def test_a_click_on_a_cell_lists_what_is_in_it_the_worst_first(page, report):
    matrix = report["protocols"]["coco"]["confusion_matrix"]
    click_cell(page, 4, 0)  # boxes without a match
    page.wait_for_selector("#cell:not([hidden])")
    rows, total = members(page), matrix[4][0]
    assert page.locator("#cell-title").inner_text() == f"{shown_name(0)}: without a match"
    assert len(rows) == min(total, 50) > 5
    said = page.locator("#cell-said").inner_text()
    assert (f"first 50 of {total}" if total > 50 else f"All {total}") in said and "highest score first" in said
    scores = [float(row[3]) for row in rows]
    assert scores == sorted(scores, reverse=True) and min(scores) >= SCORE
    assert {row[2] for row in rows} == {shown_name(0)}
    click_cell(page, 1, 4)  # missed objects
    until(page, "() => document.getElementById('cell-title').textContent.endsWith(': missed')")
    rows = members(page)
    assert len(rows) == min(matrix[1][4], 50) > 1 and "largest first" in page.locator("#cell-said").inner_text()
    sides = [re.match(r"([\d.]+) × ([\d.]+)", row[5]).groups() for row in rows]
    areas = [float(width) * float(height) for width, height in sides]
    assert all(first >= second * 0.98 for first, second in zip(areas, areas[1:]))  # sides are shown rounded


def test_cells_are_reached_by_keys_under_every_protocol(page, report):
    for place, (name, protocol) in enumerate(report["protocols"].items()):
        page.select_option("#matrix-protocol", str(place))
        for row, column in ((0, 0), (2, 1), (4, 2), (3, 4)):
            page.select_option("#cell-truth", str(row))
            page.select_option("#cell-prediction", str(column))
            page.get_by_role("button", name="Show this cell").press("Enter")
            assert len(members(page)) == min(protocol["confusion_matrix"][row][column], 50), (name, row, column)
            assert page.evaluate("document.activeElement.id") == "cell"


def test_a_box_without_a_match_shows_the_object_it_overlaps_most(page, report):
    """The word background stands only where no object reaches the IoU threshold. The highest IoU is always shown."""
    seen = set()
    for label in range(4):
        page.select_option("#cell-truth", "4")
        page.select_option("#cell-prediction", str(label))
        page.get_by_role("button", name="Show this cell").press("Enter")
        for _, truth, _, _, overlap, _ in members(page):
            if truth.startswith("background"):
                assert float(overlap) <= 0.5 and ("closest" in truth) == (float(overlap) > 0.005)
                seen.add("background")
            else:
                name, kind = re.fullmatch(r"(.*), already matched \((duplicate|confusion)\)", truth).groups()
                assert float(overlap) >= 0.5 and name in map(shown_name, range(4))
                seen.add(kind)
    assert seen == {"background", "duplicate", "confusion"}


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
        ("by ground truth", matrix / matrix.sum(1, keepdims=True)),
        ("by prediction", matrix / matrix.sum(0)),
    ):
        page.get_by_text(choice, exact=True).click()
        expected = sorted(f"{100 * share:.1f}\u202f%" for share in shares[matrix > 0].tolist())
        until(page, f"() => ({texts})().every((text) => text.endsWith('%'))")
        assert sorted(page.evaluate(texts)) == expected


def test_the_most_frequent_confusions_open_their_cells(page, report):
    first = report["protocols"]["coco"]["top_confusions"][0]
    button = page.locator("#top-confusions button").first
    assert button.inner_text().endswith(f": {first['count']}")
    button.click()
    assert len(members(page)) == min(first["count"], 50)


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_stay_text(page):
    assert [row["name"] for row in class_rows(page)] == [shown_name(index) for index in range(4)]
    chart(page, "matrix")
    ticks = page.locator("#matrix .ytick text").all_text_contents()
    for index in range(4):
        name = shown_name(index)
        assert (name if len(name) <= 24 else name[:12] + "…" + name[-11:]) in ticks
    assert page.locator("#matrix .ytick b, #matrix .ytick tspan[style*=bold]").count() == 0
    options = page.locator("#cell-truth option").all_text_contents()
    assert options[:4] == [shown_name(index) for index in range(4)]
    assert page.locator("main script, main img[src='x'], main [onerror], main [onload], b").count() == 0
    names = page.locator("#pictures .name").all_text_contents()
    assert set(NAMES) & set(names)
    page.locator("#gallery").scroll_into_view_if_needed()


def test_hovering_shows_names_as_text(page):
    click_cell(page, 1, 1)
    page.wait_for_selector("#matrix .hoverlayer text")
    text = page.locator("#matrix .hoverlayer .hovertext").first.text_content()
    assert 'truth: a "quoted" <…old</b> one' in text


# --- the gallery ------------------------------------------------------------------------------------------------------


def test_the_gallery_shows_the_worst_pictures_with_their_boxes(page, report):
    page.locator("#gallery").scroll_into_view_if_needed()
    loaded = "[...document.querySelectorAll('#pictures img')].every((one) => one.complete && one.naturalWidth)"
    until(page, f"() => {loaded}")
    shown = page.locator("#pictures figure:visible")
    missed = [int(re.match(r"(\d+) FN", text).group(1)) for text in shown.locator(".note").all_inner_texts()]
    assert missed == sorted(missed, reverse=True) and missed[0] > 0
    remarks = page.locator("[data-remark]").all_inner_texts()
    assert any(re.fullmatch(r"\d of the images were not found: .*--images.*\.", line) for line in remarks)
    assert any(re.fullmatch(r"\d of the images could not be read\.", line) for line in remarks)
    assert shown.first.locator("rect.lost").count() == missed[0]
    page.get_by_text("false positives with the highest score", exact=True).click()
    scores = [
        float(re.search(r"of an FP (\d\.\d+)", text).group(1)) for text in shown.locator(".note").all_inner_texts()
    ]
    assert scores == sorted(scores, reverse=True)


def test_a_picture_opens_and_closes_by_keys(page):
    page.locator("#pictures figure:visible button").first.press("Enter")
    page.wait_for_selector("dialog[open]")
    assert page.locator("dialog .stage rect").count() > 0
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")


# --- how it looks -----------------------------------------------------------------------------------------------------


def luminance(colour):
    """Relative luminance of a CSS colour, as WCAG defines it."""
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page, selector):
    colour, back = page.evaluate(
        """(selector) => [getComputedStyle(document.querySelector(selector)).color,
            getComputedStyle(document.querySelector("section")).backgroundColor]""",
        selector,
    )
    high, low = sorted([luminance(colour), luminance(back)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_width_by_day_and_night(opened, folder, tmp_path, scheme):
    page = opened(folder / "out" / "report.html", width=1280, height=844, color_scheme=scheme)
    chart(page, "matrix")
    page.select_option("#cell-truth", "0")
    page.get_by_role("button", name="Show this cell").click()
    for width in (1280, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        until(page, "() => document.documentElement.scrollWidth <= innerWidth")
        picture = Image.open(io.BytesIO(page.screenshot(path=tmp_path / f"{width}.png", full_page=True)))
        assert picture.width == width and picture.height > 3000
        assert len(picture.convert("L").resize((64, 64)).getcolors()) > 8  # something is drawn
        corner = sum(picture.convert("RGB").getpixel((2, 2)))
        assert corner < 150 if scheme == "dark" else corner > 700
    for selector in ("p", ".note", ".good", ".bad", ".miss", "td", "a"):
        assert contrast(page, selector) >= 4.5, selector


def test_it_prints_light_and_without_controls(opened, folder):
    page = opened(folder / "out" / "report.html", color_scheme="dark")
    chart(page, "confidence-curves")
    colour = "() => getComputedStyle(document.querySelector('#confidence-curves .xtick text')).fill"
    assert luminance(page.evaluate(colour)) > 0.5
    page.emulate_media(media="print", color_scheme="dark")
    until(page, f"() => ({colour})() === 'rgb(0, 0, 0)'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#gallery-order").is_visible() and page.locator("#class-table").is_visible()
    page.wait_for_selector("#matrix .xtick text")  # charts that were never scrolled to are printed too
    assert page.pdf()[:5] == b"%PDF-"


def test_everything_is_reached_by_the_tab_key(page):
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"confidence", "curve-class", "matrix-protocol", "cell-truth", "cell-open", "sort", "picture"} <= reached


# --- other ways to get a page -----------------------------------------------------------------------------------------


def test_without_an_analysis_there_is_a_matrix_and_a_table(opened, folder):
    arguments = [folder / "truth.json", folder / "results.pkl", folder / "plain", "--quiet", "--html", "--matrix-only"]
    assert main(["detection", *map(str, arguments), "--matching", "mmdet", "--matching", "agnostic"]) == 0
    page = opened(folder / "plain" / "report.html")
    report = json.loads((folder / "plain" / "report.json").read_text())
    same_counts(class_rows(page), report["protocols"]["mmdet"]["per_class"])
    page.select_option("#table-protocol", "1")
    same_counts(class_rows(page), report["protocols"]["agnostic"]["per_class"])
    assert page.locator("#confidence, #errors, #sizes, #gallery").count() == 0
    click_cell(page, 0, 0)
    assert len(members(page)) == min(report["protocols"]["mmdet"]["confusion_matrix"][0][0], 50)


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
    page.get_by_role("button", name="Show this cell").click()
    assert page.locator("#cell-said").inner_text() == "Nothing is in this cell."


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
        page.select_option("#cell-truth", "0")
        page.select_option("#cell-prediction", "0")
        page.click("#cell-open")
        assert len(members(page)) == min(matrix[0][0], 50) > 0
        first = page.locator("#top-confusions button").first
        expected = max(matrix[row][column] for row in range(1200) for column in range(1200) if row != column)
        assert first.inner_text().endswith(f": {expected}")
        first.click()
        assert len(members(page)) == min(expected, 50)
