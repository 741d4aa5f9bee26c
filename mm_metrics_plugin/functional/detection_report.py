"""What is said about a detector: numbers in their place, not yet in any form for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.averaging import divide
from mm_metrics_plugin.functional.confusion import ConfusionResult, confusion_report
from mm_metrics_plugin.functional.detection.confusion_rules import BACKGROUND_TYPES
from mm_metrics_plugin.settings import DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection_analysis import DetectionAnalysis

SCHEMA_VERSION = 2
BACKGROUND = "background"
MOST_CONFUSIONS = 10
MOST_DENSE = 2000  # classes of a matrix that is written cell by cell; of a larger one, only cells that are not 0
# Columns of the table per class that add up to FP: confusions in the matrix, and the types of its background row.
FALSE_POSITIVES = ("fp_confusion", *(f"fp_{name}" for name in BACKGROUND_TYPES))


@dataclass(frozen=True)
class Confusion:
    """How often objects of one class were taken for another."""

    truth: str
    prediction: str
    count: int

    def to_dict(self) -> Dict[str, Any]:
        """As a plain dict."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class ProtocolReport:
    """What one protocol of matching says.

    Attributes:
        protocol: Its name.
        result: The confusion matrix, background last, and the rates that follow from it.
        columns: The table per class, by name of the column; those of ``FALSE_POSITIVES`` add up to ``fp``.
        counts: What was used, ignored and counted again.
        confusions: The most frequent confusions between two classes, the greatest first.
    """

    protocol: str
    result: ConfusionResult
    columns: Mapping[str, Any]
    counts: Mapping[str, int]
    confusions: Tuple[Confusion, ...]

    @property
    def means(self) -> Dict[str, float]:
        """The averages over classes, by the names they have in the JSON report."""
        result = self.result
        return {
            "mean_precision": result.macro.precision,
            "mean_recall": result.macro.recall,
            "f1_of_means": result.f_of_means,
            "macro_f1": result.macro.f_score,
        }

    @property
    def micro(self) -> Dict[str, float]:
        """The rates of all classes' counts added up."""
        micro = self.result.micro
        return {"precision": micro.precision, "recall": micro.recall, "f1": micro.f_score}

    @property
    def classes_averaged(self) -> Dict[str, int]:
        """Over how many classes the means are: those that have a value."""
        return {key: int(np.count_nonzero(~np.isnan(self.columns[key]))) for key in ("precision", "recall", "f1")}

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        names = list(self.columns)
        rows = zip(
            *(column if isinstance(column, list) else np.asarray(column).tolist() for column in self.columns.values())
        )
        return {
            **matrix_entries(self.result.matrix),
            "per_class": [dict(zip(names, row)) for row in rows],
            **self.means,
            "micro": self.micro,
            "classes_averaged": self.classes_averaged,
            "top_confusions": [one.to_dict() for one in self.confusions],
            "counts": dict(self.counts),
        }


