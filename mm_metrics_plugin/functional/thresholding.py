"""Score thresholds, compared in the precision of each score.

A score of 0.7 is 0.69921875 in bfloat16 and 0.699999988 in float32. It reaches a threshold of 0.7 in every precision,
because the threshold is rounded to the same precision first. Scores may be stored in a wider dtype (NumPy has no
bfloat16), so the precision of each score is stored as a code, an index into ``PRECISIONS``.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

PRECISIONS = ("float64", "float32", "float16", "bfloat16")
FLOAT64, FLOAT32, FLOAT16, BFLOAT16 = range(len(PRECISIONS))
NO_DECISION = -1

_BFLOAT16_BITS = 8  # of the significand, the hidden one included
_BFLOAT16_LEAST = -133  # exponent of the least subnormal number
_BFLOAT16_LARGEST = float.fromhex("0x1.fep127")


def precision_of(dtype: Any) -> int:
    """The precision code of a NumPy dtype; float64 for integers and wider floats."""
    dtype = np.dtype(dtype)
    return {2: FLOAT16, 4: FLOAT32}.get(dtype.itemsize, FLOAT64) if dtype.kind == "f" else FLOAT64


def round_thresholds(thresholds: Any) -> np.ndarray:
    """Thresholds rounded to each of ``PRECISIONS``, as rows of float64."""
    exact = np.asarray(thresholds, dtype=np.float64)
    with np.errstate(over="ignore"):
        single, half = exact.astype(np.float32), exact.astype(np.float16)
    return np.stack([exact, single.astype(np.float64), half.astype(np.float64), _to_bfloat16(exact)])


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    finite = np.where(np.isfinite(values), values, 0.0)
    step = np.maximum(np.frexp(finite)[1] - _BFLOAT16_BITS, _BFLOAT16_LEAST)
    rounded = np.ldexp(np.rint(np.ldexp(finite, -step)), step)
    rounded = np.where(np.abs(rounded) > _BFLOAT16_LARGEST, np.copysign(np.inf, rounded), rounded)
    return np.where(np.isfinite(values), rounded, values)


def limits_for(scores: np.ndarray, thresholds: Any, precision: np.ndarray | None = None) -> np.ndarray:
    """Thresholds in the precision of each row of scores: (rows,) or (rows, thresholds).

    ``precision`` are the codes of the rows. None uses the dtype of the scores, and gives a single row.
    """
    rounded = round_thresholds(thresholds)
    codes = np.array([precision_of(scores.dtype)]) if precision is None else np.asarray(precision)
    return np.asarray(rounded[codes], dtype=scores.dtype)


def reach(scores: np.ndarray, threshold: float, precision: np.ndarray | None = None) -> np.ndarray:
    """Whether each score is at least the threshold, in the precision of the score."""
    limits = limits_for(scores, threshold, precision)
    return scores >= limits.reshape(-1, *[1] * (scores.ndim - 1))


def hard_decisions(
    scores: np.ndarray, *, thresholds: Sequence[float], precision: np.ndarray | None = None
) -> np.ndarray:
    """Predicted classes (samples, thresholds): the argmax, or -1 where its score is not above the threshold.

    Args:
        scores: (samples, classes). Ties go to the lower class index.
        thresholds: Score thresholds, rounded to the precision of each score.
        precision: Precision code of each sample. None uses the dtype of the scores.

    Example:
        >>> hard_decisions(np.array([[0.2, 0.8], [0.55, 0.45]]), thresholds=[0.5, 0.6]).tolist()
        [[1, 1], [0, -1]]
    """
    best = scores.argmax(axis=1)
    height = scores[np.arange(len(best)), best]
    above = height[:, None] > limits_for(scores, list(thresholds), precision)
    return np.where(above, best[:, None], NO_DECISION)
