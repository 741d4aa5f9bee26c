"""``--html``: the page of the command, missing libraries, its size, and which images it shows."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from benchmarks.bench_reading import write_results, write_truth
from benchmarks.detection_problem import make_problem
from mm_metrics_plugin import evaluate_detection
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.safe_pickle import read_pickle
from tests.helpers import result_files as files
from tests.helpers.result_files import command, pair, refused

pytestmark = pytest.mark.usefixtures("shown_warnings")

WITHOUT = """
import sys
sys.modules[{name!r}] = None  # importing it now fails as if it were not installed
from mm_metrics_command import main
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


def test_html_writes_a_page(folder, tmp_path, capsys):
    paths = folder / "truth.json", folder / "results.pkl"
    files.printed("detection", *paths, tmp_path / "out", "--html")
    assert "report.html" in capsys.readouterr().err
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert str(folder) not in text
    files.printed("detection", *paths, tmp_path / "none")
    assert not (tmp_path / "none" / "report.html").exists()


def test_options_of_the_page_imply_the_page(folder, tmp_path, capsys):
    paths = folder / "truth.json", folder / "results.pkl"
    for number, options in enumerate((["--images", folder], ["--gallery", "0"])):
        text = files.printed("detection", *paths, tmp_path / str(number), *options)
        assert (tmp_path / str(number) / "report.html").exists() and "--html" not in text
        assert f"{options[0]}: OUT_DIR must be given" in files.error_of(capsys, "detection", *paths, *options)
    report = evaluate_detection(*paths)
    assert "report.html" in report.save(tmp_path / "python", images=folder)
    with pytest.raises(ResultFileError, match="images='nowhere' must be a folder"):
        report.save(tmp_path / "python", images="nowhere")


@pytest.mark.parametrize(
    "name, library, option",
    [
        ("jinja2", "jinja2", "--html"),
        ("plotly", "plotly", "--html"),
        ("PIL", "pillow", "--html"),
        ("matplotlib", "matplotlib", "--show"),
    ],
)
def test_missing_libraries_are_named_before_anything_is_read(folder, name, library, option):
    script = ("-c", WITHOUT.format(name=name))
    line = refused(command("detection", "no.json", "no.pkl", "out", option, cwd=folder, script=script))
    assert f"{option}: needs {library} (pip install {library})" in line


def test_a_page_of_many_classes_and_images_stays_small(tmp_path):
    problem = make_problem(num_images=1000)  # more images do not make the page larger
    write_results(problem, tmp_path / "results.pkl")
    write_truth(problem, tmp_path / "truth.json")
    names = [str(tmp_path / name) for name in ("truth.json", "results.pkl", "out")]
    assert main(["detection", *names, "--quiet", "--html"]) == 0
    page = tmp_path / "out" / "report.html"
    assert page.stat().st_size < 10_000_000  # images add up to 5 MB
    data = data_of(page)
    assert sum(len(one["cell"]) for one in data["matching_rules"]) <= 48_000
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    for rule in data["matching_rules"]:
        matrix = np.array(report["matching_rules"][rule["name"]]["confusion_matrix"])
        assert np.array_equal(matrix[rule["cells"]["row"], rule["cells"]["column"]], rule["cells"]["count"])
        assert np.count_nonzero(matrix) == len(rule["cells"]["count"])


CONFIG = """
default_scope = 'mmdet'
test_dataloader = dict(dataset=dict(
    type='CocoDataset', data_root='data', ann_file='truth.json', data_prefix=dict(img='val/'), test_mode=True,
    metainfo=dict(classes={classes!r}), pipeline=[]))
"""


def figures_of(folder):
    text = (folder / "report.html").read_text()
    return text.count("<figure "), re.findall(r'data-testid="gallery-remark">(.*?)</p>', text)


def test_with_a_config_no_image_from_outside_its_folder_is_shown(tmp_path, monkeypatch):
    """Absolute paths and `..` in the annotation file are images of others."""
    (tmp_path / "data" / "val").mkdir(parents=True)
    truth, results = pair(tmp_path / "data")
    content = json.loads(truth.read_text())
    Image.new("RGB", (640, 480)).save(tmp_path / "data" / "secret.png")
    names = ["../secret.png", str(tmp_path / "data" / "secret.png"), "val/../../secret.png", "own.png"]
    for number, image in enumerate(content["images"]):
        image["file_name"] = names[number % 4]
    Image.new("RGB", (640, 480)).save(tmp_path / "data" / "val" / "own.png")
    files.write_json(truth, content)
    (tmp_path / "config.py").write_text(CONFIG.format(classes=files.CLASSES))
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--cfg-options", "test_dataloader.dataset.indices=40"]):  # the second is built by mmdet
        line = ["detection", "config.py", str(results), "out", "--html", "--quiet", "--gallery", "40", *options]
        assert main(line) == 0
        shown, (remark,) = figures_of(tmp_path / "out")
        assert 0 < shown < 40
        number, rest = remark.split(" ", 1)
        assert rest.startswith("images left out: not below the image folder")
        assert int(number) > shown


