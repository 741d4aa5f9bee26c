"""A confusion matrix as it is looked at: square, as counts and as shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.detection import row_shares

NO_DECISION = "no decision"


@dataclass(frozen=True, eq=False)
class MatrixView:
    """A confusion matrix with its names.

    Attributes:
        labels: Names of the rows and columns.
        matrix: Counts; rows truth, columns prediction.
        shares: The same with every row divided by its sum.
        title: What was counted.
    """

    labels: Tuple[str, ...]
    matrix: np.ndarray
    shares: np.ndarray
    title: str

    def __str__(self) -> str:
        return f"{self.title or 'confusion matrix'}: {len(self.labels)} rows, {self.matrix.sum()} counted"


def matrix_view(matrix: np.ndarray, labels: Sequence[str], *, title: str = "") -> MatrixView:
    """Make a matrix square, whatever was decided.

    Args:
        matrix: Counts (classes, classes), or with one column more for samples without a decision. Where there are
            any, they are a class of their own; else the column is left out.
        labels: Names of the classes.
        title: What was counted.

    Example:
        >>> print(matrix_view(np.array([[3, 1, 0], [0, 2, 0]]), ["cat", "dog"]))
        confusion matrix: 2 rows, 6 counted
        >>> view = matrix_view(np.array([[3, 0, 1], [0, 2, 0]]), ["cat", "dog"])
        >>> view.labels, view.matrix.tolist(), view.shares[0].tolist()
        (('cat', 'dog', 'no decision'), [[3, 0, 1], [0, 2, 0], [0, 0, 0]], [0.75, 0.0, 0.25])
    """
    matrix = np.asarray(matrix)
    size = len(matrix)
    if not matrix[:, size:].any():
        matrix = matrix[:, :size]
    elif size < matrix.shape[1]:
        matrix, labels = np.pad(matrix, ((0, 1), (0, 0))), [*labels, NO_DECISION]
    return MatrixView(tuple(labels), matrix, row_shares(matrix), title)
