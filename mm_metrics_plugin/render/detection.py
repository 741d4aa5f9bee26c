"""Sections and CSV tables of detection reports."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from mm_metrics_plugin.evaluation.detection import DEFAULT_MATCHING
from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.render.sections import (
    Section,
    averaged_lines,
    class_order_lines,
    class_rows,
    confusion_sections,
    interval_sections,
    joined_by_lines,
    mask_lines,
    matrix_sections,
    means_section,
    tally,
    truncated,
)
from mm_metrics_plugin.render.tables import (
    COLUMN_NAMES,
    FALSE_POSITIVE_TYPES,
    OVERALL_NAMES,
    Table,
    cell,
    class_table,
    interval_columns,
    printable,
    rows_of,
)
from mm_metrics_plugin.settings import DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.detection import DetectionAnalysis, DetectionReport
    from mm_metrics_plugin.functional.classification.confusion_matrix import ConfusionResult
    from mm_metrics_plugin.functional.detection.confusion_rules import ProtocolReport
    from mm_metrics_plugin.render.outputs import TextOptions

PROTOCOLS = {
    "coco": "at most one detection per object, within classes by score; the others may be confusions",
    "mmdet": "every overlapping pair counts, as in mmdet's confusion_matrix.py",
    "agnostic": "at most one detection per object, by overlap, whatever the classes",
}
ERROR_TYPES = {
    "classification": "right place, wrong class",
    "localization": "right class, wrong place",
    "both": "wrong class and place",
    "duplicate": "object found already",
    "background": "no object within IoU 0.1",
    "missed": "object neither found nor confused",
}
SUGGESTIONS = {  # arguments that the last line of a report suggests
    "--verbose": "--verbose (object sizes, false positives by type, mmdet's counting and why it differs)",
    "--matching": "--matching mmdet",
    "OUT_DIR": "OUT_DIR (everything as Markdown, JSON, CSV and figures)",
    "--html": "--html (a page)",
}
_RATES = ("precision", "recall", "f1")
MAX_ROWS = 40


def detection_sections(report: DetectionReport, text: Optional[TextOptions] = None) -> List[Section]:
    """The sections of a detection report: all of them, or those of the terminal."""
    verbose, analysis, protocols = text is None or text.verbose, report.analysis, list(report.protocols)
    if text is not None and not verbose:
        default = DEFAULT_MATCHING[:1] if report.settings.matching == DEFAULT_MATCHING else None
        wanted = text.protocols or default
        protocols = [rule for rule in protocols if wanted is None or rule.protocol in wanted] or protocols
    names = [protocol.protocol for protocol in protocols]
    sections = [Section("", [*_detection_opening(report), *report.missing_results])]
    for protocol in protocols:
        sections.append(_protocol_section(report, protocol, text))
        sections += confusion_sections(protocol.confusions, text)
        if text is None:
            sections += matrix_sections(protocol.result.matrix, report.labels)
        if verbose and protocol.protocol != "mmdet":  # mmdet matches a ground truth any number of times
            table = class_table({name: protocol.columns[name] for name in ("name", "fp", *FALSE_POSITIVE_TYPES)})
            title = f"False positives by type ({protocol.protocol})"
            notes = _false_positive_lines(report.settings.iou_thr)
            sections.append(Section(title, table=table, notes=notes, minor=True))
    if text is None:
        sections.append(means_section({protocol.protocol: protocol.means for protocol in protocols}))
    if analysis is not None and verbose:
        sections += [_average_precision(analysis), _sizes(analysis)]
        sections += [_errors(analysis)] if analysis.errors is not None else []
        sections += optional_sections(analysis)
    elif analysis is not None:
        sections += [_errors(analysis, brief=True)] if analysis.errors is not None and "coco" in names else []
        sections += truncated(optional_sections(analysis), MAX_ROWS)
    if report.differences and (verbose or "mmdet" in names):
        sections.append(Section("Why the protocols differ", report.differences))
    mmdet = next((protocol for protocol in report.protocols if protocol.protocol == "mmdet"), None)
    if mmdet is not None and (verbose or "mmdet" in names or (text is not None and text.published)):
        block = published_block(mmdet.result, [printable(name) for name in report.classes])
        rates = f"mean precision and mean recall at score >= {report.settings.score_thr:g}"
        title = f"Published summary: AP and AR are {rates}, by mmdet's counting"
        sections.append(Section(title, code=block))
    if text is not None and text.suggested:
        sections.append(Section("", ["", f"More: {', '.join(SUGGESTIONS[name] for name in text.suggested)}"]))
    return sections


def _detection_opening(report: DetectionReport) -> List[str]:
    nouns = {"images": "image", "ground_truths": "ground-truth object", "detections": "detection"}
    settings, results = report.settings, report.inputs.get("results", ())
    nms = "" if settings.nms_iou_thr is None else f", NMS above IoU {settings.nms_iou_thr:g}"
    return [
        *(tally(noun, report.counts[key]) for key, noun in nouns.items()),
        *class_order_lines(report.inputs),
        *joined_by_lines(results, "image"),
        *mask_lines(results),
        f"score threshold {settings.score_thr:g}, IoU threshold {settings.iou_thr:g}{nms}",
    ]


def _protocol_section(report: DetectionReport, protocol: ProtocolReport, text: Optional[TextOptions]) -> Section:
    """The table per class; on the terminal with AP and means."""
    analysis, name = report.analysis, protocol.protocol
    columns = {key: column for key, column in protocol.columns.items() if key not in FALSE_POSITIVE_TYPES}
    notes = averaged_lines(protocol.classes_averaged, len(report.classes))
    means: List[List[Any]] = []
    if text is not None:
        if name == "coco" and not text.verbose:
            del columns["detections"]  # TP + FP
        if name == "coco" and analysis is not None:
            columns["AP"] = analysis.ap_columns()["AP"]
        means = _mean_rows(report, protocol, columns)
        notes = ["macro: mean over classes; micro: pooled over classes", *notes]
        ignored = protocol.counts.get("ground_truths_ignored", 0)
        if ignored:
            matched = protocol.counts["detections_ignored"]
            regions = pluralize(ignored, "crowd region")
            notes.append(f"ignored: {regions}, and detections that match only crowd regions ({matched:,})")
        if "AP" in columns and analysis is not None:
            notes += max_dets_lines(analysis.max_dets, analysis.most_detections)
    table, truncated = class_rows(columns, text, "AP" if "AP" in columns else "f1")
    return Section(f"{name}: {PROTOCOLS[name]}", table=table, means=means, notes=[*truncated, *notes])


def _mean_rows(report: DetectionReport, protocol: ProtocolReport, columns: Mapping[str, Any]) -> List[List[Any]]:
    """The rows "macro" and "micro" of the table per class."""
    means = protocol.means
    macro: Dict[str, Any] = {name: means[name] for name in _RATES}
    if report.analysis is not None:
        macro["AP"] = report.analysis.average_precision.to_dict()["mAP"]
    counts = ("ground_truths", "detections", "tp", "fp", "fn")
    micro: Dict[str, Any] = {name: int(sum(columns[name])) for name in counts if name in columns}
    micro.update({name: means[f"{name}_micro"] for name in _RATES})
    rows = {"macro": macro, "micro": micro}
    return [[title, *(row.get(name, "") for name in list(columns)[1:])] for title, row in rows.items()]


def _false_positive_lines(iou_thr: float) -> List[str]:
    return [
        "the four types add up to FP; the last three are the background row of the matrix",
        "confusion: matched to an object of another class",
        f"confusion, matched object: only objects of other classes reach IoU {iou_thr:g}, and other detections are "
        "matched to them",
        f"duplicate: an object of its class reaches IoU {iou_thr:g}, and another detection is matched to it",
        f"background: no object reaches IoU {iou_thr:g}",
    ]


def max_dets_lines(max_dets: int, most: int) -> List[str]:
    """Which detections average precision uses."""
    message = DetectionSettings(max_dets=max_dets).truncation_message(most)
    if message:
        return [f"{message}; all other numbers use all detections"]
    return [f"AP uses at most {max_dets} detections per class and image (max_dets); no class has more in any image"]


def _average_precision(analysis: DetectionAnalysis) -> Section:
    columns = analysis.ap_columns()
    overall = analysis.average_precision.to_dict()
    header, rows = class_table(columns)
    rows.append(["mean", *(overall[f"m{name}"] for name in header[1:])])
    lines = max_dets_lines(analysis.max_dets, analysis.most_detections)
    return Section("Average precision (COCO)", lines, (header, rows))


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
    """A range of areas, such as "small, 0 to 1024"; "from 9216" if it has no name."""
    if name == "all":
        return name
    bounds = f"from {low:g}" if high >= 1e10 else f"{low:g} to {high:g}"
    return bounds if name.startswith("area_") else f"{name}, {bounds}"


def _errors(analysis: DetectionAnalysis, *, brief: bool = False) -> Section:
    """The error types; briefly, without the counts of all detections."""
    errors: Any = analysis.errors
    counts = {f"score >= {analysis.score_thr:g}": analysis.error_totals, "all detections": errors.totals}
    columns = {**(dict(list(counts.items())[:1]) if brief else counts), "dAP": errors.dap}
    rows = [[f"{name}: {words}", *(column[name] for column in columns.values())] for name, words in ERROR_TYPES.items()]
    line = f"dAP: AP at IoU {errors.iou_thr:g} gained by fixing all errors of this type"
    return Section("Error types (TIDE)", [line] if brief else error_lines(analysis), (["error type", *columns], rows))


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
        f"all detections: TIDE's counts of all detections ({errors.detections:,}), whatever their score, without a "
        "limit per image",
        f"dAP: the AP gained by fixing all errors of a type, of all detections as well; their AP at IoU "
        f"{errors.iou_thr:g} is {cell(errors.average_precision)}",
    ]


def optional_sections(analysis: DetectionAnalysis) -> List[Section]:
    """Operating points and confidence intervals, if the report has them."""
    sections = [] if analysis.points is None else [_operating_points(analysis)]
    if analysis.intervals is not None:
        sections += interval_sections(analysis.intervals, analysis.classes, (*_RATES, "AP", "AP_50"))
    return sections


def _operating_points(analysis: DetectionAnalysis) -> Section:
    points: Any = analysis.points
    header = ["class", "score threshold", "precision", "recall", f"F{points.rule.beta:g}"]
    header += [f"{name}*" for name in header[2:]]
    rates = attrgetter("precision", "recall", "f_score")
    rows: List[List[Any]] = [
        [name, point.threshold, *rates(point), *rates(fitted)]
        for name, point, fitted in zip(
            ["micro (pooled)", *analysis.classes],
            [points.overall, *points.per_class],
            [points.overall_cross_fitted, *points.per_class_cross_fitted],
        )
    ]
    lines = [
        f"{points.rule}; thresholds are chosen on the images they are evaluated on, so these values are optimistic",
        f"* cross-fitted: thresholds are chosen on other images ({points.folds} folds)",
    ]
    return Section("Operating points: the best score thresholds", lines, (header, rows))


def published_block(result: ConfusionResult, classes: Sequence[str]) -> str:
    """The published summary of a confusion matrix with background.

    "AP" and "AR" are means over the classes of precision and recall, not COCO's average precision. A class without
    detections or objects is nan and left out of the means.
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


