"""Names of 5,000 characters, of classes, images and samples, make no page wider than its window."""

from __future__ import annotations

import pytest

from mm_metrics_plugin.cli import main
from tests.helpers import result_files as files

LONG = "c" * 5000
NAMES = (LONG, "$10_$20", "_hidden", "x[/y] & <b>")


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """The arguments of the command, by page."""
    folder = tmp_path_factory.mktemp("long")
    problem = files.problem(8)
    truth = files.truth_of(problem, NAMES)
    for image in truth["images"]:
        image["file_name"] = f"{LONG}{image['id']}.jpg"
    truth = files.write_json(folder / "truth.json", truth)
    results = files.write_pickle(folder / "results.pkl", files.results_of(problem))
    other = folder / "a_long_folder_name" / ("epoch_12_" * 20) / "results.pkl"
    other.parent.mkdir(parents=True)
    files.write_pickle(other, files.results_of(problem._replace(scores=problem.scores**2)))
    samples = [{**one, "img_path": f"{LONG}{at}.jpg"} for at, one in enumerate(files.samples(60, len(NAMES)))]
    runs = [files.write_pickle(folder / name, samples) for name in ("samples.pkl", "again.pkl")]
    (folder / "names.txt").write_text("\n".join(NAMES))
    classes = ("--classes", folder / "names.txt")
    return {
        "detection": ["detection", truth, results],
        "detectors": ["compare", truth, results, other, "--permutations", "20"],
        "classification": ["classification", runs[0], *classes],
        "classifiers": ["compare", "-", *runs, *classes, "--permutations", "20"],
    }


@pytest.mark.parametrize("name", ["detection", "detectors", "classification", "classifiers"])
def test_the_page_is_as_wide_as_its_window(name, opened, arguments, tmp_path):
    assert main([*map(str, arguments[name]), "--out", str(tmp_path), "--html", "--quiet"]) == 0
    page = opened(tmp_path / "report.html")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
        if name == "detectors":  # every column of the differences is visible
            page.wait_for_function(
                "() => document.getElementById('overall-0').scrollWidth <= Math.max(innerWidth, 760)"
            )
