"""Exact area under the ROC or the precision-recall curve.

The AUC is computed from mid-ranks: each column is sorted once, and the positives are located by binary search. The sums
are of integers, so the order of the samples does not change the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.functional._arrays import (
    Result,
    Scores,
    divide,
    map_columns,
    mean_of_defined,
    mean_over_classes,
    score_blocks,
    working_dtype,
)

CURVES = ("roc", "pr")

_R = TypeVar("_R")


def _roc_auc(ranked: np.ndarray, positives: np.ndarray) -> float:
    """Mid-rank AUC of the sorted scores of all samples and of the positives."""
    num_positives = len(positives)
    num_negatives = len(ranked) - num_positives
    if not num_positives or not num_negatives:
        return float("nan")
    # left + right + 1 is twice the mid-rank.
    left = np.searchsorted(ranked, positives, side="left")
    right = np.searchsorted(ranked, positives, side="right")
    twice_ranks = int(left.sum()) + int(right.sum()) + num_positives
    return (twice_ranks - num_positives * (num_positives + 1)) / (2 * num_positives * num_negatives)


def _average_precision(ranked: np.ndarray, positives: np.ndarray) -> float:
    """Mean over the positives of the precision at their score; ties are one threshold."""
    if not len(positives):
        return float("nan")
    tp = len(positives) - np.searchsorted(positives, positives, side="left")
    predicted = len(ranked) - np.searchsorted(ranked, positives, side="left")
    return float(np.mean(tp / predicted))


def roc_points(ranked: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds (distinct scores, descending), FP and TP, from the ascending scores of all samples and positives."""
    first = np.ones(len(ranked), dtype=bool)
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    starts = np.flatnonzero(first)[::-1]
    thresholds = ranked[starts]
    tp = len(positives) - np.searchsorted(positives, thresholds, side="left")
    return thresholds, len(ranked) - starts - tp, tp


def _partial_auc(ranked: np.ndarray, positives: np.ndarray, max_fpr: float) -> float:
    """McClish's standardized partial AUC up to ``max_fpr``: 0.5 for chance, 1 for a perfect ranking."""
    num_positives = len(positives)
    num_negatives = len(ranked) - num_positives
    if not num_positives or not num_negatives:
        return float("nan")
    _, fp, tp = roc_points(ranked, positives)
    fpr = np.concatenate([[0.0], fp / num_negatives])
    tpr = np.concatenate([[0.0], tp / num_positives])
    stop = np.searchsorted(fpr, max_fpr, side="right")
    last = np.interp(max_fpr, fpr[stop - 1 : stop + 1], tpr[stop - 1 : stop + 1])
    fpr, tpr = np.append(fpr[:stop], max_fpr), np.append(tpr[:stop], last)
    area = float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1])) / 2)
    chance = max_fpr**2 / 2
    return 0.5 * (1 + (area - chance) / (max_fpr - chance))


def _area_function(curve: str, max_fpr: float | None) -> Callable[[np.ndarray, np.ndarray], float]:
    if curve == "pr":
        return _average_precision
    if max_fpr is None or max_fpr == 1:
        return _roc_auc
    return lambda ranked, positives: _partial_auc(ranked, positives, max_fpr)


