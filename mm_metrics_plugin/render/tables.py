"""Tables: display names of metrics, numbers as text, and the content of the CSV files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Tuple

from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_entries

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.evaluation.detection_analysis import DetectionAnalysis

Table = Tuple[List[str], List[List[Any]]]
COLUMN_NAMES = {  # columns of tables with one row per class
    "name": "class",
    "ground_truths": "GTs",
    "tp": "TP",
    "fp": "FP",
    "fn": "FN",
    "f1": "F1",
    "auc": "AUC",
    "fp_confusion": "confusion",
    "fp_confusion_matched": "confusion, matched object",
    "fp_duplicate": "duplicate",
    "fp_background": "background",
    "best": "best threshold",
}
FALSE_POSITIVE_TYPES = ("fp_confusion", "fp_confusion_matched", "fp_duplicate", "fp_background")
OVERALL_NAMES = {  # metrics over all classes, in the order of tables
    "accuracy": "accuracy",
    "accuracy_top5": "top-5 accuracy",
    "auc": "AUC",
    "mAP": "mAP",
    "mAP_50": "mAP_50",
    "mAP_75": "mAP_75",
    "precision": "macro precision",
    "recall": "macro recall",
    "f1_of_means": "F1 of means",
    "f1": "macro F1",
    "precision_micro": "micro precision",
    "recall_micro": "micro recall",
    "f1_micro": "micro F1",
    "ece": "ECE",
    "mce": "MCE",
    "brier": "Brier score",
    "nll": "NLL",
}
CORNER = "ground_truth \\ prediction"


def printable(name: Any) -> str:
    r"""Text with control and other non-printable characters escaped.

    Example:
        >>> print(printable("cat\x1b[2J"))
        cat\x1b[2J
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(name))


def short_names(names: Sequence[Any], longest: int) -> List[str]:
    """Names for a figure, shortened in the middle and distinct.

    Example:
        >>> short_names(["cat", "a very long name of a class", "a very long name of a glass"], 12)
        ['cat', 'a very…class', 'a very…glass']
        >>> short_names(["x" * 50 + "a" + "x" * 50, "x" * 50 + "b" + "x" * 50], 12)
        ['xxx… (no. 0)', 'xxx… (no. 1)']
    """
    found = []
    for name in map(printable, names):
        end = (longest - 1) // 2
        found.append(name if len(name) <= longest else f"{name[: longest - 1 - end]}…{name[-end:]}")
    counts = Counter(found)
    for index, name in enumerate(found):
        if counts[name] > 1:
            number = f"… (no. {index})"
            found[index] = name[: max(1, longest - len(number))] + number
    distinct = len(set(found)) == len(found)
    return found if distinct else [f"no. {index}" for index in range(len(found))]


