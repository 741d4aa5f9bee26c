"""What is said about a detector: numbers in their place, not yet in any form for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.detection.confusion_report import BACKGROUND_NAME, ProtocolReport
from mm_metrics_plugin.settings import DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.detection_analysis import DetectionAnalysis

SCHEMA_VERSION = 2


def confused_block(matrix: np.ndarray, *, most: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes with the most confusions, as row or as column, and their part of the matrix.

    Args:
        matrix: Counts; rows truth, columns prediction.
        most: How many classes. Of classes with equal counts the earlier one is chosen.

    Returns:
        The chosen classes, ascending; their counts; and these divided by the sums of the whole rows.

    Example:
        >>> chosen, counts, shares = confused_block(np.array([[8, 0, 2], [0, 5, 0], [1, 0, 9]]), most=2)
        >>> chosen.tolist(), counts.tolist(), shares.tolist()
        ([0, 2], [[8, 2], [1, 9]], [[0.8, 0.2], [0.1, 0.9]])
    """
    matrix = np.asarray(matrix)
    confusions = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * matrix.diagonal()
    chosen = np.sort(np.argsort(-confusions, kind="stable")[:most])
    rows = matrix[chosen]
    block = rows[:, chosen]
    return chosen, block, np.nan_to_num(divide(block, rows.sum(axis=1, keepdims=True)))


@dataclass(frozen=True, eq=False)
class DetectionReport:
    """Everything a report on a detector says.

    Attributes:
        classes: Class names.
        settings: What was asked for.
        inputs: Which files were read, and by which versions of what.
        counts: Images, detections and objects read, used and dropped by reason.
        protocols: What each protocol says, in the order asked for.
        analysis: Average precision, curves, sizes, kinds of error, thresholds and intervals.
    """

    classes: Tuple[str, ...]
    settings: DetectionSettings
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]
    protocols: Tuple[ProtocolReport, ...]
    analysis: Optional[DetectionAnalysis] = None

    @property
    def labels(self) -> List[str]:
        """Names of the rows and columns of the matrices."""
        return [*self.classes, BACKGROUND_NAME]

    @property
    def differences(self) -> List[str]:
        """Why the protocols differ, in numbers, one line each."""
        names = [report.protocol for report in self.protocols]
        return [line for report in self.protocols for line in _remarks(report, beside=names)]

    @property
    def remarks(self) -> List[str]:
        """Why the protocols differ, and how many images have no results."""
        lines = self.differences
        missing = self.counts.get("images", {}).get("without_results", 0)
        if missing:
            lines.append(f"{missing} images have no results and are evaluated as images without detections")
        return lines

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "counts": dict(self.counts),
            "protocols": {report.protocol: report.to_dict() for report in self.protocols},
            "remarks": self.remarks,
            **({} if self.analysis is None else self.analysis.to_dict()),
        }


def _remarks(report: ProtocolReport, *, beside: Sequence[str]) -> List[str]:
    counts, lines = report.counts, []
    if report.protocol == "mmdet":
        lines += [
            f"mmdet counts {counts['duplicates']} duplicates as right: detections of the right class on an object that "
            "has one already",
            f"mmdet counts {counts['objects_counted_again']} objects too many: each once for every detection on it, "
            "and once more as missed if none of them is of its class",
            f"mmdet counts {counts['detections_counted_again']} detections too many: each once for every object it "
            "lies on",
        ]
        if counts.get("crowds") and "coco" not in beside:  # which says so itself
            lines.append(f"mmdet counts {counts['crowds']} crowd regions as ordinary objects; coco ignores them")
    elif counts.get("objects_ignored"):
        lines.append(
            f"{report.protocol} ignores {counts['objects_ignored']} crowd regions and {counts['detections_ignored']} "
            "detections that match only crowd regions; mmdet counts them as ordinary"
        )
    if report.protocol == "agnostic":
        lines.append(f"agnostic pairs by overlap alone: {_between_classes(report)} pairs are of two different classes")
    return lines


def _between_classes(report: ProtocolReport) -> int:
    inner = report.result.matrix[:-1, :-1]
    return int(inner.sum() - inner.trace())
