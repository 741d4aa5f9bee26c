"""Sections as Markdown."""

from __future__ import annotations

import re
from typing import Any, Iterable, Sequence

from mm_metrics_plugin.render.sections import Section
from mm_metrics_plugin.render.tables import cell, printable


def to_markdown(title: str, sections: Sequence[Section], *, level: int = 1) -> str:
    """A document with a title, whose heading has the given level, and sections."""
    marks = "#" * level
    lines = [f"{marks} {escape(title)}"]
    for section in sections:
        if section.heading:
            heading = escape(section.heading)
            lines += ["", f"{heading}:" if section.minor else f"{marks}# {heading}"]
        if section.lines:
            lines += ["", *map(item, section.lines)]
        if section.table is not None:
            lines += ["", *table(*section.table)]
        if section.notes:
            lines += ["", *map(item, section.notes)]
        if section.code:
            lines += ["", "```text", section.code, "```"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Escape the special characters of Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|&~$])", r"\\\1", printable(text))


def item(text: str) -> str:
    """A list item. A dash, or a number and a dot, at its beginning is escaped, so that it starts no inner list."""
    return "- " + re.sub(r"^( *)(\d+(?=[.)](?: |$))|(?=[-+=]))", r"\1\2\\", escape(text))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of a table with right-aligned numbers."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    body = [[escape(cell(value)) for value in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in ([escape(name) for name in header], rule, *body)]
