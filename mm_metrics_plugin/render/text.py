"""Reports for the terminal.

Names and numbers are never truncated: sentences and long names are wrapped, and a table that is still wider than the
terminal is printed wider.
"""

from __future__ import annotations

import io
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mm_metrics_plugin.render.sections import (
    Section,
    classification_sections,
    detection_sections,
    main_errors,
    optional_sections,
    published_block,
    published_heading,
)
from mm_metrics_plugin.render.sentences import (
    CONFUSIONS,
    PROTOCOLS,
    averaged_line,
    classification_opening,
    confusion_lines,
    false_positive_lines,
    ignored_lines,
    max_dets_lines,
    opening,
)
from mm_metrics_plugin.render.tables import (
    COLUMN_NAMES,
    cell,
    class_table,
    false_positive_table,
    main_columns,
    mean_rows,
    printable,
)

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.functional.detection.confusion_rules import ProtocolReport

WIDTH = 120  # if the output is not a terminal
UNLIMITED = 1_000_000  # width of the console, so that it truncates nothing
MIN_NAME_WIDTH = 16  # of the first column, even if the table is then wider than the terminal
MAX_CELL_WIDTH = 28  # of any other column; longer class names are wrapped
GAP = 2  # between columns
MAX_CLASSES = 20  # of a table that fits one screen
MAX_CONFUSIONS = 5
MAX_ROWS = 40
MORE = {  # what may be suggested at the end of a report, by argument
    "--verbose": "--verbose (object sizes, false positives by type, mmdet's counting and why it differs)",
    "--matching": "--matching mmdet",
    "OUT_DIR": "OUT_DIR (everything as Markdown, JSON, CSV and figures)",
    "--html": "--html (a page)",
}


def detection_text(
    report: DetectionReport,
    *,
    protocols: Optional[Sequence[str]] = None,
    verbose: bool = False,
    published: bool = False,
    suggested: Sequence[str] = (),
    width: Optional[int] = None,
) -> str:
    """The report on a detector, colored if the output is a terminal.

    Args:
        report: The report.
        protocols: The protocols to print; all of the report by default.
        verbose: Whether to print all sections and rows, not only what fits one screen.
        published: Whether to end with the lines of the published recipe, if mmdet's counting is in the report.
        suggested: Arguments, of those in ``MORE``, that the last line suggests.
        width: Width of the terminal; detected by default.
    """
    printer = _Printer(width)
    shown = [one for one in report.protocols if verbose or protocols is None or one.protocol in protocols]
    _print_detection(report, shown or list(report.protocols), printer, verbose, published)
    if suggested:
        printer.line("")
        printer.line(f"More: {', '.join(MORE[one] for one in suggested)}")
    return printer.text()


def classification_text(report: ClassificationReport, *, verbose: bool = False, width: Optional[int] = None) -> str:
    """The report on a classifier: the table per class, confusions, means and the other sections."""
    printer = _Printer(width)
    _print_classification(report, printer, verbose)
    return printer.text()


def sections_text(sections: Sequence[Section], *, width: Optional[int] = None) -> str:
    """Sections as text."""
    printer = _Printer(width)
    printer.sections(sections)
    return printer.text()