def protocol_report(
    protocol: str,
    matrix: np.ndarray,
    *,
    classes: Sequence[str],
    objects: np.ndarray,
    detections: np.ndarray,
    counts: Mapping[str, int],
    background_types: np.ndarray,
    empty: float = float("nan"),
) -> ProtocolReport:
    """Read everything off a confusion matrix with background.

    Args:
        protocol: The name of the protocol it was counted under.
        matrix: (C + 1, C + 1) whole numbers; rows truth, columns prediction, background last.
        classes: The C names.
        objects: (C,) how many objects of each class there are.
        detections: (C,) how many detections of each class were used.
        counts: What else was counted.
        background_types: (3, C) the background row by type, as
            :class:`~mm_metrics_plugin.functional.detection.confusion_rules.RuleCounts` has it.
        empty: The value of a rate whose denominator is 0. NaN leaves the class out of the means.

    Example:
        >>> matrix = np.array([[41, 3, 6], [0, 20, 5], [2, 1, 0]])
        >>> report = protocol_report("coco", matrix, classes=["dog", "cat"], objects=np.array([50, 25]),
        ...                          detections=np.array([43, 24]), counts={},
        ...                          background_types=np.array([[0, 1], [2, 0], [0, 0]]))
        >>> [report.columns[name].tolist() for name in ("fp", *FALSE_POSITIVES)]
        [[2, 4], [0, 3], [0, 1], [2, 0], [0, 0]]
        >>> report.confusions, report.columns["recall"].tolist()
        ((Confusion(truth='dog', prediction='cat', count=3),), [0.82, 0.8])
    """
    result = confusion_report(matrix, background=True, empty=empty)
    rates = result.per_class
    inner = result.matrix[:-1, :-1]
    false_positives = [inner.sum(axis=0) - inner.diagonal(), *np.asarray(background_types)]
    return ProtocolReport(
        protocol=protocol,
        result=result,
        columns={
            "name": list(classes),
            "objects": np.asarray(objects),
            "detections": np.asarray(detections),
            "tp": result.tp[:-1],
            "fp": result.fp[:-1],
            "fn": result.fn[:-1],
            "precision": rates.precision[:-1],
            "recall": rates.recall[:-1],
            "f1": rates.f_score[:-1],
            **dict(zip(FALSE_POSITIVES, false_positives)),
        },
        counts=counts,
        confusions=top_confusions(result.matrix[:-1, :-1], classes),
    )


def row_shares(matrix: np.ndarray) -> np.ndarray:
    """Every row divided by its sum; a row of nothing stays 0, so that a picture of it has no holes.

    Example:
        >>> row_shares(np.array([[3, 1], [0, 0]])).tolist()
        [[0.75, 0.25], [0.0, 0.0]]
    """
    return np.nan_to_num(divide(matrix, matrix.sum(axis=1, keepdims=True)))


def top_confusions(matrix: np.ndarray, classes: Sequence[str], *, most: int = MOST_CONFUSIONS) -> Tuple[Confusion, ...]:
    """The greatest cells off the diagonal; equal ones in the order of rows and columns.

    Example:
        >>> top_confusions(np.array([[5, 2], [7, 0]]), ["dog", "cat"])
        (Confusion(truth='cat', prediction='dog', count=7), Confusion(truth='dog', prediction='cat', count=2))
    """
    rows, columns = np.nonzero(matrix)
    off = rows != columns
    rows, columns = rows[off], columns[off]
    found = np.asarray(matrix)[rows, columns]
    order = np.argsort(-found, kind="stable")[:most]
    cells = zip(rows[order].tolist(), columns[order].tolist(), found[order].tolist())
    return tuple(Confusion(classes[row], classes[column], int(count)) for row, column, count in cells)


def matrix_entries(matrix: np.ndarray, *, most: int = MOST_DENSE) -> Dict[str, Any]:
    """A confusion matrix for the JSON report: cell by cell, or of many classes only the cells that are not 0.

    Args:
        matrix: Rows truth, columns prediction.
        most: Most rows that are written cell by cell.

    Example:
        >>> matrix = np.array([[5, 2], [0, 7]])
        >>> matrix_entries(matrix)
        {'confusion_matrix': [[5, 2], [0, 7]], 'confusion_cells': None}
        >>> matrix_entries(matrix, most=1)["confusion_cells"]
        {'row': [0, 0, 1], 'column': [0, 1, 1], 'count': [5, 2, 7]}
    """
    if len(matrix) <= most:
        return {"confusion_matrix": matrix.tolist(), "confusion_cells": None}
    rows, columns = np.nonzero(matrix)
    cells = {"row": rows.tolist(), "column": columns.tolist(), "count": matrix[rows, columns].tolist()}
    return {"confusion_matrix": None, "confusion_cells": cells}


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
        return [*self.classes, BACKGROUND]

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
