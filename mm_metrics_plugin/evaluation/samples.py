"""Which samples stand behind each number of a classifier's report, the worst first.

Worst means: of wrong decisions the most confident, of missed classes those with the lowest score, of right decisions
the least confident. Between equals the earlier sample comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import worst_first

KINDS = ("right", "wrong", "missed")


@dataclass(frozen=True, eq=False)
class SampleCells:
    """The first samples of every cell.

    Attributes:
        shape: Rows and columns.
        filled: (C,) numbers of the cells that have samples, row by row; ascending. All cells of 10,000 classes would
            take most of the memory of a report.
        number: (C,) how many samples they have.
        limit: How many of a cell are listed at the most.
        cell: (K,) number of the cell of each listed sample, row by row; ascending.
        sample: (K,) the sample.
        score: (K,) its score for the class that was decided for, or missed.
    """

    shape: Tuple[int, int]
    filled: np.ndarray
    number: np.ndarray
    limit: int
    cell: np.ndarray
    sample: np.ndarray
    score: np.ndarray

    def __str__(self) -> str:
        return f"{len(self.cell)} of {int(self.number.sum())} samples listed, up to {self.limit} a cell"


def confusion_cells(
    scores: np.ndarray, truth: np.ndarray, decided: np.ndarray, *, per_cell: int = 50, most: int = 20_000
) -> SampleCells:
    """List what is in the cells of a confusion matrix: rows truth, columns decision.

    Args:
        scores: (samples, classes).
        truth: (samples,) the true class.
        decided: (samples,) the class decided for.
        per_cell: List no more than so many of a cell,
        most: and fewer if all cells together would list more than this; one a cell is always listed.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
        >>> cells = confusion_cells(scores, np.array([0, 1, 1]), scores.argmax(axis=1))
        >>> cells.cell.tolist(), cells.sample.tolist()
        ([0, 2, 2], [0, 2, 1])
        >>> print(cells)
        3 of 3 samples listed, up to 50 a cell
    """
    size = scores.shape[1]
    score = scores[np.arange(len(decided)), decided]
    badness = np.where(truth == decided, -score, score)
    return _listed(np.arange(len(truth)), truth * size + decided, score, badness, (size, size), per_cell, most)


def decision_cells(
    scores: np.ndarray, targets: np.ndarray, decided: np.ndarray, *, per_cell: int = 50, most: int = 20_000
) -> SampleCells:
    """List what is right, wrong and missed of each class where samples may have several: (classes, 3).

    Args:
        scores: (samples, classes).
        targets: (samples, classes) of 1, 0 and -1, which does not count.
        decided: (samples, classes) whether the class was decided for.
        per_cell: List no more than so many of a cell,
        most: and fewer if all cells together would list more than this; one a cell is always listed.

    Example:
        >>> scores, targets = np.array([[0.9], [0.2], [0.8], [0.1]]), np.array([[0], [1], [1], [0]])
        >>> cells = decision_cells(scores, targets, scores > 0.5)
        >>> cells.cell.tolist(), cells.sample.tolist()
        ([0, 1, 2], [2, 0, 1])
    """
    kind = np.full(scores.shape, -1)
    for place, found in enumerate(((targets == 1) & decided, (targets == 0) & decided, (targets == 1) & ~decided)):
        kind[found] = place
    sample, label = np.nonzero(kind >= 0)
    kinds, score = kind[sample, label], scores[sample, label]
    badness = np.where(kinds == KINDS.index("wrong"), score, -score)
    return _listed(sample, label * len(KINDS) + kinds, score, badness, (scores.shape[1], len(KINDS)), per_cell, most)


def _listed(
    sample: np.ndarray,
    cell: np.ndarray,
    score: np.ndarray,
    badness: np.ndarray,
    shape: Tuple[int, int],
    per_cell: int,
    most: int,
) -> SampleCells:
    listed, limit = worst_first(cell, badness, sample, per_group=per_cell, most=most)
    filled, number = np.unique(cell, return_counts=True)
    return SampleCells(shape, filled, number, limit, cell[listed], sample[listed], score[listed])
