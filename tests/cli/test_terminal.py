"""What is different where somebody looks at a terminal, or at one that knows little."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest

from tests.cli import files
from tests.cli.files import command, succeeded

SLOW = """
import sys, time
sys.argv = ["mm-metrics"]
from mm_metrics_plugin.cli import main, progress
from mm_metrics_plugin.io import results
progress.AFTER = {after}
read = results.read_results
def slowly(*arguments, **options):
    time.sleep(0.5)
    return read(*arguments, **options)
results.read_results = slowly
sys.exit(main(["detection", "truth.json", "results.pkl", "--format", "csv", *sys.argv[1:], {more}]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("terminal")
    files.pair(place)
    return place


def on_terminal(folder, code):
    """Runs code with a terminal for stderr; gives stdout and what the terminal showed."""
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
        except OSError:  # Linux ends a terminal nobody writes to any more this way
            return

    listener = threading.Thread(target=listen)
    listener.start()
    out, _ = process.communicate()
    listener.join()
    os.close(ours)
    assert process.returncode == 0, b"".join(shown)
    return out, b"".join(shown).decode()


def test_a_bar_is_shown_for_what_takes_long(folder):
    out, shown = on_terminal(folder, SLOW.format(after=0.05, more=""))
    assert "reading the results" in shown and out.startswith("protocol,")


@pytest.mark.parametrize(("after", "more"), [(60, ""), (0.05, '"--quiet"')], ids=["quick", "quiet"])
def test_no_bar_is_shown_for_what_is_quick_or_quiet(folder, after, more):
    out, shown = on_terminal(folder, SLOW.format(after=after, more=more))
    assert shown == "" and out.startswith("protocol,") == (not more)


def test_no_bar_is_shown_where_nobody_looks(folder):
    done = command(cwd=folder, script=("-c", SLOW.format(after=0.05, more="")))
    assert succeeded(done).startswith("protocol,") and done.stderr == ""


def test_an_output_that_knows_only_ascii(folder):
    done = command("detection", "truth.json", "results.pkl", cwd=folder, env={"PYTHONIOENCODING": "ascii"})
    assert "===Averaging all classes===" in succeeded(done) and succeeded(done).isascii()


def test_show_without_a_display(folder):
    env = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "MPLBACKEND": "agg"}
    done = command("detection", "truth.json", "results.pkl", "--show", "--quiet", cwd=folder, env=env)
    assert succeeded(done) == "" and done.stderr.count("\n") == 1 and "no display" in done.stderr
