"""Whatever is wrong with the input: exit code 2, one line that says what, and no traceback."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from mm_metrics_plugin.cli import main
from tests.helpers import result_files as files
from tests.helpers.result_files import command, refused, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")


class Evil:
    """A pickle that would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def good():
    made = files.problem(30)
    return files.truth_of(made), files.results_of(made)


def missing_images(truth, results):
    return truth, results[12:], [], ("12 images (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...)", "no results")


def unknown_image(truth, results):
    return truth, [*results, {**results[0], "img_id": 777}], [], ("image 777", "truth.json")


def old_wrong_length(truth, results):
    return truth, [[np.zeros((0, 5), np.float32)] * 4] * 3, [], ("no image ids", "found 3")


def no_truth_inside(truth, results):
    return None, results, [], ("no ground truth",)


def no_class(truth, results):
    return truth, results, ["--classes", ","], ("names no class",)


def options_without_config(truth, results):
    return truth, results, ["--cfg-options", "a=1"], ("--cfg-options",)


def no_colors(truth, results):
    return truth, results, ["out", "--color-theme", "mauve"], ("'mauve'", "color map")


CASES = [
    value for value in list(globals().values()) if getattr(value, "__code__", None) and value.__code__.co_argcount == 2
]
CASES = [case for case in CASES if case.__code__.co_varnames[:2] == ("truth", "results")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_bad_content(case, good, tmp_path, monkeypatch, capsys):
    """In this process; the next tests see that a process of its own ends the same way."""
    monkeypatch.chdir(tmp_path)
    truth, results, options, words = case(*good)
    place = "-" if truth is None else str(files.write_json(tmp_path / "truth.json", truth))
    path = str(files.write_pickle(tmp_path / "results.pkl", results))
    assert main(["detection", place, path, *options]) == 2
    out, said = capsys.readouterr()
    assert out == "" and said.startswith("mm-metrics detection: ") and said.count("\n") == 1
    for word in words:
        assert word in said
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


ARGUMENTS = [
    (["segmentation"], "segmentation"),
    (["detection"], "GROUND_TRUTH"),
    (["detection", "truth.json"], "RESULTS"),
    (["detection", "truth.json", "results.pkl", "--score-thr", "high"], "--score-thr"),
    (["detection", "truth.json", "results.pkl", "--tp-iou-thr", "0"], "--iou-thr"),
    (["detection", "truth.json", "results.pkl", "--nms-iou-thr", "2"], "--nms-iou-thr"),
    (["detection", "truth.json", "results.pkl", "--matching", "voc"], "--matching"),
    (["detection", "truth.json", "results.pkl", "--format", "xml"], "--format"),
    (["detection", "truth.json", "results.pkl", "out", "more"], "more"),
]


@pytest.mark.parametrize(("arguments", "word"), ARGUMENTS)
def test_bad_arguments(arguments, word, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out, said = capsys.readouterr()
    assert left.value.code == 2 and out == "" and said.count("\n") == 1 and word in said


@pytest.fixture(scope="module")
def folder(tmp_path_factory, good):
    place = tmp_path_factory.mktemp("bad")
    files.write_json(place / "truth.json", good[0])
    whole = files.write_pickle(place / "results.pkl", good[1]).read_bytes()
    (place / "cut.pkl").write_bytes(whole[:-100])
    (place / "evil.pkl").write_bytes(pickle.dumps(Evil(str(place / "was_here"))))
    (place / "broken.json").write_text("{")
    (place / "text.pkl").write_text("no pickle at all")
    (place / "file").write_text("a file")
    (place / "empty").mkdir()
    (place / "wrong.py").write_text("import this is no config\n")
    (place / "bare.py").write_text("work_dir = 'x'\n")
    return place


PROCESSES = [
    (["truth.json", "nowhere.pkl"], "nowhere.pkl: cannot be read (no such file)"),
    (["nowhere.json", "results.pkl"], "nowhere.json: cannot be read (No such file"),
    (["truth.json", "cut.pkl"], "cut.pkl"),
    (["truth.json", "evil.pkl"], "evil.pkl: it asks for"),
    (["truth.json", "text.pkl"], "text.pkl"),
    (["truth.json", "results.txt"], "results.txt"),
    (["broken.json", "results.pkl"], "broken.json: is not JSON"),
    (["empty", "results.pkl"], "holds no .xml files"),
    (["file", "results.pkl"], "file: ground truth is"),
    (["truth.json", "results.pkl", "file"], "OUT_DIR must be a folder"),
    (["nowhere.py", "results.pkl"], "nowhere.py: cannot be read"),
    (["truth.json", "results.pkl", "/proc/nowhere"], "/proc/nowhere"),
]


@pytest.mark.parametrize(("arguments", "words"), PROCESSES)
def test_bad_files(arguments, words, folder):
    assert words in refused(command("detection", *arguments, cwd=folder))
    assert not (folder / "was_here").exists()


@pytest.mark.parametrize(
    ("name", "words"), [("wrong.py", "cannot be read as a config"), ("bare.py", "test_dataloader")]
)
def test_bad_configs(name, words, folder):
    assert words in refused(command("detection", name, "results.pkl", cwd=folder))


def test_debug_shows_the_traceback(folder):
    done = command("detection", "truth.json", "cut.pkl", "--debug", cwd=folder)
    assert done.returncode == 2 and "Traceback" in done.stderr and "ResultFileError" in done.stderr


def test_trust_reads_with_plain_pickle_and_warns(folder):
    done = command("detection", "truth.json", "results.pkl", "--trust", "--format", "csv", cwd=folder)
    assert succeeded(done) == succeeded(
        command("detection", "truth.json", "results.pkl", "--format", "csv", cwd=folder)
    )
    assert done.stderr.count("\n") == 1 and "warning: results.pkl" in done.stderr


def test_a_reader_that_leaves_early_is_no_error(folder):
    import subprocess
    import sys

    line = f"{sys.executable} -m mm_metrics_command detection truth.json results.pkl --format json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_help_and_version(tmp_path):
    for arguments in (["--help"], ["detection", "--help"], ["classification", "--help"]):
        text = succeeded(command(*arguments, cwd=tmp_path))
        assert "usage: mm-metrics" in text
        assert arguments == ["--help"] or "examples:\n  mm-metrics" in text
    from mm_metrics_plugin.version import __version__

    assert succeeded(command("--version", cwd=tmp_path)) == f"mm-metrics {__version__}\n"


def test_a_state_behind_a_broken_link_names_the_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    state = tmp_path / "link" / "a.npz"
    said = refused(command("detection", "truth.json", "results.pkl", "--save-state", state, cwd=folder))
    assert "--save-state must be a folder" in said and "nowhere" in said
