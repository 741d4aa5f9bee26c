"""Pages that are made from other files are in the repository, and say what these files say now."""

from __future__ import annotations

import pytest

from docs import generate
from tests.helpers.documents import COPIES, name_of

PAGES = generate.pages()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_generated_page_is_up_to_date(path):
    found = path.read_text(encoding="utf-8")
    assert found == PAGES[path], f"{name_of(path)} is out of date: run {generate.COMMAND}"
    assert len(found.split()) > 500, "a page should have its text in the repository"


def test_every_page_that_is_a_copy_is_generated():
    assert set(COPIES) < set(PAGES)


def test_the_signature_is_that_of_the_source():
    source = "def f(a, b: int = 2, *, c: str = 'x', **d) -> bool: ..."
    (node,) = generate.ast.parse(source).body
    assert generate.signature(node, "f") == "f(a, b: int = 2, *, c: str = 'x', **d) -> bool"
