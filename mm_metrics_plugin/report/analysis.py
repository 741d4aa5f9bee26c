"""What is said of detectors and classifiers beyond one threshold, in sentences and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

from mm_metrics_plugin.report.sections import Section
from mm_metrics_plugin.report.tables import Table, cell

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification_report import ClassificationReport
    from mm_metrics_plugin.functional.detection_analysis import DetectionAnalysis
    from mm_metrics_plugin.functional.detection_report import DetectionReport

KINDS = {
    "class": "right place, wrong class",
    "localisation": "right class, wrong place",
    "both": "wrong class and place",
    "duplicate": "object found already",
    "background": "nothing is there",
    "missed": "object not found",
}
FIGURES = {
    "mAP": "mAP",
    "mAP_50": "mAP_50",
    "mean_precision": "mean precision",
    "mean_recall": "mean recall",
    "f1_of_means": "F1 of means",
    "macro_f1": "mean F1",
    "micro_precision": "micro precision",
    "micro_recall": "micro recall",
    "micro_f1": "micro F1",
}

CALIBRATION = {"ece": "ECE", "mce": "MCE", "brier": "Brier score", "nll": "NLL"}


def span(low: float, high: float) -> str:
    """An interval.

    Example:
        >>> span(0.25, 0.5)
        '[0.2500, 0.5000]'
    """
    return "–" if low != low else f"[{low:.4f}, {high:.4f}]"


def detection_sections(report: DetectionReport) -> List[Section]:
    """Average precision, sizes, kinds of error, thresholds and intervals; nothing where none was asked for."""
    analysis = report.analysis
    if analysis is None:
        return []
    sections = [_average_precision(analysis), _sizes(analysis)]
    if analysis.errors is not None:
        sections.append(_errors(analysis))
    return sections + asked_sections(analysis)


def asked_sections(analysis: DetectionAnalysis) -> List[Section]:
    """Thresholds and intervals, where they were asked for."""
    sections = []
    if analysis.points is not None:
        sections.append(_points(analysis))
    if analysis.intervals is not None:
        sections += _intervals(analysis.intervals, analysis.classes, ("precision", "recall", "f1", "AP", "AP_50"))
    return sections


def _average_precision(analysis: DetectionAnalysis) -> Section:
    columns = analysis.ap_columns()
    overall = analysis.average_precision.to_dict()
    rows = _rows(columns)
    rows.append(["mean", *(overall[f"m{name}"] for name in list(columns)[1:])])
    return Section("average precision (COCO)", (), (["class", *list(columns)[1:]], rows))


def _sizes(analysis: DetectionAnalysis) -> Section:
    keys = ("objects", "tp", "fp", "mean_precision", "mean_recall", "mAP", "mAP_50")
    header = ["area", "objects", "TP", "FP", "mean precision", "mean recall", "mAP", "mAP_50"]
    figures, ranges = analysis.sizes.figures(), analysis.sizes.ranges
    rows = [[size_range(name, *ranges[name]), *(row[key] for key in keys)] for name, row in figures.items()]
    lines = ["an object on the edge of two ranges is in both, as in COCO"]
    return Section("by the size of objects, in square pixels", lines, (header, rows))


def size_range(name: str, low: float, high: float) -> str:
    """A range of areas in words.

    Example:
        >>> size_range("small", 0, 1024), size_range("area_9216_up", 9216, 1e10)
        ('small, 0 to 1024', 'from 9216')
    """
    bounds = f"from {low:g}" if high >= 1e10 else f"{low:g} to {high:g}"
    return bounds if name.startswith("area_") else f"{name}, {bounds}"


def _errors(analysis: DetectionAnalysis) -> Section:
    errors: Any = analysis.errors
    rows = [[f"{kind}: {words}", errors.totals[kind], errors.gains[kind]] for kind, words in KINDS.items()]
    lines = [
        f"AP at IoU {errors.iou_threshold:g} is {cell(errors.average_precision)}; mending every error of a kind would "
        "add so much to it (all detections are looked at, as in TIDE)",
    ]
    return Section("kinds of error", lines, (["kind", "how many", "AP to gain"], rows))


def _points(analysis: DetectionAnalysis) -> Section:
    points: Any = analysis.points
    header = ["class", "threshold", "precision", "recall", f"F{points.rule.beta:g}"]
    header += [f"{name}*" for name in header[2:]]
    pairs = ((points.overall, points.overall_cross_fitted), (points.per_class, points.per_class_cross_fitted))
    rows: List[List[Any]] = []
    for (chosen, fitted), names in zip(pairs, (["all together"], list(analysis.classes))):
        parts = [chosen.threshold, *(getattr(one, key) for one in (chosen, fitted) for key in _RATES)]
        columns = [part.tolist() if hasattr(part, "tolist") else [part] for part in parts]
        rows += [[name, *values] for name, *values in zip(names, *columns)]
    lines = [
        f"{points.rule}; thresholds chosen on the data they are judged by look better than they are",
        f"* cross-fitted: of thresholds that were chosen on other images ({points.folds} folds)",
    ]
    return Section("best thresholds", lines, (header, rows))


_RATES = ("precision", "recall", "f_score")


def _intervals(intervals: Any, classes: Sequence[str], names: Sequence[str]) -> List[Section]:
    lines = [
        f"{100 * intervals.level:g} % of such intervals hold the truth; {intervals.resamples:,} draws of the images, "
        f"seed {intervals.seed}",
    ]
    overall = [
        [title, intervals.overall[name].value, span(intervals.overall[name].low, intervals.overall[name].high)]
        for name, title in FIGURES.items()
        if name in intervals.overall
    ]
    found = [name for name in names if name in intervals.per_class]
    return [
        Section("how sure", lines, (["", "value", "interval"], overall)),
        Section("", (), _class_intervals(intervals.per_class, classes, found)),
    ]


def _class_intervals(figures: Mapping[str, Any], classes: Sequence[str], names: Sequence[str]) -> Table:
    rows = []
    for index, name in enumerate(classes):
        row: List[Any] = [name]
        for key in names:
            row.append(span(float(figures[key].low[index]), float(figures[key].high[index])))
        rows.append(row)
    return ["class", *names], rows


def classification_sections(report: ClassificationReport) -> List[Section]:
    """Thresholds of every class, and intervals where they were asked for."""
    sections: List[Section] = []
    if report.thresholds:
        columns = {"name": list(report.classes), **report.thresholds}
        settings = report.settings
        lines = [
            "each class against the rest: the greatest sensitivity + specificity - 1 (KS, Youden) and its threshold; "
            f"the greatest sensitivity with a specificity of at least {settings['at_specificity']:g}; the greatest "
            f"specificity with a sensitivity of at least {settings['at_sensitivity']:g}; chosen on the data they are "
            "judged by, so optimistic",
        ]
        header = ["class", "KS", "threshold", "sensitivity", "threshold", "specificity", "threshold"]
        sections.append(Section("thresholds", lines, (header, _rows(columns))))
    if report.calibration is not None:
        lines = [
            f"scores taken for probabilities, {len(report.calibration.result.counts)} bins of equal width: expected "
            "and greatest calibration error, Brier score (added up over the classes), negative log-likelihood",
        ]
        rows = [[CALIBRATION[name], value] for name, value in report.calibration.figures.items()]
        sections.append(Section("calibration", lines, (["", "value"], rows)))
    if report.auc_intervals is not None:
        found = report.auc_intervals
        header = ["class", "AUC", "interval"]
        each = zip(report.classes, *(getattr(found.per_class, end).tolist() for end in ("value", "low", "high")))
        rows = [[name, value, span(low, high)] for name, value, low, high in each]
        rows.append(["mean", found.macro.value, span(found.macro.low, found.macro.high)])
        lines = [f"DeLong's intervals; {100 * found.level:g} % of such intervals hold the truth"]
        sections.append(Section("how sure the AUC is", lines, (header, rows)))
    if report.intervals is not None:
        sections += _intervals(report.intervals, report.classes, ("precision", "recall", "f1"))
    return sections


def _rows(columns: Mapping[str, Any]) -> List[List[Any]]:
    plain = [column.tolist() if hasattr(column, "tolist") else column for column in columns.values()]
    return [list(row) for row in zip(*plain)]
