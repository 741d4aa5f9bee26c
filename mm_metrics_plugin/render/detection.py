"""Sections and CSV tables of detection reports."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.conventions import ANALYSIS_RULE, COCO, FREQUENCIES, IOU_TYPES, NO_LIMIT, PER_CLASS_AND_IMAGE
from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.functional.detection.froc import FROC_NAMES
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.render.sections import (
    ClassOrder,
    Section,
    averaged_lines,
    class_order_lines,
    confusion_sections,
    interval_sections,
    joined_by_lines,
    matrix_sections,
    means_section,
    tally,
    unevaluated_lines,
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
from mm_metrics_plugin.settings import COCO_IOU_THRS, DetectionSettings, number_text

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification.confusion_matrix import ConfusionResult
    from mm_metrics_plugin.functional.detection.rule_report import RuleReport
    from mm_metrics_plugin.render.outputs import TextOptions
    from mm_metrics_plugin.reports.detection import DetectionReport
    from mm_metrics_plugin.reports.detection_analysis import DetectionAnalysis

ERROR_TYPES = {
    "classification": "right place, wrong class",
    "localization": "right class, wrong place",
    "both": "wrong class and place",
    "duplicate": "object found already",
    "background": "no object",
    "missed": "object neither found nor confused",
}
_RATES = ("precision", "recall", "f1")


def error_types(analysis: DetectionAnalysis) -> dict[str, str]:
    """The error types in words."""
    above = f"above {analysis.overlap_name} {number_text(analysis.settings.background_iou_thr)}"
    return {**ERROR_TYPES, "background": f"{ERROR_TYPES['background']} {above}"}


def detection_sections(report: DetectionReport, text: TextOptions | None = None) -> list[Section]:
    """The sections of a detection report: all of them, or those of the terminal."""
    verbose, analysis, matching_rules = text is None or text.verbose, report.analysis, list(report.matching_rules)
    if text is not None and not verbose:
        wanted = text.matching_rules or [rule.name for rule in default_rules(report)]
        matching_rules = [rule for rule in matching_rules if rule.name in wanted] or matching_rules
    names = [rule.name for rule in matching_rules]
    sections = [Section("", [*_detection_opening(report), *report.missing_results]), *_diagnosis(report)]
    order = _class_order(matching_rules[0], analysis)
    for rule in matching_rules:
        sections.append(_rule_section(report, rule, text, order))
        sections += confusion_sections(rule.confusions, text)
        if text is None:
            sections += matrix_sections(rule.result.matrix, report.labels)
        if verbose and rule.rule.one_to_one:
            table = class_table({name: rule.columns[name] for name in ("name", "fp", *FALSE_POSITIVE_TYPES)})
            title = f"False positives by type ({rule.name})"
            notes = _false_positive_lines(f"{report.overlap_name} {number_text(report.settings.iou_thr)}")
            sections.append(Section(title, table=table, notes=notes, minor=True))
    if text is None:
        sections.append(means_section({rule.name: rule.means for rule in matching_rules}))
    if analysis is not None and verbose:
        sections += [_average_precision(analysis), _sizes(analysis)]
        sections += [_errors(analysis)] if analysis.errors is not None else []
        sections += [*olrp_and_froc_sections(analysis), *optional_sections(analysis)]
    elif analysis is not None:
        sections += [_errors(analysis, brief=True)] if analysis.errors is not None and ANALYSIS_RULE in names else []
        sections += optional_sections(analysis, order)
    if report.differences and (verbose or not all(rule.rule.one_to_one for rule in matching_rules)):
        sections.append(Section("Why the matching rules differ", report.differences))
    mmdet = next((rule for rule in report.matching_rules if rule.rule.prints_summary), None)
    if mmdet is not None and (verbose or mmdet.name in names or (text is not None and text.published)):
        block = published_block(mmdet.result, [printable(name) for name in report.classes])
        rates = f"mean precision and mean recall at score >= {number_text(report.settings.score_thr)}"
        title = f"Published summary: AP and AR are {rates}, by mmdet's counting"
        sections.append(Section(title, code=block))
    if text is not None and text.suggested:
        sections.append(Section("", ["", f"More: {', '.join(text.suggested)}"]))
    return sections


def default_rules(report: DetectionReport) -> Sequence[RuleReport]:
    """What is printed and drawn unless asked otherwise: the first of the default matching rules, else all."""
    is_default = report.settings.matching == IOU_TYPES[report.settings.iou_type].matching
    return report.matching_rules[:1] if is_default else report.matching_rules


def _class_order(rule: RuleReport, analysis: DetectionAnalysis | None) -> ClassOrder:
    """The order of classes on one screen: by AP if the table has it, else by F1."""
    if rule.rule.has_analyses and analysis is not None:
        return ClassOrder.lowest(analysis.ap_columns(), "AP")
    return ClassOrder.lowest(rule.columns, "f1")


def _detection_opening(report: DetectionReport) -> list[str]:
    images, objects = (
        tally("image", report.counts["images"]),
        tally("ground-truth object", report.counts["ground_truths"]),
    )
    settings, results = report.settings, report.inputs.get("results", ())
    overlap, iou_thr = report.overlap_name, number_text(settings.iou_thr)
    nms = "" if settings.nms_iou_thr is None else f", NMS above {overlap} {number_text(settings.nms_iou_thr)}"
    return [
        f"{images}, {objects}",
        tally("detection", report.counts["detections"]),
        *class_order_lines(report.inputs),
        *joined_by_lines(results, "image"),
        *unevaluated_lines(results, vars(settings)),
        f"{report.shapes}: score threshold {number_text(settings.score_thr)}, {overlap} threshold {iou_thr}{nms}",
    ]


def _diagnosis(report: DetectionReport) -> list[Section]:
    """Why the results are impossibly low, if the data show it."""
    return [Section("Diagnosis", notes=list(map(str, report.diagnosis)), headline=True)] if report.diagnosis else []


def _rule_section(report: DetectionReport, rule: RuleReport, text: TextOptions | None, order: ClassOrder) -> Section:
    """The table per class; on the terminal with AP and means."""
    analysis, name = report.analysis, rule.name
    columns = {key: column for key, column in rule.columns.items() if key not in FALSE_POSITIVE_TYPES}
    notes = averaged_lines(rule.classes_averaged, len(report.classes))
    means: list[list[Any]] = []
    if text is not None:
        if rule.rule.has_analyses and not text.verbose:
            del columns["detections"]  # TP + FP
        if rule.rule.has_analyses and analysis is not None:
            columns["AP"] = analysis.ap_columns()["AP"]
        means = _mean_rows(report, rule, columns)
        notes = ["macro: mean over classes; micro: pooled over classes", *notes]
        ignored = rule.counts.get("ground_truths_ignored", 0)
        if ignored:
            matched = rule.counts["detections_ignored"]
            regions = geometry_of(report.settings.iou_type).ignored_name
            notes.append(
                f"ignored: {pluralize(ignored, regions)}, and detections that match only {regions}s ({matched:,})"
            )
        if "AP" in columns and analysis is not None:
            notes += [*max_dets_lines(analysis.settings, analysis.most_detections), *frequency_lines(analysis)]
    title = f"{name}: {rule.rule.description}"
    return Section(title, table=class_table(columns), means=means, notes=notes, order=order, headline=True)


def _mean_rows(report: DetectionReport, rule: RuleReport, columns: Mapping[str, Any]) -> list[list[Any]]:
    """The rows "macro" and "micro" of the table per class."""
    means = rule.means
    macro: dict[str, Any] = {name: means[name] for name in _RATES}
    if report.analysis is not None:
        macro["AP"] = report.analysis.average_precision.to_dict()["mAP"]
    counts = ("ground_truths", "detections", "tp", "fp", "fn")
    micro: dict[str, Any] = {name: int(sum(columns[name])) for name in counts if name in columns}
    micro.update({name: means[f"{name}_micro"] for name in _RATES})
    rows = {"macro": macro, "micro": micro}
    return [[title, *(row.get(name, "") for name in list(columns)[1:])] for title, row in rows.items()]


def _false_positive_lines(overlap: str) -> list[str]:
    return [
        "the four types add up to FP; the last three are the background row of the matrix",
        "confusion: matched to an object of another class",
        f"confusion, matched object: only objects of other classes reach {overlap}, and other detections are "
        "matched to them",
        f"duplicate: an object of its class reaches {overlap}, and another detection is matched to it",
        f"background: no object reaches {overlap}",
    ]


_NONE_HAS_MORE = {
    PER_CLASS_AND_IMAGE: "no class has more in any image",
    "image": "no image has more",
    "class": "no class has more",
}


def max_dets_lines(settings: DetectionSettings, most: int) -> list[str]:
    """Which detections average precision uses."""
    message = settings.truncation_message(most)
    if message:
        return [f"{message}; all other numbers use all detections"]
    if settings.max_dets >= NO_LIMIT:
        return ["AP uses all detections"]
    limit, per = settings.mean_max_dets, settings.ap_convention.max_dets_per
    return [f"AP uses at most {limit} detections per {per} (max_dets); {_NONE_HAS_MORE[per]}"]


def frequency_lines(analysis: DetectionAnalysis) -> list[str]:
    """The mean average precision of rare, common and frequent classes, if their frequency is known."""
    frequency = analysis.settings.frequency
    if frequency is None:
        return []
    values = analysis.average_precision.to_dict()
    words = zip(FREQUENCIES, ("rare", "common", "frequent"))
    texts = [f"mAP_{key} {values[f'mAP_{key}']:.4f} ({frequency.count(key)} {word} classes)" for key, word in words]
    return [", ".join(texts)]


def convention_text(settings: DetectionSettings) -> str:
    """Whose numbers average precision has."""
    convention = settings.ap_convention
    stock = DetectionSettings(convention=convention.name, iou_type=settings.iou_type)
    if all(getattr(settings, name) == getattr(stock, name) for name in ("iou_thrs", "max_dets")):
        return f"convention {convention.name}: the numbers of {convention.description}"
    return f"convention {convention.name}, with other IoU thresholds or limits than {convention.title}"


def iou_thrs_text(iou_thrs: Sequence[float], overlap: str) -> str:
    """The thresholds of average precision in words."""
    texts = [f"{value:.4g}" for value in iou_thrs]
    if tuple(iou_thrs) == COCO_IOU_THRS:
        return f"the ten {overlap} thresholds 0.50 to 0.95"
    return f"the {overlap} threshold{'s' if len(texts) > 1 else ''} {', '.join(texts)}"


def _average_precision(analysis: DetectionAnalysis) -> Section:
    columns = analysis.ap_columns()
    overall = analysis.average_precision.to_dict()
    header, rows = class_table(columns)
    rows.append(["mean", *(overall[f"m{name}"] for name in header[1:])])
    thresholds = iou_thrs_text(analysis.average_precision.iou_thrs, analysis.overlap_name)
    convention = analysis.settings.ap_convention
    lines = [
        f"AP: mean over {thresholds}; {convention_text(analysis.settings)}",
        *max_dets_lines(analysis.settings, analysis.most_detections),
        *frequency_lines(analysis),
    ]
    return Section(f"Average precision ({convention.title})", lines, (header, rows))


def _sizes(analysis: DetectionAnalysis) -> Section:
    metrics, ranges = analysis.sizes.metrics(), analysis.sizes.ranges
    counts = ("ground_truths", "tp", "fp")
    rates = [key for key in ("precision", "recall", "mAP", "mAP_50") if key in metrics["all"]]
    header = ["area", *(COLUMN_NAMES[key] for key in counts), *(OVERALL_NAMES[key] for key in rates)]
    rows = [
        [size_range(name, *ranges[name]), *(row[key] for key in (*counts, *rates))] for name, row in metrics.items()
    ]
    lines = [
        "an object on the edge of two ranges is in both, as in COCO; every range is matched on its own, so TP and FP "
        "of the ranges need not add up to those of all objects",
        f"TP and FP of all detections at score >= {number_text(analysis.score_thr)}; mAP by the convention "
        f"{analysis.settings.convention}{own_areas(analysis.settings)}",
    ]
    return Section("Results by object size (area in square pixels)", lines, (header, rows))


def own_areas(settings: DetectionSettings) -> str:
    """What a convention counts as another area than the other columns."""
    if settings.ap_convention.assignment == COCO.assignment:
        return ""
    return ", whose areas may be one pixel larger, and whose ranges do not contain their upper ends"


def size_range(name: str, low: float, high: float) -> str:
    """A range of areas, such as "small, 0 to 1024"; "from 9216" if it has no name."""
    if name == "all":
        return name
    bounds = f"from {low:g}" if high >= 1e10 else f"{low:g} to {high:g}"
    return bounds if name.startswith("area_") else f"{name}, {bounds}"


def _errors(analysis: DetectionAnalysis, *, brief: bool = False) -> Section:
    """The error types; briefly, without the counts of all detections."""
    errors: Any = analysis.errors
    counts = {f"score >= {number_text(analysis.score_thr)}": analysis.error_totals, "all detections": errors.totals}
    columns = {**(dict(list(counts.items())[:1]) if brief else counts), "dAP": errors.dap}
    rows = [
        [f"{name}: {words}", *(column[name] for column in columns.values())]
        for name, words in error_types(analysis).items()
    ]
    line = f"dAP: AP at {analysis.overlap_name} {number_text(errors.iou_thr)} gained by fixing all errors of this type"
    lines, table = [line] if brief else error_lines(analysis), (["error type", *columns], rows)
    return Section("Error types (TIDE)", lines, table, optional="error types")


def error_lines(analysis: DetectionAnalysis) -> list[str]:
    """What the columns of the error types count, and what they add up to."""
    errors: Any = analysis.errors
    overall = analysis.sizes.metrics()["all"]
    return [
        f"score >= {number_text(analysis.score_thr)}: counted as the confusion matrix of coco; the errors of "
        f"detections add up to FP ({overall['fp']:,}), missed objects and confusions in the matrix to FN "
        f"({overall['ground_truths'] - overall['tp']:,})",
        "in terms of the false positives by type: classification = confusion + confusion with a matched object; "
        "localization + both + background = background",
        f"all detections: TIDE's counts of all detections ({errors.detections:,}), whatever their score, without a "
        "limit per image",
        f"dAP: the AP gained by fixing all errors of a type, of all detections as well; their AP at "
        f"{analysis.overlap_name} {number_text(errors.iou_thr)} is {cell(errors.average_precision)}",
    ]


def olrp_and_froc_sections(analysis: DetectionAnalysis) -> list[Section]:
    """The sections on oLRP and FROC, unless their options are False: of all classes, then per class."""
    overlap, sections = analysis.overlap_name, []
    iou_thr = number_text(analysis.settings.iou_thr)
    of_detections = f"of all detections, matched at {overlap} {iou_thr}"
    if analysis.olrp is not None:
        means = analysis.olrp.means()
        lines = [
            f"LRP error: (S + FP + FN) / (TP + FP + FN), where S is the sum of (1 - {overlap}) / (1 - {iou_thr}) over "
            "the TP; oLRP: its lowest value over the score thresholds of a class; lower is better",
            f"oLRP_Loc: mean of 1 - {overlap} over TP; oLRP_FP: 1 - precision; oLRP_FN: 1 - recall; at the best score "
            "threshold of each class",
            f"{of_detections}; means are over the classes that have a value",
        ]
        heading = "oLRP: optimal localization recall precision error"
        sections.append(Section(heading, lines, (["", *means], [["mean", *means.values()]])))
        sections.append(Section("", table=class_table(analysis.olrp_columns())))
    if analysis.froc is not None:
        header = [name.replace("sensitivity@", "at ") for name in FROC_NAMES]
        lines = [
            "sensitivity (recall) at numbers of false positives per image, linearly interpolated as in LUNA16; FROC: "
            "their mean",
            "pooled: one score threshold for all classes, whose false positives are added; a class: only its own",
            of_detections,
        ]
        overall = ["", *header], [["all classes (pooled)", *analysis.froc.values().values()]]
        sections.append(Section("FROC: sensitivity by false positives per image", lines, overall))
        sections.append(Section("", table=(["class", *header], rows_of(analysis.froc_columns()))))
    return sections


def optional_sections(analysis: DetectionAnalysis, order: ClassOrder | None = None) -> list[Section]:
    """Operating points and confidence intervals, if the report has them."""
    sections = [] if analysis.points is None else [_operating_points(analysis, order)]
    if analysis.intervals is not None:
        names = (*_RATES, "AP", "AP_50")
        sections += interval_sections(analysis.intervals, analysis.classes, names, order=order)
    return sections


def _operating_points(analysis: DetectionAnalysis, order: ClassOrder | None) -> Section:
    points: Any = analysis.points
    header = ["class", "score threshold", "precision", "recall", f"F{points.rule.beta:g}"]
    header += [f"{name}*" for name in header[2:]]
    rates = attrgetter("precision", "recall", "f_score")
    rows: list[list[Any]] = [
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
    return Section("Operating points: the best score thresholds", lines, (header, rows), order=order)


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
    """The rows of ``per_class.csv`` by rule. Only ``coco`` has AP and confidence intervals."""
    more: dict[str, Any] = {}
    if report.analysis is not None:
        columns = report.analysis.ap_columns()
        columns = {**columns, **report.analysis.olrp_columns(), **report.analysis.froc_columns()}
        more = {name: columns[name] for name in columns if name != "name"}
        if report.analysis.intervals is not None:
            more.update(interval_columns(report.analysis.intervals.per_class))
    header: list[str] = []
    rows: list[list[Any]] = []
    for rule in report.matching_rules:
        own = more if rule.rule.has_analyses else {name: [""] * len(report.classes) for name in more}
        columns = {**rule.columns, **own}
        header = ["matching", *columns]
        rows += [[rule.name, *row] for row in rows_of(columns)]
    return header, rows


def curve_csv(analysis: DetectionAnalysis) -> Table:
    """The rows of ``curves.csv``: precision, recall and F1 of each class on a grid of score thresholds."""
    curves = analysis.curves
    grid = curves.confidence.tolist()
    rows: list[list[Any]] = []
    each = zip(analysis.classes, curves.precision, curves.recall, curves.f_score)
    for name, *columns in (*each, ("", curves.mean_precision, curves.mean_recall, curves.mean_f_score)):
        rows += [[name, *values] for values in zip(grid, *(column.tolist() for column in columns))]
    return ["class", "confidence", "precision", "recall", "f1"], rows