class _Printer:
    """Lines and tables of a given width.

    Args:
        width: None: the width of the terminal, or 120 if the output is not a terminal.
    """

    def __init__(self, width: Optional[int] = None) -> None:
        self._file = io.StringIO()
        closed = sys.stdout is None or getattr(sys.stdout, "closed", False)
        window = Console(file=io.StringIO() if closed else sys.stdout)
        self._console = Console(
            file=self._file,
            width=UNLIMITED,
            highlight=False,
            force_terminal=window.is_terminal and not window.legacy_windows,
            no_color=window.no_color,
            legacy_windows=False,
        )
        self.width = width or (window.width if window.is_terminal else WIDTH)

    def text(self) -> str:
        """The printed text without trailing spaces."""
        return "\n".join(line.rstrip(" ") for line in self._file.getvalue().split("\n"))

    def line(self, text: str, *, indent: str = "", style: str = "") -> None:
        """A sentence, wrapped between words. A longer word stays whole."""
        wrapped = [indent + text]
        if cell_len(wrapped[0]) > self.width:
            wrapped = textwrap.wrap(
                text,
                max(20, self.width),
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        for one in wrapped:
            self._console.print(Text(one, style=style), soft_wrap=True)

    def lines(self, texts: Sequence[str], *, indent: str = "") -> None:
        """Sentences."""
        for text in texts:
            self.line(text, indent=indent)

    def heading(self, text: str) -> None:
        """A heading, with an empty line above it."""
        self._console.print()
        self.line(text, style="bold")

    def block(self, text: str) -> None:
        """Text as it is."""
        self._console.print(Text(text), soft_wrap=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]], *, end: Sequence[Sequence[Any]] = ()) -> None:
        """A table with right-aligned numbers. A table that is wider than the terminal is split by columns.

        Args:
            header: Titles of the columns.
            rows: Names and numbers.
            end: Rows below a line.
        """
        body = [[cell(value) for value in row] for row in (*rows, *end)]
        widths = [max(map(cell_len, column)) for column in zip(header, *body)]
        widths[1:] = [min(width, MAX_CELL_WIDTH) for width in widths[1:]]
        for part in self._parts(widths):
            others = sum(widths[at] + GAP for at in part)
            # No padding: before version 15 rich gives some to the last column in spite of pad_edge.
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
            table.add_column(Text(header[0]), overflow="fold", max_width=max(MIN_NAME_WIDTH, self.width - others))
            for at in part:
                table.add_column(Text(header[at]), justify="right", overflow="fold", width=widths[at] + GAP - 1)
            for number, row in enumerate(body, start=1):
                cells = (Text(row[at]) for at in (0, *part))
                table.add_row(*cells, end_section=bool(end) and number == len(rows))
            self._console.print(table)

    def _parts(self, widths: Sequence[int]) -> List[List[int]]:
        """The columns of each part of a split table, without the first column, which all parts have."""
        parts: List[List[int]] = [[]]
        used = name = min(widths[0], MIN_NAME_WIDTH)
        for at, width in enumerate(widths[1:], start=1):
            if parts[-1] and used + GAP + width > self.width:
                parts.append([])
                used = name
            parts[-1].append(at)
            used += GAP + width
        return parts

    def sections(self, sections: Sequence[Section], *, most: Optional[int] = None) -> None:
        """Print sections, with at most ``most`` rows per table."""
        for section in sections:
            if section.heading:
                self.heading(section.heading)
            self.lines(section.lines)
            if section.table is not None:
                header, rows = section.table
                self.table(header, rows if most is None else rows[:most])
                if most is not None and len(rows) > most:
                    self.line(f"{len(rows) - most:,} more rows: --verbose prints all, OUT_DIR receives all")


def _print_detection(
    report: DetectionReport, shown: Sequence[ProtocolReport], printer: _Printer, verbose: bool, published: bool
) -> None:
    printer.lines(opening(report))
    printer.lines(report.missing_results)
    for one in shown:
        _print_protocol(report, one, printer, verbose)
    analysis = report.analysis
    if analysis is not None:
        if verbose:
            printer.sections(detection_sections(report))
        else:
            if analysis.errors is not None and any(one.protocol == "coco" for one in shown):
                printer.sections([main_errors(analysis)])
            printer.sections(optional_sections(analysis), most=MAX_ROWS)
    mmdet = next((one for one in report.protocols if one.protocol == "mmdet"), None)
    if report.differences and (verbose or mmdet in shown):
        printer.heading("Why the protocols differ")
        printer.lines(report.differences)
    if mmdet is not None and (published or verbose or mmdet in shown):
        printer.heading(published_heading(report.settings.score_thr))
        printer.block(published_block(mmdet.result, [printable(name) for name in report.classes]))


