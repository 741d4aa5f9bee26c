"""``--html``: when there is a page, when there is none and why, and that every way leads to the same."""

from __future__ import annotations

import json
import re

import pytest
from PIL import Image

from benchmarks.bench_reading import write_results, write_truth
from benchmarks.detection_problem import make_problem
from mm_metrics_plugin.cli import main
from tests.cli import files
from tests.cli.files import command, pair, refused, succeeded

WITHOUT = """
import sys
sys.argv[0], sys.modules[{name!r}] = "mm-metrics", None  # importing it now fails as if it were not installed
from mm_metrics_plugin.cli import main
sys.exit(main())
"""


def data_of(page):
    """The numbers inside a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found.group(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    pair(place)
    return place


def test_the_page_is_named_and_there(folder):
    done = command("detection", "truth.json", "results.pkl", "out", "--html", "--format", "csv", cwd=folder)
    succeeded(done)
    assert "report.html" in done.stderr
    text = (folder / "out" / "report.html").read_text()
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert str(folder) not in text


def test_there_is_no_page_unless_it_is_asked_for(folder):
    succeeded(command("detection", "truth.json", "results.pkl", "none", "--quiet", cwd=folder))
    assert not (folder / "none" / "report.html").exists()


@pytest.mark.parametrize("name, library", [("jinja2", "jinja2"), ("plotly", "plotly"), ("PIL", "pillow")])
def test_what_is_missing_is_named_before_anything_is_read(folder, name, library):
    script = ("-c", WITHOUT.format(name=name))
    line = refused(command("detection", "no.json", "no.pkl", "out", "--html", cwd=folder, script=script))
    assert library in line and "pip install mm_metrics_plugin[report]" in line


@pytest.mark.parametrize(
    "options, word",
    [
        (["--html"], "OUT_DIR"),
        (["out", "--html", "--images", "nowhere"], "--images"),
        (["out", "--html", "--gallery", "-1"], "--gallery"),
        (["out", "--html", "--gallery", "x"], "--gallery"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(folder, options, word):
    assert word in refused(command("detection", "truth.json", "results.pkl", *options, cwd=folder))


def test_merged_states_give_the_same_page(folder, tmp_path):
    made = files.problem()
    content = files.results_of(made)
    truth = str(folder / "truth.json")
    states = []
    for number, rows in enumerate((content[:15], content[15:])):
        path = files.write_pickle(tmp_path / f"{number}.pkl", rows)
        states.append(str(tmp_path / f"{number}.npz"))
        assert main(["detection", truth, str(path), "--save-state", states[-1], "--quiet"]) == 0
    assert main(["merge", *states, str(tmp_path / "merged"), "--quiet", "--html"]) == 0
    assert main(["detection", truth, str(folder / "results.pkl"), str(tmp_path / "one"), "--quiet", "--html"]) == 0
    assert data_of(tmp_path / "merged" / "report.html") == data_of(tmp_path / "one" / "report.html")


def test_a_page_of_many_classes_and_images_stays_small(tmp_path):
    problem = make_problem(num_images=1000)  # more images add nothing: what is listed is limited
    write_results(problem, tmp_path / "results.pkl")
    write_truth(problem, tmp_path / "truth.json")
    names = [str(tmp_path / name) for name in ("truth.json", "results.pkl", "out")]
    assert main(["detection", *names, "--quiet", "--html"]) == 0
    page = tmp_path / "out" / "report.html"
    assert page.stat().st_size < 10_000_000  # pictures add up to 5 MB: with them it stays below 15
    data = data_of(page)
    assert sum(len(one["cell"]) for one in data["protocols"]) <= 48_000
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    for one in data["protocols"]:
        assert one["matrix"] == report["protocols"][one["name"]]["confusion_matrix"]


CONFIG = """
default_scope = 'mmdet'
test_dataloader = dict(dataset=dict(
    type='CocoDataset', data_root='data', ann_file='truth.json', data_prefix=dict(img='val/'), test_mode=True,
    metainfo=dict(classes={classes!r}), pipeline=[]))
"""


def test_a_config_knows_where_the_pictures_are(tmp_path):
    (tmp_path / "data" / "val").mkdir(parents=True)
    truth, _ = pair(tmp_path / "data")
    for image in json.loads(truth.read_text())["images"]:
        Image.new("RGB", (640, 480)).save(tmp_path / "data" / "val" / image["file_name"])
    (tmp_path / "config.py").write_text(CONFIG.format(classes=files.CLASSES))
    options = ["out", "--html", "--quiet", "--gallery", "10"]
    succeeded(command("detection", "config.py", "data/results.pkl", *options, cwd=tmp_path))
    text = (tmp_path / "out" / "report.html").read_text()
    assert 5 <= text.count("<figure ") <= 10 and "data:image/jpeg;base64," in text
    assert "data/val" not in text  # names are shown without the folder all pictures are in


def test_an_annotation_file_alone_fetches_no_pictures(folder, tmp_path):
    truth = json.loads((folder / "truth.json").read_text())
    for image in truth["images"]:
        image["file_name"] = str(tmp_path / "secret.png")
    Image.new("RGB", (640, 480)).save(tmp_path / "secret.png")
    files.write_json(tmp_path / "truth.json", truth)
    names = [str(tmp_path / "truth.json"), str(folder / "results.pkl"), str(tmp_path / "out")]
    assert main(["detection", *names, "--quiet", "--html"]) == 0
    assert "data:image/jpeg" not in (tmp_path / "out" / "report.html").read_text()
    assert main(["detection", *names, "--quiet", "--html", "--images", str(folder)]) == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "data:image/jpeg" not in text and "of the pictures were not found" in text


def test_no_gallery_if_none_is_wanted(folder, tmp_path):
    names = [str(folder / "truth.json"), str(folder / "results.pkl"), str(tmp_path / "out")]
    assert main(["detection", *names, "--quiet", "--html", "--images", str(folder), "--gallery", "0"]) == 0
    assert 'id="gallery"' not in (tmp_path / "out" / "report.html").read_text()
