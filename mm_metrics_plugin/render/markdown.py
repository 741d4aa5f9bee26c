"""Reports as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, Sequence

from mm_metrics_plugin.render.comparison import comparison_sections
from mm_metrics_plugin.render.sections import (
    Section,
    classification_sections,
    detection_sections,
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
    opening,
)
from mm_metrics_plugin.render.tables import (
    CORNER,
    cell,
    class_table,
    false_positive_table,
    main_columns,
    mean_rows,
    printable,
)

if TYPE_CHECKING:
    import numpy as np

    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.functional.classification.confusion_matrix import Confusion

MAX_COLUMNS = 21  # of a matrix; a larger one is in the CSV file and the figure


def detection_markdown(report: DetectionReport) -> str:
    """The report of a detector."""
    lines = ["# Detection report", "", *_items([*opening(report), *report.missing_results])]
    for one in report.protocols:
        lines += ["", f"## {one.protocol}: {PROTOCOLS[one.protocol]}", ""]
        notes = averaged_line(one.classes_averaged, len(report.classes))
        lines += _body(main_columns(one.columns), notes, one.confusions)
        lines += _matrix(one.result.matrix, report.labels)
        if one.protocol != "mmdet":  # which matches a ground truth any number of times
            lines += ["", "False positives by type:", "", *table(*false_positive_table(one.columns))]
            lines += ["", *_items(false_positive_lines(report.settings.iou_thr))]
    means = {one.protocol: mean_rows(one.means) for one in report.protocols}
    names = next(iter(means.values()))
    lines += ["", "## Means (macro: over classes; micro: pooled)", ""]
    lines += table(["", *means], [[name, *(column[name] for column in means.values())] for name in names])
    lines += sections_markdown(detection_sections(report))
    if report.differences:
        lines += ["", "## Why the protocols differ", "", *_items(report.differences)]
    for one in report.protocols:
        if one.protocol == "mmdet":
            block = published_block(one.result, [printable(name) for name in report.classes])
            heading = escape(published_heading(report.settings.score_thr))
            lines += ["", f"## {heading}", "", "```text", block, "```"]
    return "\n".join(lines) + "\n"


def classification_markdown(report: ClassificationReport) -> str:
    """The report of a classifier."""
    lines = ["# Classification report", "", *_items(classification_opening(report)), "", "## Classes", ""]
    lines += _body(report.columns, averaged_line(report.classes_averaged, len(report.classes)), report.confusions)
    if report.matrix is not None:
        lines += _matrix(report.matrix, report.classes)
    lines += ["", "## Means", "", *table(["", "value"], list(mean_rows(report.means).items()))]
    lines += sections_markdown(classification_sections(report))
    return "\n".join(lines) + "\n"


def comparison_markdown(report: ComparisonReport) -> str:
    """The comparison of runs."""
    return "\n".join(["# Comparison", *sections_markdown(comparison_sections(report))]) + "\n"


def sections_markdown(sections: Sequence[Section]) -> List[str]:
    """Sections as lines of Markdown.

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


def escape(text: str) -> str:
    r"""Escape the special characters of Markdown.

    Example:
        >>> print(escape("a|b *c*"))
        a\|b \*c\*
    """
    return "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in printable(text))


_SIGNS = frozenset("\\`*_{}[]<>#|&~$")


def item(text: str) -> str:
    r"""A list item. A dash, or a number and a dot, at its beginning is escaped, so that it starts no inner list.

    Example:
        >>> print(item("1. cat"), item("- dog"), item("0.5 or more"), sep=chr(10))
        - 1\. cat
        - \- dog
        - 0.5 or more
    """
    return "- " + re.sub(r"^( *)(\d+(?=[.)](?: |$))|(?=[-+=]))", r"\1\2\\", escape(text))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> List[str]:
    """The lines of a table with right-aligned numbers.

    Example:
        >>> table(["class", "TP"], [["cat", 3]])
        ['| class | TP |', '| --- | ---: |', '| cat | 3 |']
    """
    rule = ["---"] + ["---:"] * (len(header) - 1)
    body = [[escape(cell(value)) for value in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in ([escape(name) for name in header], rule, *body)]


def _body(columns: Mapping[str, Sequence[Any]], notes: List[str], confusions: Sequence[Confusion]) -> List[str]:
    lines = table(*class_table(columns))
    if notes:
        lines += ["", *_items(notes)]
    if confusions:
        lines += ["", f"{CONFUSIONS}:", "", *_items(confusion_lines(confusions))]
    return lines


def _matrix(matrix: np.ndarray, labels: Sequence[str]) -> List[str]:
    if len(labels) > MAX_COLUMNS:
        return []
    return ["", *table([CORNER, *labels], [[name, *row] for name, row in zip(labels, matrix.tolist())])]


def _items(lines: Iterable[str]) -> List[str]:
    return [item(line) for line in lines]
