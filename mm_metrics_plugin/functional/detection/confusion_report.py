"""Rates and counts per class from the confusion matrix of a detector under one matching rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.classification.confusion_matrix import (
    Confusion,
    ConfusionResult,
    confusion_matrix_report,
    matrix_entries,
    top_confusions,
)
from mm_metrics_plugin.functional.detection.confusion_rules import BACKGROUND_TYPES

BACKGROUND_NAME = "background"
# Columns of the table per class that add up to FP: confusions in the matrix, and the types of its background row.
FALSE_POSITIVES = ("fp_confusion", *(f"fp_{name}" for name in BACKGROUND_TYPES))


@dataclass(frozen=True, eq=False)
class ProtocolReport:
    """The confusion matrix of one matching rule, and the numbers that follow from it."""

    protocol: str  # its name
    result: ConfusionResult  # the confusion matrix, background last, and the rates that follow from it
    columns: Mapping[str, Any]  # the table per class by column; ``FALSE_POSITIVES`` add up to ``fp``
    counts: Mapping[str, int]  # what was used, ignored and counted again
    confusions: Tuple[Confusion, ...]  # the most frequent confusions between two classes, the greatest first

    @property
    def means(self) -> Dict[str, float]:
        """The means over classes, by their names in the JSON report."""
        result = self.result
        return {
            "mean_precision": result.macro.precision,
            "mean_recall": result.macro.recall,
            "f1_of_means": result.f_of_means,
            "macro_f1": result.macro.f_score,
        }

    @property
    def micro(self) -> Dict[str, float]:
        """The rates of the pooled counts of all classes."""
        micro = self.result.micro
        return {"precision": micro.precision, "recall": micro.recall, "f1": micro.f_score}

    @property
    def classes_averaged(self) -> Dict[str, int]:
        """How many classes have a value."""
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
    ground_truths: np.ndarray,
    detections: np.ndarray,
    counts: Mapping[str, int],
    background_types: np.ndarray,
    zero_division: float = float("nan"),
) -> ProtocolReport:
    """The numbers of a confusion matrix (C + 1, C + 1) with background, under the matching rule ``protocol``.

    ``ground_truths`` and ``detections`` (C,) are those used; ``background_types`` (3, C) is the background row by type.
    """
    result = confusion_matrix_report(matrix, background=True, zero_division=zero_division)
    rates = result.per_class
    inner = result.matrix[:-1, :-1]
    false_positives = [inner.sum(axis=0) - inner.diagonal(), *np.asarray(background_types)]
    return ProtocolReport(
        protocol=protocol,
        result=result,
        columns={
            "name": list(classes),
            "ground_truths": np.asarray(ground_truths),
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
