"""What is said about a classifier: numbers in their place, not yet in any form for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from mm_metrics_plugin.functional.auc import AUCResult
from mm_metrics_plugin.functional.confusion import ConfusionResult, CountsResult
from mm_metrics_plugin.functional.curves import ClassificationCurves
from mm_metrics_plugin.functional.delong import AUCIntervals
from mm_metrics_plugin.functional.detection_report import SCHEMA_VERSION, Confusion, row_shares, top_confusions
from mm_metrics_plugin.functional.intervals import Intervals


@dataclass(frozen=True, eq=False)
class ClassificationReport:
    """Everything a report on a classifier says.

    Attributes:
        classes: Class names.
        settings: What was asked for.
        inputs: Which files were read, and by which versions of what.
        counts: Samples read, used and dropped by reason.
        result: What the decisions say: a whole confusion matrix where every sample has one class, else counts.
        accuracy: The share of right decisions; where samples have several classes, of right yes-or-no decisions.
        auc: One-vs-rest AUC of the scores.
        curves: Those of each class against the rest.
        auc_intervals: DeLong's, if they were asked for.
        intervals: Of precision, recall and F1, if they were asked for.
    """

    classes: Tuple[str, ...]
    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]
    result: CountsResult
    accuracy: float
    auc: AUCResult
    curves: Optional[ClassificationCurves] = None
    auc_intervals: Optional[AUCIntervals] = None
    intervals: Optional[Intervals] = None

    @property
    def matrix(self) -> Optional[np.ndarray]:
        """The confusion matrix (classes, classes), if there is one."""
        if not isinstance(self.result, ConfusionResult):
            return None
        return self.result.matrix[:, : len(self.classes)]

    @property
    def shares(self) -> Optional[np.ndarray]:
        """The confusion matrix with every row divided by its sum."""
        return None if self.matrix is None else row_shares(self.matrix)

    @property
    def confusions(self) -> Tuple[Confusion, ...]:
        """The most frequent confusions."""
        return () if self.matrix is None else top_confusions(self.matrix, self.classes)

    @property
    def columns(self) -> Dict[str, Any]:
        """The table per class, by name of the column."""
        result, rates = self.result, self.result.per_class
        return {
            "name": list(self.classes),
            "samples": result.support,
            "predicted": result.predicted,
            "tp": result.tp,
            "fp": result.fp,
            "fn": result.fn,
            "precision": rates.precision,
            "recall": rates.recall,
            "f1": rates.f_score,
            "auc": self.auc.per_class,
        }

    @property
    def means(self) -> Dict[str, float]:
        """The averages, by the names they have in the JSON report."""
        macro = self.result.macro
        return {
            "accuracy": self.accuracy,
            "auc": self.auc.value,
            "mean_precision": macro.precision,
            "mean_recall": macro.recall,
            "f1_of_means": self.result.f_of_means,
            "macro_f1": macro.f_score,
        }

    @property
    def micro(self) -> Dict[str, float]:
        """The rates of all classes' counts added up."""
        micro = self.result.micro
        return {"precision": micro.precision, "recall": micro.recall, "f1": micro.f_score}

    @property
    def classes_averaged(self) -> Dict[str, int]:
        """Over how many classes the means are: those that have a value."""
        columns = self.columns
        return {key: int(np.count_nonzero(~np.isnan(columns[key]))) for key in ("precision", "recall", "f1", "auc")}

    def threshold_columns(self) -> Dict[str, Any]:
        """KS, sensitivity at a specificity and the reverse of each class, each with its threshold."""
        if self.curves is None:
            return {}
        ks, at_ks = self.curves.youden()
        sensitivity, at_specificity = self.curves.sensitivity_at(self.settings["at_specificity"])
        specificity, at_sensitivity = self.curves.specificity_at(self.settings["at_sensitivity"])
        return {
            "name": list(self.classes),
            "ks": ks,
            "ks_threshold": at_ks,
            "sensitivity_at_specificity": sensitivity,
            "sensitivity_threshold": at_specificity,
            "specificity_at_sensitivity": specificity,
            "specificity_threshold": at_sensitivity,
        }

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        columns = self.columns
        rows = zip(*(np.asarray(column).tolist() for column in columns.values()))
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": dict(self.settings),
            "inputs": dict(self.inputs),
            "counts": dict(self.counts),
            **self.means,
            "micro": self.micro,
            "classes_averaged": self.classes_averaged,
            "per_class": [dict(zip(columns, row)) for row in rows],
            "confusion_matrix": None if self.matrix is None else self.matrix.tolist(),
            "top_confusions": [one.to_dict() for one in self.confusions],
            "thresholds": _rows(self.threshold_columns()),
            "auc_intervals": None if self.auc_intervals is None else self.auc_intervals.to_dict(),
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }


def _rows(columns: Dict[str, Any]) -> List[Dict[str, Any]]:
    plain = [np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row)) for row in zip(*plain)]
