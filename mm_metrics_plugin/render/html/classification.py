"""The page of a classification report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mm_metrics_plugin.evaluation.examples import SampleCells, confusion_cells, decision_cells
from mm_metrics_plugin.functional.classification.roc_curves import thinned_curves
from mm_metrics_plugin.functional.thresholding import hard_decisions
from mm_metrics_plugin.render.classification import threshold_sections
from mm_metrics_plugin.render.html import (
    grouped_sections,
    provenance,
    render_page,
    summary_cards,
    table_columns,
    table_rows,
    without_common_folder,
)

if TYPE_CHECKING:
    from mm_metrics_plugin.render.outputs import PageOptions
    from mm_metrics_plugin.reports.classification import ClassificationReport, ClassificationSamples

MAX_LISTED = 20_000  # samples listed in cells: about 2 MB of the page
MAX_POINTS = 40_000  # of the curves of all classes
CALIBRATION = (
    ("ece", "Expected calibration error (ECE)", "Mean difference between confidence and accuracy over the bins."),
    ("mce", "Maximum calibration error (MCE)", "The largest difference of any bin."),
    ("brier", "Brier score", "Squared distance of the probabilities from the ground truth, 0 to 2; lower is better."),
    ("nll", "Negative log-likelihood", "Mean of -log of the probability of the true class; lower is better."),
)


def classification_page(report: ClassificationReport, options: PageOptions) -> str:
    """Render the page of a classification report, which has no images."""
    samples = report.samples
    scores, labels = samples.scores, samples.labels
    true_score = None
    if labels is not None:
        targets = labels
        cells = confusion_cells(scores, labels, hard_decisions(scores, thresholds=[-np.inf])[:, 0], most=MAX_LISTED)
        true_score = scores[cells.sample, labels[cells.sample]]
    else:
        targets = np.asarray(samples.targets)
        cells = decision_cells(scores, targets, samples.reach(report.score_thr), most=MAX_LISTED)
    points = max(40, min(200, MAX_POINTS // len(report.classes)))
    curves = thinned_curves(scores, targets, precision=samples.precision, max_points=points)
    data = {
        "curves": [{**curve.to_dict(), "youden": curve.youden()[1]} for curve in curves.per_class],
        **_data(report, cells, true_score, _sample_names(samples)),
    }
    return render_page("classification.html", report, data=data, **_context(report))


def _sample_names(samples: ClassificationSamples) -> list[str]:
    """Names of the samples: the file, else the index in the data set, else the position in the results."""
    return [
        name or (f"sample {index}" if index >= 0 else f"sample {position} of the file")
        for position, (name, index) in enumerate(zip(without_common_folder(samples.names), samples.sample_idx.tolist()))
    ]


def _data(
    report: ClassificationReport, cells: SampleCells, true_score: np.ndarray | None, names: list[str]
) -> dict[str, Any]:
    """The data of the page's scripts. Multi-label cells have the columns TP, FP and FN."""
    listed, position = np.unique(cells.sample, return_inverse=True)
    rows, columns = np.divmod(cells.filled, cells.shape[1])
    return {
        "labels": report.classes,
        "single_label": report.matrix is not None,
        "cells": {"row": rows, "column": columns, "count": cells.number},
        "num_columns": cells.shape[1],
        "cell": cells.cell,
        "sample": position.reshape(-1),
        "score": np.round(cells.score.astype(np.float64), 4),
        "true_score": None if true_score is None else np.round(true_score.astype(np.float64), 4),
        "samples": [names[sample] for sample in listed.tolist()],
        "calibration": None if report.calibration is None else report.calibration.to_dict(),
    }


def _context(report: ClassificationReport) -> dict[str, Any]:
    """The variables of the template."""
    calibration = None if report.calibration is None else report.calibration.figures
    sections = [section for section in threshold_sections(report) if section.heading != "Calibration"]
    rates = ("precision", "recall", "f1", "auc", "AP")
    return {
        "title": "Classification report",
        "single_label": report.matrix is not None,
        "cards": _cards(report),
        "intervals": report.intervals,
        "class_columns": table_columns(counts=("samples", "tp", "fp", "fn"), rates=rates),
        "class_rows": table_rows(report.columns),
        "lowest_auc": int(np.nan_to_num(report.auc.per_class, nan=np.inf).argmin()),
        "calibration": calibration and [(key, title, calibration[key], words) for key, title, words in CALIBRATION],
        "more": grouped_sections(sections),
        **provenance(report, ("config", "results")),
    }


def _cards(report: ClassificationReport) -> list[Any]:
    intervals = {} if report.intervals is None else report.intervals.overall
    words = {
        "accuracy": f"Share of correct {'samples' if report.matrix is not None else 'yes-or-no decisions'}.",
        "auc": "Area under the ROC curve, one-vs-rest; mean over classes.",
        "precision": "Share of the predictions of a class that are correct; mean over classes.",
        "recall": "Share of the samples of a class that are predicted as such; mean over classes.",
        "f1": "Harmonic mean of precision and recall; mean over classes.",
    }
    return summary_cards(report.means, words, intervals)
