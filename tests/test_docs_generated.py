"""Parts of pages that repeat the code are up to date."""

from __future__ import annotations

import pytest

from docs import generate
from tests.helpers.documents import name_of

PAGES = generate.pages()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_generated_page_is_up_to_date(path):
    assert path.read_text(encoding="utf-8") == PAGES[path], f"{name_of(path)} is out of date: run {generate.COMMAND}"


def test_every_page_with_repeated_text_is_generated():
    assert {path.name for path in PAGES} == {"command.md", "errors.md", "metrics.md"}
