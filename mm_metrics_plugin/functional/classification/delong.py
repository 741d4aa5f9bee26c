"""Confidence intervals of AUC, and paired tests of two models on the same samples.

The placement of a positive is the share of negatives below it (a tie counts half), that of a negative the share of
positives above it. The AUC is the mean of either; its variance is that of the placements of the positives divided by
their number, plus the same for the negatives (DeLong). For the mean over classes, the contributions of a sample to all
classes are added before they are squared, so classes need not be independent.

DeLong's variance is 0 for separated classes, and undefined with one positive or negative. Where it is below the
variance of the exponential model at a shrunken AUC, it is raised towards that: less, the more samples there are and the
more of them are out of order. The interval is Wilson's score interval with the effective sample size of this variance.

Two models are compared by swapping their ranks sample by sample (a paired permutation test). The difference of the AUCs
is a sum over the samples in which a swap changes a sign, which makes it fast.

References: E. DeLong, D. DeLong, D. Clarke-Pearson, Biometrics 44 (1988); X. Sun and W. Xu (2014) for the sort;
A. Bandos, H. Rockette, D. Gur, Statistics in Medicine 24 (2005) for the permutation test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import (
    Result,
    Scores,
    group_starts,
    map_columns,
    mean_of_defined,
    score_blocks,
)
from mm_metrics_plugin.functional.statistics.bootstrap import UNDEFINED, Interval
from mm_metrics_plugin.functional.statistics.paired_tests import Difference, family_tests, swap_draws
from mm_metrics_plugin.functional.statistics.ratio_intervals import wilson_interval
from mm_metrics_plugin.settings import PERMUTATIONS, require_ci

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_COLUMNS_AT_ONCE = 64
# How many samples, and samples out of order, the variance of the exponential model is worth, by simulation.
_MODEL_SAMPLES, _MODEL_DISORDER = 50.0, 4.0
_SWAPPED_EXACTLY = 256  # samples of a class that move its AUC most; the sum over the others is as good as normal


@dataclass(frozen=True, eq=False)
class AUCIntervals(Result):
    """The AUC of every class and their mean, with confidence intervals."""

    ci: float  # confidence level
    per_class: Interval  # one-vs-rest, arrays with one value per class; NaN where undefined
    macro: Interval  # the mean of the classes that have a value
    standard_error: np.ndarray  # (classes,) DeLong's; NaN with a single positive or negative
    macro_standard_error: float  # of the mean

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {
            "ci": self.ci,
            "macro": {**self.macro.to_dict(), "standard_error": self.macro_standard_error},
            "per_class": {**self.per_class.to_dict(), "standard_error": self.standard_error.tolist()},
        }

    def __str__(self) -> str:
        return f"macro AUC {self.macro}, {100 * self.ci:g} %"


@dataclass(frozen=True, eq=False)
class AUCComparison(Result):
    """How the AUCs of two models on the same samples differ."""

    ci: float  # confidence level
    macro: Difference  # of the means over classes
    per_class: Difference  # arrays with one value per class, a family of tests

    def __str__(self) -> str:
        return f"macro AUC {self.macro}"


def _influence(column: np.ndarray, truth: np.ndarray) -> tuple[float, np.ndarray, int]:
    """The AUC, the contribution of each sample (squares sum to DeLong's variance), and how many are out of order.

    A single positive (or negative) contributes nothing. Out of order are positives below a negative or negatives above
    a positive, whichever are fewer, in the better of both directions.
    """
    influence = np.zeros(len(column))
    positive, negative = truth == 1, truth == 0
    above, below = column[positive], column[negative]
    if not len(above) or not len(below):
        return float("nan"), influence, 0
    sides = []
    for own, others in ((above, np.sort(below)), (below, np.sort(above))):
        # Twice the number of the other kind below each, a tie counting half: whole numbers.
        twice = np.searchsorted(others, own, side="left") + np.searchsorted(others, own, side="right")
        sides.append(twice / (2 * len(others)))
    auc = int((sides[0] * 2 * len(below)).round().astype(np.int64).sum()) / (2 * len(above) * len(below))
    sides[1] = 1 - sides[1]
    for rows, placement in zip((positive, negative), sides):
        number = len(placement)
        scale = np.sqrt(number / (number - 1)) if number > 1 else 0.0
        influence[rows] = (placement - auc) * scale / number
    disorder = min(int(np.count_nonzero(placement != perfect)) for placement in sides for perfect in (0, 1))
    return auc, influence, disorder


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


def _slices(blocks: Sequence[np.ndarray], start: int) -> list[np.ndarray]:
    return [block[:, start : start + _COLUMNS_AT_ONCE] for block in blocks]


def _sum_of_squares(values: np.ndarray) -> float:
    """Summed in order of size, so that the order of the samples and processes changes no digit."""
    return float(np.sort(values * values).sum())


def _exponential_variance(auc: np.ndarray, positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """The variance of an AUC if scores were exponential (Hanley and McNeil), symmetric in both sides."""
    others = (positives + negatives) / 2 - 1
    both = 1 + others * (1 - auc) / (2 - auc) + others * auc / (1 + auc)
    return auc * (1 - auc) * both / np.maximum(positives * negatives, 1)


def delong_ci(scores: Scores, labels: np.ndarray, *, ci: float = 0.95) -> AUCIntervals:
    """Confidence intervals of one-vs-rest AUCs and of their mean.

    Args:
        scores: (rows, classes), or a list of consecutive blocks of rows.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1; samples with -1 are ignored.
        ci: Confidence level.

    Example:
        >>> scores = np.array([[0.1], [0.4], [0.35], [0.8]])
        >>> print(delong_ci(scores, np.array([[0], [0], [1], [1]])))
        macro AUC 0.7500 [0.1019, 0.9875], 95 %
    """
    require_ci(ci)
    blocks = score_blocks(scores)
    width = _check_shapes([blocks], labels)
    values, delong, number = np.full(width, np.nan), np.full(width, np.nan), np.zeros((2, width))
    total, raised = np.zeros(len(labels)), np.zeros(len(labels))
    variance = np.full(width, np.nan)
    for start in range(0, width, _COLUMNS_AT_ONCE):

        def work(index: int, column: np.ndarray, start: int = start) -> tuple[float, np.ndarray, int]:
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
    """The interval of the mean, from the samples' contributions (``raised``) and the variances of the classes."""
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
    """The AUCs of two models, and how swapping the models on a sample changes their difference.

    The difference is the sum of one coefficient per sample; swapping the models on a sample changes its sign.
    """

    first: np.ndarray  # (classes,) AUCs of the first model; NaN where undefined
    second: np.ndarray  # (classes,) AUCs of the second model
    coefficients: csr_matrix  # (classes, samples) the largest ones of each class
    rest: np.ndarray  # (classes,) root of the sum of squares of the others
    mean: np.ndarray  # (samples,) coefficients of the mean over classes

    def permuted(self, *, permutations: int, seed: int, at_once: int = 64) -> tuple[np.ndarray, np.ndarray]:
        """The difference of the means (permutations,) and of each class (permutations, classes) with runs swapped.

        With the same seed, the same samples are swapped as for counts.
        """
        means, classes = [], []
        for swap in swap_draws(len(self.mean), draws=permutations, seed=seed, at_once=at_once):
            sign = 1 - 2 * swap
            means.append(self.mean @ sign)
            classes.append((self.coefficients @ sign).T)
        noise = np.random.default_rng((seed, 1)).standard_normal((permutations, len(self.rest)))
        per_class = np.concatenate(classes) + noise * self.rest
        return np.concatenate(means), np.where(np.isnan(self.first), np.nan, per_class)


def auc_swaps(first: Scores, second: Scores, labels: np.ndarray) -> AUCSwaps:
    """The input of a permutation test of two models; arguments as in :func:`delong_test`."""
    from scipy.sparse import csr_matrix  # importing it takes long

    first, second = score_blocks(first), score_blocks(second)
    width = _check_shapes([first, second], labels)
    values, rest = np.full((2, width), np.nan), np.zeros(width)
    total = np.zeros(len(labels))
    kept: list[tuple[np.ndarray, np.ndarray]] = []
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
    """Twice the number of values below each value; a tie counts half."""
    order = np.argsort(values)
    starts = group_starts(values[order])
    ends = np.append(starts, len(values))[1:]
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.repeat(starts + ends, ends - starts)
    return ranks


def _table(ranks: np.ndarray, size: int) -> np.ndarray:
    """(size,) twice the number of ranks below each integer; a tie counts half."""
    counts = np.bincount(ranks, minlength=size)
    return 2 * np.cumsum(counts) - counts


def _swap_coefficients(first: np.ndarray, second: np.ndarray, positive: np.ndarray) -> tuple[tuple[float, float], Any]:
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


def delong_test(
    first: Scores,
    second: Scores,
    labels: np.ndarray,
    *,
    ci: float = 0.95,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> AUCComparison:
    """Paired permutation test of the AUCs of two models on the same samples.

    Args:
        first: Scores of the first model, as in :func:`delong_ci`.
        second: Scores of the second model.
        labels: As in :func:`delong_ci`.
        ci: Confidence level of the intervals of the differences.
        permutations: Number of permutations.
        seed: Of the permutations.

    Example:
        >>> first, second = np.array([[0.8], [0.7], [0.2], [0.1]]), np.array([[0.1], [0.2], [0.7], [0.8]])
        >>> print(delong_test(first, second, np.array([[0], [0], [1], [1]])))
        macro AUC +1.0000 [+0.0000, +1.0000], p = 0.11
    """
    require_ci(ci)
    swaps = auc_swaps(first, second, labels)
    means, classes = swaps.permuted(permutations=permutations, seed=seed)
    first_mean, second_mean = (mean_of_defined(part[None]) for part in (swaps.first, swaps.second))
    macro = family_tests(first_mean, second_mean, means[:, None], ci=ci).at(0)
    return AUCComparison(ci, macro, family_tests(swaps.first, swaps.second, classes, ci=ci))
