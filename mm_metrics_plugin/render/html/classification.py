"""What the page of a classifier shows: the report, and what stands behind its cells and curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.render.analysis import classification_sections
from mm_metrics_plugin.render.html import file_entries, grouped_sections
from mm_metrics_plugin.version import __version__

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.samples import SampleCells
    from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves

COLUMNS = ("samples", "predicted", "tp", "fp", "fn", "precision", "recall", "f1", "auc", "AP")
CALIBRATION = (
    ("ece", "Expected calibration error (ECE)", "Mean difference between confidence and accuracy over the bins."),
    ("mce", "Maximum calibration error (MCE)", "The largest difference of any bin."),
    ("brier", "Brier score", "Squared distance of the probabilities from the ground truth, 0 to 2; lower is better."),
    ("nll", "Negative log-likelihood", "Mean of -log of the probability of the true class; lower is better."),
)


def page_data(
    report: ClassificationReport,
    *,
    cells: SampleCells,
    true_score: Optional[np.ndarray],
    curves: ClassificationCurves,
    sample_names: Sequence[str],
) -> Dict[str, Any]:
    """What the scripts of the page read.

    Args:
        report: The numbers.
        cells: Which samples are in the cells: of the confusion matrix, or what is right, wrong and missed of a class.
        true_score: The score of each listed sample's true class, where it has one.
        curves: Of each class against the rest, with few points.
        sample_names: What samples are called.
    """
    listed, place = np.unique(cells.sample, return_inverse=True)
    rows, columns = np.divmod(cells.filled, cells.shape[1])
    return {
        "labels": report.classes,
        "single": report.matrix is not None,
        "cells": {"row": rows, "column": columns, "count": cells.number},
        "columns": cells.shape[1],
        "cell": cells.cell,
        "sample": place.reshape(-1),
        "score": _rounded(cells.score),
        "true_score": None if true_score is None else _rounded(true_score),
        "samples": [sample_names[sample] for sample in listed.tolist()],
        "curves": [{**curve.to_dict(), "youden": curve.youden()[1]} for curve in curves.per_class],
        "calibration": None if report.calibration is None else report.calibration.to_dict(),
    }


def _rounded(scores: np.ndarray) -> np.ndarray:
    return np.round(scores.astype(np.float64), 4)


def page_context(report: ClassificationReport) -> Dict[str, Any]:
    """What the template names."""
    sections = [one for one in classification_sections(report) if one.heading != "Calibration"]
    columns = {name: np.asarray(report.columns[name]).tolist() for name in COLUMNS}
    rows = zip(*columns.values())
    return {
        "title": "Classification report",
        "version": __version__,
        "report": report,
        "single": report.matrix is not None,
        "cards": _cards(report),
        "level": report.intervals,
        "rows": [{"name": name, **dict(zip(columns, row))} for name, row in zip(report.classes, rows)],
        "worst": int(np.nan_to_num(report.auc.per_class, nan=np.inf).argmin()),  # the class most worth looking at
        "calibration": None if report.calibration is None else _calibration(report.calibration.figures),
        "more": grouped_sections(sections),
        "files": file_entries(report.inputs, ("results", "config")),
        "versions": report.inputs["versions"],
        "settings": _settings(report.settings.to_dict()),
    }


def _cards(report: ClassificationReport) -> List[Dict[str, Any]]:
    """The headline numbers with their confidence intervals, and what each says in plain words."""
    single = report.matrix is not None
    found = {} if report.intervals is None else dict(report.intervals.overall)
    said = {
        "accuracy": (
            "Accuracy",
            "Share of correct samples." if single else "Share of correct yes-or-no decisions.",
        ),
        "auc": (
            "AUC",
            "How often a sample of a class scores higher than one of another; mean over classes.",
        ),
        "precision": (
            "Macro precision",
            "Share of the predictions of a class that are right; mean over classes.",
        ),
        "recall": ("Macro recall", "Share of the samples of a class that are found; mean over classes."),
        "f1": ("Macro F1", "Harmonic mean of precision and recall per class; mean over classes."),
    }
    return [
        {
            "key": key,
            "title": title,
            "value": report.means[key],
            "words": words,
            "interval": found.get(key),
        }
        for key, (title, words) in said.items()
    ]


def _calibration(figures: Mapping[str, float]) -> List[Tuple[str, str, float, str]]:
    return [(key, title, figures[key], words) for key, title, words in CALIBRATION]


def _settings(settings: Mapping[str, Any]) -> Dict[str, Any]:
    names = {
        "task": "task",
        "task_reason": "reason for the task",
        "score_thr": "score threshold",
        "at_specificity": "sensitivity at specificity",
        "at_sensitivity": "specificity at sensitivity",
        "ci": "confidence level",
    }
    return {words: settings[key] for key, words in names.items() if settings.get(key) is not None}
