"""Tables: display names of metrics, numbers as text, and the content of the CSV files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, List, Mapping, Sequence, Tuple

from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_entries
from mm_metrics_plugin.functional.thresholding import Threshold

if TYPE_CHECKING:
    import numpy as np

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
    "oLRP_threshold": "best threshold",
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
    """Text with control and other non-printable characters escaped."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in str(name))


def short_names(names: Sequence[Any], longest: int) -> list[str]:
    """Names for a figure, shortened in the middle and distinct."""
    end = (longest - 1) // 2
    short = [
        name if len(name) <= longest else f"{name[: longest - 1 - end]}…{name[-end:]}" for name in map(printable, names)
    ]
    counts = Counter(short)
    for index, name in enumerate(short):
        if counts[name] > 1:
            number = f"… (no. {index})"
            short[index] = name[: max(1, longest - len(number))] + number
    return short if len(set(short)) == len(short) else [f"no. {index}" for index in range(len(short))]


def cell(value: Any) -> str:
    """A number as text: integers with thousands separators, others with four decimals, undefined ones as a dash.

    A score threshold has as many decimals as select the same scores.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int):
        return f"{value:,}"
    if value != value:
        return "–"
    return value.text if isinstance(value, Threshold) else f"{value:.4f}"


def rows_of(columns: Mapping[str, Any]) -> list[list[Any]]:
    """The rows of a table that is given by its columns, arrays or lists."""
    plain = [column.tolist() if hasattr(column, "tolist") else column for column in columns.values()]
    return [list(row) for row in zip(*plain)]


def class_table(columns: Mapping[str, Any]) -> Table:
    """The table per class with display names."""
    return [COLUMN_NAMES.get(name, name) for name in columns], rows_of(columns)


def matrix_rows(entries: Mapping[str, Any], labels: Sequence[str]) -> Table:
    """A confusion matrix as rows: one row per class, or with many classes one row per nonzero cell."""
    if entries["confusion_matrix"] is not None:
        return [CORNER, *labels], [[name, *row] for name, row in zip(labels, entries["confusion_matrix"])]
    cells = entries["confusion_cells"]
    rows = zip(cells["row"], cells["column"], cells["count"])
    return ["ground_truth", "prediction", "count"], [
        [labels[row], labels[column], count] for row, column, count in rows
    ]


def interval_columns(intervals: Mapping[str, Any]) -> dict[str, Any]:
    """Columns with the limits of the confidence intervals of each class."""
    return {f"{name}_{end}": getattr(limits, end) for name, limits in intervals.items() for end in ("low", "high")}


def matrix_csv(matrices: Mapping[str, np.ndarray], labels: Sequence[str]) -> Table:
    """The rows of ``confusion_matrix.csv``, by matching rule; one matrix without a name has no such column."""
    header: list[str] = []
    rows: list[list[Any]] = []
    for rule, matrix in matrices.items():
        header, own = matrix_rows(matrix_entries(matrix), labels)
        rows += [[rule, *row] for row in own] if rule else own
    return header if "" in matrices else ["matching", *header], rows
