"""Sections of a report, with a heading, sentences and a table, for the terminal, Markdown and the page."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence

import numpy as np

from mm_metrics_plugin.render.sentences import max_dets_lines
from mm_metrics_plugin.render.tables import COLUMN_NAMES, OVERALL_NAMES, Table, cell, rows_of

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.evaluation.detection_analysis import DetectionAnalysis
    from mm_metrics_plugin.functional.classification.confusion_matrix import ConfusionResult

ERROR_TYPES = {
    "classification": "right place, wrong class",
    "localization": "right class, wrong place",
    "both": "wrong class and place",
    "duplicate": "object found already",
    "background": "no object within IoU 0.1",
    "missed": "object neither found nor confused",
}


@dataclass(frozen=True)
class Section:
    """A heading, sentences and a table. A section without a heading belongs to the one before it."""

    heading: str
    lines: Sequence[str] = ()
    table: Optional[Table] = None


def span(low: float, high: float, reason: str = "") -> str:
    """A confidence interval, or why there is none.

    Example:
        >>> span(0.25, 0.5), span(float("nan"), float("nan"), "too few images"), span(float("nan"), float("nan"))
        ('[0.2500, 0.5000]', 'too few images', '–')
    """
    if low == low:
        return f"[{low:.4f}, {high:.4f}]"
    return reason if reason.startswith("too few") else "–"


def detection_sections(report: DetectionReport) -> List[Section]:
    """Average precision, object sizes, error types, operating points and intervals, as far as the report has them."""
    analysis = report.analysis
    if analysis is None:
        return []
    sections = [_average_precision(analysis), _sizes(analysis)]
    if analysis.errors is not None:
        sections.append(_errors(analysis))
    return sections + optional_sections(analysis)


def optional_sections(analysis: DetectionAnalysis) -> List[Section]:
    """Operating points and confidence intervals, if the report has them."""
    sections = []
    if analysis.points is not None:
        sections.append(_points(analysis))
    if analysis.intervals is not None:
        names = ("precision", "recall", "f1", "AP", "AP_50")
        sections += _intervals(analysis.intervals, analysis.classes, names, "Confidence intervals")
    return sections


def _average_precision(analysis: DetectionAnalysis) -> Section:
    columns = analysis.ap_columns()
    overall = analysis.average_precision.to_dict()
    rows = rows_of(columns)
    rows.append(["mean", *(overall[f"m{name}"] for name in list(columns)[1:])])
    lines = max_dets_lines(analysis.max_dets, analysis.most_detections)
    return Section("Average precision (COCO)", lines, (["class", *list(columns)[1:]], rows))


def _sizes(analysis: DetectionAnalysis) -> Section:
    counts, rates = ("ground_truths", "tp", "fp"), ("precision", "recall", "mAP", "mAP_50")
    header = ["area", *(COLUMN_NAMES[key] for key in counts), *(OVERALL_NAMES[key] for key in rates)]
    metrics, ranges = analysis.sizes.metrics(), analysis.sizes.ranges
    rows = [
        [size_range(name, *ranges[name]), *(row[key] for key in (*counts, *rates))] for name, row in metrics.items()
    ]
    lines = [
        "an object on the edge of two ranges is in both, as in COCO; every range is matched on its own, so TP and FP "
        "of the ranges need not add up to those of all objects",
        f"TP and FP of all detections at score >= {analysis.score_thr:g}; mAP uses at most {analysis.max_dets} "
        "detections per class and image",
    ]
    return Section("Results by object size (area in square pixels)", lines, (header, rows))


def size_range(name: str, low: float, high: float) -> str:
    """A range of areas in words.

    Example:
        >>> size_range("small", 0, 1024), size_range("area_9216_up", 9216, 1e10)
        ('small, 0 to 1024', 'from 9216')
    """
    if name == "all":
        return name
    bounds = f"from {low:g}" if high >= 1e10 else f"{low:g} to {high:g}"
    return bounds if name.startswith("area_") else f"{name}, {bounds}"


def _errors(analysis: DetectionAnalysis) -> Section:
    errors: Any = analysis.errors
    counted = analysis.error_totals
    rows = [
        [f"{kind}: {words}", counted[kind], errors.totals[kind], errors.dap[kind]]
        for kind, words in ERROR_TYPES.items()
    ]
    header = ["error type", f"score >= {analysis.score_thr:g}", "all detections", "dAP"]
    return Section("Error types (TIDE)", error_lines(analysis), (header, rows))


def main_errors(analysis: DetectionAnalysis) -> Section:
    """The error types with their counts at the score threshold and dAP."""
    errors: Any = analysis.errors
    counted = analysis.error_totals
    header = ["error type", f"score >= {analysis.score_thr:g}", "dAP"]
    rows = [[f"{kind}: {words}", counted[kind], errors.dap[kind]] for kind, words in ERROR_TYPES.items()]
    line = f"dAP: AP at IoU {errors.iou_thr:g} gained by fixing all errors of this type"
    return Section("Error types (TIDE)", [line], (header, rows))


def error_lines(analysis: DetectionAnalysis) -> List[str]:
    """What the columns of the error types count, and what they add up to."""
    errors: Any = analysis.errors
    overall = analysis.sizes.metrics()["all"]
    return [
        f"score >= {analysis.score_thr:g}: counted as the confusion matrix of coco; the errors of "
        f"detections add up to FP ({overall['fp']:,}), missed objects and confusions in the matrix to FN "
        f"({overall['ground_truths'] - overall['tp']:,})",
        "in terms of the false positives by type: classification = confusion + confusion with a matched object; "
        "localization + both + background = background",
        f"all detections: TIDE's counts of all {errors.detections:,} detections, whatever their score, without a limit "
        "per image",
        f"dAP: the AP gained by fixing all errors of a type, of all detections as well; their AP at IoU "
        f"{errors.iou_thr:g} is {cell(errors.average_precision)}",
    ]


def _points(analysis: DetectionAnalysis) -> Section:
    points: Any = analysis.points
    header = ["class", "score threshold", "precision", "recall", f"F{points.rule.beta:g}"]
    header += [f"{name}*" for name in header[2:]]
    names = ["micro (pooled)", *analysis.classes]
    pairs = zip((points.overall, *points.per_class), (points.overall_cross_fitted, *points.per_class_cross_fitted))
    rows: List[List[Any]] = [
        [name, chosen.threshold, *(getattr(one, key) for one in (chosen, fitted) for key in _RATES)]
        for name, (chosen, fitted) in zip(names, pairs)
    ]
    lines = [
        f"{points.rule}; thresholds are chosen on the images they are evaluated on, so these values are optimistic",
        f"* cross-fitted: thresholds are chosen on other images ({points.folds} folds)",
    ]
    return Section("Operating points: the best score thresholds", lines, (header, rows))


_RATES = ("precision", "recall", "f_score")


def _intervals(
    intervals: Any, classes: Sequence[str], names: Sequence[str], title: str, *, samples: bool = False
) -> List[Section]:
    from mm_metrics_plugin.functional.statistics.bootstrap import (  # imports SciPy
        MIN_IMAGES,
        MIN_IMAGES_F1_AP,
        MIN_OBJECTS,
    )

    resamples = (
        f"; average precision from {intervals.resamples:,} bootstrap resamples over images, seed {intervals.seed}"
    )
    few = (
        f"too few samples: fewer than {MIN_OBJECTS} for a proportion, {MIN_IMAGES_F1_AP} for F1 and means"
        if samples
        else f"too few: a proportion of fewer than {MIN_OBJECTS} objects or detections or in fewer than "
        f"{MIN_IMAGES} images; F1, average precision and means with fewer than {MIN_IMAGES_F1_AP} images"
    )
    lines = [
        f"confidence level {100 * intervals.ci:g} %; Wilson score intervals with the effective number of "
        f"{'samples' if samples else 'objects'}" + (resamples if intervals.resamples else ""),
        *(["AUC: score intervals with DeLong's variance, raised towards that of the exponential model"] * samples),
        few,
    ]
    overall = [
        [OVERALL_NAMES[name], one.value, span(one.low, one.high, one.reason)]
        for name, one in ((name, intervals.overall[name]) for name in OVERALL_NAMES if name in intervals.overall)
    ]
    found = [name for name in names if name in intervals.per_class]
    return [
        Section(title, lines, (["", "value", f"{100 * intervals.ci:g} % CI"], overall)),
        Section("", (), _class_intervals(intervals.per_class, classes, found)),
    ]


_RATES_AND_AUC = ("precision", "recall", "f1", "auc")


def _class_intervals(figures: Mapping[str, Any], classes: Sequence[str], names: Sequence[str]) -> Table:
    rows = []
    for index, name in enumerate(classes):
        row: List[Any] = [name]
        for key in names:
            one = figures[key]
            row.append(span(float(one.low[index]), float(one.high[index]), str(one.reason[index])))
        rows.append(row)
    return ["class", *names], rows


def classification_sections(report: ClassificationReport) -> List[Section]:
    """Thresholds of each class, calibration and confidence intervals, as far as the report has them."""
    sections: List[Section] = []
    if report.thresholds:
        columns = {"name": list(report.classes), **report.thresholds}
        settings = report.settings
        lines = [
            "one-vs-rest: the highest sensitivity + specificity - 1 (KS, Youden) and its threshold; the highest "
            f"sensitivity with a specificity of at least {settings.at_specificity:g}; the highest specificity with a "
            f"sensitivity of at least {settings.at_sensitivity:g}; thresholds are chosen on the data they are "
            "evaluated on, so these values are optimistic",
        ]
        header = ["class", "KS", "KS thr", "sensitivity", "sensitivity thr", "specificity", "specificity thr"]
        sections.append(Section("Thresholds", lines, (header, rows_of(columns))))
    if report.calibration is not None:
        lines = [
            f"scores are read as probabilities; {len(report.calibration.result.counts)} bins of equal width: expected "
            "and maximum calibration error, Brier score (summed over classes), negative log-likelihood",
        ]
        rows = [[OVERALL_NAMES[name], value] for name, value in report.calibration.figures.items()]
        sections.append(Section("Calibration", lines, (["", "value"], rows)))
    if report.intervals is not None:
        sections += _intervals(report.intervals, report.classes, _RATES_AND_AUC, "Confidence intervals", samples=True)
    return sections


def published_heading(score_thr: float) -> str:
    """Heading of the published summary, which explains its AP and AR.

    Example:
        >>> published_heading(0.3)
        "Published summary: AP and AR are mean precision and mean recall at score >= 0.3, by mmdet's counting"
    """
    rates = f"mean precision and mean recall at score >= {score_thr:g}"
    return f"Published summary: AP and AR are {rates}, by mmdet's counting"


def published_block(result: ConfusionResult, classes: Sequence[str]) -> str:
    """The published summary of a confusion matrix with background.

    "AP" and "AR" are means over the classes of precision and recall, not COCO's average precision. A class without
    detections or objects is nan and left out of the means.

    Args:
        result: From ``confusion_matrix_report(matrix, background=True)``.
        classes: Class names without background.

    Example:
        >>> from mm_metrics_plugin.functional.classification.confusion_matrix import confusion_matrix_report
        >>> print(published_block(confusion_matrix_report(np.array([[3, 1], [1, 0]]), background=True), ["cat"]))
        ===Averaging all classes===
        AP: 0.75
        AR: 0.75
        F1: 0.75
        Classes ('cat', 'background')
        Precision [0.75 0.  ]
        Recall [0.75 0.  ]
    """
    return "\n".join(
        [
            "===Averaging all classes===",
            f"AP: {result.macro.precision}",
            f"AR: {result.macro.recall}",
            f"F1: {result.f_of_means}",
            f"Classes {(*classes, 'background')}",
            f"Precision {_array(result.per_class.precision)}",
            f"Recall {_array(result.per_class.recall)}",
        ]
    )


def _array(values: np.ndarray) -> str:
    """As ``print`` shows an array with NumPy's default settings, and never truncated."""
    return np.array2string(
        values, max_line_width=75, precision=8, suppress_small=False, threshold=sys.maxsize, floatmode="maxprec"
    )
