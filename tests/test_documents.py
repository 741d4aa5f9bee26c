"""Links, file names and translations of the documents. tests/test_docs_blocks.py runs their code."""

from __future__ import annotations

import re

import pytest

from tests.helpers.documents import DOCUMENTS, ROOT, blocks, links, name_of, tables
from tests.helpers.documents import anchors as anchors_of

ENGLISH, CHINESE = ROOT / "docs" / "en", ROOT / "docs" / "zh_cn"
TRANSLATED = {path: ENGLISH / path.relative_to(CHINESE) for path in sorted(CHINESE.rglob("*.md")) if blocks(path)}
TRANSLATED[CHINESE / "command.md"] = ENGLISH / "reference" / "command.md"
TRANSLATED[ROOT / "README_zh-CN.md"] = ROOT / "README.md"


def test_the_tutorial_shows_the_example_that_is_tested():
    example = (ROOT / "docs" / "own_metric_example.py").read_text(encoding="utf-8")
    assert blocks(ROOT / "docs" / "en" / "tutorials" / "own_metric.md")[0].text == example


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_inside_the_project_resolve(document):
    for name, anchor in links(document):
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"links to {name}"
        assert target == ROOT or ROOT in target.parents, f"links out of the project: {name}"
        assert not anchor or anchor in anchors_of(target), f"links to {name}#{anchor}, which is no heading there"


def test_files_and_targets_that_documents_name_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for name in re.findall(r"\b(?:tests|configs|benchmarks|demo)/[\w/]+\.py\b", text):
            assert (ROOT / name).exists() or name.startswith("configs/my_"), f"{document.name} names {name}"
        for name in re.findall(r"python -m benchmarks (\w+)", text):
            assert (ROOT / "benchmarks" / f"bench_{name}.py").exists(), f"{document.name} names {name}"
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name} names make {target}"


def code(path):
    """Every block of code without comments at the ends of lines, which are translated."""
    comment = re.compile(r"(?<=\S)\s+# [^#\n]*$", re.MULTILINE)
    return [(block.language, block.not_run, comment.sub("", block.text)) for block in blocks(path)]


def table_marks(path):
    """The names in backticks and the numbers of every table cell, which are not translated."""
    return [[sorted(re.findall(r"`[^`]+`|\d[\d.,]*", cell)) for cell in row] for row in tables(path)]


@pytest.mark.parametrize("path", TRANSLATED, ids=name_of)
def test_a_chinese_page_has_the_code_and_tables_of_the_english_page(path):
    assert code(path) == code(TRANSLATED[path])
    assert table_marks(path) == table_marks(TRANSLATED[path])


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_document_names_a_machine(document):
    assert not re.search(r"/work/|/root/|/home/|\bTODO\b", document.read_text(encoding="utf-8"))
