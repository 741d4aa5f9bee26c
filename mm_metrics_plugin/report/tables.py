"""Headers and rows: what goes into CSV files, and cells as text for tables that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence, Tuple

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification_report import ClassificationReport
    from mm_metrics_plugin.functional.detection_analysis import DetectionAnalysis
    from mm_metrics_plugin.functional.detection_report import DetectionReport

Table = Tuple[List[str], List[List[Any]]]
TITLES = {"name": "class", "tp": "TP", "fp": "FP", "fn": "FN", "f1": "F1", "auc": "AUC"}
CORNER = "truth \\ prediction"


def printable(name: Any) -> str:
    r"""A name with everything written out that could move the cursor of a terminal.

    Example:
        >>> print(printable("cat\x1b[2J"))
        cat\x1b[2J
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(name))


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
    """The rows of ``per_class.csv``: every protocol's, one after the other."""
    header: List[str] = []
    rows: List[List[Any]] = []
    for one in report.protocols:
        _, body = class_table(one.columns)
        header = ["protocol", *one.columns]
        rows += [[one.protocol, *row] for row in body]
    return header, rows


def detection_matrix_rows(report: DetectionReport) -> Table:
    """The rows of ``confusion_matrix.csv``: every protocol's, one after the other."""
    rows = [
        [one.protocol, name, *row]
        for one in report.protocols
        for name, row in zip(report.labels, one.result.matrix.tolist())
    ]
    return ["protocol", CORNER, *report.labels], rows


def classification_class_rows(report: ClassificationReport) -> Table:
    """The rows of ``per_class.csv``."""
    return list(report.columns), class_table(report.columns)[1]


def classification_matrix_rows(report: ClassificationReport) -> Table:
    """The rows of ``confusion_matrix.csv``; none where samples have several classes."""
    matrix = [] if report.matrix is None else report.matrix.tolist()
    return [CORNER, *report.classes], [[name, *row] for name, row in zip(report.classes, matrix)]