def cell(value: Any) -> str:
    """A number as text: integers with thousands separators, others with four decimals, undefined ones as a dash.

    Example:
        >>> cell(12345), cell(0.5), cell(float("nan")), cell("cat")
        ('12,345', '0.5000', '–', 'cat')
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value != value else f"{value:.4f}"


def rows_of(columns: Mapping[str, Any]) -> List[List[Any]]:
    """The rows of a table that is given by its columns, arrays or lists.

    Example:
        >>> rows_of({"name": ["cat", "dog"], "tp": [3, 4]})
        [['cat', 3], ['dog', 4]]
    """
    plain = [column.tolist() if hasattr(column, "tolist") else column for column in columns.values()]
    return [list(row) for row in zip(*plain)]


def class_table(columns: Mapping[str, Any]) -> Table:
    """The table per class with display names.

    Example:
        >>> class_table({"name": ["cat"], "tp": [3]})
        (['class', 'TP'], [['cat', 3]])
    """
    return [COLUMN_NAMES.get(name, name) for name in columns], rows_of(columns)


def matrix_rows(entries: Mapping[str, Any], labels: Sequence[str]) -> Table:
    """A confusion matrix as rows: one row per class, or with many classes one row per nonzero cell.

    Args:
        entries: From :func:`~mm_metrics_plugin.functional.classification.confusion_matrix.matrix_entries`.
        labels: Names of the rows and columns.

    Example:
        >>> matrix_rows({"confusion_matrix": [[5, 2], [0, 7]]}, ["cat", "dog"])[1]
        [['cat', 5, 2], ['dog', 0, 7]]
        >>> cells = {"row": [0, 1], "column": [1, 1], "count": [2, 7]}
        >>> matrix_rows({"confusion_matrix": None, "confusion_cells": cells}, ["cat", "dog"])
        (['ground_truth', 'prediction', 'count'], [['cat', 'dog', 2], ['dog', 'dog', 7]])
    """
    if entries["confusion_matrix"] is not None:
        return [CORNER, *labels], [[name, *row] for name, row in zip(labels, entries["confusion_matrix"])]
    cells = entries["confusion_cells"]
    rows = zip(cells["row"], cells["column"], cells["count"])
    return ["ground_truth", "prediction", "count"], [
        [labels[row], labels[column], count] for row, column, count in rows
    ]


def main_columns(columns: Mapping[str, Sequence[Any]]) -> Dict[str, Sequence[Any]]:
    """The columns without the types of false positives, which have a table of their own.

    Example:
        >>> list(main_columns({"name": ["cat"], "fp": [3], "fp_duplicate": [1]}))
        ['name', 'fp']
    """
    return {name: column for name, column in columns.items() if name not in FALSE_POSITIVE_TYPES}


def false_positive_table(columns: Mapping[str, Sequence[Any]]) -> Table:
    """FP of each class and the types that add up to it.

    Example:
        >>> columns = {"name": ["cat"], "tp": [9], "fp": [6], "fp_confusion": [3], "fp_confusion_matched": [0]}
        >>> false_positive_table({**columns, "fp_duplicate": [1], "fp_background": [2]})
        (['class', 'FP', 'confusion', 'confusion, matched object', 'duplicate', 'background'], [['cat', 6, 3, 0, 1, 2]])
    """
    return class_table({name: columns[name] for name in ("name", "fp", *FALSE_POSITIVE_TYPES)})


def mean_rows(means: Mapping[str, float]) -> Dict[str, float]:
    """The metrics over all classes by their display names.

    Example:
        >>> mean_rows({"accuracy": 0.5, "f1_micro": 0.25})
        {'accuracy': 0.5, 'micro F1': 0.25}
    """
    return {OVERALL_NAMES[name]: value for name, value in means.items()}


def curve_rows(analysis: DetectionAnalysis) -> Table:
    """The rows of ``curves.csv``: precision, recall and F1 of each class on a grid of score thresholds."""
    curves = analysis.curves
    grid = curves.confidence.tolist()
    rows: List[List[Any]] = []
    each = zip(analysis.classes, curves.precision, curves.recall, curves.f_score)
    for name, *columns in (*each, ("", curves.mean_precision, curves.mean_recall, curves.mean_f_score)):
        rows += [[name, *values] for values in zip(grid, *(column.tolist() for column in columns))]
    return ["class", "confidence", "precision", "recall", "f1"], rows


def detection_class_rows(report: DetectionReport) -> Table:
    """The rows of ``per_class.csv``: those of each protocol. Only ``coco`` has AP and confidence intervals."""
    more: Dict[str, Any] = {}
    if report.analysis is not None:
        columns = report.analysis.ap_columns()
        more = {name: columns[name] for name in columns if name != "name"}
        if report.analysis.intervals is not None:
            more.update(interval_columns(report.analysis.intervals.per_class))
    header: List[str] = []
    rows: List[List[Any]] = []
    for one in report.protocols:
        own = more if one.protocol == "coco" else {name: [""] * len(report.classes) for name in more}
        columns = {**one.columns, **own}
        header = ["protocol", *columns]
        rows += [[one.protocol, *row] for row in rows_of(columns)]
    return header, rows


def interval_columns(figures: Mapping[str, Any]) -> Dict[str, Any]:
    """Columns with the limits of the confidence intervals of each class."""
    return {f"{name}_{end}": getattr(one, end) for name, one in figures.items() for end in ("low", "high")}


def detection_matrix_rows(report: DetectionReport) -> Table:
    """The rows of ``confusion_matrix.csv``: those of each protocol."""
    header: List[str] = []
    rows: List[List[Any]] = []
    for one in report.protocols:
        header, own = matrix_rows(matrix_entries(one.result.matrix), report.labels)
        rows += [[one.protocol, *row] for row in own]
    return ["protocol", *header], rows


def classification_class_rows(report: ClassificationReport) -> Table:
    """The rows of ``per_class.csv``, with confidence intervals if the report has them."""
    columns = report.columns
    if report.intervals is not None:
        columns.update(interval_columns(report.intervals.per_class))
    return list(columns), rows_of(columns)


def classification_matrix_rows(report: ClassificationReport) -> Table:
    """The rows of ``confusion_matrix.csv``; none of a multi-label task."""
    if report.matrix is None:
        return [CORNER, *report.classes], []
    return matrix_rows(matrix_entries(report.matrix), report.classes)
