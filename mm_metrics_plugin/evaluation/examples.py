"""Examples behind the numbers: the worst samples of each cell of a classifier, and images on which two runs disagree.

The worst wrong predictions have the highest scores; the worst missed classes and correct predictions have the lowest.
Ties go to the earlier sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import worst_first
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts

KINDS = ("right", "wrong", "missed")


@dataclass(frozen=True, eq=False)
class SampleCells:
    """The worst samples of every cell.

    Attributes:
        shape: Rows and columns.
        filled: (C,) indices of the cells that have samples, row by row; ascending. With 10,000 classes most are empty.
        number: (C,) number of samples of these cells.
        limit: Maximum number of samples listed per cell.
        cell: (K,) index of the cell of each listed sample; ascending.
        sample: (K,) the sample.
        score: (K,) its score for the predicted or missed class.
    """

    shape: Tuple[int, int]
    filled: np.ndarray
    number: np.ndarray
    limit: int
    cell: np.ndarray
    sample: np.ndarray
    score: np.ndarray

    def __str__(self) -> str:
        return f"{len(self.cell)} of {int(self.number.sum())} samples listed, up to {self.limit} per cell"


def confusion_cells(
    scores: np.ndarray, labels: np.ndarray, predictions: np.ndarray, *, per_cell: int = 50, most: int = 20_000
) -> SampleCells:
    """List the samples in the cells of a confusion matrix: rows are ground truth, columns predictions.

    Args:
        scores: (samples, classes).
        labels: (samples,) true class.
        predictions: (samples,) predicted class.
        per_cell: Maximum number of samples per cell.
        most: Maximum number of samples of all cells; one per cell is always listed.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
        >>> cells = confusion_cells(scores, np.array([0, 1, 1]), scores.argmax(axis=1))
        >>> cells.cell.tolist(), cells.sample.tolist()
        ([0, 2, 2], [0, 2, 1])
        >>> print(cells)
        3 of 3 samples listed, up to 50 per cell
    """
    size = scores.shape[1]
    score = scores[np.arange(len(predictions)), predictions]
    badness = np.where(labels == predictions, -score, score)
    return _listed(np.arange(len(labels)), labels * size + predictions, score, badness, (size, size), per_cell, most)


def decision_cells(
    scores: np.ndarray, targets: np.ndarray, predictions: np.ndarray, *, per_cell: int = 50, most: int = 20_000
) -> SampleCells:
    """List the TP, FP and FN of each class of a multi-label task, as cells (classes, 3).

    Args:
        scores: (samples, classes).
        targets: (samples, classes) of 1, 0 and -1 (ignored).
        predictions: (samples, classes) bool.
        per_cell: Maximum number of samples per cell.
        most: Maximum number of samples of all cells; one per cell is always listed.

    Example:
        >>> scores, targets = np.array([[0.9], [0.2], [0.8], [0.1]]), np.array([[0], [1], [1], [0]])
        >>> cells = decision_cells(scores, targets, scores > 0.5)
        >>> cells.cell.tolist(), cells.sample.tolist()
        ([0, 1, 2], [2, 0, 1])
    """
    kind = np.full(scores.shape, -1)
    positive, negative = targets == 1, targets == 0
    for index, chosen in enumerate((positive & predictions, negative & predictions, positive & ~predictions)):
        kind[chosen] = index
    sample, label = np.nonzero(kind >= 0)
    kinds, score = kind[sample, label], scores[sample, label]
    badness = np.where(kinds == KINDS.index("wrong"), score, -score)
    return _listed(sample, label * len(KINDS) + kinds, score, badness, (scores.shape[1], len(KINDS)), per_cell, most)


def _listed(
    sample: np.ndarray,
    cell: np.ndarray,
    score: np.ndarray,
    badness: np.ndarray,
    shape: Tuple[int, int],
    per_cell: int,
    most: int,
) -> SampleCells:
    listed, limit = worst_first(cell, badness, sample, per_group=per_cell, most=most)
    filled, number = np.unique(cell, return_counts=True)
    return SampleCells(shape, filled, number, limit, cell[listed], sample[listed], score[listed])


@dataclass(frozen=True, eq=False)
class Disagreements:
    """Images on which one run makes fewer errors than another.

    Attributes:
        agreement: Number of images without FP and FN in both runs, only in the first, only in the second, in neither.
        counts: Number of images on which the second run is better, and worse.
        image: (K,) images: those on which the second is better first, by descending difference.
        worse: (K,) whether the second run is worse on it.
        first: (3, K) TP, FP and FN of the first run.
        second: (3, K) those of the second.
    """

    agreement: Dict[str, int]
    counts: Dict[str, int]
    image: np.ndarray
    worse: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def __str__(self) -> str:
        return f"the second run is better on {self.counts['better']} images and worse on {self.counts['worse']}"


def disagreements(
    first: PerImageCounts, second: PerImageCounts, *, confidence: Optional[np.ndarray] = None, most: int = 500
) -> Disagreements:
    """Find the images on which one run makes fewer errors (false positives and false negatives) than the other.

    Args:
        first: Counts of the first run.
        second: Counts of the second run; the images in the same order.
        confidence: (2, images) score of each run. It breaks ties: the higher the score of the run with more errors, the
            worse.
        most: Maximum number of images on which the second is better, and on which it is worse.

    Example:
        >>> labels = np.array([0, 1, 1, 0])
        >>> runs = (PerImageCounts.from_labels(labels, one, num_classes=2) for one in ([0, 0, 1, 0], [0, 1, 0, 1]))
        >>> found = disagreements(*runs, confidence=np.array([[0.9, 0.8, 0.7, 0.6], [0.5, 0.6, 0.7, 0.8]]))
        >>> found.image.tolist(), found.worse.tolist(), found.agreement
        ([1, 3, 2], [False, True, True], {'both': 1, 'first': 2, 'second': 1, 'neither': 0})
        >>> print(found)
        the second run is better on 1 images and worse on 2
    """
    if first.num_images != second.num_images:
        raise MetricInputError(
            f"'num_images' of both runs must be the same (found {first.num_images} and {second.num_images})"
        )
    totals = [_by_image(run) for run in (first, second)]
    errors = [found[1] + found[2] for found in totals]
    right = [found == 0 for found in errors]
    gain = errors[0] - errors[1]
    sure = np.zeros((2, len(gain))) if confidence is None else np.asarray(confidence)
    group = (gain < 0).astype(np.int64)
    differ = np.flatnonzero(gain)
    surer = -np.where(gain < 0, sure[1], sure[0])
    listed, _ = worst_first(group[differ], np.abs(gain)[differ], surer[differ], differ, per_group=most, most=2 * most)
    chosen = differ[listed]
    names = ("both", "first", "second", "neither")
    agreement = [right[0] & right[1], right[0] & ~right[1], ~right[0] & right[1], ~right[0] & ~right[1]]
    return Disagreements(
        agreement={name: int(np.count_nonzero(part)) for name, part in zip(names, agreement)},
        counts={"better": int(np.count_nonzero(gain > 0)), "worse": int(np.count_nonzero(gain < 0))},
        image=chosen,
        worse=gain[chosen] < 0,
        first=totals[0][:, chosen],
        second=totals[1][:, chosen],
    )


def _by_image(counts: PerImageCounts) -> np.ndarray:
    """(3, images) TP, FP and FN of every image."""
    sums = [np.bincount(counts.image, weights=part, minlength=counts.num_images) for part in counts.counts]
    return np.array(sums).reshape(3, counts.num_images).astype(np.int64)
