"""One report of several IoU types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mm_metrics_plugin.reports.base import Report
from mm_metrics_plugin.reports.detection import DetectionReport


@dataclass(frozen=True, eq=False, repr=False)
class DetectionReports(Report):
    """The reports of a detector by IoU type."""

    reports: dict[str, DetectionReport]

    def _content(self) -> dict[str, Any]:
        return {iou_type: report.to_dict() for iou_type, report in self.reports.items()}
