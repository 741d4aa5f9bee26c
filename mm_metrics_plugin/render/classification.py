"""Sections and CSV tables of classification reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.render.sections import (
    MAX_CLASSES,
    Section,
    averaged_lines,
    class_order_lines,
    class_rows,
    confusion_sections,
    interval_sections,
    matrix_sections,
    means_section,
    tally,
    task_lines,
    truncated,
)
from mm_metrics_plugin.render.tables import OVERALL_NAMES, Table, interval_columns, rows_of

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.render.outputs import TextOptions


def classification_sections(report: ClassificationReport, text: Optional[TextOptions] = None) -> List[Section]:
    """The sections of a classification report: all of them, or those of the terminal."""
    opening = f"{tally('sample', report.counts['samples'])}, {pluralize(len(report.classes), 'class')}"
    table, notes = class_rows(report.columns, text, "f1")
    notes += averaged_lines(report.classes_averaged, len(report.classes))
    sections = [
        Section("", [opening, *class_order_lines(report.inputs), *task_lines(report.settings)]),
        Section("Classes", table=table, notes=notes),
        *confusion_sections(report.confusions, text),
    ]
    if text is None and report.matrix is not None:
        sections += matrix_sections(report.matrix, report.classes)
    sections.append(means_section({"value": report.means}))
    optional = threshold_sections(report)
    return sections + (optional if text is None or text.verbose else truncated(optional, MAX_CLASSES))


def threshold_sections(report: ClassificationReport) -> List[Section]:
    """Thresholds per class, calibration and confidence intervals, if the report has them."""
    sections: List[Section] = []
    if report.thresholds:
        settings = report.settings
        line = (
            "one-vs-rest: the highest sensitivity + specificity - 1 (KS, Youden) and its threshold; the highest "
            f"sensitivity with a specificity of at least {settings.at_specificity:g}; the highest specificity with a "
            f"sensitivity of at least {settings.at_sensitivity:g}; thresholds are chosen on the data they are "
            "evaluated on, so these values are optimistic"
        )
        header = ["class", "KS", "KS thr", "sensitivity", "sensitivity thr", "specificity", "specificity thr"]
        rows = rows_of({"name": report.classes, **report.thresholds})
        sections.append(Section("Thresholds", [line], (header, rows)))
    if report.calibration is not None:
        line = (
            f"scores are read as probabilities; {len(report.calibration.result.counts)} bins of equal width: expected "
            "and maximum calibration error, Brier score (summed over classes), negative log-likelihood"
        )
        values = [[OVERALL_NAMES[name], value] for name, value in report.calibration.figures.items()]
        sections.append(Section("Calibration", [line], (["", "value"], values)))
    if report.intervals is not None:
        names = ("precision", "recall", "f1", "auc")
        sections += interval_sections(report.intervals, report.classes, names, samples=True)
    return sections


def class_csv(report: ClassificationReport) -> Table:
    """The rows of ``per_class.csv``, with confidence intervals if the report has them."""
    columns = report.columns
    if report.intervals is not None:
        columns.update(interval_columns(report.intervals.per_class))
    return list(columns), rows_of(columns)
