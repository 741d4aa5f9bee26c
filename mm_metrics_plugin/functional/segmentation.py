"""Mean IoU and Dice of segmentation masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, divide, mean_over_classes
from mm_metrics_plugin.functional.classification.confusion_matrix import class_counts


@dataclass(frozen=True)
class IoUResult(Result):
    """IoU and accuracy of a pixel confusion matrix; NaN for classes without pixels."""

    mean_iou: float  # mean IoU over the classes that occur in ground truth or prediction
    pixel_accuracy: float  # fraction of correct pixels
    mean_accuracy: float  # mean of ``accuracy`` over the classes of the ground truth
    iou: np.ndarray  # (classes,) intersection over union
    accuracy: np.ndarray  # (classes,) fraction of correct pixels of each class
    classes_averaged: int  # number of classes in ``mean_iou``


def mean_iou_report(matrix: np.ndarray, *, absent: str = "skip") -> IoUResult:
    """IoU and accuracy per class, and their means.

    Args:
        matrix: Pixel counts (classes, classes): rows ground truth, columns prediction.
        absent: Treatment of classes in neither ground truth nor prediction: ``'skip'``, ``'nan'`` (the mean is NaN) or
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


def count_label_pairs(target: np.ndarray, predicted: np.ndarray, *, num_classes: int) -> np.ndarray:
    """Confusion matrix (classes + 1, classes + 1) of labels; the last row and column are labels out of range."""
    width = num_classes + 1
    cells = _clipped(target, num_classes)
    cells *= width
    cells += _clipped(predicted, num_classes)
    return np.bincount(cells, minlength=width * width).reshape(width, width)


def _clipped(labels: np.ndarray, limit: int) -> np.ndarray:
    """Labels as int64; those out of range become ``limit``."""
    labels = np.asarray(labels).reshape(-1)
    # As unsigned integers, negative numbers are large, so one comparison clips both ends.
    unsigned = labels.view(np.dtype(f"u{labels.dtype.itemsize}").newbyteorder(labels.dtype.byteorder))
    clipped = np.empty(labels.shape, dtype=np.int64)
    np.minimum(unsigned, min(limit, (1 << 8 * labels.dtype.itemsize) - 1), out=clipped, casting="unsafe")
    return clipped


def label_overlap(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per class of a pixel confusion matrix: intersection, and pixels of ground truth plus prediction."""
    return matrix.diagonal(), matrix.sum(axis=0) + matrix.sum(axis=1)


def soft_overlap(
    predicted: np.ndarray, target: np.ndarray, *, ignored: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of products and of squares over the rows of scores and targets (classes, values)."""
    if ignored is not None and ignored.any():
        predicted, target = np.where(ignored, 0, predicted), np.where(ignored, 0, target)
    return _row_products(predicted, target), _row_products(predicted, predicted) + _row_products(target, target)


def soft_label_overlap(
    predicted: np.ndarray, labels: np.ndarray, *, ignore_index: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
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
    # einsum converts to float64 in small buffers, without a copy of the arrays.
    products: np.ndarray = np.einsum("ij,ij->i", left, right, dtype=np.float64, casting="unsafe")
    return products


def dice_score(
    intersection: np.ndarray, sizes: np.ndarray, *, smooth: float = 0.0, zero_division: float = 1.0
) -> np.ndarray:
    """Dice: 2 · intersection / (sizes + smooth).

    Args:
        intersection: Number of common pixels, or sum of products of scores and targets.
        sizes: Number of pixels, or sum of squares, of ground truth plus prediction.
        smooth: Added to the denominator.
        zero_division: Value where ground truth and prediction are both empty, for any ``smooth``.

    Example:
        >>> dice_score(np.array([1.4, 0.0]), np.array([4.56, 0.0]), smooth=1e-5).round(7).tolist()
        [0.6140337, 1.0]
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    value = divide(2 * np.asarray(intersection, dtype=np.float64), np.where(sizes > 0, sizes + smooth, 0.0))
    return np.where(sizes > 0, value, zero_division)
