"""Output on a terminal: progress bar, control characters, ASCII, --show without a display."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from mm_metrics_plugin.cli import main
from tests.helpers import result_files as files
from tests.helpers.result_files import command, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")

SLOW = """
import sys, threading
import rich.progress
from mm_metrics_command import load
main = load("mm_metrics_plugin.cli").main
from mm_metrics_plugin.cli import output
from mm_metrics_plugin.evaluation import loading as results
output.AFTER = {after}
read, start, shown = results.read_all, rich.progress.Progress.start, threading.Event()
def started(self):
    start(self)
    shown.set()
rich.progress.Progress.start = started
def slowly(*arguments, **options):
    shown.wait({wait})
    return read(*arguments, **options)
results.read_all = slowly
sys.exit(main(["detection", "truth.json", "results.pkl", "--format", "csv", *sys.argv[1:], {more}]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("terminal")
    files.pair(place)
    return place


def on_terminal(folder, code):
    """Run code with a terminal as stderr; return stdout and what the terminal showed."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    shown = []

    def listen():
        try:
            while True:
                part = os.read(ours, 4096)
                if not part:
                    return
                shown.append(part)
        except OSError:  # end of a terminal on Linux
            return

    listener = threading.Thread(target=listen)
    listener.start()
    out, _ = process.communicate()
    listener.join()
    os.close(ours)
    assert process.returncode == 0, b"".join(shown)
    return out, b"".join(shown).decode()


def test_a_progress_bar_is_shown_for_slow_steps(folder):
    out, shown = on_terminal(folder, SLOW.format(after=0.05, wait=600, more=""))
    assert "reading the results" in shown and out.startswith("matching,")


@pytest.mark.parametrize(("after", "more"), [(3600, ""), (0.05, '"--quiet"')], ids=["fast", "quiet"])
def test_no_progress_bar_is_shown_for_fast_or_quiet_commands(folder, after, more):
    out, shown = on_terminal(folder, SLOW.format(after=after, wait=0.5, more=more))
    assert shown == "" and out.startswith("matching,") == (not more)


class Terminal(io.StringIO):
    """A standard output that is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize("kind", ["text", "csv", "json", "md"])
@pytest.mark.parametrize("subcommand", ["detection", "classification", "compare"])
def test_no_name_moves_the_cursor(tmp_path, monkeypatch, subcommand, kind):
    names = ["cat\x1b[2J", "\x9b2J", "\u202e[red]dog", "=1+1"]
    made = files.problem(images=8)
    files.write_json(tmp_path / "truth.json", files.truth_of(made, names))
    files.write_pickle(tmp_path / "results\x9b.pkl", files.results_of(made))
    files.write_pickle(tmp_path / "other.pkl", files.results_of(made))
    files.write_pickle(tmp_path / "classified.pkl", files.samples(classes=4))
    (tmp_path / "names.txt").write_text("\n".join(names))
    lines = {
        "detection": ["truth.json", "results\x9b.pkl"],
        "classification": ["classified.pkl", "--classes", "names.txt"],
        "compare": ["truth.json", "results\x9b.pkl", "other.pkl", "--resamples", "20"],
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert main([subcommand, *lines[subcommand], "--format", kind]) == 0
    shown = sys.stdout.getvalue()
    assert "\x1b[2J" not in shown and "\x9b" not in shown and "\u202e" not in shown
    if kind != "text":  # which has colors of its own
        assert shown.replace("\n", "").isprintable()
    else:
        assert subcommand == "compare" or "[red]dog" in shown  # not as markup of rich
    if kind == "json":
        assert json.loads(shown)["classes"] == names
    if kind == "csv":
        assert "'=1+1" in shown


def test_no_progress_bar_is_shown_without_a_terminal(folder):
    done = command(cwd=folder, script=("-c", SLOW.format(after=0.05, wait=0.5, more="")))
    assert succeeded(done).startswith("matching,") and done.stderr == ""


def test_ascii_output(folder):
    env = {"PYTHONIOENCODING": "ascii"}
    text = succeeded(command("detection", "truth.json", "results.pkl", "--verbose", cwd=folder, env=env))
    assert "===Averaging all classes===" in text and " -> " in text and text.isascii() and "\\u" not in text


def test_show_without_a_display(folder):
    env = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "MPLBACKEND": "agg"}
    done = command("detection", "truth.json", "results.pkl", "--show", "--format", "csv", cwd=folder, env=env)
    assert succeeded(done).startswith("matching,") and done.stderr.count("\n") == 1 and "no display" in done.stderr
