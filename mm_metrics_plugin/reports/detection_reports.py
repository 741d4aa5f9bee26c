"""One report on several IoU types of a detector, such as its boxes and its masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from mm_metrics_plugin.conventions import IOU_TYPES
from mm_metrics_plugin.reports.base import SCHEMA_VERSION, Report
from mm_metrics_plugin.reports.detection import DetectionReport


@dataclass(frozen=True, eq=False, repr=False)
class DetectionReports(Report):
    """Reports on several IoU types of a detector, such as its boxes and its masks.

    ``save`` writes the files of each to a folder of its name, and ``report.json``, ``report.md``, ``per_class.csv`` and
    ``report.html`` of all beside these folders.

    Attributes:
        reports: The report on each IoU type.

    Example:
        >>> import numpy as np
        >>> from mm_metrics_plugin import DetectionEvaluator
        >>> found = dict(boxes=[[0, 0, 4, 4]], masks=np.ones((1, 4, 4), dtype=bool), scores=[0.9], labels=[0])
        >>> evaluators = {name: DetectionEvaluator(["cat"], iou_type=name) for name in ("bbox", "segm")}
        >>> for evaluator in evaluators.values():
        ...     evaluator.update([found], [found])
        >>> reports = DetectionReports({name: evaluator.compute() for name, evaluator in evaluators.items()})
        >>> values = reports.log_values(classwise=True)
        >>> values["det/AP/cat"], values["det-segm/AP/cat"]
        (1.0, 1.0)
    """

    reports: Mapping[str, DetectionReport]

    def __getitem__(self, iou_type: str) -> DetectionReport:
        """The report on one IoU type."""
        return self.reports[iou_type]

    def _content(self) -> dict[str, Any]:
        contents = {name: report._content() for name, report in self.reports.items()}
        return {"schema_version": SCHEMA_VERSION, "iou_types": contents}

    def log_values(self, *, average: str = "macro", classwise: bool = False) -> dict[str, float]:
        """The values of each report with the prefix of its IoU type, as ``DetectionPRF`` logs them.

        Args:
            average: As in :meth:`DetectionReport.log_values`.
            classwise: Also keys per class, such as ``det-segm/f1/cat``.
        """
        return {
            f"{IOU_TYPES[name].prefix}/{key}": value
            for name, report in self.reports.items()
            for key, value in report.log_values(average=average, classwise=classwise).items()
        }
