"""What the documents say of each other and of the project is true. Their code is run by tests/test_docs_blocks.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.documents import DOCUMENTS, ROOT, anchors, blocks, headings, links, name_of, prose
from tests.test_docs_metrics import TABLES, metric_classes, row_of

ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README_zh-CN.md"


def tables(path):
    """The cells of every table row, without those that only draw lines."""
    rows = [line.strip("|").split("|") for line in prose(path).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if set("".join(row)) - set("-")]


def test_contributing_and_the_tutorial_show_the_example_that_is_tested():
    example = (ROOT / "docs" / "own_metric_example.py").read_text(encoding="utf-8")
    for name in ("CONTRIBUTING.md", "docs/tutorials/own_metric.md"):
        assert blocks(ROOT / name)[0].text == example
    assert len(example.splitlines()) <= 40


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_inside_the_project_lead_somewhere(document):
    for name, anchor in links(document):
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"links to {name}"
        assert target == ROOT or ROOT in target.parents, f"links out of the project: {name}"
        assert not anchor or anchor in anchors(target), f"links to {name}#{anchor}, which is no heading there"


def test_files_and_tests_that_documents_name_exist():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for name in re.findall(r"\b(?:tests|configs|benchmarks)/[\w/]+\.py\b", text):
            assert (ROOT / name).exists() or name.startswith("configs/my_"), f"{document.name} names {name}"


def test_benchmarks_that_the_readme_names_exist():
    for name in re.findall(r"python -m benchmarks (\w+)", ENGLISH.read_text(encoding="utf-8")):
        assert (ROOT / "benchmarks" / f"bench_{name}.py").exists(), name


@pytest.mark.parametrize("path", [ENGLISH, CHINESE], ids=name_of)
def test_make_targets_that_the_readme_names_exist(path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test", "docs"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


# --- the two READMEs --------------------------------------------------------------------------------------------------


def test_both_readmes_have_the_same_headings_and_code():
    assert [level for level, _ in headings(ENGLISH)] == [level for level, _ in headings(CHINESE)]
    # A reader pastes code: it is the same, with its comments and the marks above it.
    assert [block[1:] for block in blocks(ENGLISH)] == [block[1:] for block in blocks(CHINESE)]


def test_the_readme_shows_the_page():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)\s]+)", ENGLISH.read_text(encoding="utf-8"))
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).read_bytes().startswith(b"\x89PNG")
        assert (ROOT / picture).stat().st_size < 1_000_000


# --- the table of metrics ---------------------------------------------------------------------------------------------


def test_the_readme_names_every_metric_with_keys_and_rules_of_the_page():
    named = []
    for names, _, keys, rule in (
        row for row in tables(ENGLISH) if row[-1] in ("greater", "less", "–") and len(row) == 4
    ):
        metrics = re.findall(r"`(\w+)`", names)
        named += metrics
        found = re.findall(r"`([^`]+)`((?:\\\*)?)", keys)  # a bare star would begin italics
        assert found
        for key, told in found:
            documented = [
                row_of(name, key.replace("<class>", "cat").replace("<k>", "5")) for name in metrics if fits(name, key)
            ]
            assert documented, f"{names}: {key}"
            assert all(entry[1:] == (rule, bool(told)) for entry in documented), f"{names}: {key}, {documented}"
    assert sorted(named) == sorted(metric_classes())


def fits(name, key):
    return any(re.fullmatch(row[0], key.replace("<class>", "cat").replace("<k>", "5")) for row in TABLES[name])


# --- nothing of the workshop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_document_speaks_of_a_machine(document):
    text = document.read_text(encoding="utf-8")
    assert not re.search(r"/work/|/root/|/home/|\bTODO\b", text)


def test_all_pages_are_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in Path(ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if not re.search(rf"(?:: |^  ){page}$", navigation, re.MULTILINE)]
