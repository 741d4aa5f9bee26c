"""Mean IoU and Dice of segmentation masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, divide, mean_over_classes
from mm_metrics_plugin.functional.classification.confusion_matrix import class_counts


@dataclass(frozen=True)
class IoUResult(Result):
    """IoU and accuracy from a confusion matrix of pixels; NaN for classes without pixels."""

    mean_iou: float  # the mean IoU of the classes that occur in truth or prediction
    pixel_accuracy: float  # the share of pixels that are right
    mean_accuracy: float  # the mean of ``accuracy`` over the classes of the ground truth
    iou: np.ndarray  # intersection over union, one value a class
    accuracy: np.ndarray  # the share of its pixels that are right, one value a class
    classes_averaged: int  # over how many classes ``mean_iou`` is the mean


def mean_iou_report(matrix: np.ndarray, *, absent: str = "skip") -> IoUResult:
    """Intersection over union and accuracy of each class, and their means.

    Args:
        matrix: Pixel counts (classes, classes): rows ground truth, columns prediction.
        absent: How a class in neither ground truth nor prediction counts in the mean IoU: ``'skip'``, ``'nan'`` or
            ``'error'``.

    Example:
        >>> result = mean_iou_report(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]]))
        >>> round(result.mean_iou, 4), result.classes_averaged, result.pixel_accuracy
        (0.3333, 2, 0.5)
    """
    tp, fp, fn, _ = class_counts(matrix)
    iou = divide(tp, tp + fp + fn)
    accuracy = divide(tp, tp + fn)
    return IoUResult(
        mean_iou=mean_over_classes(iou, absent=absent),
        pixel_accuracy=float(divide(tp.sum(), (tp + fn).sum())),
        mean_accuracy=mean_over_classes(accuracy),
        iou=iou,
        accuracy=accuracy,
        classes_averaged=int((~np.isnan(iou)).sum()),
    )


def count_label_pairs(truth: np.ndarray, predicted: np.ndarray, *, num_classes: int) -> np.ndarray:
    """(classes + 1, classes + 1) how often each true label meets each predicted one; last are labels of no class."""
    width = num_classes + 1
    cells = _clipped(truth, num_classes)
    cells *= width
    cells += _clipped(predicted, num_classes)
    return np.bincount(cells, minlength=width * width).reshape(width, width)


def _clipped(labels: np.ndarray, limit: int) -> np.ndarray:
    """Labels as int64, with ``limit`` for everything that is not between 0 and the limit."""
    labels = np.asarray(labels).reshape(-1)
    # Read without sign, a negative number is a large one: a single comparison clips both ends.
    unsigned = labels.view(np.dtype(f"u{labels.dtype.itemsize}").newbyteorder(labels.dtype.byteorder))
    clipped = np.empty(labels.shape, dtype=np.int64)
    np.minimum(unsigned, min(limit, (1 << 8 * labels.dtype.itemsize) - 1), out=clipped, casting="unsafe")
    return clipped


def label_overlap(matrix: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Intersection, and size of ground truth plus prediction, of each class of a confusion matrix of pixels."""
    return matrix.diagonal(), matrix.sum(axis=0) + matrix.sum(axis=1)


def soft_overlap(
    predicted: np.ndarray, target: np.ndarray, *, ignored: Optional[np.ndarray] = None
) -> Tuple[np.ndarray, np.ndarray]:
    """The sums of products, and of squares, of each row of scores and targets (classes, values), in float64."""
    if ignored is not None and ignored.any():
        predicted, target = np.where(ignored, 0, predicted), np.where(ignored, 0, target)
    return _row_products(predicted, target), _row_products(predicted, predicted) + _row_products(target, target)


def soft_label_overlap(
    predicted: np.ndarray, labels: np.ndarray, *, ignore_index: Optional[int] = None
) -> Tuple[np.ndarray, np.ndarray]:
    """:func:`soft_overlap` with targets of 1 for the true class and 0 for the others."""
    if ignore_index is not None:
        kept = labels != ignore_index
        if not kept.all():
            predicted, labels = predicted[:, kept], labels[kept]
    labels = labels.astype(np.int64, copy=False)
    hits = np.take_along_axis(predicted, labels[None], axis=0)[0]
    intersection = np.bincount(labels, weights=hits, minlength=len(predicted))
    return intersection, _row_products(predicted, predicted) + np.bincount(labels, minlength=len(predicted))


def _row_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    # einsum turns to float64 piece by piece: nothing of the arrays' size is made.
    return np.einsum("ij,ij->i", left, right, dtype=np.float64, casting="unsafe")


def dice_score(
    intersection: np.ndarray, sizes: np.ndarray, *, smooth: float = 0.0, zero_division: float = 1.0
) -> np.ndarray:
    """2 · intersection / (sizes + smooth).

    Args:
        intersection: Sums of products, or common pixels.
        sizes: Sums of squares, or pixels, of ground truth plus prediction.
        smooth: Added to the denominator.
        zero_division: The value where both are empty, whatever ``smooth`` is.

    Example:
        >>> dice_score(np.array([1.4, 0.0]), np.array([4.56, 0.0]), smooth=1e-5).round(7).tolist()
        [0.6140337, 1.0]
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    value = divide(2 * np.asarray(intersection, dtype=np.float64), np.where(sizes > 0, sizes + smooth, 0.0))
    return np.where(sizes > 0, value, zero_division)
