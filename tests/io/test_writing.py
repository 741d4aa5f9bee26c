"""Files are written whole or not at all."""

import csv
import errno
import gc
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from mm_metrics_plugin.io import writing


def test_json_and_csv_can_be_read_back(tmp_path):
    value = {"f1": float("nan"), "matrix": np.arange(4).reshape(2, 2), "x": [np.float32(0.5), np.inf], 3: ("ü", None)}
    writing.write_all({str(tmp_path / "new" / "folder" / "report.json"): writing.to_json(value)})
    text = (tmp_path / "new" / "folder" / "report.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {
        "f1": None,
        "matrix": [[0, 1], [2, 3]],
        "x": [0.5, None],
        "3": ["ü", None],
    }
    rows = [["cat, small", 0.1 + 0.2, np.int64(3)], ['"dog"', float("nan"), 0]]
    writing.write_all({str(tmp_path / "table.csv"): writing.to_csv(["class", "recall", "tp"], rows)})
    with open(tmp_path / "table.csv", newline="") as file:
        assert list(csv.reader(file)) == [
            ["class", "recall", "tp"],
            ["cat, small", "0.30000000000000004", "3"],
            ['"dog"', "", "0"],
        ]
    assert sorted(os.listdir(tmp_path)) == ["new", "table.csv"]
    with pytest.raises(TypeError):
        writing.to_json({"what": object()})


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_no_text_in_a_csv_file_is_a_formula(start):
    name = f"{start}HYPERLINK(1)"
    text = writing.to_csv(["class", name], [[name, -0.5], [f"a{name}", -3]])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["class", f"'{name}"],
        [f"'{name}", "-0.5"],
        [f"a{name}", "-3"],
    ]


def test_files_have_the_default_mode(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    writing.write_all({str(tmp_path / "ours"): "text"})
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_that_cannot_be_written_is_named_and_the_others_stay_as_they_were(tmp_path):
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.md").write_text("old")
    for bad, named in (("taken/report.json", "taken"), ("folder", "folder")):
        with pytest.raises(OSError) as caught:
            writing.write_all({str(tmp_path / name): "new" for name in ("a.md", bad, "z.md")})
        assert caught.value.filename == str(tmp_path / named)
        assert (tmp_path / "a.md").read_text() == "old"
        assert sorted(os.listdir(tmp_path)) == ["a.md", "folder", "taken"]


def interrupted_at(number, folder):
    """Writes two files, with a Ctrl-C at the line number of the code that runs; False if there are fewer lines."""
    lines = itertools.count()

    def trace(frame, event, argument):
        if event == "line" and next(lines) == number:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()  # that of a measurement of coverage
    try:
        sys.settrace(trace)
        writing.write_all({str(folder / name): "new" for name in ("a.md", "b.md")})
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_at_any_moment_leaves_all_files_or_none(tmp_path, request):
    before = signal.getsignal(signal.SIGINT)
    seen = []
    # An exception inside a callback of the garbage collector is swallowed, so none may run.
    gc.disable()
    request.addfinalizer(gc.enable)
    for number in itertools.count():
        (tmp_path / "a.md").write_text("old")
        (tmp_path / "b.md").unlink(missing_ok=True)
        struck = interrupted_at(number, tmp_path)
        content = {path.name: path.read_text() for path in tmp_path.iterdir()}
        assert content in ({"a.md": "old"}, {"a.md": "new", "b.md": "new"}), number
        assert signal.getsignal(signal.SIGINT) is before
        if not struck:
            break
        seen.append(len(content))
    assert len(seen) > 100 and set(seen) == {1, 2} and len(content) == 2


def test_a_killed_process_leaves_the_old_files(tmp_path):
    (tmp_path / "a.md").write_text("old")
    code = "import os, signal, sys; from mm_metrics_plugin.io.writing import ready_to_write\n"
    code += "with ready_to_write({sys.argv[1]: 'x' * 1000}): os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.md")])
    assert done.returncode == -signal.SIGKILL
    assert {path.name: path.read_text() for path in tmp_path.glob("[!.]*")} == {"a.md": "old"}


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_during_a_failing_rename_is_not_lost(tmp_path, monkeypatch):
    def failing(source, target):
        signal.raise_signal(signal.SIGINT)
        raise PermissionError(errno.EPERM, "belongs to somebody else", source)

    (tmp_path / "a.md").write_text("old")
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(KeyboardInterrupt) as caught:
        writing.write_all({str(tmp_path / "a.md"): "new"})
    assert caught.value.__context__.filename == str(tmp_path / "a.md")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.md": "old"}


def test_other_threads_write_as_well(tmp_path):
    """Only the main thread gets an interrupt and can make it wait."""
    writer = threading.Thread(target=writing.write_all, args=({str(tmp_path / "a.md"): "new"},))
    writer.start()
    writer.join()
    assert (tmp_path / "a.md").read_text() == "new"
