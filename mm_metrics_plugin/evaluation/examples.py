"""Examples behind the numbers: the worst samples of each cell of a classifier, and images on which two runs disagree.

The worst wrong predictions have the highest scores; the worst missed classes and correct predictions have the lowest.
Ties go to the earlier sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mm_metrics_plugin.functional._arrays import worst_first
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts


@dataclass(frozen=True, eq=False)
class SampleCells:
    """The worst samples of every cell, at most 50 per cell."""

    shape: tuple[int, int]  # rows and columns
    filled: np.ndarray  # (C,) indices of the cells that have samples, row by row; with 10,000 classes most are empty
    number: np.ndarray  # (C,) number of samples of these cells
    cell: np.ndarray  # (K,) index of the cell of each listed sample; ascending
    sample: np.ndarray  # (K,) the sample
    score: np.ndarray  # (K,) its score for the predicted or missed class


def confusion_cells(scores: np.ndarray, labels: np.ndarray, predictions: np.ndarray, *, most: int) -> SampleCells:
    """List the samples in the cells of a confusion matrix: rows are ground truth, columns predictions.

    At most ``most`` samples are listed, but at least one per cell.
    """
    size = scores.shape[1]
    score = scores[np.arange(len(predictions)), predictions]
    severity = np.where(labels == predictions, -score, score)
    return _sample_cells(np.arange(len(labels)), labels * size + predictions, score, severity, (size, size), most)


def decision_cells(scores: np.ndarray, targets: np.ndarray, predictions: np.ndarray, *, most: int) -> SampleCells:
    """List the TP, FP and FN of each class of a multi-label task, as cells (classes, 3)."""
    kind = np.full(scores.shape, -1)
    positive, negative = targets == 1, targets == 0
    for index, chosen in enumerate((positive & predictions, negative & predictions, positive & ~predictions)):
        kind[chosen] = index
    sample, label = np.nonzero(kind >= 0)
    kinds, score = kind[sample, label], scores[sample, label]
    severity = np.where(kinds == 1, score, -score)
    return _sample_cells(sample, label * 3 + kinds, score, severity, (scores.shape[1], 3), most)


def _sample_cells(
    sample: np.ndarray, cell: np.ndarray, score: np.ndarray, severity: np.ndarray, shape: tuple[int, int], most: int
) -> SampleCells:
    listed, _ = worst_first(cell, severity, sample, most=most)
    filled, number = np.unique(cell, return_counts=True)
    return SampleCells(shape, filled, number, cell[listed], sample[listed], score[listed])


@dataclass(frozen=True, eq=False)
class Disagreements:
    """Images on which one run makes fewer errors than another."""

    agreement: dict[str, int]  # number of images without errors in both runs, only in the first, the second, neither
    counts: dict[str, int]  # number of images on which the second run is better, and worse
    image: np.ndarray  # (K,) images: where the second run is better, then where it is worse, by descending difference
    worse: np.ndarray  # (K,) whether the second run is worse on it
    first: np.ndarray  # (3, K) TP, FP and FN of the first run
    second: np.ndarray  # (3, K) TP, FP and FN of the second run


def disagreements(
    first: PerImageCounts, second: PerImageCounts, *, confidence: np.ndarray | None = None, most: int = 500
) -> Disagreements:
    """Find the images on which one run makes fewer errors (FP and FN) than the other, at most ``most`` of each.

    ``confidence``, (2, images), breaks ties: a higher score of the run with more errors is worse.
    """
    totals = [run.per_image() for run in (first, second)]
    errors = [fp + fn for _, fp, fn in totals]
    correct = [count == 0 for count in errors]
    gain = errors[0] - errors[1]
    differ, is_worse = np.flatnonzero(gain), gain < 0
    confidence = np.zeros((2, len(gain))) if confidence is None else confidence
    ties = -np.where(is_worse, confidence[1], confidence[0])[differ]
    listed, _ = worst_first(is_worse[differ], np.abs(gain)[differ], ties, differ, per_group=most, most=2 * most)
    image = differ[listed]
    agreement = {
        "both": correct[0] & correct[1],
        "first": correct[0] & ~correct[1],
        "second": ~correct[0] & correct[1],
        "neither": ~correct[0] & ~correct[1],
    }
    return Disagreements(
        agreement={name: int(np.count_nonzero(images)) for name, images in agreement.items()},
        counts={"better": int(np.count_nonzero(gain > 0)), "worse": int(np.count_nonzero(is_worse))},
        image=image,
        worse=is_worse[image],
        first=totals[0][:, image],
        second=totals[1][:, image],
    )
