"""Parts of a report that are the same in the terminal and in Markdown: a heading, sentences, a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence

from mm_metrics_plugin.render.markdown_table import escape, item, table
from mm_metrics_plugin.render.tables import Table


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and perhaps a table."""

    heading: str
    lines: Sequence[str] = ()
    table: Optional[Table] = None


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
            lines += ["", *map(item, section.lines)]
        if section.table is not None:
            lines += ["", *table(*section.table)]
    return lines
