"""Confidence intervals of AUC (DeLong), and paired permutation tests of two models on the same samples.

The placement value of a positive is the fraction of negatives below it (ties count half), that of a negative the
fraction of positives above it. The AUC is the mean of either. Its variance is the variance of the positives' placement
values divided by their number, plus the same for the negatives. For the macro AUC, the contributions of a sample to all
classes are added before they are squared, because classes are not independent.

DeLong's variance is 0 for separable classes, and undefined with a single positive or negative. If it is below that of
the exponential model at the shrunken AUC, it is raised towards that variance, the less the more samples and misordered
samples there are. The same holds for the mixture model: some of the positives (or negatives, if these are fewer) look
like those of the other class, which an AUC near 1 of few samples cannot exclude. The interval is Wilson's score
interval with the effective sample size that follows.

The permutation test swaps the ranks of the models sample by sample. The difference of the AUCs is a sum over samples in
which a swap changes a sign, so permutations are fast.

References: E. DeLong, D. DeLong, D. Clarke-Pearson, Biometrics 44 (1988); X. Sun and W. Xu (2014) for the sort;
A. Bandos, H. Rockette, D. Gur, Statistics in Medicine 24 (2005) for the permutation test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, pluralize
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

_BLOCK_CLASSES = 64  # processed at a time
# Weights of the exponential model, in samples and misordered samples; by simulation (python -m benchmarks coverage).
_MODEL_SAMPLES, _MODEL_MISORDERED = 50.0, 4.0
_MIXTURE_LOST, _MIXTURE_SIZE = 2.0, 1.5  # weight of the mixture model, in lost samples; its effective size per sample
_MAX_COEFFICIENTS = 256  # largest ones kept per class; the sum of the others is approximately normal


@dataclass(frozen=True, eq=False)
class AUCIntervals(Result):
    """One-vs-rest AUCs and their mean, with confidence intervals."""

    ci: float  # confidence level
    per_class: Interval  # arrays with one value per class; NaN where undefined
    macro: Interval  # mean over the classes with a defined value
    standard_error: np.ndarray  # (classes,) DeLong's; NaN with a single positive or negative
    macro_standard_error: float

    def to_dict(self) -> dict[str, Any]:
        """The intervals as plain Python values."""
        return {
            "ci": self.ci,
            "macro": {**self.macro.to_dict(), "standard_error": self.macro_standard_error},
            "per_class": {**self.per_class.to_dict(), "standard_error": self.standard_error.tolist()},
        }

    def __str__(self) -> str:
        return f"macro AUC {self.macro}, {100 * self.ci:g} %"


@dataclass(frozen=True, eq=False)
class AUCComparison(Result):
    """Differences of the AUCs of two models on the same samples."""

    ci: float  # confidence level
    macro: Difference
    per_class: Difference  # arrays with one value per class: a family of tests

    def __str__(self) -> str:
        return f"macro AUC {self.macro}"


def _influence(scores: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray, int]:
    """The AUC, the influence of each sample (squares sum to DeLong's variance), and the number of misordered samples.

    Misordered are positives below a negative or negatives above a positive, whichever are fewer, for the scores or for
    the negated scores.
    """
    influence = np.zeros(len(scores))
    positive, negative = target == 1, target == 0
    above, below = scores[positive], scores[negative]
    if not len(above) or not len(below):
        return float("nan"), influence, 0
    placements = []
    for own, others in ((above, np.sort(below)), (below, np.sort(above))):
        twice = np.searchsorted(others, own, side="left") + np.searchsorted(others, own, side="right")
        placements.append(twice / (2 * len(others)))
    auc = int((placements[0] * 2 * len(below)).round().astype(np.int64).sum()) / (2 * len(above) * len(below))
    placements[1] = 1 - placements[1]
    for rows, placement in zip((positive, negative), placements):
        number = len(placement)
        scale = np.sqrt(number / (number - 1)) if number > 1 else 0.0
        influence[rows] = (placement - auc) * scale / number
    misordered = min(int(np.count_nonzero(placement != perfect)) for placement in placements for perfect in (0, 1))
    return auc, influence, misordered


def _check_shapes(models: Sequence[Sequence[np.ndarray]], labels: np.ndarray) -> int:
    """The number of classes."""
    num_classes = int(models[0][0].shape[1])
    for blocks in models:
        rows = sum(len(block) for block in blocks)
        if rows != len(labels) or blocks[0].shape[1] != num_classes:
            raise MetricInputError(
                f"'scores' must have {pluralize(len(labels), 'row')} and {pluralize(num_classes, 'column')} "
                f"(found {rows} and {blocks[0].shape[1]})"
            )
    return num_classes


def _target(labels: np.ndarray, class_index: int) -> np.ndarray:
    """(samples,) 1, 0 or -1 (ignored) for one class."""
    return labels[:, class_index] if labels.ndim == 2 else labels == class_index


def _class_block(blocks: Sequence[np.ndarray], start: int) -> list[np.ndarray]:
    return [block[:, start : start + _BLOCK_CLASSES] for block in blocks]


def _sum_of_squares(values: np.ndarray) -> float:
    """Sorted before summation, so the order of the samples does not change the result."""
    return float(np.sort(values * values).sum())


def _exponential_variance(auc: float, positives: float, negatives: float) -> float:
    """The variance of the AUC for exponential scores (Hanley and McNeil), symmetric in positives and negatives."""
    others = (positives + negatives) / 2 - 1
    factor = 1 + others * (1 - auc) / (2 - auc) + others * auc / (1 + auc)
    return auc * (1 - auc) * factor / max(positives * negatives, 1)


def _mixture_variance(auc: float, shrunken: float, fewer: float) -> tuple[float, float]:
    """The variance if some of ``fewer`` samples look like those of the other class, and its weight.

    Placement values of such samples are uniform, so the effective size is 1.5 times the number of samples. The weight
    decreases with the number of samples, and with the number that is lost, which the AUC times this number is short of.
    """
    lost = fewer * min(auc, 1 - auc)
    weight = _MIXTURE_LOST / (_MIXTURE_LOST + lost) * _MODEL_SAMPLES / (_MODEL_SAMPLES + fewer)
    return shrunken * (1 - shrunken) / (_MIXTURE_SIZE * fewer), weight


def _shrunken(auc: Any, positives: Any, negatives: Any) -> Any:
    """The AUC after adding half an ordered and half a misordered pair, so it is never 0 or 1."""
    return (auc * positives * negatives + 0.5) / (positives * negatives + 1)


class _Variances(NamedTuple):
    """AUCs with their variances, arrays with one value per class."""

    auc: np.ndarray
    delong: np.ndarray  # DeLong's variance
    variance: np.ndarray  # raised towards that of the exponential model
    counts: np.ndarray  # (2, classes) number of positives and negatives
    influence: np.ndarray  # (samples,) sum over classes; squares sum to DeLong's variance of the sum of AUCs
    raised_influence: np.ndarray  # (samples,) the same for the raised variance

    @property
    def shrunken(self) -> np.ndarray:
        """The shrunken AUCs."""
        return np.asarray(_shrunken(self.auc, *self.counts))

    @property
    def df(self) -> np.ndarray:
        """Degrees of freedom of the t quantile."""
        fewer = self.counts.min(axis=0)
        return np.asarray(np.where(fewer < 5, 2 * fewer, 4 * fewer))  # by simulation: python -m benchmarks coverage


def _variances(blocks: Sequence[np.ndarray], labels: np.ndarray) -> _Variances:
    num_classes = _check_shapes([blocks], labels)
    auc, delong, variance = (np.full(num_classes, np.nan) for _ in range(3))
    counts, total, raised = np.zeros((2, num_classes)), np.zeros(len(labels)), np.zeros(len(labels))
    for start in range(0, num_classes, _BLOCK_CLASSES):

        def work(index: int, column: np.ndarray, start: int = start) -> tuple[float, np.ndarray, int]:
            return _influence(column, _target(labels, start + index))

        for index, (value, influence, misordered) in enumerate(map_columns(work, _class_block(blocks, start)), start):
            target = _target(labels, index)
            counts[:, index] = (target == 1).sum(), (target == 0).sum()
            if np.isnan(value):
                continue
            auc[index], delong[index] = value, _sum_of_squares(influence)
            shrunken = _shrunken(value, *counts[:, index])
            model = _exponential_variance(shrunken, *counts[:, index])
            fewer = counts[:, index].min()
            weight = max(
                _MODEL_SAMPLES / (_MODEL_SAMPLES + fewer), _MODEL_MISORDERED / (_MODEL_MISORDERED + misordered)
            )
            variance[index] = delong[index] + weight * max(0.0, model - delong[index])
            model, weight = _mixture_variance(value, shrunken, fewer)
            variance[index] += weight * max(0.0, model - variance[index])
            total += influence
            if delong[index] > 0:
                raised += influence * np.sqrt(variance[index] / delong[index])
    return _Variances(auc, delong, variance, counts, total, raised)


def delong_ci(scores: Scores, labels: np.ndarray, *, ci: float = 0.95) -> AUCIntervals:
    """Confidence intervals of one-vs-rest AUCs and of their mean.

    Args:
        scores: (samples, classes), or a list of consecutive blocks of rows.
        labels: Class of each sample, or (samples, classes) of 1, 0 and -1 (ignored).
        ci: Confidence level.

    Example:
        >>> scores = np.array([[0.1], [0.4], [0.35], [0.8]])
        >>> print(delong_ci(scores, np.array([[0], [0], [1], [1]])))
        macro AUC 0.7500 [0.1019, 0.9875], 95 %
    """
    require_ci(ci)
    classes = _variances(score_blocks(scores), labels)
    shrunken = classes.shrunken
    with np.errstate(invalid="ignore", divide="ignore"):
        size = shrunken * (1 - shrunken) / classes.variance
        low, high = wilson_interval(classes.auc, size, np.maximum(classes.df, 1), ci=ci)
    defined = ~np.isnan(classes.auc)
    per_class = Interval(classes.auc, low, high, np.where(defined, "", UNDEFINED))
    return AUCIntervals(
        ci=ci,
        per_class=per_class,
        macro=_macro_interval(classes, per_class, single_label=labels.ndim == 1, ci=ci),
        standard_error=np.where(classes.counts.min(axis=0) < 2, np.nan, np.sqrt(classes.delong)),
        macro_standard_error=float(np.sqrt(_sum_of_squares(classes.influence)) / defined.sum())
        if defined.any()
        else float("nan"),
    )


def _macro_interval(classes: _Variances, per_class: Interval, *, single_label: bool, ci: float) -> Interval:
    defined = np.flatnonzero(~np.isnan(classes.auc))
    if not len(defined):
        return Interval(float("nan"), float("nan"), float("nan"), UNDEFINED)
    mean = float(mean_of_defined(classes.auc))
    variance = classes.variance[defined]
    # Two complementary classes have the same AUC, so their mean has the interval of one class.
    binary = single_label and len(defined) == 2
    if len(defined) == 1 or (binary and np.ptp(classes.auc[defined]) < 1e-12 and np.ptp(variance) < 1e-12):
        return replace(per_class.at(int(defined[0])), value=mean)
    constant = np.sqrt(variance[~(classes.delong[defined] > 0)])
    total = _sum_of_squares(classes.raised_influence) + (constant.sum() ** 2 if binary else (constant**2).sum())
    df = total**2 / (variance**2 / classes.df[defined]).sum()
    share = classes.shrunken[defined].mean()
    size = share * (1 - share) * len(defined) ** 2 / total
    low, high = wilson_interval(np.array(mean), size, np.maximum(df, 1), ci=ci)
    return Interval(mean, float(low), float(high))


class AUCSwaps(NamedTuple):
    """The AUCs of two models, and the coefficients of a permutation test.

    The difference of the AUCs is the sum of one coefficient per sample. A swap of the models changes its sign.
    """

    first: np.ndarray  # (classes,) AUCs of the first model; NaN where undefined
    second: np.ndarray  # (classes,) AUCs of the second model
    coefficients: csr_matrix  # (classes, samples) the largest coefficients of each class
    rest: np.ndarray  # (classes,) root of the sum of squares of the others
    mean: np.ndarray  # (samples,) coefficients of the mean over classes

    def permuted(self, *, permutations: int, seed: int, batch_size: int = 64) -> tuple[np.ndarray, np.ndarray]:
        """Permuted differences of the mean (permutations,) and of each class (permutations, classes)."""
        means, classes = [], []
        for swap in swap_draws(len(self.mean), draws=permutations, seed=seed, batch_size=batch_size):
            sign = 1 - 2 * swap
            means.append(self.mean @ sign)
            classes.append((self.coefficients @ sign).T)
        noise = np.random.default_rng((seed, 1)).standard_normal((permutations, len(self.rest)))
        per_class = np.concatenate(classes) + noise * self.rest
        return np.concatenate(means), np.where(np.isnan(self.first), np.nan, per_class)


def auc_swaps(first: Scores, second: Scores, labels: np.ndarray) -> AUCSwaps:
    """The input of a permutation test of two models; arguments as in :func:`delong_test`."""
    from scipy.sparse import csr_matrix  # slow to import

    first, second = score_blocks(first), score_blocks(second)
    num_classes = _check_shapes([first, second], labels)
    aucs, rest, total = np.full((2, num_classes), np.nan), np.zeros(num_classes), np.zeros(len(labels))
    class_index, samples, coefficients = [], [], []
    for start in range(0, num_classes, _BLOCK_CLASSES):

        def ranks(index: int, column: np.ndarray, start: int = start) -> np.ndarray:
            return _doubled_ranks(column[_target(labels, start + index) >= 0])

        first_ranks = map_columns(ranks, _class_block(first, start))

        def work(index: int, column: np.ndarray, start: int = start, first_ranks: Any = first_ranks) -> Any:
            target = _target(labels, start + index)
            return _swap_coefficients(first_ranks[index], ranks(index, column, start), target[target >= 0] == 1)

        for index, (pair, values) in enumerate(map_columns(work, _class_block(second, start)), start):
            aucs[:, index] = pair
            rows = np.flatnonzero(_target(labels, index) >= 0)
            total[rows] += values
            largest = np.flatnonzero(values)
            if len(largest) > _MAX_COEFFICIENTS:
                largest = np.argpartition(-np.abs(values), _MAX_COEFFICIENTS)[:_MAX_COEFFICIENTS]
                rest[index] = np.sqrt(max(0.0, _sum_of_squares(values) - _sum_of_squares(values[largest])))
            class_index.append(np.full(len(largest), index))
            samples.append(rows[largest])
            coefficients.append(values[largest])
    matrix = csr_matrix(
        (np.concatenate(coefficients), (np.concatenate(class_index), np.concatenate(samples))),
        shape=(num_classes, len(labels)),
    )
    defined = int((~np.isnan(aucs[0])).sum())
    return AUCSwaps(aucs[0], aucs[1], matrix, rest, total / max(1, defined))


def _doubled_ranks(values: np.ndarray) -> np.ndarray:
    """Twice the number of values below each value; ties count half."""
    order = np.argsort(values)
    starts = group_starts(values[order])
    ends = np.append(starts, len(values))[1:]
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.repeat(starts + ends, ends - starts)
    return ranks


def _count_below(ranks: np.ndarray, size: int) -> np.ndarray:
    """(size,) twice the number of ranks below each integer; ties count half."""
    counts = np.bincount(ranks, minlength=size)
    return np.asarray(2 * np.cumsum(counts) - counts)


def _swap_coefficients(first: np.ndarray, second: np.ndarray, positive: np.ndarray) -> tuple[Any, np.ndarray]:
    """The AUCs of the doubled ranks of two models, and the coefficient of every sample."""
    coefficients = np.zeros(len(positive))
    number = int(positive.sum())
    pairs = number * (len(positive) - number)
    if not pairs:
        return (float("nan"), float("nan")), coefficients
    # Ranks are integers, so lookup tables replace sorting and searching.
    size = 2 * len(positive) + 1
    above, below = ([_count_below(ranks[rows], size) for ranks in (first, second)] for rows in (positive, ~positive))
    aucs = [int(table[ranks[positive]].sum()) / (2 * pairs) for table, ranks in zip(below, (first, second))]
    for rows, sign, tables in ((positive, 1, below), (~positive, -1, above)):
        # A swap may pair this sample with the rank of either model.
        others = tables[0] + tables[1]
        coefficients[rows] = sign * (others[second[rows]] - others[first[rows]]) / (4 * pairs)
    return (aucs[0], aucs[1]), coefficients


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
        seed: Random seed of the permutations.

    Example:
        >>> first, second = np.array([[0.8], [0.7], [0.2], [0.1]]), np.array([[0.1], [0.2], [0.7], [0.8]])
        >>> print(delong_test(first, second, np.array([[0], [0], [1], [1]])))
        macro AUC +1.0000 [+0.0000, +1.0000], p = 0.11
    """
    require_ci(ci)
    swaps = auc_swaps(first, second, labels)
    means, classes = swaps.permuted(permutations=permutations, seed=seed)
    first_mean, second_mean = (mean_of_defined(aucs[None]) for aucs in (swaps.first, swaps.second))
    macro = family_tests(first_mean, second_mean, means[:, None], ci=ci).at(0)
    return AUCComparison(ci, macro, family_tests(swaps.first, swaps.second, classes, ci=ci))
