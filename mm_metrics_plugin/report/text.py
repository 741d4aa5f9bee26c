"""Reports for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mm_metrics_plugin.report.analysis import classification_sections, detection_sections
from mm_metrics_plugin.report.published import published_block
from mm_metrics_plugin.report.sentences import (
    PROTOCOLS,
    averaged_line,
    classification_opening,
    confusion_lines,
    mean_rows,
    opening,
)
from mm_metrics_plugin.report.tables import cell, class_table, printable

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification_report import ClassificationReport
    from mm_metrics_plugin.functional.detection_report import DetectionReport
    from mm_metrics_plugin.report.sections import Section

WIDTH = 120  # where the output is no terminal


def detection_text(report: DetectionReport) -> str:
    """Tables per class, confusions, means, why the protocols differ, and for ``mmdet`` the published block.

    Coloured if the output is a terminal, and then as wide as it is.
    """
    console = _console()
    with console.capture() as text:
        _print_detection(report, console)
    return text.get()


def classification_text(report: ClassificationReport) -> str:
    """The table per class, the confusions and the means."""
    console = _console()
    with console.capture() as text:
        _print_classification(report, console)
    return text.get()


def sections_text(sections: Sequence[Section]) -> str:
    """Headings, sentences and tables."""
    console = _console()
    with console.capture() as text:
        _sections(sections, console)
    return text.get()


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def _print_detection(report: DetectionReport, console: Console) -> None:
    _lines(console, opening(report))
    for one in report.protocols:
        _heading(console, f"{one.protocol}: {PROTOCOLS[one.protocol]}")
        console.print(_class_table(one.columns))
        _lines(console, averaged_line(one.classes_averaged, len(report.classes)))
        _confusions(console, confusion_lines(one.confusions))
    _heading(console, "means over classes")
    console.print(_means({one.protocol: mean_rows(one.means, one.micro) for one in report.protocols}))
    _sections(detection_sections(report), console)
    if report.remarks:
        _heading(console, "why the protocols differ")
        _lines(console, report.remarks)
    for one in report.protocols:
        if one.protocol == "mmdet":
            console.print()
            block = published_block(one.result, [printable(name) for name in report.classes])
            console.print(Text(block), soft_wrap=True)


def _print_classification(report: ClassificationReport, console: Console) -> None:
    _lines(console, classification_opening(report))
    console.print(_class_table(report.columns))
    _lines(console, averaged_line(report.classes_averaged, len(report.classes)))
    _confusions(console, confusion_lines(report.confusions))
    _heading(console, "means")
    console.print(_means({"": mean_rows(report.means, report.micro)}))
    _sections(classification_sections(report), console)


def _sections(sections: Sequence[Section], console: Console) -> None:
    for section in sections:
        if section.heading:
            _heading(console, section.heading)
        _lines(console, section.lines)
        if section.table is not None:
            console.print(_table(*section.table))


def _class_table(columns: Mapping[str, Sequence[Any]]) -> Table:
    return _table(*class_table(columns))


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(header):
        if number:
            table.add_column(title, justify="right", no_wrap=True)
        else:
            table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table


def _means(columns: Dict[str, Dict[str, float]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    table.add_column("")
    for title in columns:
        table.add_column(title, justify="right")
    for name in next(iter(columns.values())):
        table.add_row(name, *(cell(column[name]) for column in columns.values()))
    return table


def _confusions(console: Console, lines: List[str]) -> None:
    if lines:
        console.print(Text("top confusions", style="bold"))
        _lines(console, [f"  {line}" for line in lines])


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(line))
