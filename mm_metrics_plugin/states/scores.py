"""States of scores: all of them, those of the last batches, or their histogram."""

from __future__ import annotations

from collections import deque
from typing import Deque, Optional, Tuple, Union

import numpy as np

from mm_metrics_plugin.functional.classification.score_bins import bin_scores
from mm_metrics_plugin.states.base import CONCAT, SUM, RowBuffer, State


class ScoreState(State):
    """Every score and label, packed: what exact ranking metrics need.

    Example:
        >>> state = ScoreState().update(np.array([[0.9, 0.1]]), np.array([0]))
        >>> len(state.scores), state.arrays()["labels"].tolist()
        (1, [0])
    """

    reductions = {"scores": CONCAT, "labels": CONCAT}
    scores: RowBuffer
    labels: RowBuffer

    def update(self, scores: np.ndarray, labels: np.ndarray) -> ScoreState:
        """Keeps the scores (samples, classes) and the labels: (samples), or (samples, classes) of 1, 0 and -1."""
        self.add("scores", scores)
        self.add("labels", labels)
        return self


class RecentScoreState(ScoreState):
    """The scores and labels of the last batches only.

    Args:
        num_batches: How many updates are remembered.

    Example:
        >>> state = RecentScoreState(1)
        >>> _ = state.update(np.array([[0.9, 0.1]]), np.array([0])).update(np.array([[0.2, 0.8]]), np.array([1]))
        >>> state.arrays()["labels"].tolist()
        [1]
    """

    def __init__(self, num_batches: int) -> None:
        self.num_batches = num_batches
        super().__init__()

    def _clear(self) -> None:
        super()._clear()
        self._recent: Deque[Tuple[np.ndarray, np.ndarray]] = deque(maxlen=self.num_batches)

    def update(self, scores: np.ndarray, labels: np.ndarray) -> RecentScoreState:
        """Remembers this batch and forgets the one ``num_batches`` ago."""
        self._recent.append((scores, labels))
        # Buffers that only point at the batches: nothing is copied, however many are remembered.
        self.scores, self.labels = RowBuffer(), RowBuffer()
        for recent_scores, recent_labels in self._recent:
            self.scores = self.scores.joined(RowBuffer.of(recent_scores))
            self.labels = self.labels.joined(RowBuffer.of(recent_labels))
        return self


class ScoreHistogramState(State):
    """How the scores of each class are spread, over all samples and over its own.

    Args:
        num_bins: Bins a class; memory is 16 bytes a bin and class, whatever the number of samples.

    Example:
        >>> state = ScoreHistogramState(4).update(np.array([[0.9, 0.1]], dtype=np.float32), np.array([0]))
        >>> state.totals.tolist(), state.positives.sum(axis=1).tolist()
        ([[0, 0, 1, 0], [0, 1, 0, 0]], [1, 0])
    """

    reductions = {"totals": SUM, "positives": SUM}
    totals: np.ndarray
    positives: np.ndarray

    def __init__(self, num_bins: int) -> None:
        self.num_bins = num_bins
        super().__init__()

    def update(self, scores: np.ndarray, labels: np.ndarray) -> ScoreHistogramState:
        """Counts the scores (samples, classes), each in [0, 1], and the labels.

        Labels are classes (samples), or (samples, classes) of 1, 0 and -1, where scores with -1 are not counted.
        """
        num_classes = scores.shape[1]
        if self.totals is None:
            self.totals = np.zeros((num_classes, self.num_bins), dtype=np.int64)
            self.positives = np.zeros((num_classes, self.num_bins), dtype=np.int64)
        bins = bin_scores(scores, num_bins=self.num_bins)
        # Class by class, so that neighbours in memory are counted one after the other. In place: the histograms are
        # far larger than a batch, so nothing of their size may be made for one.
        cells = bins.T + (np.arange(num_classes) * self.num_bins)[:, None]
        if labels.ndim == 2:
            truth = labels.T
            np.add.at(self.totals.reshape(-1), cells[truth >= 0], 1)
            np.add.at(self.positives.reshape(-1), cells[truth == 1], 1)
        else:
            np.add.at(self.totals.reshape(-1), cells.reshape(-1), 1)
            np.add.at(self.positives, (labels, bins[np.arange(len(labels)), labels]), 1)
        return self


def score_state(num_thresholds: Optional[int]) -> Union[ScoreState, ScoreHistogramState]:
    """Every score, or with ``num_thresholds`` their histogram of that many bins.

    Example:
        >>> type(score_state(None)).__name__, type(score_state(200)).__name__
        ('ScoreState', 'ScoreHistogramState')
    """
    return ScoreState() if num_thresholds is None else ScoreHistogramState(num_thresholds)


class DecisionState(State):
    """How often each class was decided, was right and was true, for one or more rules of decision.

    Args:
        num_classes: How many classes there are.

    Example:
        >>> state = DecisionState(2).update(np.array([[1], [0], [-1]]), np.array([1, 1, 0]))
        >>> state.right.tolist(), state.decided.tolist(), state.support.tolist()
        ([[0, 1]], [[1, 1]], [1, 2])
    """

    reductions = {"right": SUM, "decided": SUM, "support": SUM}
    right: np.ndarray
    decided: np.ndarray
    support: np.ndarray

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        super().__init__()

    def update(self, decisions: np.ndarray, labels: np.ndarray) -> DecisionState:
        """Counts the decisions (samples, rules), -1 for none, and the labels (samples)."""
        rules = decisions.shape[1]
        cells = decisions + np.arange(rules) * self.num_classes
        for name, wanted in (("decided", decisions >= 0), ("right", decisions == labels[:, None])):
            counts = np.bincount(cells[wanted], minlength=rules * self.num_classes)
            self.add(name, counts.reshape(rules, self.num_classes))
        self.add("support", np.bincount(labels, minlength=self.num_classes))
        return self

    def histograms(self) -> Tuple[np.ndarray, np.ndarray]:
        """The decisions as histograms of two bins (rules, classes, no or yes): positives and totals."""
        total = self.support.sum()
        return (
            np.stack([self.support - self.right, self.right], axis=-1),
            np.stack([total - self.decided, self.decided], axis=-1),
        )
