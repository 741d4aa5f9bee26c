"""The page that leads to the pages of the IoU types of a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from mm_metrics_plugin.render.html import render_page
from mm_metrics_plugin.render.tables import OVERALL_NAMES

if TYPE_CHECKING:
    from mm_metrics_plugin.reports.detection import DetectionReport
    from mm_metrics_plugin.reports.detection_reports import DetectionReports

NAMES = ("mAP", "mAP_50", "mAP_75", "precision", "recall", "f1")


def detection_reports_page(reports: DetectionReports, titles: Mapping[str, str]) -> str:
    """Render the page; the page of an IoU type is ``<IoU type>/report.html``."""
    rows = [{"name": name, "title": titles[name], **_values(report)} for name, report in reports.reports.items()]
    first = next(iter(reports.reports.values()))
    names = {name: OVERALL_NAMES[name] for name in NAMES if name in rows[0]}
    return render_page(
        "detection_reports.html", reports, data={}, title="Detection report", names=names, rows=rows, first=first
    )


def _values(report: DetectionReport) -> dict[str, Any]:
    values: dict[str, Any] = dict(report.matching_rules[0].means)
    if report.analysis is not None:
        values.update(report.analysis.average_precision.to_dict())
    return values