def _print_protocol(report: DetectionReport, one: ProtocolReport, printer: _Printer, verbose: bool) -> None:
    """The table per class with the means, and the confusions."""
    printer.heading(f"{one.protocol}: {PROTOCOLS[one.protocol]}")
    columns: Dict[str, Any] = dict(main_columns(one.columns))
    if one.protocol == "coco":  # whose detections are TP + FP, and which has AP
        if not verbose:
            del columns["detections"]
        if report.analysis is not None:
            columns["AP"] = report.analysis.ap_columns()["AP"]
    most = None if verbose else MAX_CLASSES
    header, rows, note = _class_rows(columns, most, "AP" if "AP" in columns else "f1")
    printer.table(header, rows, end=_mean_rows(report, one, columns))
    printer.lines(note)
    printer.line("macro: mean over classes; micro: pooled over classes")
    printer.lines(averaged_line(one.classes_averaged, len(report.classes)))
    printer.lines(ignored_lines(one.counts))
    if "AP" in columns and report.analysis is not None:
        printer.lines(max_dets_lines(report.analysis.max_dets, report.analysis.most_detections))
    _print_confusions(printer, confusion_lines(one.confusions), None if verbose else MAX_CONFUSIONS)
    if verbose and one.protocol != "mmdet":  # which matches a ground truth any number of times
        printer.heading(f"False positives by type ({one.protocol})")
        printer.table(*false_positive_table(one.columns))
        printer.lines(false_positive_lines(report.settings.iou_thr))


def _mean_rows(report: DetectionReport, one: ProtocolReport, columns: Mapping[str, Any]) -> List[List[Any]]:
    """The rows "macro" and "micro" of the table per class."""
    means, sums = one.means, one.result
    macro: Dict[str, Any] = {name: means[name] for name in ("precision", "recall", "f1")}
    if report.analysis is not None:
        macro["AP"] = report.analysis.average_precision.to_dict()["mAP"]
    pooled: Dict[str, Any] = {
        "ground_truths": int(sum(columns["ground_truths"])),
        "tp": int(sums.tp[:-1].sum()),
        "fp": int(sums.fp[:-1].sum()),
        "fn": int(sums.fn[:-1].sum()),
        **{name: means[f"{name}_micro"] for name in ("precision", "recall", "f1")},
    }
    if "detections" in columns:
        pooled["detections"] = int(sum(columns["detections"]))
    return [
        ["macro", *(macro.get(name, "") for name in list(columns)[1:])],
        ["micro", *(pooled.get(name, "") for name in list(columns)[1:])],
    ]


def _class_rows(
    columns: Mapping[str, Any], most: Optional[int], order: str
) -> Tuple[List[str], List[List[Any]], List[str]]:
    """The table per class: all classes, or of many classes those with the lowest values of a column."""
    header, rows = class_table(columns)
    if most is None or len(rows) <= most:
        return header, rows, []
    at = list(columns).index(order)
    worst = sorted(rows, key=lambda row: (row[at] != row[at], row[at]))[:most]
    title = COLUMN_NAMES.get(order, order)
    note = f"{most} of {len(rows):,} classes, lowest {title} first; --verbose prints all"
    return header, worst, [note]


def _print_classification(report: ClassificationReport, printer: _Printer, verbose: bool) -> None:
    printer.lines(classification_opening(report))
    printer.line("")
    header, rows, note = _class_rows(report.columns, None if verbose else MAX_CLASSES, "f1")
    printer.table(header, rows)
    printer.lines(note)
    printer.lines(averaged_line(report.classes_averaged, len(report.classes)))
    _print_confusions(printer, confusion_lines(report.confusions), None if verbose else MAX_CONFUSIONS)
    printer.heading("Means (macro: over classes; micro: pooled)")
    printer.table(["", "value"], list(mean_rows(report.means).items()))
    printer.sections(classification_sections(report), most=None if verbose else MAX_CLASSES)


def _print_confusions(printer: _Printer, lines: Sequence[str], most: Optional[int]) -> None:
    if lines:
        printer.heading(CONFUSIONS)
        printer.lines(lines if most is None else lines[:most], indent="  ")
