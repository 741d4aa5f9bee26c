"""Closed streams, encodings that lack characters, --quiet, warnings, and environment variables of launchers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings

import pytest

from mm_metrics_plugin.cli import main, streams
from mm_metrics_plugin.states.distributed import launched_processes
from tests.helpers import result_files as files
from tests.helpers.result_files import command, error_of, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")

NAMES = ("café", "→ 中文", "\U0001f600", "cat")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("streams")
    made = files.problem(6)
    files.write_json(place / "truth.json", files.truth_of(made, NAMES))
    files.write_pickle(place / "results.pkl", files.results_of(made))
    files.write_pickle(place / "samples.pkl", files.samples(30))
    return place


class Stream(io.TextIOWrapper):
    """Standard output of some encoding."""

    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding, newline="")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252", "utf-16", "gbk"])
def test_json_is_valid_in_every_encoding(encoding, folder, monkeypatch):
    stream = Stream(encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    paths = [str(folder / "truth.json"), str(folder / "results.pkl")]
    assert main(["detection", *paths, "--format", "json", "--matrix-only"]) == 0
    # JSON readers detect UTF-8, UTF-16 and UTF-32; other encodings get ASCII.
    assert json.loads(stream.buffer.getvalue())["classes"] == list(NAMES)


@pytest.mark.parametrize("kind", ["text", "csv", "md"])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_characters_that_the_encoding_lacks_are_escaped(encoding, kind, folder, monkeypatch):
    stream = Stream(encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    paths = [str(folder / "truth.json"), str(folder / "results.pkl")]
    assert main(["detection", *paths, "--format", kind]) == 0
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding).replace("\\\\", "\\")
    assert "\\u4e2d\\u6587" in text and "\\U0001f600" in text
    assert ("caf\\xe9" if encoding == "ascii" else "café") in text


def test_lone_surrogates_are_json_escapes(monkeypatch):
    stream = Stream("utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    names = {"name": "é\U0001f600\udce9"}
    streams.write_output(json.dumps(names, ensure_ascii=False), kind="json")
    assert json.loads(stream.buffer.getvalue()) == names


CLOSED = {"stdout": ">&-", "stderr": "2>&-", "both": ">&- 2>&-", "all": "<&- >&- 2>&-"}


@pytest.mark.parametrize("closed", sorted(CLOSED))
def test_closed_streams_are_no_error(closed, folder, tmp_path):
    line = f"{sys.executable} -m mm_metrics_command {{}} {CLOSED[closed]}"
    good = f"detection truth.json results.pkl {tmp_path / 'out'}"
    for words, status in ((good, 0), ("detection truth.json nowhere.pkl", 2), ("detection", 2), ("--help", 0)):
        done = subprocess.run(["bash", "-c", line.format(words)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == status, (words, done.stderr)
        assert "Error" not in done.stderr and "nowhere" not in done.stdout
        assert bool(done.stderr) == (closed == "stdout" and words != "--help")
    assert (tmp_path / "out" / "report.json").exists()


def test_quiet_prints_errors_only(folder, tmp_path, capsys):
    paths = ["detection", folder / "truth.json", folder / "results.pkl", tmp_path / "a" / "b"]
    assert files.printed(*paths, "--trust", "--quiet") == capsys.readouterr().err == ""
    assert (tmp_path / "a" / "b" / "report.json").exists()
    assert "nowhere.pkl" in error_of(capsys, "detection", folder / "truth.json", "nowhere.pkl", "--quiet")


@pytest.mark.parametrize(
    "environment", [{"RANK": "1"}, {"RANK": "1", "WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "y"}]
)
def test_an_incomplete_launcher_environment_is_ignored(environment, folder, monkeypatch, capsys):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched_processes() == (0, 1)
    assert "nowhere.pkl: cannot be read" in error_of(capsys, "detection", folder / "truth.json", "nowhere.pkl")
    assert "accuracy" in files.printed("classification", folder / "samples.pkl")


@pytest.mark.parametrize("subcommand", ["classification", "compare", "merge"])
def test_only_the_first_process_makes_reports_other_than_detection(subcommand, folder, tmp_path):
    words = {"classification": ["samples.pkl"], "compare": ["-", "samples.pkl", "samples.pkl"], "merge": ["a.npz"]}
    if subcommand == "merge":
        files.printed("detection", folder / "truth.json", folder / "results.pkl", "--save-state", folder / "a.npz")
    for rank in (0, 1):
        env = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        out = tmp_path / str(rank)
        done = command(subcommand, *words[subcommand], out, cwd=folder, env=env)
        assert bool(succeeded(done)) == out.exists() == (rank == 0)
        assert rank == 0 or done.stderr == ""


def test_missing_glyphs_are_reported_once(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mm_metrics_plugin.render.figures.confusion_matrix.CJK_FONTS", ())
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(files.problem(6), ("名前", "クラス", "三", "四")))
    files.printed("detection", truth, folder / "results.pkl", tmp_path / "out", "--matching", "coco")
    error = capsys.readouterr().err
    assert "Glyph" not in error
    assert error.count("mm-metrics: warning") == error.count(f"warning: {streams.MISSING_GLYPHS}") == 1


def test_each_call_shows_its_warnings_again(folder, capsys):
    before, filters = warnings.showwarning, list(warnings.filters)
    for _ in range(2):
        files.printed("detection", folder / "truth.json", folder / "results.pkl", "--trust", "--matrix-only")
        assert capsys.readouterr().err.count("warning: results.pkl") == 1
    assert warnings.showwarning is before and list(warnings.filters) == filters


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_warnings_of_other_libraries_are_shown_by_python_or_hidden(folder, monkeypatch, capsys, quiet):
    from mm_metrics_plugin.cli import detection

    run = detection.run

    def noisy(parsed):
        warnings.warn("of another library", UserWarning)
        warnings.warn("will go away", FutureWarning)
        run(parsed)

    monkeypatch.setattr(detection, "run", noisy)
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest, **more: shown.append(str(message)))
    arguments = ["detection", str(folder / "truth.json"), str(folder / "results.pkl"), "--trust", "--matrix-only"]
    assert main([*arguments, *quiet]) == 0
    error = capsys.readouterr().err
    assert "another library" not in error and "go away" not in error
    assert shown == ([] if quiet else ["of another library", "will go away"])
    assert ("mm-metrics: warning: results.pkl" in error) is not bool(quiet)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("mm_metrics_command", "--help"), ("mm_metrics_plugin", "-h")])
def test_a_full_device_is_one_line_and_exit_code_2(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.count("\n") == 1
