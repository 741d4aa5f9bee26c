"""Names of 5,000 characters, of classes, images and samples, make no page wider than its window."""

from __future__ import annotations

import pytest

from mm_metrics_plugin.cli import main
from tests.browser.conftest import until
from tests.helpers import result_files as files

LONG = "c" * 5000
NAMES = (LONG, "$10_$20", "_hidden", "x[/y] & <b>")
PAGES = ("detection", "detectors", "classification", "classifiers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("long")
    made = files.problem(8)
    truth = files.truth_of(made, NAMES)
    for image in truth["images"]:
        image["file_name"] = f"{LONG}{image['id']}.jpg"
    truth = files.write_json(place / "truth.json", truth)
    results = files.write_pickle(place / "results.pkl", files.results_of(made))
    (place / "a_long_folder_name" / ("epoch_12_" * 20)).mkdir(parents=True)
    other = files.write_pickle(
        place / "a_long_folder_name" / ("epoch_12_" * 20) / "results.pkl",
        files.results_of(made._replace(scores=made.scores**2)),
    )
    samples = [
        files.write_pickle(
            place / f"{name}.pkl",
            [{**one, "img_path": f"{LONG}{at}.jpg"} for at, one in enumerate(files.samples(60, len(NAMES)))],
        )
        for name in ("samples", "again")
    ]
    (place / "names.txt").write_text("\n".join(NAMES))
    classes = ("--classes", place / "names.txt")
    for name, arguments in zip(
        PAGES,
        (
            ["detection", truth, results],
            ["compare", truth, results, other, "--permutations", "20"],
            ["classification", samples[0], *classes],
            ["compare", "-", *samples, *classes, "--permutations", "20"],
        ),
    ):
        assert main([*map(str, arguments), "--out", str(place / name), "--html", "--quiet"]) == 0
    return place


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_as_wide_as_its_window(name, opened, folder):
    page = opened(folder / name / "report.html", width=1280)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        until(page, "() => document.documentElement.scrollWidth <= innerWidth")
        if name == "detectors":  # every column of the differences is visible
            until(page, "() => document.getElementById('overall-0').scrollWidth <= Math.max(innerWidth, 760)")
