"""Sections as text for the terminal.

Names and numbers are never truncated: sentences and long names are wrapped, and a table that is still wider than the
terminal is printed wider.
"""

from __future__ import annotations

import io
import sys
import textwrap
from typing import Any, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mm_metrics_plugin.render.sections import Section, with_classes
from mm_metrics_plugin.render.tables import cell

WIDTH = 120  # if the output is not a terminal
UNLIMITED = 1_000_000  # width of the console, so that it truncates nothing
MIN_NAME_WIDTH = 16  # of the first column, even if the table is then wider than the terminal
MAX_CELL_WIDTH = 28  # of any other column; longer class names are wrapped
GAP = 2  # between columns
SCREEN_LINES = 45
MAX_CLASSES, MIN_CLASSES = 20, 4  # of a table on one screen


def to_screen(sections: Sequence[Section], everything: str) -> str:
    """Sections as text of one screen, if possible: with fewer classes, and without optional sections.

    What is left out is named, with ``everything``: where to find it.
    """

    def text_with(most: int, left_out: Sequence[Section]) -> str:
        shown = [with_classes(section, most, everything) for section in sections if section not in left_out]
        if left_out:
            names = ", ".join(dict.fromkeys(section.optional for section in left_out))
            shown.insert(sections.index(left_out[0]), Section("", [f"not shown: {names}; {everything}"]))
        return to_text(shown)

    def room(text: str) -> int:
        return SCREEN_LINES - text.count("\n")

    text = text_with(MAX_CLASSES, [])
    if room(text) >= 0:
        return text
    left_out: list[Section] = []
    for section in (section for section in sections if section.optional):
        if room(text_with(MIN_CLASSES, left_out)) >= 0:
            break
        left_out.append(section)
    for section in left_out[:-1]:  # without the last one, there may be room for one before it
        fewer = [other for other in left_out if other is not section]
        left_out = fewer if room(text_with(MIN_CLASSES, fewer)) >= 0 else left_out
    text = text_with(MIN_CLASSES, left_out)
    lines_per_class = max(1, room(text) - room(text_with(MIN_CLASSES + 1, left_out)))
    for most in range(min(MAX_CLASSES, MIN_CLASSES + room(text) // lines_per_class), MIN_CLASSES, -1):
        more = text_with(most, left_out)
        if room(more) >= 0:  # unless long names are wrapped
            return more
    return text


def to_text(sections: Sequence[Section]) -> str:
    """Sections as text, colored and as wide as the terminal if the output is one."""
    closed = sys.stdout is None or getattr(sys.stdout, "closed", False)
    window = Console(file=io.StringIO() if closed else sys.stdout)
    width = window.width if window.is_terminal else WIDTH
    output = io.StringIO()
    console = Console(
        file=output,
        width=UNLIMITED,
        highlight=False,
        force_terminal=window.is_terminal and not window.legacy_windows,
        no_color=window.no_color,
        legacy_windows=False,
    )

    def write(text: str, style: str = "") -> None:
        for line in _wrapped(text, width):
            console.print(Text(line, style=style), soft_wrap=True)

    for section in sections:
        if section.heading:
            console.print()
            write(section.heading, "bold")
        for line in section.lines:
            write(line)
        if section.table is not None:
            for table in _tables(*section.table, section.means, width):
                console.print(table)
        for note in section.notes:
            write(note)
        if section.code:
            console.print(Text(section.code), soft_wrap=True)
    return "\n".join(line.rstrip(" ") for line in output.getvalue().split("\n"))


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a sentence, wrapped between words. A longer word stays whole."""
    if cell_len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(20, width), break_long_words=False, break_on_hyphens=False)


def _tables(
    header: Sequence[str], rows: Sequence[Sequence[Any]], means: Sequence[Sequence[Any]], width: int
) -> list[Table]:
    """A table with right-aligned numbers and the means below a line, split by columns if it is too wide."""
    body = [[cell(value) for value in row] for row in (*rows, *means)]
    widths = [max(map(cell_len, column)) for column in zip(header, *body)]
    widths[1:] = [min(cell_width, MAX_CELL_WIDTH) for cell_width in widths[1:]]
    tables = []
    for columns in _split(widths, width):
        others = sum(widths[column] + GAP for column in columns)
        # No padding: before version 15 rich gives some to the last column in spite of pad_edge.
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
        table.add_column(Text(header[0]), overflow="fold", max_width=max(MIN_NAME_WIDTH, width - others))
        for column in columns:
            table.add_column(Text(header[column]), justify="right", overflow="fold", width=widths[column] + GAP - 1)
        for number, row in enumerate(body, start=1):
            cells = (Text(row[column]) for column in (0, *columns))
            table.add_row(*cells, end_section=bool(means) and number == len(rows))
        tables.append(table)
    return tables


def _split(widths: Sequence[int], width: int) -> list[list[int]]:
    """The columns of each part of a table, without the first column, which all parts have."""
    parts: list[list[int]] = [[]]
    used = name = min(widths[0], MIN_NAME_WIDTH)
    for column, column_width in enumerate(widths[1:], start=1):
        if parts[-1] and used + GAP + column_width > width:
            parts.append([])
            used = name
        parts[-1].append(column)
        used += GAP + column_width
    return parts
