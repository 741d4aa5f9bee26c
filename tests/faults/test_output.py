"""A full disk, a read-only folder and Ctrl-C: one line that names the error, and no incomplete files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.helpers import result_files as files

MAX_FILE_SIZE = 2048  # bytes; every report has a larger file
COMMANDS = {
    "detection": ["detection", "truth.json", "results.pkl", "OUT"],
    "classification": ["classification", "classified.pkl", "OUT"],
    "compare": ["compare", "truth.json", "results.pkl", "other.pkl", "OUT", "--resamples", "20"],
    "merge": ["merge", "all.npz", "OUT"],
    "save-state": ["detection", "truth.json", "results.pkl", "--matrix-only", "--save-state", "OUT/all.npz"],
}
METRIC = """
import numpy, sys
from mm_metrics_plugin import DetectionPRF
nothing = dict(bboxes=numpy.zeros((0, 4)), scores=numpy.zeros(0), labels=numpy.zeros(0, int))
metric = DetectionPRF(num_classes=40, outfile_prefix=sys.argv[1] + "/latest")
metric.process(None, [dict(pred_instances=nothing, gt_instances=nothing)])
try:
    metric.evaluate(1)
except OSError as error:
    sys.exit(f"{error.errno} {error.filename}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("inputs")
    files.pair(place)
    files.write_pickle(place / "other.pkl", files.results_of(files.problem()))
    files.write_pickle(place / "classified.pkl", files.samples())
    done = run(COMMANDS["save-state"], place, place)
    assert done.returncode == 0, done.stderr
    return place


def run(arguments, folder, out, script=("-m", "mm_metrics_command"), **options):
    """Run the command with its own TMPDIR, which must be empty in the end."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    line = [sys.executable, *script, *(word.replace("OUT", str(out)) for word in arguments)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, **options)
    assert os.listdir(temporary) == []
    return done


def small_files():
    """In a child: files cannot grow beyond a few bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_SIZE, MAX_FILE_SIZE))


@pytest.fixture
def read_only(tmp_path):
    """A folder in which no file can be made, not even by root."""
    if os.geteuid() == 0:
        yield Path("/sys")
    else:
        tmp_path.chmod(0o555)
        yield tmp_path
        tmp_path.chmod(0o755)


def refused(done, names, reasons):
    """The command prints one line that names a file and the reason."""
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.count("\n") == 1 and any(os.strerror(reason) in done.stderr for reason in reasons), done.stderr
    assert any(f": {name}: " in done.stderr for name in names), done.stderr


FULL = (errno.ENOSPC, errno.EFBIG)
DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)


def targets(out):
    names = "report.json report.md per_class.csv confusion_matrix.csv confusion_matrix.png curves.csv curves.png "
    names += "pr_curves.png confidence_curves.png froc_curves.png comparison.json comparison.md differences.csv all.npz"
    return [str(out), *(str(out / name) for name in names.split())]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_leaves_the_old_report(name, folder, tmp_path):
    (tmp_path / "report.md").write_text("old")
    refused(run(COMMANDS[name], folder, tmp_path, preexec_fn=small_files), targets(tmp_path)[1:], FULL)
    assert os.listdir(tmp_path) == ["report.md"] and (tmp_path / "report.md").read_text() == "old"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_folder(name, folder, read_only):
    before = os.listdir(read_only)
    refused(run(COMMANDS[name], folder, read_only), targets(read_only), DENIED)
    assert os.listdir(read_only) == before


@pytest.mark.parametrize("words", [["--format", "csv"], []], ids=["short", "long"])
def test_a_full_standard_output(words, folder):
    line = [sys.executable, "-m", "mm_metrics_command", "detection", "truth.json", "results.pkl", *words]
    with open("/dev/full", "w") as output:
        done = subprocess.run(line, cwd=folder, stdout=output, stderr=subprocess.PIPE, text=True)
    expected = f"mm-metrics detection: standard output: {os.strerror(errno.ENOSPC)}\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_the_files_of_a_metric_on_a_full_disk(folder, tmp_path):
    done = run(["OUT"], folder, tmp_path, script=("-W", "ignore", "-c", METRIC), preexec_fn=small_files)
    assert done.stderr.split()[-2:] in [[str(code), f"{tmp_path}/latest.{end}"] for code in FULL for end in ENDINGS]
    assert os.listdir(tmp_path) == []


