"""Sections and CSV tables of classification reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.render.sections import (
    ClassOrder,
    Section,
    averaged_lines,
    class_order_lines,
    confusion_sections,
    interval_sections,
    matrix_sections,
    means_section,
    tally,
    task_lines,
)
from mm_metrics_plugin.render.tables import OVERALL_NAMES, Table, class_table, interval_columns, rows_of
from mm_metrics_plugin.settings import number_text

if TYPE_CHECKING:
    from mm_metrics_plugin.render.outputs import TextOptions
    from mm_metrics_plugin.reports.classification import ClassificationReport


def classification_sections(report: ClassificationReport, text: TextOptions | None = None) -> list[Section]:
    """The sections of a classification report: all of them, or those of the terminal."""
    opening = f"{tally('sample', report.counts['samples'])}, {pluralize(len(report.classes), 'class')}"
    columns, notes = report.columns, averaged_lines(report.classes_averaged, len(report.classes))
    order = ClassOrder.lowest(columns, "f1")
    sections = [
        Section("", [opening, *class_order_lines(report.inputs), *task_lines(report.settings)]),
        Section("Classes", table=class_table(columns), notes=notes, order=order, headline=True),
        *confusion_sections(report.confusions, text),
    ]
    if text is None and report.matrix is not None:
        sections += matrix_sections(report.matrix, report.classes)
    return [*sections, means_section({"value": report.means}), *threshold_sections(report, order)]


def threshold_sections(report: ClassificationReport, order: ClassOrder | None = None) -> list[Section]:
    """Thresholds per class, calibration and confidence intervals, if the report has them."""
    sections: list[Section] = []
    if report.thresholds:
        settings = report.settings
        specificity, sensitivity = number_text(settings.at_specificity), number_text(settings.at_sensitivity)
        line = (
            "one-vs-rest: the highest sensitivity + specificity - 1 (KS, Youden) and its threshold; the highest "
            f"sensitivity with a specificity of at least {specificity}; the highest specificity with a sensitivity of "
            f"at least {sensitivity}; thresholds are chosen on the data they are evaluated on, so these values are "
            "optimistic"
        )
        header = ["class", "KS", "KS thr", "sensitivity", "sensitivity thr", "specificity", "specificity thr"]
        rows = rows_of({"name": report.classes, **report.thresholds})
        sections.append(Section("Thresholds", [line], (header, rows), order=order, optional="thresholds"))
    if report.calibration is not None:
        line = (
            f"scores are read as probabilities; {len(report.calibration.result.counts)} bins of equal width: expected "
            "and maximum calibration error, Brier score (summed over classes), negative log-likelihood"
        )
        values = [[OVERALL_NAMES[name], value] for name, value in report.calibration.figures.items()]
        sections.append(Section("Calibration", [line], (["", "value"], values), optional="calibration"))
    if report.intervals is not None:
        names = ("precision", "recall", "f1", "auc")
        sections += interval_sections(report.intervals, report.classes, names, order=order, samples=True)
    return sections


def class_csv(report: ClassificationReport) -> Table:
    """The rows of ``per_class.csv``, with confidence intervals if the report has them."""
    columns = report.columns
    if report.intervals is not None:
        columns.update(interval_columns(report.intervals.per_class))
    return list(columns), rows_of(columns)
