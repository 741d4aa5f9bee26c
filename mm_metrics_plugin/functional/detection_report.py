"""What is said about a detector: numbers in their place, not yet in any form for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.averaging import divide
from mm_metrics_plugin.functional.confusion import ConfusionResult, confusion_report

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection_analysis import DetectionAnalysis

SCHEMA_VERSION = 1
BACKGROUND = "background"
MOST_CONFUSIONS = 10


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
        columns: The table per class, by name of the column.
        counts: What was used, ignored and counted again.
        shares: The matrix with every row divided by its sum; rows without anything are 0.
        confusions: The most frequent confusions between two classes, the greatest first.
    """

    protocol: str
    result: ConfusionResult
    columns: Mapping[str, Any]
    counts: Mapping[str, int]
    shares: np.ndarray
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
        rows = zip(*(np.asarray(column).tolist() for column in self.columns.values()))
        return {
            "confusion_matrix": self.result.matrix.tolist(),
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
) -> ProtocolReport:
    """Read everything off a confusion matrix with background.

    Args:
        protocol: The name of the protocol it was counted under.
        matrix: (C + 1, C + 1) whole numbers; rows truth, columns prediction, background last.
        classes: The C names.
        objects: (C,) how many objects of each class there are.
        detections: (C,) how many detections of each class were used.
        counts: What else was counted.

    Example:
        >>> matrix = np.array([[41, 3, 6], [0, 20, 5], [2, 1, 0]])
        >>> report = protocol_report("coco", matrix, classes=["dog", "cat"], objects=np.array([50, 25]),
        ...                          detections=np.array([43, 24]), counts={})
        >>> report.confusions, report.columns["recall"].tolist()
        ((Confusion(truth='dog', prediction='cat', count=3),), [0.82, 0.8])
        >>> report.shares[2].round(3).tolist()
        [0.667, 0.333, 0.0]
    """
    result = confusion_report(matrix, background=True)
    rates = result.per_class
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
        },
        counts=counts,
        shares=row_shares(result.matrix),
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
    off = np.array(matrix)
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:most]
    rows, columns = np.unravel_index(order[off.reshape(-1)[order] > 0], off.shape)
    return tuple(Confusion(classes[row], classes[column], int(off[row, column])) for row, column in zip(rows, columns))


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
    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]
    protocols: Tuple[ProtocolReport, ...]
    analysis: Optional[DetectionAnalysis] = None

    @property
    def labels(self) -> List[str]:
        """Names of the rows and columns of the matrices."""
        return [*self.classes, BACKGROUND]

    @property
    def remarks(self) -> List[str]:
        """Why the protocols differ, in numbers, one line each."""
        lines = [line for report in self.protocols for line in _remarks(report)]
        missing = self.counts.get("images", {}).get("without_results", 0)
        if missing:
            lines.append(f"{missing} images have no results and are taken as without detections")
        return lines

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": dict(self.settings),
            "inputs": dict(self.inputs),
            "counts": dict(self.counts),
            "protocols": {report.protocol: report.to_dict() for report in self.protocols},
            "remarks": self.remarks,
            **({} if self.analysis is None else self.analysis.to_dict()),
        }


def _remarks(report: ProtocolReport) -> List[str]:
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
    elif counts.get("objects_ignored"):
        lines.append(
            f"{report.protocol} leaves out crowds ({counts['objects_ignored']}) and detections that lie on nothing "
            f"else ({counts['detections_ignored']}); mmdet counts them as ordinary"
        )
    if report.protocol == "agnostic":
        lines.append(f"agnostic pairs by overlap alone: {_between_classes(report)} pairs are of two different classes")
    return lines


def _between_classes(report: ProtocolReport) -> int:
    inner = report.result.matrix[:-1, :-1]
    return int(inner.sum() - inner.trace())