ENDINGS = ("json", "per_class.csv", "confusion_matrix.csv")


def test_the_files_of_a_metric_in_a_read_only_folder(folder, read_only):
    done = run(["OUT"], folder, read_only, script=("-W", "ignore", "-c", METRIC))
    assert done.stderr.split()[-2:] in [[str(reason), f"{read_only}/latest.json"] for reason in DENIED]


# --- Ctrl-C ---

# Counts the function calls in each step of the command, or waits in one of them for an interrupt.
STEPS = """
import inspect, json, sys, time
from mm_metrics_command import load
main = load("mm_metrics_plugin.cli").main
from mm_metrics_plugin.reports.base import Progress
wanted, number, note, *arguments = sys.argv[1:]
calls = {}
step = Progress.step

def watched(self, description):
    sys.setprofile(None)
    step(self, description)
    calls[description] = 0
    def profile(frame, event, argument):
        calls[description] += event == "call"
        # Python ignores exceptions while it finalizes a generator.
        in_function = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if description == wanted and calls[description] >= int(number) and in_function:
            sys.setprofile(None)
            open(note, "x").close()
            time.sleep(600)
    sys.setprofile(profile)

Progress.step = watched
code = main(arguments)
sys.setprofile(None)
if not wanted:
    open(note, "x").write(json.dumps(calls))
sys.exit(code)
"""
MOMENTS = [
    ("reading the results", 0.5),
    ("reading the ground truth", 0.5),
    ("joining and matching", 0.5),
    ("computing metrics", 0.1),
    ("computing metrics", 0.9),
    ("writing", 0.01),
    ("writing", 0.5),
    ("writing", 0.97),
    ("drawing", 0.5),
]


@pytest.fixture(scope="module")
def calls(folder):
    done = run(["", "0", "calls.json", *COMMANDS["detection"]], folder, folder / "out", script=("-c", STEPS))
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "calls.json").read_text())


def enable_sigint():
    """In a child: SIGINT ends it, also if the shell that started the tests ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_the_terminal(number):
    """In a child: make the terminal its controlling terminal, which sends it Ctrl-C."""
    enable_sigint()
    fcntl.ioctl(number, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize(("step", "share"), MOMENTS)
def test_interrupted(step, share, calls, folder, tmp_path):
    note, out = tmp_path / "note", tmp_path / "out"
    number = str(max(int(calls[step] * share), 1))
    arguments = [word.replace("OUT", str(out)) for word in COMMANDS["detection"]]
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", STEPS, step, number, str(note), *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=enable_sigint,
    )
    while not note.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, error = process.communicate()
    assert note.exists(), "the command ended before the interrupt"
    assert (process.returncode, printed, error) == (130, "", "")
    assert os.listdir(tmp_path / "tmp") == []
    left = set(os.listdir(out)) if out.exists() else set()
    whole = set(os.listdir(folder / "out"))
    numbers = {name for name in whole if not name.endswith(".png")}
    assert left <= whole
    for name in left:
        if name in numbers:
            assert (out / name).read_text() == (folder / "out" / name).read_text(), name
        else:  # the pixels of a figure may differ between processes
            assert (out / name).read_bytes().endswith(files.PNG_END), name
    assert numbers <= left if step == "drawing" else left in (set(), numbers)
    assert not left or (step, share) in MOMENTS[-2:]


def test_ctrl_c_on_a_terminal(folder, tmp_path):
    """Ctrl-C in a terminal with a progress bar, during a report that would take hours."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "mm_metrics_command", "detection", "truth.json", "results.pkl", str(tmp_path)]
    process = subprocess.Popen(
        [*line, "--ci", "0.95", "--resamples", "1000000"],
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: on_the_terminal(theirs),
    )
    os.close(theirs)
    shown = b""
    while b"computing metrics" not in shown:
        assert select.select([ours], [], [], 600)[0], f"nothing more came after {shown!r}"
        shown += os.read(ours, 4096)
    os.write(ours, b"\x03")
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # end of a terminal on Linux
        pass
    printed, _ = process.communicate()
    os.close(ours)
    assert (process.returncode, printed) == (130, b"")
    assert b"Traceback" not in shown and b"Error" not in shown
    assert os.listdir(tmp_path) == []
