"""The promises of SECURITY.md, and the tests that it names."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from mm_metrics_plugin.evaluation.saved_states import read_state
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.readers import read_ground_truth
from tests.helpers import result_files as files

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))

# Runs the command in a process that records every use of a socket.
WATCHED = """
import sys
from mm_metrics_command import load
events = []
sys.addaudithook(lambda event, arguments: events.append((event, arguments)) if event.startswith("socket.") else None)
code = load("mm_metrics_plugin.cli").main(sys.argv[1:])
sys.exit(f"{code} {events}" if code or events else 0)
"""


def test_named_tests_exist():
    assert len(NAMED) >= 10
    for file, test in NAMED:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), test


def test_the_command_opens_no_connection(tmp_path):
    files.pair(tmp_path)
    files.write_pickle(tmp_path / "classified.pkl", files.samples())
    for line in (
        ["detection", "truth.json", "results.pkl", "out", "--html", "--save-state", "all.npz"],
        ["classification", "classified.pkl", "out", "--html"],
        ["compare", "truth.json", "results.pkl", "results.pkl", "out", "--html", "--resamples", "20"],
        ["merge", "all.npz", "out"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *line, "--quiet"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Evil:
    """A pickle that would make a file."""

    def __reduce__(self):
        return Path.touch, (Path("was_here"),)


def test_a_state_that_holds_a_pickle_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    array = BytesIO()
    np.save(array, np.array([Evil()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile("state.npz", "w") as archive:
        archive.writestr("header.npy", array.getvalue())
    with pytest.raises(ResultFileError, match=r"state\.npz: is not a state file, which save_state=... writes"):
        read_state("state.npz")
    assert not Path("was_here").exists()


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>',
        '<!DOCTYPE a [<!ENTITY file SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE a SYSTEM "http://127.0.0.1/a.dtd">',
    ],
)
def test_xml_that_declares_entities_is_refused(tmp_path, declaration):
    (tmp_path / "000001.xml").write_text(f'<?xml version="1.0"?>{declaration}<annotation/>')
    with pytest.raises(ResultFileError, match="declares a document type or entities"):
        read_ground_truth(tmp_path)


def test_a_message_cannot_move_the_cursor(tmp_path):
    truth, _ = files.pair(tmp_path)
    evil = files.write_json(
        tmp_path / "results.json", [dict(image_id="\x1b[2J\n\u202e", category_id=1, bbox=[0, 0, 1, 1], score=1)]
    )
    message = files.refused(files.command("detection", truth, evil, cwd=tmp_path))
    assert "\x1b" not in message and "\u202e" not in message and "image" in message
