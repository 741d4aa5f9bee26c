"""States of scores: all scores, the last batches, histograms, and calibration."""

from __future__ import annotations

from collections import deque

import numpy as np

from mm_metrics_plugin.functional.classification.histograms import bin_scores
from mm_metrics_plugin.settings import require_int
from mm_metrics_plugin.states.base import CONCAT, SUM, RowBuffer, State, StateGroup
from mm_metrics_plugin.states.sums import ExactSumState


class ScoreState(State):
    """All scores and labels, for exact ranking metrics."""

    reductions = {"scores": CONCAT, "labels": CONCAT}
    scores: RowBuffer
    labels: RowBuffer

    def update(self, scores: np.ndarray, labels: np.ndarray) -> ScoreState:
        """Keep the scores (samples, classes) and the labels: (samples), or (samples, classes) of 1, 0 and -1."""
        self.add("scores", scores)
        self.add("labels", labels)
        return self


class ThresholdScoreState(ScoreState):
    """All scores and labels, and the precision code of each sample's scores, to which thresholds are rounded."""

    reductions = {**ScoreState.reductions, "precision": CONCAT}
    precision: RowBuffer

    def update(  # type: ignore[override]
        self, scores: np.ndarray, labels: np.ndarray, precision: np.ndarray
    ) -> ThresholdScoreState:
        """Keep the scores and labels as :class:`ScoreState` does, and the codes (samples)."""
        super().update(scores, labels)
        self.add("precision", np.asarray(precision, dtype=np.uint8))
        return self


class SampleState(ThresholdScoreState):
    """Also the indices of the samples, for reports."""

    reductions = {**ThresholdScoreState.reductions, "sample_idx": CONCAT}

    def update(  # type: ignore[override]
        self, scores: np.ndarray, labels: np.ndarray, precision: np.ndarray, sample_idx: np.ndarray
    ) -> SampleState:
        """Keep the columns of some samples."""
        super().update(scores, labels, precision)
        self.add("sample_idx", np.asarray(sample_idx, dtype=np.int64))
        return self


class RecentScoreState(ScoreState):
    """The scores and labels of the last ``num_batches`` batches."""

    def __init__(self, num_batches: int) -> None:
        self.num_batches = require_int("num_batches", num_batches, low=1)
        super().__init__()

    def _clear(self) -> None:
        super()._clear()
        self._recent: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=self.num_batches)

    def update(self, scores: np.ndarray, labels: np.ndarray) -> RecentScoreState:
        """Add a batch, and drop the oldest if there are more than ``num_batches``."""
        self._recent.append((scores, labels))
        # The buffers share the batches, which are not copied.
        self.scores, self.labels = RowBuffer(), RowBuffer()
        for recent_scores, recent_labels in self._recent:
            self.scores = self.scores.joined(RowBuffer.of(recent_scores))
            self.labels = self.labels.joined(RowBuffer.of(recent_labels))
        return self


class ScoreHistogramState(State):
    """Histograms of the scores of each class, of all samples and of its positives: 16 bytes per bin and class."""

    reductions = {"totals": SUM, "positives": SUM}
    totals: np.ndarray
    positives: np.ndarray

    def __init__(self, num_bins: int) -> None:
        self.num_bins = require_int("num_bins", num_bins, low=1)
        super().__init__()

    def update(self, scores: np.ndarray, labels: np.ndarray) -> ScoreHistogramState:
        """Count the scores (samples, classes), each in [0, 1]; labels as in :class:`ScoreState`.

        A score whose label is -1 is not counted.
        """
        num_classes = scores.shape[1]
        if self.totals is None:
            self.totals = np.zeros((num_classes, self.num_bins), dtype=np.int64)
            self.positives = np.zeros((num_classes, self.num_bins), dtype=np.int64)
        bins = bin_scores(scores, num_bins=self.num_bins)
        # By class, in the order of memory. In place, because the histograms are far larger than a batch.
        cells = bins.T + (np.arange(num_classes) * self.num_bins)[:, None]
        if labels.ndim == 2:
            np.add.at(self.totals.reshape(-1), cells[labels.T >= 0], 1)
            np.add.at(self.positives.reshape(-1), cells[labels.T == 1], 1)
        else:
            np.add.at(self.totals.reshape(-1), cells.reshape(-1), 1)
            np.add.at(self.positives, (labels, bins[np.arange(len(labels)), labels]), 1)
        return self


def score_state(num_thresholds: int | None) -> ScoreState | ScoreHistogramState:
    """Every score, or with ``num_thresholds`` their histogram with that many bins."""
    return ScoreState() if num_thresholds is None else ScoreHistogramState(num_thresholds)


class CalibrationState(StateGroup):
    """The confidence of every decision and whether it is correct, and exact sums of Brier and log terms."""

    def __init__(self, scores: ScoreState | ScoreHistogramState) -> None:
        super().__init__(scores=scores, terms=ExactSumState())

    def update(self, confidence: np.ndarray, correct: np.ndarray, terms: np.ndarray) -> CalibrationState:
        """Add confidences and decisions (samples), and terms (samples, sums), each at least 0."""
        self["scores"].update(confidence[:, None], correct.astype(np.int8)[:, None])
        # An infinite term makes the sum infinite; NaN leaves it out and out of the count.
        self["terms"].update(np.where(np.isinf(terms), np.nan, terms))
        return self

    def means(self) -> list[float]:
        """The mean term of each sum, correctly rounded; empty without samples."""
        terms = self["terms"]
        if terms.count is None or not terms.count.any():
            return []
        num_samples = terms.count.max()
        finite = terms.count == num_samples
        return [float(mean) if known else float("inf") for mean, known in zip(terms.means(), finite)]
