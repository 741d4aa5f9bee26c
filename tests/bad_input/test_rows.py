"""Every row of docs/bad_input.md is true, and every input tried here is a row of it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from tests.bad_input.rows import ROWS

PAGE = Path(__file__).parent.parent.parent / "docs" / "bad_input.md"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.where.split('`')[1]}: {row.input}")
def test_row(row, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # an overflow that nobody was told of
        message = row.run(tmp_path)
    if message is not None:
        assert f"`{message}`".replace("|", "\\|") == row.happens
    else:
        assert not re.fullmatch("`[^`]+`", row.happens)


def test_the_page_says_what_is_tested_and_no_more():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [re.split(r" (?<!\\)\| ", line[2:].rstrip(" |")) for line in lines]
    assert [tuple(row) for row in cells[1:]] == [row[:3] for row in ROWS]
