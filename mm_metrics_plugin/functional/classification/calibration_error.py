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

    ece: float  # expected calibration error: the mean of ``|accuracy - confidence|`` over the bins, weighted by count
    mce: float  # maximum calibration error: the largest of them
    edges: np.ndarray  # the bins' edges, one more than there are bins
    counts: np.ndarray  # how many samples fall in each bin
    accuracy: np.ndarray  # the share of right decisions in each bin; NaN for an empty one
    confidence: np.ndarray  # the mean confidence of each bin; NaN for an empty one
    ece_error: float = 0.0  # bound on the distance of ``ece`` from its exact value over these bins
    mce_error: float = 0.0  # likewise of ``mce``


def calibration_error(
    confidence: np.ndarray, right: np.ndarray, *, num_bins: int = 15, binning: str = "equal-width"
) -> CalibrationResult:
    """Expected and maximum calibration error of confidences.

    A confidence on an edge belongs to the lower bin, as in scikit-learn's ``calibration_curve``.

    Args:
        confidence: Confidence of each decision, from 0 to 1.
        right: Whether it was right.
        num_bins: How many bins.
        binning: ``'equal-width'`` on 0 to 1, or ``'equal-mass'`` with the quantiles of the confidences as edges.

    Example:
        >>> result = calibration_error(np.array([0.9, 0.9, 0.6, 0.55]), np.array([1, 0, 1, 1]), num_bins=2)
        >>> round(result.ece, 6), result.counts.tolist()
        (0.0125, [0, 4])
    """
    # In a fixed order, so that the sums are the same in whatever order the samples came.
    order = np.lexsort((right, confidence))
    confidence = np.asarray(confidence, dtype=np.float64)[order]
    right = np.asarray(right)[order]
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    if binning == "equal-mass":
        edges = np.quantile(confidence, edges) if len(confidence) else np.full(num_bins + 1, np.nan)
    return _result(edges, np.searchsorted(edges[1:-1], confidence), confidence, np.ones(len(right)), right)


def histogram_calibration(
    positives: np.ndarray, totals: np.ndarray, *, num_bins: int = 15, binning: str = "equal-width"
) -> CalibrationResult:
    """:func:`calibration_error` from the right decisions and all decisions in the cells of a histogram, with bounds.

    The edges of the bins are moved to the nearest ones of the histogram, and a confidence on an edge belongs to the
    upper bin. Each confidence counts as the middle of its cell.
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
    # Scores of double precision may be rounded over an edge by half a unit of single precision.
    half_widths = (highest - lowest) / 2 + 2.0**-24
    return _result(edges, bins, (lowest + highest) / 2, totals, positives, half_widths)


def _result(
    edges: np.ndarray,
    bins: np.ndarray,
    confidence: np.ndarray,
    counts: np.ndarray,
    right: np.ndarray,
    half_widths: Any = 0.0,
) -> CalibrationResult:
    """The diagram of rows that stand for ``counts`` decisions each, ``right`` of them right."""

    def add_up(values: np.ndarray) -> np.ndarray:
        return np.bincount(bins, weights=values, minlength=len(edges) - 1)

    size = add_up(counts)
    accuracy, mean, slack = (divide(add_up(v), size) for v in (right, confidence * counts, half_widths * counts))
    there = size > 0
    gaps = np.abs(accuracy - mean)[there]
    nothing = not len(gaps)
    return CalibrationResult(
        ece=float("nan") if nothing else float((gaps * size[there]).sum() / size.sum()),
        mce=float("nan") if nothing else float(gaps.max()),
        edges=edges,
        counts=size.astype(np.int64),
        accuracy=accuracy,
        confidence=mean,
        ece_error=float("nan") if nothing else float((slack * size)[there].sum() / size.sum()),
        mce_error=float("nan") if nothing else float(slack[there].max()),
    )


_AT_ONCE = 1 << 20  # scores


def brier_terms(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The squared distance of every sample's probabilities from the one-hot label; the mean is Brier's score."""
    terms = np.empty(len(labels))
    step = max(1, _AT_ONCE // max(1, np.shape(scores)[1]))
    for start in range(0, len(labels), step):  # in parts: all of them in double precision may not fit the memory
        distance = np.array(scores[start : start + step], dtype=np.float64)
        distance[np.arange(len(distance)), labels[start : start + step]] -= 1
        terms[start : start + step] = np.square(distance, out=distance).sum(axis=1)
    return terms


def log_terms(scores: np.ndarray, labels: np.ndarray, *, floor: float = 0.0) -> np.ndarray:
    """Minus the logarithm of the true class's probability, which counts as at least ``floor``."""
    own = np.maximum(scores[np.arange(len(labels)), labels].astype(np.float64), floor)
    with np.errstate(divide="ignore"):
        return -np.log(own)
