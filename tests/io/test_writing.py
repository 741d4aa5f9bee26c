"""Files are written whole or not at all."""

import csv
import json
import os

import numpy as np
import pytest

from mm_metrics_plugin.io import writing


def test_what_is_written_can_be_read_back(tmp_path):
    value = {"f1": float("nan"), "matrix": np.arange(4).reshape(2, 2), "x": [np.float32(0.5), np.inf], 3: ("ü", None)}
    writing.write_json(tmp_path / "new" / "folder" / "report.json", value)
    text = (tmp_path / "new" / "folder" / "report.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {
        "f1": None,
        "matrix": [[0, 1], [2, 3]],
        "x": [0.5, None],
        "3": ["ü", None],
    }
    rows = [["cat, small", 0.1 + 0.2, np.int64(3)], ['"dog"', float("nan"), 0]]
    writing.write_csv(tmp_path / "table.csv", ["class", "recall", "tp"], rows)
    with open(tmp_path / "table.csv", newline="") as file:
        assert list(csv.reader(file)) == [
            ["class", "recall", "tp"],
            ["cat, small", "0.30000000000000004", "3"],
            ['"dog"', "", "0"],
        ]
    assert sorted(os.listdir(tmp_path)) == ["new", "table.csv"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "figure.png"
    writing.write_bytes(path, b"old")
    with pytest.raises(ZeroDivisionError), writing.whole_file(path) as temporary:
        assert temporary.suffix == ".png"
        temporary.write_bytes(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["figure.png"]
    with pytest.raises(TypeError):
        writing.write_json(tmp_path / "report.json", {"what": object()})
    assert os.listdir(tmp_path) == ["figure.png"]


def test_a_file_has_the_mode_of_any_other(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    writing.write_text(tmp_path / "ours", "text")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_that_cannot_be_written_is_an_ordinary_error(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError):
        writing.write_text(tmp_path / "taken" / "report.json", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        writing.write_text(tmp_path / "folder", "text")
    assert sorted(os.listdir(tmp_path)) == ["folder", "taken"]
