"""How far predicted probabilities can be taken at their word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np

from mm_metrics_plugin.functional.averaging import divide

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
    """

    ece: float
    mce: float
    edges: np.ndarray
    counts: np.ndarray
    accuracy: np.ndarray
    confidence: np.ndarray

    def to_dict(self) -> Dict[str, Any]:
        """The result as plain Python values."""
        return {
            "ece": self.ece,
            "mce": self.mce,
            "edges": self.edges.tolist(),
            "counts": self.counts.tolist(),
            "accuracy": self.accuracy.tolist(),
            "confidence": self.confidence.tolist(),
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
    cells = np.searchsorted(edges[1:-1], confidence)
    counts = np.bincount(cells, minlength=num_bins)
    accuracy = divide(np.bincount(cells, weights=right, minlength=num_bins), counts)
    mean = divide(np.bincount(cells, weights=confidence, minlength=num_bins), counts)
    gaps = np.abs(accuracy - mean)[counts > 0]
    nothing = not len(gaps)
    return CalibrationResult(
        ece=float("nan") if nothing else float((gaps * counts[counts > 0]).sum() / len(confidence)),
        mce=float("nan") if nothing else float(gaps.max()),
        edges=edges,
        counts=counts,
        accuracy=accuracy,
        confidence=mean,
    )


def brier_terms(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The squared distance of every sample's probabilities from the truth, added up over the classes.

    Its mean is Brier's original score, from 0 to 2. In the two-class case it is twice what is often given.

    Example:
        >>> brier_terms(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 0])).round(6).tolist()
        [0.02, 0.98]
    """
    distance = np.array(scores, dtype=np.float64)
    distance[np.arange(len(labels)), labels] -= 1
    return np.square(distance, out=distance).sum(axis=1)


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
