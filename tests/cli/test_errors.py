"""Invalid input and options: exit code 2, one line that names the problem, and no traceback."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.version import __version__
from tests.helpers import result_files as files
from tests.helpers.result_files import command, error_of, refused, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")


class Evil:
    """A pickle that would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("bad")
    made = files.problem(30)
    results = files.results_of(made)
    files.write_json(place / "truth.json", files.truth_of(made))
    whole = files.write_pickle(place / "results.pkl", results).read_bytes()
    files.write_pickle(place / "some.pkl", results[12:])
    files.write_pickle(place / "more.pkl", [*results, {**results[0], "img_id": 777}])
    files.write_pickle(place / "old.pkl", [[np.zeros((0, 5), np.float32)] * 4] * 3)
    files.write_json(place / "one.json", files.truth_of(files.problem(1)))
    files.write_pickle(place / "one.pkl", files.results_of(files.problem(1)))
    (place / "cut.pkl").write_bytes(whole[:-100])
    (place / "evil.pkl").write_bytes(pickle.dumps(Evil(str(place / "was_here"))))
    (place / "broken.json").write_text("{")
    files.write_json(place / "rows.json", [])
    (place / "text.pkl").write_text("no pickle at all")
    (place / "file").write_text("a file")
    (place / "empty").mkdir()
    (place / "wrong.py").write_text("import this is no config\n")
    (place / "five.py").write_text("test_dataloader = 5\n")
    (place / "bare.py").write_text("work_dir = 'x'\n")
    return place


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["truth.json", "some.pkl"],
            ["no results for 12 images (1, 2, 3, 4,", "--allow-missing"],
        ),
        (["truth.json", "more.pkl"], ["image 777", "truth.json"]),
        (["truth.json", "old.pkl"], ["no image ids", "found 3"]),
        (["-", "results.pkl"], ["no ground truth"]),
        (["truth.json", "results.pkl", "--classes", ","], ["names no class"]),
        (["truth.json", "results.pkl", "--cfg-options", "a=1"], ["--cfg-options"]),
        (["truth.json", "results.pkl", "out", "--color-theme", "mauve"], ["'mauve'", "color map"]),
        (["truth.json", "results.pkl", "--save-state", "part.pkl"], ["--save-state", "must end in .npz"]),
        (["one.json", "one.pkl", "--operating-point", "f1"], ["at least 2 images"]),
        (["truth.json", "nowhere.pkl"], ["nowhere.pkl: cannot be read (no such file)"]),
        (["nowhere.json", "results.pkl"], ["nowhere.json: cannot be read (no such file"]),
        (["nowhere.py", "results.pkl"], ["nowhere.py: cannot be read"]),
        (["truth.json", "cut.pkl"], ["cut.pkl"]),
        (["truth.json", "evil.pkl"], ["evil.pkl: it asks for"]),
        (["truth.json", "text.pkl"], ["text.pkl"]),
        (["truth.json", "results.txt"], ["results.txt"]),
        (["broken.json", "results.pkl"], ["broken.json: is not JSON"]),
        (["empty", "results.pkl"], ["empty: found a folder without annotations; ground truth is"]),
        (["file", "results.pkl"], ["file: found a text file; ground truth is"]),
        (["results.pkl", "truth.json"], ["results.pkl: found results of mmdet", "comes before the results"]),
        (["rows.json", "truth.json"], ["rows.json: found an empty list", "comes before the results"]),
        (["truth.json", "truth.json"], ["truth.json: found COCO annotations; results of a detector are"]),
        (["truth.json", "results.pkl", "file"], ["OUT_DIR must be a folder"]),
        (["truth.json", "results.pkl", "/proc/nowhere"], ["/proc/nowhere"]),
        (["wrong.py", "results.pkl"], ["cannot be read as a config"]),
        (["bare.py", "results.pkl"], ["test_dataloader"]),
        (["five.py", "results.pkl"], ["five.py: has no test_dataloader.dataset"]),
    ],
)
def test_invalid_input(arguments, words, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    line = error_of(capsys, "detection", *arguments)
    assert line.startswith("mm-metrics detection: ") and all(word in line for word in words), line
    assert not (folder / "was_here").exists() and not (folder / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["segmentation"], "segmentation"),
        (["detection"], "GROUND_TRUTH"),
        (["detection", "t.json"], "RESULTS"),
        (["detection", "t.json", "r.pkl", "out", "more"], "more"),
        (["detection", "t.json", "r.pkl", "--score-thr", "high"], "--score-thr"),
        (["detection", "t.json", "r.pkl", "--tp-iou-thr", "0"], "--iou-thr"),
        (["detection", "t.json", "r.pkl", "--nms-iou-thr", "2"], "--nms-iou-thr"),
        (["detection", "t.json", "r.pkl", "--matching", "voc"], "--matching"),
        (["detection", "t.json", "r.pkl", "--format", "xml"], "--format"),
        (["detection", "t.json", "r.pkl", "--operating-point", "best"], "--operating-point"),
        (["detection", "t.json", "r.pkl", "--operating-point", "precision=2"], "--operating-point"),
        (["detection", "t.json", "r.pkl", "--area-edges", "5,3"], "--area-edges"),
        (["detection", "t.json", "r.pkl", "--area-edges", "0"], "--area-edges"),
        (["detection", "t.json", "r.pkl", "--ci", "95"], "--ci"),
        (["detection", "t.json", "r.pkl", "--max-dets", "0"], "--max-dets"),
        (["detection", "t.json", "r.pkl", "out", "--html", "--gallery", "-1"], "--gallery"),
        (["detection", "t.json", "r.pkl", "out", "--html", "--gallery", "x"], "--gallery"),
        (["detection", "t.json", "r.pkl", "out", "--html", "--images", "nowhere"], "--images"),
        (["detection", "t.json", "r.pkl", "--html"], "OUT_DIR"),
        (["compare", "-", "a.pkl", "b.pkl", "--ci", "1"], "--ci"),
        (["compare", "-", "a.pkl", "b.pkl", "--ci", "x"], "--ci"),
        (["compare", "-", "a.pkl", "b.pkl", "--seed", "-1"], "--seed"),
        (["compare", "-", "a.pkl", "b.pkl", "--permutations", "many"], "--permutations"),
    ],
)
def test_invalid_options(arguments, word, capsys):
    assert word in error_of(capsys, *arguments)


