"""Reading the project's documents: their code blocks, headings and links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*(ROOT / name for name in ("README.md", "README_zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md")), *PAGES]
# Copies of other documents and of docstrings, whose code is run where it comes from.
COPIES = [ROOT / "docs" / "index.md", ROOT / "docs" / "zh.md", *sorted((ROOT / "docs" / "api").glob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


class Block(NamedTuple):
    """A fenced block of code."""

    line: int
    language: str
    text: str
    not_run: str


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> List[Block]:
    """The fenced blocks of a document, in order, each with the reason for which it is not run, if there is one."""
    found, lines = [], path.read_text(encoding="utf-8").splitlines()
    start, above = None, ""
    for number, line in enumerate(lines, start=1):
        if start is None and line.startswith("```"):
            start, language = number, line[3:].strip()
        elif start is not None and line == "```":
            mark = NOT_RUN.fullmatch(above)
            text = "\n".join(lines[start : number - 1]) + "\n"
            found.append(Block(start, language, text, mark.group(1) if mark else ""))
            start, above = None, ""
        elif start is None and line.strip():
            above = line.strip()
    assert start is None, f"{path.name}: the block from line {start} on has no end"
    return found


def prose(path: Path) -> str:
    """A document without its code blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def headings(path: Path) -> List[Tuple[int, str]]:
    """Level and text of every heading."""
    return [(len(marks), text) for marks, text in re.findall(r"^(#+) (.+)$", prose(path), re.MULTILINE)]


def anchors(path: Path) -> List[str]:
    """What links to the headings of a document are called."""
    plain = [re.sub(r"[`*]|\]\([^)]*\)", "", text).lower() for _, text in headings(path)]
    return [re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-") for text in plain]


def links(path: Path) -> Iterator[Tuple[str, str]]:
    """File and anchor of every link and picture that stays inside the project."""
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", prose(path)):
        name, _, anchor = target.partition("#")
        yield name, anchor
