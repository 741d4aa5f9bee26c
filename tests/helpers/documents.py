"""Reading the project's documents: their code blocks, headings and links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = ("README.md", "README_zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md")
DOCUMENTS = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


class Block(NamedTuple):
    """A fenced block of code."""

    line: int
    language: str
    text: str
    not_run: str


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> list[Block]:
    """The fenced code of a document, in order, each with the reason for which it is not run; no directives of MyST."""
    fenced, lines = [], path.read_text(encoding="utf-8").splitlines()
    start, above = None, ""
    for number, line in enumerate(lines, start=1):
        words = line.strip()
        if start is None and words.startswith("```"):
            start, language, indent = number, words[3:].strip(), line.index("```")
        elif start is not None and words == "```":
            mark = NOT_RUN.fullmatch(above)
            text = "".join(f"{inner[indent:]}\n" for inner in lines[start : number - 1])
            if not language.startswith("{"):
                fenced.append(Block(start, language, text, mark.group(1) if mark else ""))
            start, above = None, ""
        elif start is None and words:
            above = words
    assert start is None, f"{path.name}: the block from line {start} on has no end"
    return fenced


def prose(path: Path) -> str:
    """A document without its code blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def tables(path: Path) -> list[list[str]]:
    """The cells of every table row, without the rows that only draw lines."""
    rows = [line.strip("|").split("|") for line in prose(path).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if set("".join(row)) - set("-")]


def anchors(path: Path) -> list[str]:
    """The names of the headings of a document in links."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    plain = [re.sub(r"[`*]|\]\([^)]*\)", "", text).lower() for text in headings]
    targets = re.findall(r"^\(([\w-]+)\)=$", prose(path), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-") for text in plain] + targets


def links(path: Path) -> Iterator[tuple[str, str]]:
    """File and anchor of every link and image inside the project."""
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", prose(path)):
        name, _, anchor = target.partition("#")
        yield name, anchor
