"""States of counts: confusion matrices, hits, true and false positives, pairs, key points."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional.ranking import count_pairs
from mm_metrics_plugin.settings import require_int
from mm_metrics_plugin.states.base import SUM, State


class MatrixState(State):
    """Confusion matrices (rules, ground truth, prediction) with a last column for "no decision" or background.

    Args:
        num_classes: Number of classes.
        num_rules: Number of decision rules, such as thresholds, each with its own matrix.
    """

    reductions = {"cells": SUM}
    cells: np.ndarray  # None before the first update
    background_rows = 0  # rows after those of the classes, for predictions without a ground truth

    def __init__(self, num_classes: int, num_rules: int = 1) -> None:
        self.num_classes = require_int("num_classes", num_classes, low=0)
        self.num_rules = require_int("num_rules", num_rules, low=1)
        super().__init__()

    def add_cells(self, indices: np.ndarray) -> None:
        """Count flat indices into ``matrices``."""
        cells = self.matrices
        if indices.size < cells.size // 8:
            # A matrix of 1,000 classes is far larger than a batch, so no array of its size is allocated for a batch.
            np.add.at(cells.reshape(-1), indices, 1)
        else:
            cells += np.bincount(indices, minlength=cells.size).reshape(cells.shape)

    @property
    def matrices(self) -> np.ndarray:
        """One matrix per rule."""
        if self.cells is None:
            rows = self.num_classes + self.background_rows
            self.cells = np.zeros((self.num_rules, rows, self.num_classes + 1), dtype=np.int64)
        return self.cells

    @property
    def matrix(self) -> np.ndarray:
        """The matrix of the first rule."""
        return np.asarray(self.matrices[0])


class ConfusionState(MatrixState):
    """Confusion matrices of labels and decisions, and the number of samples that meet other conditions."""

    reductions = {"cells": SUM, "hits": SUM}
    hits: np.ndarray

    def update(self, target: np.ndarray, predicted: np.ndarray, hits: np.ndarray | None = None) -> ConfusionState:
        """Count labels (samples) and predicted classes (samples) or (samples, rules); -1 is no decision.

        ``hits`` (samples, conditions) are booleans, such as whether the true class is among the k highest scores.
        """
        rows = target.astype(np.int64)
        if predicted.ndim == 2:
            rows = rows[:, None] + np.arange(self.num_rules) * self.num_classes
        indices = rows * (self.num_classes + 1) + predicted
        indices[predicted < 0] += self.num_classes + 1  # -1 becomes the last column
        self.add_cells(indices.reshape(-1))
        if hits is not None:
            self.add("hits", np.count_nonzero(hits, axis=0))
        return self


class PixelConfusionState(MatrixState):
    """The confusion matrix of the pixels of label maps."""

    def update(self, matrices: np.ndarray) -> PixelConfusionState:
        """Add matrices (any number, classes, classes)."""
        self.matrices[0, :, : self.num_classes] += matrices.sum(axis=0)
        return self


class DecisionState(State):
    """Numbers of decisions, correct decisions and samples of each class, for one or more decision rules."""

    reductions = {"correct": SUM, "decided": SUM, "support": SUM}
    correct: np.ndarray
    decided: np.ndarray
    support: np.ndarray

    def __init__(self, num_classes: int) -> None:
        self.num_classes = require_int("num_classes", num_classes, low=0)
        super().__init__()

    def update(self, decisions: np.ndarray, labels: np.ndarray) -> DecisionState:
        """Count the decisions (samples, rules), -1 for none, and the labels (samples)."""
        rules = decisions.shape[1]
        cells = decisions + np.arange(rules) * self.num_classes
        for name, mask in (("decided", decisions >= 0), ("correct", decisions == labels[:, None])):
            counts = np.bincount(cells[mask], minlength=rules * self.num_classes)
            self.add(name, counts.reshape(rules, self.num_classes))
        self.add("support", np.bincount(labels, minlength=self.num_classes))
        return self

    def histograms(self) -> tuple[np.ndarray, np.ndarray]:
        """The decisions as histograms of two bins (rules, classes, no or yes): positives and totals."""
        total = self.support.sum()
        return (
            np.stack([self.support - self.correct, self.correct], axis=-1),
            np.stack([total - self.decided, self.decided], axis=-1),
        )


class HitState(State):
    """The number of samples, and of samples that meet each of several conditions."""

    reductions = {"hits": SUM, "samples": SUM}
    hits: np.ndarray
    samples: np.ndarray

    def update(self, hits: np.ndarray) -> HitState:
        """Count the hits (samples, conditions)."""
        self.add("hits", np.count_nonzero(hits, axis=0))
        self.add("samples", np.int64(len(hits)))
        return self


class BinaryCountState(State):
    """TP, FP, FN and TN of every class of a multi-label task."""

    reductions = {"tp": SUM, "fp": SUM, "fn": SUM, "tn": SUM}
    tp: np.ndarray
    fp: np.ndarray
    fn: np.ndarray
    tn: np.ndarray

    def update(self, decided: np.ndarray, target: np.ndarray) -> BinaryCountState:
        """Count decisions (samples, classes) against targets of 1, 0, or -1 to be ignored."""
        positive, negative = target == 1, target == 0
        tp, fp = _column_counts(decided & positive), _column_counts(decided & negative)
        self.add("tp", tp)
        self.add("fp", fp)
        self.add("fn", _column_counts(positive) - tp)
        self.add("tn", _column_counts(negative) - fp)
        return self


def _column_counts(mask: np.ndarray) -> np.ndarray:
    """The number of true values per column; bytes, 255 rows at a time, are ten times as fast as booleans."""
    counts = np.zeros(mask.shape[1], dtype=np.int64)
    for start in range(0, len(mask), 255):
        counts += mask[start : start + 255].view(np.uint8).sum(axis=0, dtype=np.uint8)
    return counts


class PairState(State):
    """Numbers of correctly and wrongly ordered pairs of scores."""

    reductions = {"counts": SUM}
    counts: np.ndarray

    def update(self, positive: np.ndarray, negative: np.ndarray) -> PairState:
        """Count pairs of scores."""
        self.add("counts", np.array(count_pairs(positive, negative), dtype=np.int64))
        return self


class JointCountState(State):
    """Numbers of correct and labeled key points of each joint, and of objects without a size."""

    reductions = {"counts": SUM, "without_size": SUM}
    counts: np.ndarray  # (2, joints) correct and labeled
    without_size: np.ndarray

    def update(self, counts: np.ndarray, without_size: np.ndarray) -> JointCountState:
        """Add the counts (samples, 2, joints) and (samples,)."""
        self.add("counts", counts.sum(axis=0))
        self.add("without_size", without_size.sum())
        return self
