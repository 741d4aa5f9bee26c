"""Confidence intervals of AUC, and paired tests of two models on the same samples.

Every positive has a placement, the share of negatives below it (a tie counting half), every negative the share of
positives above it. The AUC is the mean of either, and its variance that of the placements of the positives divided by
their number plus the same of the negatives (DeLong). The mean over classes treats samples as drawn one by one: what a
sample adds to the AUC of every class is added up before it is squared, so that classes need not be independent.

DeLong's variance is 0 where the classes are separated, and undefined with one positive or negative. Where it is below
that of the exponential model at an AUC shrunken by half a pair, it is raised towards it: nearly all the way for few
samples, less the more samples there are and the more of them are out of order. The interval is Wilson's score interval
whose effective sample size has this variance. It keeps its level from a few samples on, also near 1.

Two models are compared by swapping their scores sample by sample
(:mod:`~mm_metrics_plugin.functional.statistics.permutation`). Scores of two models have different scales, so ranks are
swapped. The difference of the AUCs is then a sum over the samples in which a swap changes a sign, which makes it cheap.

References: E. DeLong, D. DeLong, D. Clarke-Pearson, Biometrics 44 (1988); X. Sun and W. Xu (2014) for the sort;
A. Bandos, H. Rockette, D. Gur, Statistics in Medicine 24 (2005) for the permutation test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from scipy.sparse import csr_matrix

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import group_starts, map_columns, mean_of_defined
from mm_metrics_plugin.functional.statistics.bootstrap import UNDEFINED, Interval, check_ci
from mm_metrics_plugin.functional.statistics.permutation import family_tests
from mm_metrics_plugin.functional.statistics.ratio_intervals import wilson_interval
from mm_metrics_plugin.functional.statistics.resampling import drawn_swaps
from mm_metrics_plugin.settings import PERMUTATIONS

_COLUMNS_AT_ONCE = 64
# How many samples, and samples out of order, the variance of the exponential model is worth, by simulation.
_MODEL_SAMPLES, _MODEL_DISORDER = 50.0, 4.0
_SWAPPED_EXACTLY = 256  # samples of a class that move its AUC most; the sum over the others is as good as normal


@dataclass(frozen=True, eq=False)
class AUCIntervals:
    """The AUC of every class and their mean, with confidence intervals.

    Attributes:
        ci: Confidence level.
        per_class: One-vs-rest, arrays with one value per class; NaN where undefined.
        macro: The mean of the classes that have a value.
        standard_error: (classes,) DeLong's; NaN with a single positive or negative.
        macro_standard_error: Of the mean.
    """

    ci: float
    per_class: Interval
    macro: Interval
    standard_error: np.ndarray
    macro_standard_error: float

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {
            "ci": self.ci,
            "macro": {**self.macro.to_dict(), "standard_error": self.macro_standard_error},
            "per_class": {**self.per_class.to_dict(), "standard_error": self.standard_error.tolist()},
        }

    def __str__(self) -> str:
        return f"macro AUC {self.macro}, {100 * self.ci:g} %"


@dataclass(frozen=True, eq=False)
class AUCComparison:
    """How the AUCs of two models on the same samples differ: second less first.

    Attributes:
        ci: Confidence level.
        first: (classes,) AUCs of the first model.
        second: (classes,) AUCs of the second model.
        difference: Per class, with simultaneous intervals.
        p_value: (classes,) of the permutation test, adjusted for the number of classes. Never 0.
        macro_first: The mean over classes of the first model.
        macro_second: The mean over classes of the second model.
        macro: The difference of the means, with its interval.
        macro_p_value: Of the difference of the means.
    """

    ci: float
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
            "ci": self.ci,
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


def _influence(column: np.ndarray, truth: np.ndarray) -> Tuple[float, np.ndarray, int]:
    """The AUC, what each sample adds to it (sums of squares are DeLong's variance), and how many are out of order.

    A single positive (or negative) says nothing about how positives vary, and adds nothing. Out of order are positives
    below some negative and negatives above some positive, whichever are fewer, in the better of both directions.
    """
    influence = np.zeros(len(column))
    positive, negative = truth == 1, truth == 0
    above, below = column[positive], column[negative]
    if not len(above) or not len(below):
        return float("nan"), influence, 0
    sides = []
    for own, others in ((above, np.sort(below)), (below, np.sort(above))):
        # Twice the number of the other kind below each, a tie counting half: whole numbers.
        sides.append(_twice_below(others, own) / (2 * len(others)))
    auc = int((sides[0] * 2 * len(below)).round().astype(np.int64).sum()) / (2 * len(above) * len(below))
    sides[1] = 1 - sides[1]
    for rows, placement in zip((positive, negative), sides):
        number = len(placement)
        scale = np.sqrt(number / (number - 1)) if number > 1 else 0.0
        influence[rows] = (placement - auc) * scale / number
    disorder = min(int(np.count_nonzero(placement != perfect)) for placement in sides for perfect in (0, 1))
    return auc, influence, disorder


def _twice_below(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Twice the number of ordered values below each value, a tie counting half."""
    return np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right")


def _check_shapes(models: Sequence[Sequence[np.ndarray]], labels: np.ndarray) -> int:
    width = models[0][0].shape[1]
    for blocks in models:
        rows = sum(len(block) for block in blocks)
        if rows != len(labels) or blocks[0].shape[1] != width:
            raise MetricInputError(
                f"'scores' must have {len(labels)} rows and {width} columns (found {rows} and {blocks[0].shape[1]})"
            )
    return width


def _truth(labels: np.ndarray, label: int) -> np.ndarray:
    return labels[:, label] if labels.ndim == 2 else labels == label


def _slices(blocks: Sequence[np.ndarray], start: int) -> List[np.ndarray]:
    return [block[:, start : start + _COLUMNS_AT_ONCE] for block in blocks]


def _sum_of_squares(values: np.ndarray) -> float:
    """Added up in the order of size, so that the order of the samples, and of processes, changes no digit."""
    return float(np.sort(values * values).sum())


def _exponential_variance(auc: np.ndarray, positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """The variance of an AUC if scores were exponential (Hanley and McNeil), both sides taken alike."""
    others = (positives + negatives) / 2 - 1
    both = 1 + others * (1 - auc) / (2 - auc) + others * auc / (1 + auc)
    return auc * (1 - auc) * both / np.maximum(positives * negatives, 1)


def auc_intervals(blocks: Sequence[np.ndarray], labels: np.ndarray, *, ci: float = 0.95) -> AUCIntervals:
    """Confidence intervals of one-vs-rest AUCs and of their mean.

    Args:
        blocks: The scores as consecutive blocks of rows (one block for a plain matrix), one column per class.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1, where samples with -1 do not count.
        ci: Confidence level.

    Example:
        >>> scores = np.array([[0.1], [0.4], [0.35], [0.8]])
        >>> result = auc_intervals([scores], np.array([[0], [0], [1], [1]]))
        >>> print(result)
        macro AUC 0.7500 [0.1019, 0.9875], 95 %
        >>> result.standard_error.round(6).tolist()
        [0.353553]
    """
    check_ci(ci)
    width = _check_shapes([blocks], labels)
    values, delong, number = np.full(width, np.nan), np.full(width, np.nan), np.zeros((2, width))
    total, raised = np.zeros(len(labels)), np.zeros(len(labels))
    variance = np.full(width, np.nan)
    for start in range(0, width, _COLUMNS_AT_ONCE):

        def work(index: int, column: np.ndarray, start: int = start) -> Tuple[float, np.ndarray, int]:
            return _influence(column, _truth(labels, start + index))

        for label, (auc, influence, disorder) in enumerate(map_columns(work, _slices(blocks, start)), start):
            truth = _truth(labels, label)
            number[:, label] = (truth == 1).sum(), (truth == 0).sum()
            if np.isnan(auc):
                continue
            values[label], delong[label] = auc, _sum_of_squares(influence)
            model = _exponential_variance(_shrunken(auc, *number[:, label]), *number[:, label])
            fewer = number[:, label].min()
            weight = max(_MODEL_SAMPLES / (_MODEL_SAMPLES + fewer), _MODEL_DISORDER / (_MODEL_DISORDER + disorder))
            variance[label] = delong[label] + weight * max(0.0, model - delong[label])
            total += influence
            if delong[label] > 0:
                raised += influence * np.sqrt(variance[label] / delong[label])
    defined = ~np.isnan(values)
    shrunken = _shrunken(values, *number)
    fewest = number.min(axis=0)
    df = np.where(fewest < 5, 2 * fewest, 4 * fewest)  # by simulation: python -m benchmarks coverage
    with np.errstate(invalid="ignore", divide="ignore"):
        ends = wilson_interval(values, shrunken * (1 - shrunken) / variance, np.maximum(df, 1), ci=ci)
    classes = int(defined.sum())
    return AUCIntervals(
        ci=ci,
        per_class=Interval(values, ends[0], ends[1], np.where(defined, "", UNDEFINED)),
        macro=_macro(values, variance, shrunken, df, delong, raised, ends, labels.ndim == 1, ci),
        standard_error=np.where(fewest < 2, np.nan, np.sqrt(delong)),
        macro_standard_error=float(np.sqrt(_sum_of_squares(total))) / classes if classes else float("nan"),
    )


def _shrunken(auc: Any, positives: Any, negatives: Any) -> Any:
    """The AUC with half a pair in order and half a pair out of order added: never 0 or 1."""
    return (auc * positives * negatives + 0.5) / (positives * negatives + 1)


def _macro(
    values: np.ndarray,
    variance: np.ndarray,
    shrunken: np.ndarray,
    df: np.ndarray,
    delong: np.ndarray,
    raised: np.ndarray,
    ends: np.ndarray,
    one_label: bool,
    ci: float,
) -> Interval:
    """The interval of the mean, from what the samples add to all classes (``raised``) and the variances per class."""
    defined = np.flatnonzero(~np.isnan(values))
    if not len(defined):
        return Interval(float("nan"), float("nan"), float("nan"), UNDEFINED)
    mean = float(mean_of_defined(values))
    kept = variance[defined]
    # Two classes of one label are the same question asked twice; so is the mean over a single class.
    two = one_label and len(defined) == 2
    if len(defined) == 1 or (two and np.ptp(values[defined]) < 1e-12 and np.ptp(kept) < 1e-12):
        return Interval(mean, *(float(end[defined[0]]) for end in ends))
    constant = np.sqrt(kept[~(delong[defined] > 0)])
    total = _sum_of_squares(raised) + (constant.sum() ** 2 if two else (constant**2).sum())
    freedom = total**2 / (kept**2 / df[defined]).sum()
    share = shrunken[defined].mean()
    low, high = wilson_interval(
        np.array(mean), share * (1 - share) * len(defined) ** 2 / total, np.maximum(freedom, 1), ci=ci
    )
    return Interval(mean, float(low), float(high))


class AUCSwaps(NamedTuple):
    """The AUCs of two models, and what swapping the models on a sample does to their difference.

    The difference is the sum of a coefficient per sample; swapping the models on a sample changes its sign.

    Attributes:
        first: (classes,) AUCs of the first model; NaN where undefined.
        second: (classes,) AUCs of the second model.
        coefficients: (classes, samples) the largest ones of each class.
        rest: (classes,) root of the sum of squares of the others.
        mean: (samples,) coefficients of the mean over classes.
    """

    first: np.ndarray
    second: np.ndarray
    coefficients: csr_matrix
    rest: np.ndarray
    mean: np.ndarray

    def permuted(self, *, permutations: int, seed: int, at_once: int = 64) -> Tuple[np.ndarray, np.ndarray]:
        """The difference of the means (permutations,) and of each class (permutations, classes), runs swapped.

        The samples are swapped as those of counts with the same seed are.
        """
        means, classes = [], []
        for swap in drawn_swaps(len(self.mean), draws=permutations, seed=seed, at_once=at_once):
            sign = 1 - 2 * swap
            means.append(self.mean @ sign)
            classes.append((self.coefficients @ sign).T)
        noise = np.random.default_rng((seed, 1)).standard_normal((permutations, len(self.rest)))
        per_class = np.concatenate(classes) + noise * self.rest
        return np.concatenate(means), np.where(np.isnan(self.first), np.nan, per_class)


def auc_swaps(first: Sequence[np.ndarray], second: Sequence[np.ndarray], labels: np.ndarray) -> AUCSwaps:
    """What a permutation test of two models needs.

    Args:
        first: The first model's scores as consecutive blocks of rows, one column per class.
        second: The second model's scores.
        labels: As in :func:`auc_intervals`.

    Example:
        >>> first, second = np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0.1], [0.2], [0.7], [0.8]])
        >>> found = auc_swaps([first], [second], np.array([[0], [0], [1], [1]]))
        >>> found.first, found.second, found.coefficients.toarray()
        (array([0.75]), array([1.]), array([[0.   , 0.125, 0.125, 0.   ]]))
    """
    width = _check_shapes([first, second], labels)
    values, rest = np.full((2, width), np.nan), np.zeros(width)
    total = np.zeros(len(labels))
    kept: List[Tuple[np.ndarray, np.ndarray]] = []
    for start in range(0, width, _COLUMNS_AT_ONCE):

        def ranks(index: int, column: np.ndarray, start: int = start) -> np.ndarray:
            return _doubled_ranks(column[_truth(labels, start + index) >= 0])

        before = map_columns(ranks, _slices(first, start))

        def work(index: int, column: np.ndarray, start: int = start, before: Any = before) -> Any:
            truth = _truth(labels, start + index)
            return _swap_coefficients(before[index], ranks(index, column, start), truth[truth >= 0] == 1)

        for label, (aucs, found) in enumerate(map_columns(work, _slices(second, start)), start):
            values[:, label] = aucs
            rows = np.flatnonzero(_truth(labels, label) >= 0)
            total[rows] += found
            largest = np.flatnonzero(found)
            if len(largest) > _SWAPPED_EXACTLY:
                largest = np.argpartition(-np.abs(found), _SWAPPED_EXACTLY)[:_SWAPPED_EXACTLY]
                rest[label] = np.sqrt(max(0.0, _sum_of_squares(found) - _sum_of_squares(found[largest])))
            kept.append((rows[largest], found[largest]))
    classes = int((~np.isnan(values[0])).sum())
    matrix = csr_matrix(
        (
            np.concatenate([part for _, part in kept]),
            (np.repeat(np.arange(width), [len(part) for _, part in kept]), np.concatenate([rows for rows, _ in kept])),
        ),
        shape=(width, len(labels)),
    )
    return AUCSwaps(values[0], values[1], matrix, rest, total / max(1, classes))


def _doubled_ranks(values: np.ndarray) -> np.ndarray:
    """Twice the number of values below each value, a tie counting half."""
    order = np.argsort(values)
    starts = group_starts(values[order])
    ends = np.append(starts, len(values))[1:]
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.repeat(starts + ends, ends - starts)
    return ranks


def _table(ranks: np.ndarray, size: int) -> np.ndarray:
    """(size,) twice the number of ranks below each whole number, a tie counting half."""
    counts = np.bincount(ranks, minlength=size)
    return 2 * np.cumsum(counts) - counts


def _swap_coefficients(first: np.ndarray, second: np.ndarray, positive: np.ndarray) -> Tuple[Tuple[float, float], Any]:
    """The AUCs of the ranks of two models, and the coefficient of every sample."""
    result = np.zeros(len(positive))
    number = int(positive.sum())
    pairs = number * (len(positive) - number)
    if not pairs:
        return (float("nan"), float("nan")), result
    # The ranks are whole numbers up to twice the samples, so tables of them stand in for sorting and searching.
    size = 2 * len(positive) + 1
    above, below = ([_table(ranks[rows], size) for ranks in (first, second)] for rows in (positive, ~positive))
    aucs = [int(table[ranks[positive]].sum()) / (2 * pairs) for table, ranks in zip(below, (first, second))]
    for rows, sign, (one, other) in ((positive, 1, below), (~positive, -1, above)):
        # Ranks of the other kind, of both models: a swap may bring either against this sample.
        others = one + other
        result[rows] = sign * (others[second[rows]] - others[first[rows]]) / (4 * pairs)
    return (aucs[0], aucs[1]), result


def compare_auc(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    labels: np.ndarray,
    *,
    ci: float = 0.95,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> AUCComparison:
    """Paired permutation test of the AUCs of two models on the same samples.

    Args:
        first: The first model's scores as consecutive blocks of rows, one column per class.
        second: The second model's scores.
        labels: As in :func:`auc_intervals`.
        ci: Confidence level of the intervals of the differences.
        permutations: How many times the models are swapped.
        seed: Of the permutations.

    Example:
        >>> first, second = np.array([[0.8], [0.7], [0.2], [0.1]]), np.array([[0.1], [0.2], [0.7], [0.8]])
        >>> print(compare_auc([first], [second], np.array([[0], [0], [1], [1]])))
        macro AUC +1.0000 [+0.0000, +1.0000], p = 0.11
    """
    check_ci(ci)
    swaps = auc_swaps(first, second, labels)
    means, classes = swaps.permuted(permutations=permutations, seed=seed)
    difference = swaps.second - swaps.first
    macro_first, macro_second = (float(mean_of_defined(part)) for part in (swaps.first, swaps.second))
    each = family_tests(difference, classes, ci=ci)
    macro = family_tests(np.array([macro_second - macro_first]), means[:, None], ci=ci)
    return AUCComparison(
        ci=ci,
        first=swaps.first,
        second=swaps.second,
        difference=Interval(difference, each.low, each.high, np.where(np.isnan(difference), UNDEFINED, "")),
        p_value=each.p_value,
        macro_first=macro_first,
        macro_second=macro_second,
        macro=Interval(macro_second - macro_first, float(macro.low[0]), float(macro.high[0])),
        macro_p_value=float(macro.p_value[0]),
    )
