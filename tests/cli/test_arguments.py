"""Order and meaning of arguments, class names, flags and settings."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from mm_metrics_plugin.cli import make_parser
from mm_metrics_plugin.cli.arguments import class_names, given_options
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection import pairs
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers import result_files as files

pytestmark = pytest.mark.usefixtures("shown_warnings")


def parsed(*arguments):
    return make_parser().parse_args(list(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["t.json", "a.pkl", "b.pkl", "report/", "--ci", "0.95", "--classes", "x,y"],
        ["t.json", "a.pkl", "b.pkl", "--ci", "0.95", "--classes", "x,y", "report/"],
        ["--ci", "0.95", "t.json", "a.pkl", "--classes", "x,y", "b.pkl", "report/"],
        ["--classes", "x,y", "t.json", "--ci", "0.95", "a.pkl", "b.pkl", "--out", "report/"],
        ["--out=report/", "--classes=x,y", "--ci=0.95", "t.json", "a.pkl", "b.pkl"],
    ],
)
@pytest.mark.parametrize("subcommand", ["detection", "compare"])
def test_positional_arguments_may_be_anywhere(subcommand, arguments):
    found = parsed(subcommand, *arguments)
    assert (found.ground_truth, found.results, found.out_dir) == ("t.json", ["a.pkl", "b.pkl"], "report/")
    assert (found.ci, found.classes) == (0.95, "x,y")


def test_out_dir_may_follow_options():
    assert parsed("classification", "r.pkl", "--ci", "0.9", "report/").out_dir == "report/"
    assert parsed("classification", "--out", "report/", "r.pkl").out_dir == "report/"
    found = parsed("merge", "a.npz", "--quiet", "b.npz", "report/")
    assert (found.states, found.out_dir) == (["a.npz", "b.npz"], "report/")


@pytest.mark.parametrize("option", ["--cfg-options", "--cfg-opt"])
def test_cfg_options_end_at_the_first_argument_that_is_no_pair(option):
    found = parsed("detection", "c.py", "r.pkl", option, "a=1", "b.c=[1, 2]", "report/", "--html")
    assert (found.cfg_options, found.out_dir, found.html) == (["a=1", "b.c=[1, 2]"], "report/", True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["detection", "t.json", "r.pkl", "--classes", "a", "b", "c", "report/"], "--classes was read as class 'a'"),
        (["classification", "r.pkl", "--classes", "a", "b", "c"], "read as class 'a', and 'b' as OUT_DIR"),
        (["detection", "--classes", "a", "b", "t.json", "r.pkl"], "b: does not exist; --classes was read as class 'a'"),
        (["classification", "--classes", "a", "b", "r.pkl"], "b: does not exist; --classes was read as class 'a'"),
        (["compare", "r.pkl", "--classes=a", "b", "s.pkl"], "b: does not exist; --classes was read as class 'a'"),
        (["detection", "t.json", "r.pkl", "x/", "y/"], "one folder, OUT_DIR, may follow the files (found x/ y/)"),
        (["detection", "t.json", "r.pkl", "x/", "--out", "y/"], "OUT_DIR is given twice: x/ and --out y/"),
        (["detection", "t.json", "r.pkl", "--xyz"], "unrecognized arguments: --xyz (see"),
        (["detection", "t.json", "r.pkl", "x/", "--score-threshold", "0.5"], "-threshold; did you mean --score-thr?"),
        (["compare", "a.pkl", "b.pkl", "--iou-threshold=0.5"], "--iou-threshold; did you mean --iou-thr?"),
        (["detection", "t.json", "r.pkl", "--format", "jsn"], "; did you mean json?"),
        (["detect", "t.json", "r.pkl"], "; did you mean detection?"),
        (["--versoin"], "--versoin; did you mean --version?"),
    ],
)
def test_arguments_that_do_not_fit(arguments, words, capsys):
    assert words in files.error_of(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "classes"),
    [
        (["detection", "truth.json", "results.pkl"], ["cat", "other"]),  # more labels than classes
        (["detection", "truth.json", "rows.json"], ["cat", "dog"]),  # would be a report on cats in the folder dog
        (["detection", "truth.json", "old.pkl"], ["cat", "other"]),  # mmdet 2.x: one array per class
        (["classification", "samples.pkl"], ["cat", "dog"]),
        (["compare", "truth.json", "results.pkl", "results.pkl"], ["cat", "other"]),
        (["compare", "truth.json", "rows.json", "rows.json"], ["cat", "dog"]),
        (["compare", "samples.pkl", "samples.pkl"], ["cat", "dog"]),
    ],
)
def test_class_names_separated_by_blanks_are_explained(arguments, classes, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.pair(tmp_path, images=5)
    files.write_json(tmp_path / "rows.json", [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5}])
    files.write_pickle(tmp_path / "old.pkl", [[np.zeros((0, 5), np.float32)] * 4] * 5)
    files.write_pickle(tmp_path / "samples.pkl", files.samples(9))
    hint = f"--classes was read as class 'cat', and '{classes[1]}' as OUT_DIR: separate class names by commas"
    assert hint in files.error_of(capsys, *arguments, "--classes", *classes)
    assert not (tmp_path / classes[1]).exists()


def test_other_errors_have_no_hint_about_class_names(tmp_path, capsys):
    truth, results = files.pair(tmp_path, images=5)
    path = tmp_path / "classes.txt"
    path.write_text("cat\n", encoding="utf-8")
    for arguments in ([tmp_path / "missing.pkl", "report", "--classes", "cat"], [results, "--classes", path]):
        assert "was read as" not in files.error_of(capsys, "detection", truth, *arguments)


def test_class_names_are_a_list_or_a_file(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("traffic light\na, b\n\n", encoding="utf-8")
    assert class_names(str(path)) == ["traffic light", "a, b"]
    assert class_names("traffic light, cat") == ["traffic light", "cat"]
    assert class_names("x" * 5000) == ["x" * 5000]
    with pytest.raises(ResultFileError, match=r"missing\.txt does not exist"):
        class_names("missing.txt")


@pytest.mark.parametrize("way", ["link", "link on the way", "file on the way"])
def test_a_folder_that_cannot_be_made_is_named(way, tmp_path, capsys):
    truth, results = files.pair(tmp_path, images=3)
    place = tmp_path / "report"
    if way.startswith("link"):
        place.symlink_to(tmp_path / "nowhere")
    else:
        place.write_text("a file")
    out = place if way == "link" else place / "inner"
    error = files.error_of(capsys, "detection", truth, results, out)
    assert "OUT_DIR must be a folder" in error and str(out) in error
    assert ("nowhere', which does not exist" if way.startswith("link") else "found a file") in error


def test_results_without_classes_are_refused(tmp_path, capsys):
    nothing = {"pred_score": np.zeros(0, np.float32), "pred_label": np.zeros(0, int), "gt_label": np.zeros(0, int)}
    path = files.write_pickle(tmp_path / "r.pkl", [nothing] * 3)
    message = "'pred_score' of sample number 0 must hold the score of at least one class (found 0 scores)"
    for arguments in (["classification", path], ["compare", "-", path, path]):
        assert message in files.error_of(capsys, *arguments)
    made = files.problem(3)
    nothing = made._replace(**{name: getattr(made, name)[:0] for name in made._fields[2:]})
    truth = files.write_json(tmp_path / "t.json", files.truth_of(nothing, ()))
    message = "t.json: 'categories' must list at least one class (found an empty list)"
    assert message in files.error_of(capsys, "detection", truth, path)


# --- flags and settings -----------------------------------------------------------------------------------------------

# Fields that only Python sets.
WITHOUT_FLAG = {"background_iou_thr", "frequency", "olrp", "froc"}
GIVEN = {
    "iou_type": ("segm", "segm"),
    "sigmas": ("0.1,0.2", (0.1, 0.2)),
    "score_thr": ("0.4", 0.4),
    "iou_thr": ("0.6", 0.6),
    "nms_iou_thr": ("0.7", 0.7),
    "matching": ("agnostic", ("agnostic",)),
    "iou_thrs": ("0.3,0.6", (0.3, 0.6)),
    "area_edges": ("100,200", (100.0, 200.0)),
    "area_ranges": ("tiny=0-400,rest=400-1e9", {"tiny": (0, 400), "rest": (400, 1e9)}),
    "max_dets": ("7", 7),
    "recall_max_dets": ("2,5", (2, 5)),
    "matrix_only": (None, True),
    "operating_point": ("f2", "f2"),
    "ci": ("0.9", 0.9),
    "resamples": ("11", 11),
    "seed": ("5", 5),
}


def settings_of(*options):
    arguments = parsed("detection", "t.json", "r.pkl", *options)
    options = given_options(arguments, DetectionSettings)
    return DetectionSettings(**{**options, "matching": tuple(arguments.matching or ("coco",))})


def test_every_flag_sets_the_field_of_its_name():
    assert {*GIVEN, "convention"} == {field.name for field in fields(DetectionSettings)} - WITHOUT_FLAG
    assert settings_of("--convention", "mmdet") == DetectionSettings(convention="mmdet")  # and its other defaults
    assert settings_of() == DetectionSettings()  # the same defaults
    for name, (text, value) in GIVEN.items():
        words = [f"--{name.replace('_', '-')}"] + ([] if text is None else [text])
        assert settings_of(*words) == replace(DetectionSettings(), **{name: value}), name
    assert settings_of("--tp-iou-thr", "0.6") == settings_of("--iou-thr", "0.6")
    assert settings_of("--size-edges", "100,200") == settings_of("--area-edges", "100,200")


@pytest.mark.parametrize("subcommand", ["detection", "compare"])
def test_an_image_with_too_many_overlapping_pairs_is_refused(subcommand, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pairs, "MAX_PAIRS", 30)
    image, places = np.repeat(np.arange(3), 6), np.arange(18) * 20.0
    places[12:] = 0  # the boxes of the third image, whose id is 3, lie on each other
    boxes = np.stack([places, places, places + 10, places + 10], axis=1)
    made = files.problem(1)._replace(
        num_images=3,
        **dict.fromkeys(("image", "gt_image"), image),
        **dict.fromkeys(("boxes", "gt_boxes"), boxes.astype(np.float32)),
        **dict.fromkeys(("labels", "gt_labels", "gt_crowd"), image * 0),
        scores=np.full(18, 0.9, dtype=np.float32),
    )
    truth = files.write_json(tmp_path / "t.json", files.truth_of(made))
    results = files.write_pickle(tmp_path / "r.pkl", files.results_of(made))
    error = files.error_of(capsys, subcommand, truth, *([results] * (2 if subcommand == "compare" else 1)))
    assert "image 3 has more than 30 pairs" in error and "--nms-iou-thr" in error


@pytest.mark.parametrize("words", [("",), ("--out", "")])
def test_an_empty_folder_name_is_refused(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = files.write_pickle(tmp_path / "r.pkl", files.samples(10))
    assert "OUT_DIR" in files.error_of(capsys, "classification", path, *words)
    assert list(tmp_path.iterdir()) == [path]
