"""Parts of a report that are the same in the terminal and in Markdown: a heading, sentences, a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from mm_metrics_plugin.report.markdown_table import escape, table
from mm_metrics_plugin.report.tables import Table, cell

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and perhaps a table."""

    heading: str
    lines: Sequence[str] = ()
    table: Optional[Table] = None


def print_sections(sections: Sequence[Section], console: Console) -> None:
    """To the terminal."""
    for section in sections:
        if section.heading:
            console.print()
            console.print(Text(section.heading, style="bold"))
        for line in section.lines:
            console.print(Text(line))
        if section.table is not None:
            console.print(_rich(section.table))


def sections_markdown(sections: Sequence[Section]) -> List[str]:
    """As lines of Markdown.

    Example:
        >>> sections_markdown([Section("sizes", ["by area"], (["", "mAP"], [["small", 0.5]]))])
        ['', '## Sizes', '', '- by area', '', '|  | mAP |', '| --- | ---: |', '| small | 0.5000 |']
    """
    lines: List[str] = []
    for section in sections:
        if section.heading:
            lines += ["", f"## {escape(section.heading[:1].upper() + section.heading[1:])}"]
        if section.lines:
            lines += ["", *(f"- {escape(line)}" for line in section.lines)]
        if section.table is not None:
            lines += ["", *table(*section.table)]
    return lines


def _rich(content: Table) -> Any:
    header, rows = content
    result = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(header):
        if number:
            result.add_column(title, justify="right", no_wrap=True)
        else:
            result.add_column(title, overflow="fold")
    for row in rows:
        result.add_row(*(Text(cell(value)) for value in row))
    return result
