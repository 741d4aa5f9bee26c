"""What is said about a classifier: numbers in their place, not yet in any form for a reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.detection import SCHEMA_VERSION
from mm_metrics_plugin.functional.classification.auc import AUCResult, map_classes
from mm_metrics_plugin.functional.classification.calibration_error import CalibrationResult
from mm_metrics_plugin.functional.classification.confusion_matrix import (
    Confusion,
    ConfusionResult,
    CountsResult,
    matrix_entries,
    row_shares,
    top_confusions,
)
from mm_metrics_plugin.functional.classification.delong import AUCIntervals
from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves, corner_curve
from mm_metrics_plugin.functional.statistics.bootstrap import Intervals
from mm_metrics_plugin.settings import ClassificationSettings

_AVERAGED = ("precision", "recall", "f1", "auc", "average_precision")
_THRESHOLDS = (
    "ks",
    "ks_threshold",
    "sensitivity_at_specificity",
    "sensitivity_threshold",
    "specificity_at_sensitivity",
    "specificity_threshold",
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How far the scores of a classifier can be taken for probabilities.

    Attributes:
        result: The reliability diagram of the decisions, and the errors read off it.
        brier: Brier score, added up over the classes.
        nll: Negative log-likelihood.
    """

    result: CalibrationResult
    brier: float
    nll: float

    @property
    def figures(self) -> Dict[str, float]:
        """The four numbers by name."""
        return {"ece": self.result.ece, "mce": self.result.mce, "brier": self.brier, "nll": self.nll}

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        names = ("edges", "counts", "accuracy", "confidence")
        return {**self.figures, **{name: getattr(self.result, name).tolist() for name in names}}


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
        average_precision: One-vs-rest average precision of the scores.
        top_k: Share of samples whose true class is among the k best, by k; only where every sample has one class.
        thresholds: KS and the like of each class, from :func:`class_thresholds`.
        curves: Those of each class against the rest; None where they would be too many to draw.
        auc_intervals: Confidence intervals of the AUC, if they were asked for.
        intervals: Of precision, recall and F1, if they were asked for.
        calibration: Where every sample has one class and scores lie in 0 to 1.
    """

    classes: Tuple[str, ...]
    settings: ClassificationSettings
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]
    result: CountsResult
    accuracy: float
    auc: AUCResult
    average_precision: AUCResult
    top_k: Mapping[int, float] = field(default_factory=dict)
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    curves: Optional[ClassificationCurves] = None
    auc_intervals: Optional[AUCIntervals] = None
    intervals: Optional[Intervals] = None
    calibration: Optional[Calibration] = None

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
            "average_precision": self.average_precision.per_class,
        }

    @property
    def means(self) -> Dict[str, float]:
        """The averages, by the names they have in the JSON report."""
        macro = self.result.macro
        return {
            "accuracy": self.accuracy,
            **{f"top_{k}_accuracy": value for k, value in self.top_k.items() if k > 1},
            "auc": self.auc.value,
            "mean_average_precision": self.average_precision.value,
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
        return {key: int(np.count_nonzero(~np.isnan(columns[key]))) for key in _AVERAGED}

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        columns = self.columns
        rows = zip(
            *(column if isinstance(column, list) else np.asarray(column).tolist() for column in columns.values())
        )
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "counts": dict(self.counts),
            **self.means,
            "top_k": {str(k): value for k, value in self.top_k.items()},
            "micro": self.micro,
            "classes_averaged": self.classes_averaged,
            "per_class": [dict(zip(columns, row)) for row in rows],
            **(
                {"confusion_matrix": None, "confusion_cells": None}
                if self.matrix is None
                else matrix_entries(self.matrix)
            ),
            "top_confusions": [one.to_dict() for one in self.confusions],
            "thresholds": _rows({"name": list(self.classes), **self.thresholds}),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "auc_intervals": None if self.auc_intervals is None else self.auc_intervals.to_dict(),
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }


def class_thresholds(
    scores: np.ndarray, labels: np.ndarray, *, at_specificity: float = 0.95, at_sensitivity: float = 0.95
) -> Dict[str, np.ndarray]:
    """KS, sensitivity at a specificity and the reverse of each class against the rest, each with its threshold.

    Args:
        scores: (samples, classes).
        labels: The class of each sample, or (samples, classes) of 1, 0 and -1, where samples with -1 do not count.
        at_specificity: Least specificity where the greatest sensitivity is looked for.
        at_sensitivity: Least sensitivity where the greatest specificity is looked for.

    Example:
        >>> scores, labels = np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]])
        >>> found = class_thresholds(scores, labels, at_specificity=0.5)
        >>> {name: value.tolist() for name, value in found.items() if "sensitivity" in name}
        {'sensitivity_at_specificity': [1.0], 'sensitivity_threshold': [0.35], 'specificity_at_sensitivity': [0.5]}
    """

    def of_class(ranked: np.ndarray, positives: np.ndarray) -> Tuple[float, ...]:
        curve = corner_curve(ranked, positives)
        return (*curve.youden(), *curve.sensitivity_at(at_specificity), *curve.specificity_at(at_sensitivity))

    # Class by class on all cores.
    rows = np.array(map_classes(of_class, [scores], labels), dtype=np.float64).reshape(-1, len(_THRESHOLDS))
    return dict(zip(_THRESHOLDS, rows.T))


def _rows(columns: Dict[str, Any]) -> List[Dict[str, Any]]:
    plain = [column if isinstance(column, list) else np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row)) for row in zip(*plain)]
