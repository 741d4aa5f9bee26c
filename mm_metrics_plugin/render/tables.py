"""Headers and rows: what goes into CSV files, and cells as text for tables that people read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Tuple

from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_entries

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.evaluation.detection_analysis import DetectionAnalysis

Table = Tuple[List[str], List[List[Any]]]
TITLES = {
    "name": "class",
    "ground_truths": "GTs",
    "tp": "TP",
    "fp": "FP",
    "fn": "FN",
    "f1": "F1",
    "auc": "AUC",
}
FALSE_POSITIVE_TITLES = {
    "fp_confusion": "confusion",
    "fp_confusion_matched": "confusion, matched object",
    "fp_duplicate": "duplicate",
    "fp_background": "background",
}
CORNER = "ground_truth \\ prediction"


def printable(name: Any) -> str:
    r"""A name with everything written out that could move the cursor of a terminal.

    Example:
        >>> print(printable("cat\x1b[2J"))
        cat\x1b[2J
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(name))


def short_names(names: Sequence[Any], longest: int) -> List[str]:
    """Names for a figure: shortened in the middle if they are long, and never two alike.

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
    """A number for reading: whole ones with thousands apart, others with four decimals, a dash where undefined.

    Example:
        >>> cell(12345), cell(0.5), cell(float("nan")), cell("cat")
        ('12,345', '0.5000', '–', 'cat')
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value != value else f"{value:.4f}"


def class_table(columns: Mapping[str, Sequence[Any]]) -> Table:
    """The table per class: titles, and one row a class.

    Example:
        >>> class_table({"name": ["cat"], "tp": [3]})
        (['class', 'TP'], [['cat', 3]])
    """
    plain = [column.tolist() if hasattr(column, "tolist") else column for column in columns.values()]
    return [TITLES.get(name, name) for name in columns], [list(row) for row in zip(*plain)]


def matrix_rows(entries: Mapping[str, Any], labels: Sequence[str]) -> Table:
    """A confusion matrix as rows: one row per class, or of many classes one row per cell that is not 0.

    Args:
        entries: What :func:`~mm_metrics_plugin.evaluation.detection.matrix_entries` gives.
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
    """The columns without the types of false positives, which have a table of their own where people read them.

    Example:
        >>> list(main_columns({"name": ["cat"], "fp": [3], "fp_duplicate": [1]}))
        ['name', 'fp']
    """
    return {name: column for name, column in columns.items() if name not in FALSE_POSITIVE_TITLES}


def false_positive_table(columns: Mapping[str, Sequence[Any]]) -> Table:
    """FP of each class and the types it is the sum of.

    Example:
        >>> columns = {"name": ["cat"], "tp": [9], "fp": [6], "fp_confusion": [3], "fp_confusion_matched": [0]}
        >>> false_positive_table({**columns, "fp_duplicate": [1], "fp_background": [2]})
        (['class', 'FP', 'confusion', 'confusion, matched object', 'duplicate', 'background'], [['cat', 6, 3, 0, 1, 2]])
    """
    names = ("name", "fp", *FALSE_POSITIVE_TITLES)
    _, rows = class_table({name: columns[name] for name in names})
    return ["class", "FP", *FALSE_POSITIVE_TITLES.values()], rows


def curve_rows(analysis: DetectionAnalysis) -> Table:
    """The rows of ``curves.csv``: precision, recall and F1 of every class at every confidence of a grid."""
    curves = analysis.curves
    grid = curves.confidence.tolist()
    rows: List[List[Any]] = []
    each = zip(analysis.classes, curves.precision, curves.recall, curves.f_score)
    for name, *columns in (*each, ("", curves.mean_precision, curves.mean_recall, curves.mean_f_score)):
        rows += [[name, *values] for values in zip(grid, *(column.tolist() for column in columns))]
    return ["class", "confidence", "precision", "recall", "f1"], rows


def detection_class_rows(report: DetectionReport) -> Table:
    """The rows of ``per_class.csv``: every protocol's, one after the other. AP and intervals are of ``coco`` alone."""
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
        rows += [[one.protocol, *row] for row in class_table(columns)[1]]
    return header, rows


def interval_columns(figures: Mapping[str, Any]) -> Dict[str, Any]:
    """The ends of the confidence intervals of each class, by the name of the column."""
    return {f"{name}_{end}": getattr(one, end) for name, one in figures.items() for end in ("low", "high")}


def detection_matrix_rows(report: DetectionReport) -> Table:
    """The rows of ``confusion_matrix.csv``: every protocol's, one after the other."""
    header: List[str] = []
    rows: List[List[Any]] = []
    for one in report.protocols:
        header, own = matrix_rows(matrix_entries(one.result.matrix), report.labels)
        rows += [[one.protocol, *row] for row in own]
    return ["protocol", *header], rows


def classification_class_rows(report: ClassificationReport) -> Table:
    """The rows of ``per_class.csv``, with confidence intervals if they were asked for."""
    columns = report.columns
    if report.intervals is not None:
        columns.update(interval_columns(report.intervals.per_class))
    return list(columns), class_table(columns)[1]


def classification_matrix_rows(report: ClassificationReport) -> Table:
    """The rows of ``confusion_matrix.csv``; none where samples have several classes."""
    if report.matrix is None:
        return [CORNER, *report.classes], []
    return matrix_rows(matrix_entries(report.matrix), report.classes)
