"""Sections and CSV tables of comparisons of runs."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from mm_metrics_plugin.conventions import IOU_TYPES, NO_LIMIT
from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.statistics.paired_tests import significant
from mm_metrics_plugin.render.detection import convention_text, iou_thrs_text
from mm_metrics_plugin.render.sections import (
    Section,
    class_order_lines,
    joined_by_lines,
    tally,
    task_lines,
    unevaluated_lines,
)
from mm_metrics_plugin.render.tables import COLUMN_NAMES, OVERALL_NAMES, Table, printable
from mm_metrics_plugin.reports.base import missing_results_lines
from mm_metrics_plugin.settings import number_text

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport, DifferenceRow, PairwiseComparison

SIGNIFICANT = ("better", "worse")
MARKS = {"missing_results": "*", "score_thr": "†"}  # of verdicts, by the code of a warning
SHOWN_PER_CLASS = ("AP_50", "auc", "f1")
MAX_ROWS = 40
MAX_CHANGED = 20
MAX_NAME_LENGTH = 8  # of a run in a table, which then fits 80 columns


def points(value: float, *, sign: bool = False) -> str:
    """A rate or difference in percentage points."""
    if value != value:
        return "–"
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return text if float(text) else ("±0.0" if sign else "0.0")


def p_text(value: float, *, ci: float = 0.95) -> str:
    """A p-value with as many digits as needed to see whether it is significant."""
    if value != value:
        return "–"
    if value < 0.001:
        return "< 0.001"
    for digits in range(3 if value < 0.1 else 2, 9):
        text = f"{value:.{digits}f}"
        if bool(significant(float(text), ci=ci)) == bool(significant(value, ci=ci)):
            break
    return text


def interval_text(low: float, high: float, *, joined: str = "[{}, {}]", sign: bool = False) -> str:
    """A confidence interval in percentage points, with as many digits as needed to see whether it contains 0."""
    if low != low:
        return "–"
    texts = [points(end, sign=sign) for end in (low, high)]
    if low > 0 or high < 0:
        plus = "+" if sign else ""
        for at, end in enumerate((low, high)):
            digits = 1
            while not float(texts[at].replace("±", "")) and digits < 9:
                digits += 1
                texts[at] = f"{100 * end:{plus}.{digits}f}"
    return joined.format(*texts)


def comparison_sections(report: ComparisonReport) -> list[Section]:
    """The sections of the terminal and the Markdown file."""
    settings = report.settings
    ci = settings.ci
    unit = "image" if report.kind == "detection" else "sample"
    letters = run_letters([printable(summary.name) for summary in report.summaries])
    lines = [
        f"{pluralize(report.images, unit)}, the same for all runs; differences in percentage points",
        *run_lines(report, letters),
    ]
    if settings.detection is not None:
        detection = settings.detection
        iou_thr = number_text(detection.iou_thr)
        overlap, shapes = geometry_of(detection.iou_type).overlap_name, IOU_TYPES[detection.iou_type].description
        lines.append(f"{shapes}: precision, recall and F1 at {_score_threshold(report)}, {overlap} >= {iou_thr}")
        convention = detection.ap_convention
        lines.append(f"AP: {convention_text(detection)}")
        if detection.max_dets < NO_LIMIT:
            lines.append(f"AP uses at most {detection.mean_max_dets} detections per class and image (max_dets)")
        if detection.iou_thrs != convention.iou_thrs:
            lines.append(f"mAP: mean over {iou_thrs_text(detection.iou_thrs, overlap)}")
    elif settings.classification is not None:
        lines += task_lines(settings.classification)
    lines += class_order_lines(report.inputs)
    lines += joined_by_lines(report.inputs.get("runs", ()), unit)
    lines += unevaluated_lines(report.inputs.get("runs", ()), settings.to_dict())
    lines += [
        f"paired permutation test ({settings.permutations:,} permutations), significance level {1 - ci:.3g}",
        f"p-values and {100 * ci:g} % confidence intervals are adjusted for the number of rows of their table: a "
        "difference is significant exactly where its interval does not contain 0",
    ]
    sections = [Section("", lines)]
    for pair in report.comparisons:
        sections += _pair_sections(report, pair, letters)
    return sections


def run_lines(report: ComparisonReport, letters: Mapping[str, str]) -> list[str]:
    """What was read and used of the ground truth and of each run, and the best score thresholds if they are used."""
    ground_truths = [summary.counts.get("ground_truths") for summary in report.summaries]
    same = all(counts == ground_truths[0] for counts in ground_truths)
    lines = [tally("ground-truth object", ground_truths[0])] if same and ground_truths[0] else []
    nouns = {"samples": "sample", "detections": "detection"}
    if not same:
        nouns["ground_truths"] = "ground-truth object"
    for summary in report.summaries:
        name = printable(summary.name)
        texts = [tally(noun, summary.counts[key]) for key, noun in nouns.items() if key in summary.counts]
        texts += missing_results_lines(summary.counts)
        best = summary.cross_fitted
        if best is not None and report.settings.detection.operating_point is not None:  # type: ignore[union-attr]
            texts.append(f"score threshold about {best.point.threshold:.4g}")
        lines.append(f"{name if letters[name] == name else f'{letters[name]}: {name}'}: {'; '.join(texts)}")
    return lines


def _score_threshold(report: ComparisonReport) -> str:
    """Such as "score >= 0.3"."""
    settings: Any = report.settings.detection
    best = report.summaries[0].cross_fitted
    if settings.operating_point is None or best is None:
        return f"score >= {number_text(settings.score_thr)}"
    return f"the best score threshold of each run ({best.rule}; selected on other images, {len(best.thresholds)} folds)"


def run_letters(names: Sequence[str]) -> dict[str, str]:
    """Names of runs in tables: their own, or A, B and so on if one is long."""
    if max(map(len, names), default=0) <= MAX_NAME_LENGTH:
        return {name: name for name in names}
    letters = [*string.ascii_uppercase, *(f"R{number}" for number in range(27, len(names) + 1))]
    return dict(zip(names, letters))


def overall_rows(pair: PairwiseComparison, classes: tuple[str, ...]) -> list[DifferenceRow]:
    """The differences over all classes, in the order of tables."""
    order = {name: place for place, name in enumerate(OVERALL_NAMES)}
    rows = [row for row in pair.rows(classes) if row.class_name is None]
    return sorted(rows, key=lambda row: order.get(row.metric, len(order)))


def _pair_sections(report: ComparisonReport, pair: PairwiseComparison, letters: Mapping[str, str]) -> list[Section]:
    first, second = (letters[printable(name)] for name in (pair.first, pair.second))
    rows = pair.rows(report.classes)
    overall = overall_rows(pair, report.classes)
    ci = report.settings.ci
    sentences = [_sentence(row, second, ci) for row in overall if row.verdict in SIGNIFICANT]
    lines = [*warning_lines(pair, letters), *(sentences or ["no significant difference"])]
    header = ["", first, second, "difference", f"{100 * ci:g} % CI", "p", "verdict"]
    table = header, [_cells(row, OVERALL_NAMES.get(row.metric, row.metric), second, ci) for row in overall]
    notes = classes_lines(overall, len(report.classes))
    title = f"Comparison: {second} against {first}"
    sections = [Section(title, lines, table, notes=notes, headline=True)]
    for metric in SHOWN_PER_CLASS:
        per_class = [row for row in rows if row.class_name is not None and row.metric == metric]
        if not per_class:
            continue
        shown = ""
        if len(per_class) > MAX_ROWS:
            shown = f" ({MAX_ROWS} of {len(per_class):,} classes, in order of their p-values)"
            per_class = sorted(per_class, key=lambda row: (row.p_value != row.p_value, row.p_value))[:MAX_ROWS]
        table = [metric, *header[1:]], [_cells(row, row.class_name, second, ci) for row in per_class]
        title = COLUMN_NAMES.get(metric, metric)
        sections.append(Section(f"{title} per class, adjusted for the number of classes{shown}", table=table))
    shown = f" ({MAX_CHANGED} of {len(pair.changed):,})" if len(pair.changed) > MAX_CHANGED else ""
    changed = [
        [printable(name), *(classes.values() or (f"{n:+d}" if n else "0" for n in (image.tp, image.fp, image.fn)))]
        for image, name, classes in pair.changed_entries()[:MAX_CHANGED]
    ]
    if pair.changed_classes:
        title = f"Samples that {first} and {second} classify differently{shown}"
        sections.append(Section(title, table=(["sample", "true class", first, second], changed)))
    elif changed:
        order = "in order of the TP, then the FP, that differ; those of different classes do not cancel in this order"
        table = ["image", "TP", "FP", "FN"], changed
        sections.append(Section(f"Images that changed most{shown}", [order], table))
    return sections


def warning_lines(pair: PairwiseComparison, letters: Mapping[str, str]) -> list[str]:
    """The reasons to doubt the verdicts, each with its mark."""
    return [f"{MARKS[code]} {letters[printable(run)]}: {message}" for code, run, message in pair.warnings]


def classes_lines(rows: Sequence[DifferenceRow], classes: int) -> list[str]:
    """Which means leave out classes without a value in both runs."""
    total = pluralize(classes, "class")
    parts = [
        f"{OVERALL_NAMES.get(row.metric, row.metric)} is over {row.classes_averaged} of {total}"
        for row in rows
        if row.classes_averaged is not None and row.classes_averaged < classes
    ]
    return [f"means leave out classes without a value in either run: {', '.join(parts)}"] if parts else []


def verdict_text(row: DifferenceRow, second: str) -> str:
    """The verdict with the marks of its warnings, and with the name of the second run if it is significant."""
    if row.verdict == "undefined":
        return row.verdict
    text = f"{second} is {row.verdict}" if row.verdict in SIGNIFICANT else row.verdict
    return text + "".join(MARKS[code] for code in row.warnings)


def _sentence(row: DifferenceRow, second: str, ci: float) -> str:
    """Such as "mAP_50 +1.2 [0.4, 2.0], p = 0.003: B is better"."""
    name, _, _, difference, interval, p_value, verdict = _cells(
        row, OVERALL_NAMES.get(row.metric, row.metric), second, ci
    )
    return f"{name} {difference} {interval}, p {'' if p_value.startswith('<') else '= '}{p_value}: {verdict}"


def _cells(row: DifferenceRow, name: Any, second: str, ci: float) -> list[Any]:
    return [
        name,
        points(row.first),
        points(row.second),
        points(row.difference, sign=True),
        interval_text(row.low, row.high),
        p_text(row.p_value, ci=ci),
        verdict_text(row, second),
    ]


def difference_csv(report: ComparisonReport) -> Table:
    """The rows of ``differences.csv``."""
    header: list[str] = []
    rows: list[list[Any]] = []
    for pair in report.comparisons:
        for row in pair.rows(report.classes):
            values: dict[str, Any] = row._asdict()
            header = ["first_run", "second_run", *values]
            values["warnings"] = "; ".join(row.warnings)
            rows.append([pair.first, pair.second, *("" if value is None else value for value in values.values())])
    return header, rows


def changed_csv(report: ComparisonReport) -> Table:
    """The rows of ``changed_images.csv``."""
    header = ["first_run", "second_run", "image", "tp", "fp", "fn"]
    if any(pair.changed_classes for pair in report.comparisons):
        header += ["true_class", "first_class", "second_class"]
    return header, [
        [pair.first, pair.second, name, image.tp, image.fp, image.fn, *classes.values()]
        for pair in report.comparisons
        for image, name, classes in pair.changed_entries()
    ]
