"""The confusion matrix of a detector under one matching rule, with rates, counts and the most frequent confusions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.conventions import MATCHING_RULES, MatchingRule
from mm_metrics_plugin.functional.classification.confusion_matrix import (
    Confusion,
    ConfusionResult,
    confusion_matrix_report,
    matrix_entries,
    top_confusions,
)
from mm_metrics_plugin.functional.detection.rules import FALSE_POSITIVES


def background_name(classes: Sequence[str]) -> str:
    """The name of the background row and column: one that no class has."""
    name = "background"
    while name in classes:
        name = f"({name})"
    return name


@dataclass(frozen=True, eq=False)
class RuleReport:
    """The confusion matrix of one matching rule, with rates, counts and the most frequent confusions."""

    name: str  # of the matching rule
    result: ConfusionResult  # the confusion matrix, background last, and its rates
    columns: Mapping[str, Any]  # table per class by column; ``FALSE_POSITIVES`` add up to ``fp``
    counts: Mapping[str, int]  # numbers of detections and ground truths used and ignored
    confusions: tuple[Confusion, ...]  # most frequent confusions between two classes

    @property
    def rule(self) -> MatchingRule:
        """The matching rule."""
        return MATCHING_RULES[self.name]

    @property
    def means(self) -> dict[str, float]:
        """Macro and micro averages, by their keys in log and report."""
        result, micro = self.result, self.result.micro
        return {
            "precision": result.macro.precision,
            "recall": result.macro.recall,
            "f1_of_means": result.f_of_means,
            "f1": result.macro.f_score,
            "precision_micro": micro.precision,
            "recall_micro": micro.recall,
            "f1_micro": micro.f_score,
        }

    @property
    def classes_averaged(self) -> dict[str, int]:
        """Number of classes with a defined value, by column."""
        return {key: int(np.count_nonzero(~np.isnan(self.columns[key]))) for key in ("precision", "recall", "f1")}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        # Names stay a list: NumPy strips NUL characters at the end of strings.
        rows = zip(
            *(column if isinstance(column, list) else np.asarray(column).tolist() for column in self.columns.values())
        )
        return {
            **matrix_entries(self.result.matrix),
            "per_class": [dict(zip(self.columns, row)) for row in rows],
            **self.means,
            "classes_averaged": self.classes_averaged,
            "top_confusions": [confusion.to_dict() for confusion in self.confusions],
            "counts": dict(self.counts),
        }


def rule_report(
    name: str,
    matrix: np.ndarray,
    *,
    classes: Sequence[str],
    ground_truths: np.ndarray,
    detections: np.ndarray,
    counts: Mapping[str, int],
    background_types: np.ndarray,
    zero_division: float = float("nan"),
) -> RuleReport:
    """The report of a confusion matrix with background; arguments as in :class:`RuleCounts`."""
    result = confusion_matrix_report(matrix, background=True, zero_division=zero_division)
    rates = result.per_class
    inner = result.matrix[:-1, :-1]
    false_positives = [inner.sum(axis=0) - inner.diagonal(), *np.asarray(background_types)]
    return RuleReport(
        name=name,
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
