"""What a notebook and the Python prompt show of a report: the main metrics in one line, and the main table as HTML.

The table takes the colors of the notebook, so it is readable in light and dark themes, and has no scripts.
"""

from __future__ import annotations

from html import escape
from typing import Any, Sequence

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.render.outputs import TextOptions, report_parts
from mm_metrics_plugin.render.sections import Section, with_classes
from mm_metrics_plugin.render.tables import OVERALL_NAMES, cell, printable

HEADLINES = ("accuracy", "auc", "mAP", "mAP_50", "f1")
MAX_CLASSES = 20
LINE = "1px solid rgba(128,128,128,.4)"
TABLE_STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.3em 0"
CELL_STYLE = "padding:.2em .7em;text-align:{align};white-space:nowrap;{line}"


def summary_line(report: Any) -> str:
    """Numbers of images or samples and of classes, and the main metrics."""
    from mm_metrics_plugin.reports.classification import ClassificationReport
    from mm_metrics_plugin.reports.detection import DetectionReport
    from mm_metrics_plugin.reports.detection_reports import DetectionReports

    if isinstance(report, DetectionReports):
        return "; ".join(map(summary_line, report.reports.values()))
    if isinstance(report, DetectionReport):
        number, values = pluralize(report.counts["images"]["used"], "image"), dict(report.matching_rules[0].means)
        number = f"{report.settings.iou_type}, {number}"
        if report.analysis is not None:
            values.update(report.analysis.average_precision.to_dict())
    elif isinstance(report, ClassificationReport):
        number, values = pluralize(report.counts["samples"]["used"], "sample"), report.means
    else:
        return _comparison_line(report)
    metrics = [f"{OVERALL_NAMES[name]} {cell(values[name])}" for name in HEADLINES if name in values]
    return ", ".join([number, pluralize(len(report.classes), "class"), *metrics])


def _comparison_line(report: Any) -> str:
    from mm_metrics_plugin.render.comparison import SIGNIFICANT, overall_rows, run_letters

    names = [report.comparisons[0].first, *(pair.second for pair in report.comparisons)]
    letters = run_letters([printable(name) for name in names])
    runs = [name if name == letter else f"{letter}: {name}" for name, letter in letters.items()]
    rows = [row for pair in report.comparisons for row in overall_rows(pair, report.classes)]
    significant = sum(row.verdict in SIGNIFICANT for row in rows)
    unit = "image" if report.kind == "detection" else "sample"
    differences = f"{significant} of {pluralize(len(rows), 'difference')} significant"
    return f"{pluralize(report.images, unit)}, {differences}, runs {', '.join(runs)}"


def summary_html(report: Any) -> str:
    """The line of :func:`summary_line` and the main tables of a report."""
    from mm_metrics_plugin.reports.detection_reports import DetectionReports

    if isinstance(report, DetectionReports):
        return "".join(map(summary_html, report.reports.values()))
    sections = report_parts(report).sections(TextOptions())
    shown = [with_classes(section, MAX_CLASSES, "to_markdown() has all") for section in sections if section.headline]
    title = f"<p><b>{type(report).__name__}</b>: {escape(summary_line(report))}</p>"
    return f"<div>{title}{''.join(map(_section, shown))}</div>"


def _section(section: Section) -> str:
    header, rows = section.table or ([], [])
    head = _row("th", header, f"border-bottom:{LINE}")
    body = [_row("td", row) for row in rows]
    means = [_row("td", row, "" if at else f"border-top:{LINE}") for at, row in enumerate(section.means)]
    table = f'<table style="{TABLE_STYLE}"><thead>{head}</thead><tbody>{"".join([*body, *means])}</tbody></table>'
    table = "" if section.table is None else table
    notes = "".join(f'<div style="opacity:.75">{escape(printable(note))}</div>' for note in section.notes)
    return f"<p>{escape(printable(section.heading))}</p>{table}{notes}"


def _row(tag: str, values: Sequence[Any], line: str = "") -> str:
    cells: list[str] = []
    for at, value in enumerate(values):
        style = CELL_STYLE.format(align="right" if at else "left", line=line)
        cells.append(f'<{tag} style="{style}">{escape(cell(value))}</{tag}>')
    return f'<tr style="background:none">{"".join(cells)}</tr>'