def class_csv(report: DetectionReport) -> Table:
    """The rows of ``per_class.csv`` by protocol. Only ``coco`` has AP and confidence intervals."""
    more: Dict[str, Any] = {}
    if report.analysis is not None:
        columns = report.analysis.ap_columns()
        more = {name: columns[name] for name in columns if name != "name"}
        if report.analysis.intervals is not None:
            more.update(interval_columns(report.analysis.intervals.per_class))
    header: List[str] = []
    rows: List[List[Any]] = []
    for protocol in report.protocols:
        own = more if protocol.protocol == "coco" else {name: [""] * len(report.classes) for name in more}
        columns = {**protocol.columns, **own}
        header = ["protocol", *columns]
        rows += [[protocol.protocol, *row] for row in rows_of(columns)]
    return header, rows


def curve_csv(analysis: DetectionAnalysis) -> Table:
    """The rows of ``curves.csv``: precision, recall and F1 of each class on a grid of score thresholds."""
    curves = analysis.curves
    grid = curves.confidence.tolist()
    rows: List[List[Any]] = []
    each = zip(analysis.classes, curves.precision, curves.recall, curves.f_score)
    for name, *columns in (*each, ("", curves.mean_precision, curves.mean_recall, curves.mean_f_score)):
        rows += [[name, *values] for values in zip(grid, *(column.tolist() for column in columns))]
    return ["class", "confidence", "precision", "recall", "f1"], rows
