"""Calibration errors, Brier score and log loss of predicted probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, divide
from mm_metrics_plugin.functional.classification.histograms import bin_edges

BINNINGS = ("equal-width", "equal-mass")


@dataclass(frozen=True)
class CalibrationResult(Result):
    """A reliability diagram and its errors."""

    ece: float  # expected calibration error: mean of ``|accuracy - confidence|`` over the bins, weighted by count
    mce: float  # maximum calibration error
    edges: np.ndarray  # (bins + 1,) bin edges
    counts: np.ndarray  # (bins,) number of samples
    accuracy: np.ndarray  # (bins,) fraction of correct predictions; NaN for an empty bin
    confidence: np.ndarray  # (bins,) mean confidence; NaN for an empty bin
    ece_error: float = 0.0  # bound on the error of ``ece`` if it is from a histogram
    mce_error: float = 0.0  # bound on the error of ``mce``


def calibration_error(
    confidence: np.ndarray, correct: np.ndarray, *, num_bins: int = 15, binning: str = "equal-width"
) -> CalibrationResult:
    """Expected and maximum calibration error of confidences.

    A confidence on an edge belongs to the lower bin, as in scikit-learn's ``calibration_curve``.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.
        num_bins: Number of bins.
        binning: ``'equal-width'``, or ``'equal-mass'`` with the quantiles of the confidences as edges.

    Example:
        >>> result = calibration_error(np.array([0.9, 0.9, 0.6, 0.55]), np.array([1, 0, 1, 1]), num_bins=2)
        >>> round(result.ece, 6), result.counts.tolist()
        (0.0125, [0, 4])
    """
    # Sorted, so that the order of the samples does not change the sums.
    order = np.lexsort((correct, confidence))
    confidence = np.asarray(confidence, dtype=np.float64)[order]
    correct = np.asarray(correct)[order]
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    if binning == "equal-mass":
        edges = np.quantile(confidence, edges) if len(confidence) else np.full(num_bins + 1, np.nan)
    return _result(edges, np.searchsorted(edges[1:-1], confidence), confidence, np.ones(len(correct)), correct)


def histogram_calibration(
    positives: np.ndarray, totals: np.ndarray, *, num_bins: int = 15, binning: str = "equal-width"
) -> CalibrationResult:
    """:func:`calibration_error` from histograms of correct and of all predictions, with bounds on the error.

    The bin edges are moved to the nearest edges of the histogram, and a confidence on an edge belongs to the upper bin.
    """
    lowest = bin_edges(len(totals))
    highest = np.append(lowest[1:], 1.0)
    steps = np.arange(1, num_bins) / num_bins
    where = (
        np.append(lowest, 1.0) if binning == "equal-width" else np.append(0, np.cumsum(totals)) / max(1, totals.sum())
    )
    after = np.clip(np.searchsorted(where, steps), 1, len(totals))
    inner = np.where(steps - where[after - 1] < where[after] - steps, after - 1, after)
    edges = np.concatenate([[0.0], np.append(lowest, 1.0)[inner], [1.0]])
    bins = np.searchsorted(inner, np.arange(len(totals)), side="right")
    # Rounding to float32 may move a float64 score over an edge.
    half_widths = (highest - lowest) / 2 + 2.0**-24
    return _result(edges, bins, (lowest + highest) / 2, totals, positives, half_widths)


def _result(
    edges: np.ndarray,
    bins: np.ndarray,
    confidence: np.ndarray,
    counts: np.ndarray,
    correct: np.ndarray,
    half_widths: Any = 0.0,
) -> CalibrationResult:
    """The diagram of rows that represent ``counts`` predictions each, ``correct`` of them correct."""

    def bin_sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(bins, weights=values, minlength=len(edges) - 1)

    size = bin_sums(counts)
    accuracy, mean, error = (divide(bin_sums(v), size) for v in (correct, confidence * counts, half_widths * counts))
    used = size > 0

    def mean_and_max(values: np.ndarray) -> tuple[float, float]:
        if not used.any():
            return float("nan"), float("nan")
        return float((values * size)[used].sum() / size.sum()), float(values[used].max())

    ece, mce = mean_and_max(np.abs(accuracy - mean))
    ece_error, mce_error = mean_and_max(error)
    return CalibrationResult(ece, mce, edges, size.astype(np.int64), accuracy, mean, ece_error, mce_error)


_BLOCK_SCORES = 1 << 20  # converted to float64 at a time


def brier_terms(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Squared distance of each sample's probabilities from the one-hot label; the mean is the Brier score."""
    terms = np.empty(len(labels))
    step = max(1, _BLOCK_SCORES // max(1, np.shape(scores)[1]))
    for start in range(0, len(labels), step):
        distance = np.array(scores[start : start + step], dtype=np.float64)
        distance[np.arange(len(distance)), labels[start : start + step]] -= 1
        terms[start : start + step] = np.square(distance, out=distance).sum(axis=1)
    return terms


def log_terms(scores: np.ndarray, labels: np.ndarray, *, floor: float = 0.0) -> np.ndarray:
    """Negative log-likelihood of each sample; the probability of the true class is clipped to at least ``floor``."""
    probability = np.maximum(scores[np.arange(len(labels)), labels].astype(np.float64), floor)
    with np.errstate(divide="ignore"):
        terms: np.ndarray = -np.log(probability)
    return terms