def _members(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """Indices of the samples of each class."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels, minlength=num_classes))[:-1])


def class_support(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Number of samples of each class."""
    if labels.ndim == 2:
        support: np.ndarray = np.count_nonzero(labels == 1, axis=0)
        return support
    return np.bincount(labels, minlength=num_classes)


def map_classes(
    function: Callable[[np.ndarray, np.ndarray], _R], blocks: Sequence[np.ndarray], labels: np.ndarray
) -> list[_R]:
    """``function(ranked, positives)`` of every class: the ascending scores of all samples and of the positives."""
    if labels.ndim == 2:
        targets = np.ascontiguousarray(labels.T)
        members = [np.flatnonzero(row == 1) for row in targets]
        has_ignored = bool((targets < 0).any())  # if not, no column is copied
    else:
        members, has_ignored = _members(labels, blocks[0].shape[1]), False

    def value(index: int, column: np.ndarray) -> _R:
        positives = np.sort(column[members[index]])
        if has_ignored:
            column = column[targets[index] >= 0]
        column.sort()
        return function(column, positives)

    return map_columns(value, blocks)


def one_vs_rest_auc(
    blocks: Sequence[np.ndarray], labels: np.ndarray, *, curve: str = "roc", max_fpr: float | None = None
) -> np.ndarray:
    """The one-vs-rest AUC of every class; NaN without positives (or, for ``'roc'``, negatives)."""
    return np.array(map_classes(_area_function(curve, max_fpr), blocks, labels), dtype=np.float64)


def micro_auc(
    blocks: Sequence[np.ndarray], labels: np.ndarray, *, curve: str = "roc", max_fpr: float | None = None
) -> float:
    """The AUC of all (sample, class) pairs pooled."""
    dtype = working_dtype(blocks)
    ranked = np.concatenate([block.ravel() for block in blocks]).astype(dtype, copy=False)
    if labels.ndim == 2:
        flat = labels.reshape(-1)
        positives, ranked = ranked[flat == 1], ranked[flat >= 0]
    else:
        positives = ranked[np.arange(len(labels)) * blocks[0].shape[1] + labels]
    ranked.sort()
    return _area_function(curve, max_fpr)(ranked, np.sort(positives))


def one_vs_one_auc(blocks: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """(classes, classes) AUC of the score of class a (row) on the samples of a and b (column); NaN if undefined."""
    num_classes = blocks[0].shape[1]
    members = _members(labels, num_classes)
    support = np.bincount(labels, minlength=num_classes)

    def row(index: int, column: np.ndarray) -> np.ndarray:
        positives = np.sort(column[members[index]])
        # Twice the number of positives above each sample, ties counting half: integers, so the sums are exact.
        below = np.searchsorted(positives, column, side="left") + np.searchsorted(positives, column, side="right")
        twice = np.bincount(labels, weights=2 * len(positives) - below, minlength=num_classes)
        values = divide(twice, 2 * support * len(positives))
        values[index] = np.nan
        return values

    return np.stack(map_columns(row, blocks))


@dataclass(frozen=True)
class AUCResult(Result):
    """An AUC and the values per class."""

    value: float  # the average; NaN for ``average=None``
    per_class: np.ndarray  # NaN where undefined; empty if not computed
    support: np.ndarray  # number of samples of each class
    error: float = 0.0  # bound on the error of ``value`` if it is from histograms

    @property
    def classes_averaged(self) -> int:
        """Number of classes with a defined value."""
        return int((~np.isnan(self.per_class)).sum())


def roc_auc(
    scores: Scores,
    labels: np.ndarray,
    *,
    average: str | None = "macro",
    curve: str = "roc",
    multi_class: str = "ovr",
    max_fpr: float | None = None,
    absent: str = "skip",
    classwise: bool = True,
) -> AUCResult:
    """The area under the ROC or precision-recall curve.

    Args:
        scores: (samples, classes), or a list of consecutive blocks of rows.
        labels: Class of each sample, or (samples, classes) of 1, 0 and -1 (ignored).
        average: ``'macro'``, ``'weighted'`` (by support), ``'micro'`` or None.
        curve: ``'roc'``, or ``'pr'`` for average precision.
        multi_class: ``'ovr'`` (one-vs-rest) or ``'ovo'`` (one-vs-one).
        max_fpr: Compute the standardized partial AUC up to this false positive rate.
        absent: Treatment of undefined classes in the mean: ``'skip'``, ``'nan'`` or ``'error'``.
        classwise: Also compute the values per class for the micro average.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]])
        >>> roc_auc(scores, np.array([0, 0, 1, 1])).value
        0.75
    """
    blocks = score_blocks(scores)
    support = class_support(labels, blocks[0].shape[1])
    if multi_class == "ovo":
        pairs = one_vs_one_auc(blocks, labels)
        symmetric = (pairs + pairs.T) / 2
        first, second = np.triu_indices(len(pairs), k=1)
        weights = support[first] + support[second] if average == "weighted" else None
        value = mean_over_classes(symmetric[first, second], weights=weights, absent=absent)
        return AUCResult(value, mean_of_defined(symmetric), support)
    if average == "micro":
        per_class = one_vs_rest_auc(blocks, labels, curve=curve, max_fpr=max_fpr) if classwise else np.array([])
        return AUCResult(micro_auc(blocks, labels, curve=curve, max_fpr=max_fpr), per_class, support)
    per_class = one_vs_rest_auc(blocks, labels, curve=curve, max_fpr=max_fpr)
    return AUCResult(average_over_classes(per_class, support, average, absent), per_class, support)


def average_over_classes(values: np.ndarray, support: np.ndarray, average: str | None, absent: str) -> float:
    """The macro or weighted mean; NaN for ``average=None``."""
    if average is None:
        return float("nan")
    return mean_over_classes(values, weights=support if average == "weighted" else None, absent=absent)
