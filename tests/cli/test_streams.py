"""Closed streams, encodings that lack characters, --quiet, threads, and environment variables of launchers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import warnings

import pytest

from mm_metrics_plugin.cli import main, streams
from mm_metrics_plugin.states.distributed import launched_processes
from tests.helpers import result_files as files
from tests.helpers.result_files import command, refused, succeeded

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

    def content(self):
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252", "utf-16", "gbk"])
def test_json_is_json_in_every_encoding(encoding, folder, monkeypatch):
    stream = Stream(encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    paths = [str(folder / "truth.json"), str(folder / "results.pkl")]
    assert main(["detection", *paths, "--format", "json", "--matrix-only"]) == 0
    assert json.loads(stream.content())["classes"] == list(NAMES)
    # Readers of JSON detect UTF-8, UTF-16 and UTF-32; in any other encoding it is ASCII.
    assert json.loads(stream.buffer.getvalue())["classes"] == list(NAMES)


@pytest.mark.parametrize("form", ["text", "csv", "md"])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_characters_that_the_encoding_lacks_are_written_out(encoding, form, folder, monkeypatch):
    stream = Stream(encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    paths = [str(folder / "truth.json"), str(folder / "results.pkl")]
    assert main(["detection", *paths, "--format", form]) == 0
    text = stream.content().replace("\\\\", "\\")
    assert (
        "\\u4e2d\\u6587" in text and "\\U0001f600" in text and ("caf\\xe9" if encoding == "ascii" else "café") in text
    )


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


def test_quiet_prints_no_warnings(folder):
    options = ("--trust", "--quiet")
    done = command("detection", "truth.json", "results.pkl", *options, cwd=folder)
    assert (succeeded(done), done.stderr) == ("", "")
    assert "nowhere.pkl" in refused(command("detection", "truth.json", "nowhere.pkl", "--quiet", cwd=folder))


@pytest.mark.parametrize(
    "environment", [{"RANK": "1"}, {"RANK": "1", "WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "y"}]
)
def test_variables_left_over_from_a_launcher_silence_nothing(environment, folder, monkeypatch, capsys):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched_processes() == (0, 1)
    assert main(["detection", str(folder / "truth.json"), "nowhere.pkl"]) == 2
    assert "nowhere.pkl: cannot be read" in capsys.readouterr().err
    assert main(["classification", str(folder / "samples.pkl")]) == 0
    assert "accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("subcommand", ["classification", "compare", "merge"])
def test_one_process_makes_the_reports_that_are_not_divided(subcommand, folder, tmp_path):
    """Under torchrun; the processes write to one folder, so the first alone may."""
    words = {"classification": ["samples.pkl"], "compare": ["-", "samples.pkl", "samples.pkl"], "merge": ["a.npz"]}
    if subcommand == "merge":
        paths = [str(folder / "truth.json"), str(folder / "results.pkl")]
        assert main(["detection", *paths, "--quiet", "--save-state", str(folder / "a.npz")]) == 0
    for rank in (0, 1):
        env = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        out = tmp_path / str(rank)
        done = command(subcommand, *words[subcommand], out, cwd=folder, env=env)
        assert bool(succeeded(done)) == out.exists() == (rank == 0)
        assert rank == 0 or done.stderr == ""


def test_several_threads_leave_warnings_as_they_were(folder, monkeypatch):
    """The first to begin is the last to end; warnings of a thread that runs no command are shown as before."""
    arguments = ["detection", str(folder / "truth.json"), str(folder / "results.pkl"), "--matrix-only", "--trust"]
    before, filters = warnings.showwarning, list(warnings.filters)
    first_inside, second_done = threading.Event(), threading.Event()
    from mm_metrics_plugin.cli import detection

    run = detection.run

    def held(parsed):
        if vars(parsed).get("seed") == 1:
            first_inside.set()
            assert second_done.wait(600)
        run(parsed)

    monkeypatch.setattr(detection, "run", held)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        first = threading.Thread(target=main, args=([*arguments, "--seed", "1"],))
        first.start()
        assert first_inside.wait(600)
        shown = []
        monkeypatch.setattr(streams, "_before", lambda message, *rest, **more: shown.append(message))
        warnings.warn("of the thread that runs no command")
        assert main(arguments) == 0
        monkeypatch.undo()
        second_done.set()
        first.join()
    assert "mm-metrics: warning: results.pkl" in said.getvalue()
    assert [str(one) for one in shown] == ["of the thread that runs no command"]
    assert "runs no command" not in said.getvalue()
    assert warnings.showwarning is before and list(warnings.filters) == filters


def test_warnings_of_other_libraries_are_not_repeated(folder, tmp_path, capsys, monkeypatch):
    """Matplotlib warns of every character and figure; the command says once that its font lacks some."""
    monkeypatch.setattr("mm_metrics_plugin.render.figures.confusion_matrix.CJK_FONTS", ())
    classes = "名前,クラス,三,四"
    paths = [str(folder / "truth.json"), str(folder / "results.pkl"), str(tmp_path / "out")]
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    for category, name in zip(truth["categories"], classes.split(",")):
        category["name"] = name
    paths[0] = str(files.write_json(tmp_path / "truth.json", truth))
    assert main(["detection", *paths, "--matching", "coco", "--matching", "mmdet"]) == 0
    said = capsys.readouterr().err
    assert "Glyph" not in said and said.count("mm-metrics: warning") == said.count(f"warning: {streams.FONT}") == 1


def test_the_way_warnings_are_shown_is_put_back(folder):
    before = warnings.showwarning
    threads = [
        threading.Thread(target=main, args=(["classification", str(folder / "samples.pkl"), "--quiet"],))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.showwarning is before


def test_each_call_shows_its_warnings_again(folder, capsys):
    arguments = ["detection", str(folder / "truth.json"), str(folder / "results.pkl"), "--trust", "--matrix-only"]
    for _ in range(2):
        assert main(arguments) == 0
        assert capsys.readouterr().err.count("warning: results.pkl") == 1


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_warnings_of_other_libraries_are_not_the_command_s_own(folder, monkeypatch, capsys, quiet):
    """They are shown as Python shows them, or not at all with --quiet."""
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
    told = capsys.readouterr().err
    assert "another library" not in told and "go away" not in told
    assert shown == ([] if quiet else ["of another library", "will go away"])
    assert ("mm-metrics: warning: results.pkl" in told) is not bool(quiet)


def test_error_handlers_only_help_encoding():
    for name in ("mm_metrics_plugin.json_escapes", "mm_metrics_plugin.similar"):
        with pytest.raises(UnicodeDecodeError):
            b"\xff".decode("utf-8", name)
    text = json.dumps({"name": "é\U0001f600\udce9"}, ensure_ascii=False)
    assert json.loads(text.encode("ascii", "mm_metrics_plugin.json_escapes")) == {"name": "é\U0001f600\udce9"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("mm_metrics_command", "--help"), ("mm_metrics_plugin",)])
def test_a_full_device_is_one_line_and_exit_code_2(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.count("\n") == 1
