"""Every row of invalid input in docs/en/reference/errors.md is true, and every input tried here is a row of it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from tests.helpers.bad_input_rows import RUNS

PAGE = Path(__file__).parent.parent.parent / "docs" / "en" / "reference" / "errors.md"
TABLE = PAGE.read_text(encoding="utf-8").split("\n| input | where | what happens |\n")[1].split("\n\n")[0]
ROWS = [re.split(r" (?<!\\)\| ", line[2:].rstrip(" |")) for line in TABLE.splitlines()[1:]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1].split('`')[1]}: {row[0]}")
def test_row(row, tmp_path):
    given, where, happens = row
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # an overflow that nobody was told of
        message = RUNS[given, where](tmp_path)
    if message is not None:
        assert f"`{message}`".replace("|", "\\|") == happens
    else:
        assert not re.fullmatch("`[^`]+`", happens)


def test_every_input_has_its_row():
    assert {(given, where) for given, where, _ in ROWS} == set(RUNS) and len(ROWS) == len(RUNS)