def test_a_comparison_shows_no_image_from_outside_its_folder(tmp_path):
    (tmp_path / "images").mkdir()
    truth, results = pair(tmp_path)
    content = json.loads(truth.read_text())
    colors = {"secret.png": (255, 0, 0), "images/own.png": (0, 255, 0)}
    for name, color in colors.items():
        Image.new("RGB", (64, 48), color).save(tmp_path / name)
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "secret.png")
    names = ["../secret.png", str(tmp_path / "secret.png"), "link.png", "own.png", "a/../../secret.png"]
    for number, image in enumerate(content["images"]):
        image["file_name"] = names[number % len(names)]
    files.write_json(truth, content)
    half = [
        {**one, "pred_instances": {key: value[::2] for key, value in one["pred_instances"].items()}}
        for one in read_pickle(results)
    ]
    other = files.write_pickle(tmp_path / "other.pkl", half)
    options = ["--html", "--quiet", "--permutations", "5", "--images", str(tmp_path / "images"), "--gallery", "100"]
    assert main(["compare", str(truth), str(results), str(other), str(tmp_path / "out"), *options]) == 0
    shown = set(data_of(tmp_path / "out" / "report.html")["thumbnails"].values())
    assert len(shown) == 1
    picture = Image.open(io.BytesIO(base64.b64decode(shown.pop().split(",")[1])))
    red, green, _ = picture.getpixel((5, 5))
    assert green > 200 > 50 > red
    assert "not below the image folder" in (tmp_path / "out" / "report.html").read_text()


def test_an_image_of_the_same_last_part_is_shown_only_if_it_is_the_only_one_and_has_the_size(folder, tmp_path):
    """`cam1/0.jpg` is not `cam2/0.jpg`, and neither is a 0.jpg of another size."""
    content = json.loads((folder / "truth.json").read_text())
    images = tmp_path / "images"
    images.mkdir()
    for number, image in enumerate(content["images"]):
        name = f"{number // 2 if number < 20 else number}.jpg"  # the first 20 in pairs
        image["file_name"] = f"cam{number % 2}/{name}"
        Image.new("RGB", (640, 480) if number < 30 else (320, 240)).save(images / name)
    truth = files.write_json(tmp_path / "truth.json", content)
    line = ["detection", str(truth), str(folder / "results.pkl"), str(tmp_path / "out"), "--quiet", "--html"]
    assert main([*line, "--images", str(images), "--gallery", "400", "--save-state", str(tmp_path / "a.npz")]) == 0
    text = (tmp_path / "out" / "report.html").read_text()
    captions = {int(name) for name in re.findall(r'<figcaption><span class="name">cam\d/(\d+)\.jpg', text)}
    assert captions and captions <= set(range(20, 30))
    assert "not found in the folder of the option images" in text
    options = ["--images", images, "--gallery", "400"]
    files.printed("merge", tmp_path / "a.npz", tmp_path / "b", *options)
    assert figures_of(tmp_path / "b") == figures_of(tmp_path / "out")


def test_an_annotation_file_alone_shows_no_images(folder, tmp_path):
    truth = json.loads((folder / "truth.json").read_text())
    for image in truth["images"]:
        image["file_name"] = str(tmp_path / "secret.png")
    Image.new("RGB", (640, 480)).save(tmp_path / "secret.png")
    files.write_json(tmp_path / "truth.json", truth)
    arguments = ["detection", tmp_path / "truth.json", folder / "results.pkl", tmp_path / "out", "--html"]
    for options in ([], ["--images", folder], ["--images", folder, "--gallery", "0"]):
        files.printed(*arguments, *options)
        text = (tmp_path / "out" / "report.html").read_text()
        assert "data:image/jpeg" not in text and ("not found in the folder" in text) == (len(options) == 2)
    assert 'id="gallery"' not in text
