"""How sure an AUC is, and whether two differ: DeLong's variance from mid-ranks, in the time of a sort.

Every positive has a placement, the share of negatives below it (a tie counting half), every negative the share of
positives above it. The AUC is the mean of either, and its variance that of the placements of the positives divided by
their number plus the same of the negatives. The mean over classes treats samples as drawn one by one: what a sample
adds to the AUC of every class is added up before it is squared, so that classes need not be independent.

Reference: E. DeLong, D. DeLong, D. Clarke-Pearson, Biometrics 44 (1988); the sort is of X. Sun and W. Xu (2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from scipy.special import ndtr, ndtri

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.columns import map_columns
from mm_metrics_plugin.functional.image_counts import mean_of_defined
from mm_metrics_plugin.functional.intervals import Interval, check_level

_COLUMNS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class AUCIntervals:
    """The AUC of every class and their mean, with intervals.

    Attributes:
        level: How often such intervals hold the truth.
        per_class: One-vs-rest, arrays with one value a class; NaN where undefined.
        macro: The mean of the classes that have a value.
        standard_error: (classes,) square root of DeLong's variance.
        macro_standard_error: Of the mean.
    """

    level: float
    per_class: Interval
    macro: Interval
    standard_error: np.ndarray
    macro_standard_error: float

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {
            "level": self.level,
            "macro": {**self.macro.to_dict(), "standard_error": self.macro_standard_error},
            "per_class": {**self.per_class.to_dict(), "standard_error": self.standard_error.tolist()},
        }

    def __str__(self) -> str:
        return f"macro AUC {self.macro}, {100 * self.level:g} %"


@dataclass(frozen=True, eq=False)
class AUCComparison:
    """How the AUCs of two models on the same samples differ: second less first.

    Attributes:
        level: How often such intervals hold the truth.
        first: (classes,) AUCs of the first model.
        second: (classes,) of the second.
        difference: Per class, with interval.
        p_value: (classes,) of DeLong's test that there is none.
        macro_first: The mean of the first model's.
        macro_second: The mean of the second model's.
        macro: The difference of the means, with interval.
        macro_p_value: That there is none.
    """

    level: float
    first: np.ndarray
    second: np.ndarray
    difference: Interval
    p_value: np.ndarray
    macro_first: float
    macro_second: float
    macro: Interval
    macro_p_value: float

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {
            "level": self.level,
            "macro": {
                "first": self.macro_first,
                "second": self.macro_second,
                "difference": self.macro.to_dict(),
                "p_value": self.macro_p_value,
            },
            "per_class": {
                "first": self.first.tolist(),
                "second": self.second.tolist(),
                "difference": self.difference.to_dict(),
                "p_value": self.p_value.tolist(),
            },
        }

    def __str__(self) -> str:
        low, high = (f"{value:+.4f}" for value in (self.macro.low, self.macro.high))
        return f"macro AUC {self.macro.value:+.4f} [{low}, {high}], p = {self.macro_p_value:.3g}"


def _influence(column: np.ndarray, truth: np.ndarray) -> Tuple[float, np.ndarray]:
    """The AUC, and what each sample adds to it: sums of squares are DeLong's variance."""
    influence = np.zeros(len(column))
    positive, negative = truth == 1, truth == 0
    above, below = column[positive], column[negative]
    if not len(above) or not len(below):
        return float("nan"), influence
    sides = []
    for own, others in ((above, np.sort(below)), (below, np.sort(above))):
        # Twice the number of the other kind below each, a tie counting half: whole numbers.
        twice = np.searchsorted(others, own, side="left") + np.searchsorted(others, own, side="right")
        sides.append(twice / (2 * len(others)))
    auc = int((sides[0] * 2 * len(below)).round().astype(np.int64).sum()) / (2 * len(above) * len(below))
    sides[1] = 1 - sides[1]
    for rows, placement in zip((positive, negative), sides):
        number = len(placement)
        scale = np.sqrt(number / (number - 1)) if number > 1 else np.nan
        influence[rows] = (placement - auc) * scale / number
    return auc, influence


