"""A confusion matrix that adds up."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.states.base import SUM, State


class ConfusionState(State):
    """How often each true class was taken for each class, or for none.

    Args:
        num_classes: How many classes there are.
        num_rules: How many rules of decision are counted side by side, each in a matrix of its own.

    Example:
        >>> state = ConfusionState(2).update(np.array([0, 0, 1, 1]), np.array([0, 1, 1, -1]))
        >>> state.matrix.tolist()
        [[1, 1, 0], [0, 1, 1]]
    """

    reductions = {"cells": SUM}
    # (rules, truth, prediction), the predictions one to the right: the first column is "no decision", so that a
    # prediction of -1 needs no care.
    cells: np.ndarray
    # Rows behind those of the classes, for predictions where there is nothing to predict.
    background_rows = 0

    def __init__(self, num_classes: int, num_rules: int = 1) -> None:
        self.num_classes = num_classes
        self.num_rules = num_rules
        super().__init__()

    def update(self, truth: np.ndarray, predicted: np.ndarray) -> ConfusionState:
        """Counts true classes (samples) and predicted ones (samples) or (samples, rules); -1 is no decision."""
        rows = truth.astype(np.int64)
        if predicted.ndim == 2:
            rows = rows[:, None] + np.arange(self.num_rules) * self.num_classes
        cells = rows * (self.num_classes + 1)
        cells += predicted
        cells += 1
        held = self._room()
        if cells.size < held.size // 8:
            # A matrix of 1,000 classes is far larger than a batch: nothing of its size may be made for one.
            np.add.at(held.reshape(-1), cells.reshape(-1), 1)
        else:
            held += np.bincount(cells.reshape(-1), minlength=held.size).reshape(held.shape)
        return self

    def add_matrix(self, matrix: np.ndarray) -> ConfusionState:
        """Adds a ready matrix with one column a class, or with one column more for "no decision"."""
        held = self._room()[0]
        held[:, 1:] += matrix[:, : self.num_classes]
        if matrix.shape[1] > self.num_classes:
            held[:, 0] += matrix[:, self.num_classes]
        return self

    def _room(self) -> np.ndarray:
        if self.cells is None:
            rows = self.num_classes + self.background_rows
            self.cells = np.zeros((self.num_rules, rows, self.num_classes + 1), dtype=np.int64)
        return self.cells

    @property
    def matrices(self) -> np.ndarray:
        """One matrix a rule: rows truth, columns prediction; background and "no decision" last."""
        return np.roll(self._room(), -1, axis=2)

    @property
    def matrix(self) -> np.ndarray:
        """The matrix of the first rule."""
        return self.matrices[0]

    @property
    def decisions(self) -> np.ndarray:
        """The matrix of the first rule without the column "no decision". Not a copy: it may take most of the memory."""
        return self._room()[0, :, 1:]


class TopConfusionState(ConfusionState):
    """A confusion matrix, and how many samples had their true class among the best ones.

    Example:
        >>> state = TopConfusionState(2).update(np.array([0, 1]), np.array([0, 0]), np.array([[1, 1], [0, 1]]))
        >>> state.hits.tolist()
        [1, 2]
    """

    reductions = {**ConfusionState.reductions, "hits": SUM}
    hits: np.ndarray

    def update(self, truth: np.ndarray, predicted: np.ndarray, hits: np.ndarray) -> TopConfusionState:  # type: ignore[override]
        """Counts as :meth:`ConfusionState.update`, and the hits (samples, rules for a hit)."""
        super().update(truth, predicted)
        self.add("hits", np.count_nonzero(hits, axis=0))
        return self
