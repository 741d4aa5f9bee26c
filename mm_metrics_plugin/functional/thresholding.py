"""Score thresholds, compared in the precision of each score.

A score of 0.7 is 0.69921875 in bfloat16 and 0.699999988 in float32. It reaches a threshold of 0.7 in every precision,
because the threshold is rounded to the same precision first. Scores may be stored in a wider dtype (NumPy has no
bfloat16), so the precision of each score is stored as a code, an index into ``PRECISIONS``.
"""

from __future__ import annotations

from typing import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.settings import number_text

PRECISIONS = ("float64", "float32", "float16", "bfloat16")
FLOAT64, FLOAT32, FLOAT16, BFLOAT16 = range(len(PRECISIONS))
NO_DECISION = -1
MIN_DECIMALS, MAX_DECIMALS = 4, 15  # of the text of a threshold

_BFLOAT16_BITS = 8  # of the significand, the hidden one included
_BFLOAT16_LEAST = -133  # exponent of the least subnormal number
_BFLOAT16_LARGEST = float.fromhex("0x1.fep127")


def precision_of(dtype: npt.DTypeLike) -> int:
    """The precision code of a NumPy dtype; float64 for integers and wider floats."""
    dtype = np.dtype(dtype)
    return {2: FLOAT16, 4: FLOAT32}.get(dtype.itemsize, FLOAT64) if dtype.kind == "f" else FLOAT64


def precision_codes(dtype: npt.DTypeLike, precision: np.ndarray | None = None) -> list[int]:
    """The distinct precision codes of scores. ``precision`` are the codes of the scores; None uses the dtype."""
    return [precision_of(dtype)] if precision is None else np.unique(precision).tolist()


def round_thresholds(thresholds: npt.ArrayLike) -> np.ndarray:
    """Thresholds rounded to each of ``PRECISIONS``, as rows of float64."""
    exact = np.asarray(thresholds, dtype=np.float64)
    return np.stack([_round_to(code, exact) for code in range(len(PRECISIONS))])


def _round_to(code: int, exact: np.ndarray) -> np.ndarray:
    """Thresholds rounded to the precision with this code, as float64."""
    if code == BFLOAT16:
        return _to_bfloat16(exact)
    with np.errstate(over="ignore"):
        return np.asarray(exact.astype(PRECISIONS[code]), dtype=np.float64)


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    finite = np.where(np.isfinite(values), values, 0.0)
    step = np.maximum(np.frexp(finite)[1] - _BFLOAT16_BITS, _BFLOAT16_LEAST)
    rounded = np.ldexp(np.rint(np.ldexp(finite, -step)), step)
    rounded = np.where(np.abs(rounded) > _BFLOAT16_LARGEST, np.copysign(np.inf, rounded), rounded)
    return np.where(np.isfinite(values), rounded, values)


def rounded_limits(scores: np.ndarray, thresholds: npt.ArrayLike, precision: np.ndarray | None = None) -> np.ndarray:
    """Thresholds in the precision of each row of scores: (rows,) or (rows, thresholds).

    ``precision`` are the codes of the rows. None uses the dtype of the scores, and gives a single row.
    """
    rounded = round_thresholds(thresholds)
    codes = np.array([precision_of(scores.dtype)]) if precision is None else np.asarray(precision)
    return np.asarray(rounded[codes], dtype=scores.dtype)


def reach(scores: np.ndarray, threshold: float, precision: np.ndarray | None = None) -> np.ndarray:
    """Whether each score is at least the threshold, in the precision of the score."""
    limits = rounded_limits(scores, threshold, precision)
    return scores >= limits.reshape(-1, *[1] * (scores.ndim - 1))


class Threshold(float):
    """A score threshold; ``text`` is a short decimal number that selects the same scores."""

    text: str

    def __new__(cls, value: float, text: str) -> Threshold:
        """The exact threshold with its text."""
        threshold = super().__new__(cls, value)
        threshold.text = text
        return threshold

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.text


def threshold_text(threshold: float) -> str:
    """The text of a threshold: its own, or one that selects the same scores whatever the scores are.

    A threshold that is a number of single precision is taken for a score of single precision.

    Example:
        >>> threshold_text(float(np.float32(0.99998936))), threshold_text(0.5)
        ('0.99998933', '0.5000')
    """
    if isinstance(threshold, Threshold):
        return threshold.text
    single = np.float32(threshold)
    score = single if float(single) == threshold else np.float64(threshold)
    neighbors = np.array([np.nextafter(score, score.dtype.type(-np.inf)), score])
    codes = {FLOAT64, precision_of(score.dtype)}
    return decimal_thresholds([threshold], [(code, neighbors) for code in codes])[0].text


def decimal_thresholds(thresholds: npt.ArrayLike, groups: Sequence[tuple[int, np.ndarray]]) -> list[Threshold]:
    """Thresholds with texts that select the same scores.

    A text has four decimals, rounded to nearest or else down, and more decimals if these select other scores.

    Args:
        thresholds: Score thresholds.
        groups: Precision codes, each with its scores in ascending order.

    Example:
        >>> scores = np.array([0.2, 0.99996, 0.99998936])
        >>> [threshold.text for threshold in decimal_thresholds(scores, [(FLOAT64, scores)])]
        ['0.2000', '0.9999', '0.99998']
    """
    exact = np.asarray(thresholds, dtype=np.float64)
    steps = 10.0 ** np.arange(MIN_DECIMALS, MAX_DECIMALS + 1)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = exact[:, None, None] * steps
        decimals = np.concatenate([np.rint(scaled), np.floor(scaled)], axis=2) / steps  # (thresholds, digits, 2)
    selects_same = np.ones(decimals.shape, dtype=bool)
    for code, ascending in groups:  # the lowest score that reaches a threshold
        first = np.searchsorted(ascending, _round_to(code, exact))
        selects_same &= np.searchsorted(ascending, _round_to(code, decimals)) == first[:, None, None]
    selects_same &= np.isfinite(exact)[:, None, None]
    texts = []
    for threshold, values, same in zip(exact.tolist(), decimals, selects_same):
        digits, rounding = divmod(int(same.argmax()), 2)
        text = f"{values[digits, rounding]:.{MIN_DECIMALS + digits}f}" if same.any() else number_text(threshold)
        texts.append(Threshold(threshold, text))
    return texts


def is_mixed(precision: np.ndarray | None) -> bool:
    """Whether there is more than one precision code."""
    return precision is not None and len(precision) > 0 and bool(precision.min() != precision.max())


def count_reaching(groups: Iterable[tuple[int, np.ndarray]], thresholds: np.ndarray) -> np.ndarray:
    """(thresholds,) number of scores that reach each threshold.

    Args:
        groups: Precision codes, each with its scores in ascending order.
        thresholds: Score thresholds; no score reaches NaN.

    Example:
        >>> groups = [(FLOAT32, np.float32([0.5, 0.7])), (BFLOAT16, np.float32([0.69921875]))]
        >>> count_reaching(groups, np.array([0.5, 0.7])).tolist()
        [3, 2]
    """
    counts, exact = np.zeros(len(thresholds), dtype=np.int64), np.asarray(thresholds, dtype=np.float64)
    for code, ascending in groups:
        counts += len(ascending) - np.searchsorted(ascending, _round_to(code, exact), side="left")
    return counts


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
    above = height[:, None] > rounded_limits(scores, list(thresholds), precision)
    return np.where(above, best[:, None], NO_DECISION)