def _per_class(models: Sequence[Sequence[np.ndarray]], labels: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(models, classes) AUCs; variances (classes) of the last less the others; (samples) influence on their mean."""
    width = models[0][0].shape[1]
    for blocks in models:
        rows = sum(len(block) for block in blocks)
        if rows != len(labels) or blocks[0].shape[1] != width:
            raise MetricInputError(
                f"'scores' must have {len(labels)} rows and {width} columns (found {rows} and {blocks[0].shape[1]})"
            )
    values, variances, total = [], [], np.zeros(len(labels))
    for start in range(0, width, _COLUMNS_AT_ONCE):

        def work(index: int, column: np.ndarray, start: int = start) -> Tuple[float, np.ndarray]:
            truth = labels[:, start + index] if labels.ndim == 2 else labels == start + index
            return _influence(column, truth)

        parts: List[List[Tuple[float, np.ndarray]]] = [
            map_columns(work, [block[:, start : start + _COLUMNS_AT_ONCE] for block in blocks]) for blocks in models
        ]
        for found in zip(*parts):
            values.append([auc for auc, _ in found])
            influence = found[-1][1] - sum(other for _, other in found[:-1])
            undefined = np.isnan(values[-1]).any()
            variances.append(np.nan if undefined else _sum_of_squares(influence))
            if not undefined:
                total += influence
    return np.array(values).T, np.array(variances), total


def _sum_of_squares(values: np.ndarray) -> float:
    """Added up in the order of size, so that the order of the samples, and of processes, changes no digit."""
    return float(np.sort(values * values).sum())


def _normal(value: Any, error: Any, level: float) -> Interval:
    width = float(ndtri((1 + level) / 2)) * error
    return Interval(value, value - width, value + width)


def _clipped(interval: Interval) -> Interval:
    ends = (np.clip(interval.low, 0, 1), np.clip(interval.high, 0, 1))
    return Interval(interval.value, *(end if np.ndim(end) else float(end) for end in ends))


def auc_intervals(blocks: Sequence[np.ndarray], labels: np.ndarray, *, level: float = 0.95) -> AUCIntervals:
    """DeLong's intervals of one-vs-rest AUCs and of their mean.

    Args:
        blocks: The scores as consecutive blocks of rows (one block for a plain matrix), one column a class.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1, where samples with -1 do not count.
        level: How often the interval should hold the truth.

    Example:
        >>> scores = np.array([[0.1], [0.4], [0.35], [0.8]])
        >>> result = auc_intervals([scores], np.array([[0], [0], [1], [1]]))
        >>> print(result)
        macro AUC 0.7500 [0.0570, 1.0000], 95 %
        >>> result.standard_error.round(6).tolist()
        [0.353553]
    """
    check_level(level)
    values, variances, total = _per_class([blocks], labels)
    defined = int((~np.isnan(values[0])).sum())
    macro = float(mean_of_defined(values[0]))
    macro_error = float(np.sqrt(_sum_of_squares(total))) / defined if defined else float("nan")
    errors = np.sqrt(variances)
    return AUCIntervals(
        level=level,
        per_class=_clipped(_normal(values[0], errors, level)),
        macro=_clipped(_normal(macro, macro_error, level)),
        standard_error=errors,
        macro_standard_error=macro_error,
    )


def compare_auc(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], labels: np.ndarray, *, level: float = 0.95
) -> AUCComparison:
    """DeLong's paired test of two models on the same samples.

    Args:
        first: The first model's scores as consecutive blocks of rows, one column a class.
        second: The second model's.
        labels: As in :func:`auc_intervals`.
        level: Of the interval of the difference.

    Example:
        >>> first, second = np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0.1], [0.2], [0.7], [0.8]])
        >>> print(compare_auc([first], [second], np.array([[0], [0], [1], [1]])))
        macro AUC +0.2500 [-0.4430, +0.9430], p = 0.48
    """
    check_level(level)
    values, variances, total = _per_class([first, second], labels)
    values[:, np.isnan(values).any(axis=0)] = np.nan
    defined = int((~np.isnan(values[0])).sum())
    macro_first, macro_second = (float(value) for value in mean_of_defined(values))
    macro_error = float(np.sqrt(_sum_of_squares(total))) / defined if defined else float("nan")
    difference = values[1] - values[0]
    errors = np.sqrt(variances)
    macro = macro_second - macro_first
    return AUCComparison(
        level=level,
        first=values[0],
        second=values[1],
        difference=_normal(difference, errors, level),
        p_value=_p_values(difference, errors),
        macro_first=macro_first,
        macro_second=macro_second,
        macro=_normal(macro, macro_error, level),
        macro_p_value=float(_p_values(np.array(macro), np.array(macro_error))),
    )


def _p_values(difference: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Two-sided; 1 where nothing differs at all."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(difference == 0, 0.0, np.abs(difference) / error)
    return np.where(np.isnan(difference), np.nan, 2 * ndtr(-ratio))
