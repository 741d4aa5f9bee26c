"""Comparisons of runs, in words and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

from mm_metrics_plugin.report.sections import Section, sections_markdown
from mm_metrics_plugin.report.tables import Table, printable

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.comparison_report import ComparisonReport, DifferenceRow, Versus

NAMES = {
    "mAP": "mAP",
    "mAP_50": "mAP_50",
    "mAP_75": "mAP_75",
    "auc": "AUC",
    "accuracy": "accuracy",
    "mean_precision": "mean precision",
    "mean_recall": "mean recall",
    "f1_of_means": "F1 of means",
    "macro_f1": "mean F1",
    "micro_precision": "micro precision",
    "micro_recall": "micro recall",
    "micro_f1": "micro F1",
}
WORDS = {
    "better": "{second} is better",
    "worse": "{second} is worse",
    "not sure": "may be chance",
    "the same": "no difference",
}
SHOWN_PER_CLASS = ("AP_50", "auc", "f1")
MOST_ROWS = 40


def points(value: float, *, sign: bool = False) -> str:
    """A share as points of a hundred.

    Example:
        >>> points(0.01234, sign=True), points(-0.02), points(float("nan"))
        ('+1.2', '-2.0', '–')
    """
    if value != value:
        return "–"
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return text if float(text) else ("±0.0" if sign else "0.0")


def p_text(value: float) -> str:
    """A p-value with as many digits as are of use.

    Example:
        >>> p_text(0.0031), p_text(0.0004), p_text(0.25)
        ('0.003', '< 0.001', '0.25')
    """
    if value != value:
        return "–"
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def difference_sentence(row: DifferenceRow, second: str) -> str:
    """A difference in words.

    Example:
        >>> from mm_metrics_plugin.functional.comparison_report import DifferenceRow
        >>> row = DifferenceRow("mAP_50", None, 0.41, 0.422, 0.012, 0.004, 0.02, 0.003, 0.003, "better")
        >>> difference_sentence(row, "b.pkl")
        'mAP_50 +1.2 [0.4, 2.0], p = 0.003: b.pkl is better'
    """
    p_value = p_text(row.p_value)
    return (
        f"{NAMES.get(row.metric, row.metric)} {points(row.difference, sign=True)} [{points(row.low)}, "
        f"{points(row.high)}], p {'' if p_value.startswith('<') else '= '}{p_value}: "
        f"{WORDS[row.verdict].format(second=second)}"
    )


def comparison_sections(report: ComparisonReport) -> List[Section]:
    """What the terminal and the Markdown file show."""
    settings = report.settings
    lines = [
        f"{report.images:,} images, the same for all runs; differences in points of 100, with "
        f"{100 * settings['level']:g} % intervals of {settings['resamples']:,} draws of the images",
    ]
    if report.kind == "detection":
        lines.append(
            f"precision, recall and F1 at score >= {settings['score_thr']:g}, IoU >= {settings['tp_iou_thr']:g}; "
            "p-values from swapping the runs on half of the images again and again"
        )
    else:
        lines.append("p-values of AUC by DeLong's paired test, others from swapping the runs on half of the samples")
    lines.append(f"a difference counts as real from p <= {1 - settings['level']:.3g} on")
    sections = [Section("", lines)]
    for versus in report.versus:
        sections += _versus_sections(report, versus)
    return sections


def _versus_sections(report: ComparisonReport, versus: Versus) -> List[Section]:
    first, second = printable(versus.first), printable(versus.second)
    rows = versus.rows(report.classes)
    overall = [row for row in rows if row.class_name is None]
    overall.sort(key=lambda row: list(NAMES).index(row.metric) if row.metric in NAMES else len(NAMES))
    real = [row for row in overall if row.verdict in ("better", "worse")]
    words = [difference_sentence(row, second) for row in real] or ["no difference that chance could not have made"]
    header = ["", first, second, "difference", "interval", "p", "in words"]
    table = header, [_cells(row, NAMES.get(row.metric, row.metric), row.p_value, second) for row in overall]
    sections = [Section(f"{second} against {first}", words, table)]
    for metric in SHOWN_PER_CLASS:
        mine = [row for row in rows if row.class_name is not None and row.metric == metric]
        if not mine:
            continue
        if len(mine) > MOST_ROWS:
            mine = sorted(mine, key=lambda row: (row.p_adjusted != row.p_adjusted, row.p_adjusted))[:MOST_ROWS]
        table = (
            [metric, *header[1:5], "p (Holm)", header[6]],
            [_cells(row, row.class_name, row.p_adjusted, second) for row in mine],
        )
        title = {"auc": "AUC", "f1": "F1"}.get(metric, metric)
        sections.append(
            Section(f"{title} per class, p-values corrected for the number of classes by Holm's method", (), table)
        )
    if versus.changed:
        changed = [
            [printable(name), *(f"{value:+d}" if value else "0" for value in (one.tp, one.fp, one.fn))]
            for name, one in zip(versus.image_names, versus.changed)
        ]
        sections.append(Section("images that changed most", (), (["image", "right", "wrong", "missed"], changed)))
    return sections


def _cells(row: DifferenceRow, name: Any, p_value: float, second: str) -> List[Any]:
    return [
        name,
        points(row.first),
        points(row.second),
        points(row.difference, sign=True),
        f"[{points(row.low)}, {points(row.high)}]",
        p_text(p_value),
        WORDS[row.verdict].format(second=second),
    ]


def comparison_markdown(report: ComparisonReport) -> str:
    """The comparison as Markdown."""
    return "\n".join(["# Comparison", *sections_markdown(comparison_sections(report))]) + "\n"


def difference_rows(report: ComparisonReport) -> Table:
    """The rows of ``differences.csv``."""
    header: List[str] = []
    rows: List[List[Any]] = []
    for versus in report.versus:
        for row in versus.rows(report.classes):
            values: Dict[str, Any] = row._asdict()
            header = ["first_run", "second_run", *values]
            rows.append([versus.first, versus.second, *("" if value is None else value for value in values.values())])
    return header, rows


def changed_rows(report: ComparisonReport) -> Table:
    """The rows of ``changed_images.csv``."""
    rows = [
        [versus.first, versus.second, name, one.tp, one.fp, one.fn]
        for versus in report.versus
        for name, one in zip(versus.image_names, versus.changed)
    ]
    return ["first_run", "second_run", "image", "tp", "fp", "fn"], rows