def test_debug_shows_the_traceback(folder):
    assert "cut.pkl" in refused(command("detection", "truth.json", "cut.pkl", cwd=folder))
    done = command("detection", "truth.json", "cut.pkl", "--debug", cwd=folder)
    assert done.returncode == 2 and "Traceback" in done.stderr and "ResultFileError" in done.stderr


def test_trust_reads_with_plain_pickle_and_warns(folder, capsys):
    paths = folder / "truth.json", folder / "results.pkl"
    assert files.printed("detection", *paths, "--trust") == files.printed("detection", *paths)
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1 and "warning: results.pkl" in warning


@pytest.mark.parametrize("options", [[], ["--matrix-only"]])
def test_a_score_threshold_above_every_score_is_a_warning(folder, capsys, options):
    arguments = ["detection", folder / "truth.json", folder / "results.pkl", "--score-thr", "30", *options]
    assert files.report_of(*arguments)["matching_rules"]["coco"]["recall"] == 0
    highest = "" if options else f" (the highest score is {files.problem(30).scores.max()!s})"
    warning = f"mm-metrics: warning: no detection reaches the score threshold 30{highest}\n"
    assert capsys.readouterr().err == warning


def test_a_reader_that_closes_the_pipe_is_no_error(folder):
    line = f"{sys.executable} -m mm_metrics_command detection truth.json results.pkl --format json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_help_and_version(tmp_path, capsys):
    for arguments in (["--help"], ["detection", "--help"], ["classification", "--help"]):
        with pytest.raises(SystemExit):
            main(arguments)
        text = capsys.readouterr().out
        assert "usage: mm-metrics" in text and "examples:\n  mm-metrics" in text
    assert succeeded(command("--version", cwd=tmp_path)) == f"mm-metrics {__version__}\n"


def test_a_state_behind_a_broken_link_names_the_link(folder, tmp_path, capsys):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    state = tmp_path / "link" / "a.npz"
    line = error_of(capsys, "detection", folder / "truth.json", folder / "results.pkl", "--save-state", state)
    assert "--save-state must be a folder" in line and "nowhere" in line
