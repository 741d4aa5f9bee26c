"""How far predicted probabilities can be taken at their word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np

from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.classification.score_bins import bin_edges

BINNINGS = ("equal-width", "equal-mass")


@dataclass(frozen=True)
class CalibrationResult:
    """A reliability diagram and the errors read off it.

    Attributes:
        ece: Expected calibration error: the mean of ``|accuracy - confidence|`` over the bins, weighted by count.
        mce: Maximum calibration error: the largest of them.
        edges: The bins' edges, one more than there are bins.
        counts: How many samples fall in each bin.
        accuracy: The share of right decisions in each bin; NaN for an empty one.
        confidence: The mean confidence of each bin; NaN for an empty one.
        ece_error: How far at most ``ece`` is from its exact value over these bins; 0 where confidences are known.
        mce_error: Likewise of ``mce``.
    """

    ece: float
    mce: float
    edges: np.ndarray
    counts: np.ndarray
    accuracy: np.ndarray
    confidence: np.ndarray
    ece_error: float = 0.0
    mce_error: float = 0.0

    def to_dict(self) -> Dict[str, Any]:
        """The result as plain Python values."""
        return {
            "ece": self.ece,
            "mce": self.mce,
            "edges": self.edges.tolist(),
            "counts": self.counts.tolist(),
            "accuracy": self.accuracy.tolist(),
            "confidence": self.confidence.tolist(),
            "ece_error": self.ece_error,
            "mce_error": self.mce_error,
        }

    def __str__(self) -> str:
        return f"ECE {self.ece:.6f}, MCE {self.mce:.6f} over {len(self.counts)} bins"


def calibration_error(
    confidence: np.ndarray, right: np.ndarray, *, num_bins: int = 15, binning: str = "equal-width"
) -> CalibrationResult:
    """Compares how sure decisions were with how often they were right.

    A confidence on an edge belongs to the lower bin, as in scikit-learn's ``calibration_curve``; equal confidences
    are never parted.

    Args:
        confidence: How sure each decision was, from 0 to 1.
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
    """The same from a histogram of confidences: constant memory, and bounds on what that costs.

    The edges of the bins are moved to the nearest ones of the histogram, and a confidence on an edge belongs to the
    upper bin. Each confidence is taken for the middle of its cell in the histogram, hence the two errors.

    Args:
        positives: How many decisions of each cell (see ``score_bins.bin_edges``)
            were right.
        totals: How many decisions fell in each cell.
        num_bins: How many bins.
        binning: As in :func:`calibration_error`.

    Example:
        >>> from mm_metrics_plugin.functional.classification.score_bins import bin_scores
        >>> cells = bin_scores(np.array([0.9, 0.9, 0.6, 0.55]), num_bins=4096)
        >>> totals = np.bincount(cells, minlength=4096)
        >>> right = np.bincount(cells, weights=[1, 0, 1, 1], minlength=4096)
        >>> result = histogram_calibration(right, totals, num_bins=2)
        >>> abs(result.ece - 0.0125) <= result.ece_error < 0.004
        True
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
    """The squared distance of every sample's probabilities from the truth, added up over the classes.

    Its mean is Brier's original score, from 0 to 2. In the two-class case it is twice what is often given.

    Example:
        >>> brier_terms(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 0])).round(6).tolist()
        [0.02, 0.98]
    """
    terms = np.empty(len(labels))
    step = max(1, _AT_ONCE // max(1, np.shape(scores)[1]))
    for start in range(0, len(labels), step):  # in parts: all of them in double precision may not fit the memory
        distance = np.array(scores[start : start + step], dtype=np.float64)
        distance[np.arange(len(distance)), labels[start : start + step]] -= 1
        terms[start : start + step] = np.square(distance, out=distance).sum(axis=1)
    return terms


def log_terms(scores: np.ndarray, labels: np.ndarray, *, floor: float = 0.0) -> np.ndarray:
    """Minus the logarithm of the probability that every sample gives to its true class.

    Args:
        scores: One row a sample, one column a class.
        labels: The true class of each sample.
        floor: Probabilities below this count as this; with 0, a true class of probability 0 gives infinity.

    Example:
        >>> log_terms(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 1])).round(6).tolist()
        [0.693147, inf]
    """
    own = np.maximum(scores[np.arange(len(labels)), labels].astype(np.float64), floor)
    with np.errstate(divide="ignore"):
        return -np.log(own)
