"""How well regions of pictures cover each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import divide, mean_over_classes
from mm_metrics_plugin.functional.classification.confusion_matrix import class_counts


@dataclass(frozen=True)
class IoUResult:
    """What a confusion matrix of pixels says of regions; NaN for classes without a pixel to judge by.

    Attributes:
        mean_iou: The mean IoU of the classes that occur in truth or prediction.
        pixel_accuracy: The share of pixels that are right.
        mean_accuracy: The mean, over the classes that occur in the truth, of the share of their pixels that are right.
        iou: Intersection over union, one value a class.
        accuracy: The share of its pixels that are right, one value a class.
        classes_averaged: Over how many classes ``mean_iou`` is the mean.
    """

    mean_iou: float
    pixel_accuracy: float
    mean_accuracy: float
    iou: np.ndarray
    accuracy: np.ndarray
    classes_averaged: int

    def to_dict(self) -> Dict[str, Any]:
        """The result as plain Python values."""
        return {name: np.asarray(value).tolist() for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return (
            f"mean IoU {self.mean_iou:.4f} of {self.classes_averaged} classes, "
            f"pixel accuracy {self.pixel_accuracy:.4f}, mean accuracy {self.mean_accuracy:.4f}"
        )


def iou_report(matrix: np.ndarray, *, absent: str = "skip") -> IoUResult:
    """Intersection over union and accuracy of each class and on average.

    Args:
        matrix: Pixel counts (classes, classes): rows truth, columns prediction.
        absent: What a class in neither truth nor prediction does to the mean IoU, as in
            :func:`~mm_metrics_plugin.functional.averaging.mean_over_classes`.

    Example:
        >>> result = iou_report(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]]))
        >>> print(result)
        mean IoU 0.3333 of 2 classes, pixel accuracy 0.5000, mean accuracy 0.5000
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
    """How often each true label meets each predicted one.

    Args:
        truth: Whole numbers of any dtype and shape.
        predicted: Likewise, as many.
        num_classes: Labels from 0 to below this are classes.

    Returns:
        int64 array (classes + 1, classes + 1); the last row and column count what is no class.

    Example:
        >>> count_label_pairs(np.array([0, 0, 1, 255], np.uint8), np.array([0, 1, 1, 0]), num_classes=2).tolist()
        [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    """
    width = num_classes + 1
    cells = _clipped(truth, num_classes)
    cells *= width
    cells += _clipped(predicted, num_classes)
    return np.bincount(cells, minlength=width * width).reshape(width, width)


def _clipped(labels: np.ndarray, limit: int) -> np.ndarray:
    """Labels as int64, everything outside 0 to below the limit as the limit."""
    labels = np.asarray(labels).reshape(-1)
    # Read without sign, a negative number is a large one: a single comparison clips both ends.
    unsigned = labels.view(np.dtype(f"u{labels.dtype.itemsize}").newbyteorder(labels.dtype.byteorder))
    clipped = np.empty(labels.shape, dtype=np.int64)
    np.minimum(unsigned, min(limit, (1 << 8 * labels.dtype.itemsize) - 1), out=clipped, casting="unsafe")
    return clipped


def label_overlap(matrix: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Intersection, and truth plus prediction, of each class of a confusion matrix of pixels.

    Example:
        >>> intersection, sizes = label_overlap(np.array([[3, 1], [0, 2]]))
        >>> intersection.tolist(), sizes.tolist()
        ([3, 2], [7, 5])
    """
    return matrix.diagonal(), matrix.sum(axis=0) + matrix.sum(axis=1)


def soft_overlap(
    predicted: np.ndarray, target: np.ndarray, *, ignored: Optional[np.ndarray] = None
) -> Tuple[np.ndarray, np.ndarray]:
    """The sums of products, and of squares, of each row of two arrays, in float64.

    Args:
        predicted: Scores (classes, values).
        target: Their targets, of the same shape.
        ignored: Where values are left out, of the same shape; None: nowhere.

    Example:
        >>> intersection, sizes = soft_overlap(np.array([[0.5, 1.0]]), np.array([[0.0, 1.0]]))
        >>> intersection.tolist(), sizes.tolist()
        ([1.0], [2.25])
    """
    if ignored is not None and ignored.any():
        predicted, target = np.where(ignored, 0, predicted), np.where(ignored, 0, target)
    return _row_products(predicted, target), _row_products(predicted, predicted) + _row_products(target, target)


def soft_label_overlap(
    predicted: np.ndarray, labels: np.ndarray, *, ignore_index: Optional[int] = None
) -> Tuple[np.ndarray, np.ndarray]:
    """As :func:`soft_overlap`, with targets of 1 for the true class and 0 for the others.

    Args:
        predicted: Scores (classes, values).
        labels: The true class of each value.
        ignore_index: Values with this label are left out.

    Example:
        >>> scores = np.array([[0.75, 0.5, 0.0], [0.25, 0.5, 1.0]])
        >>> intersection, sizes = soft_label_overlap(scores, np.array([0, 1, 255]), ignore_index=255)
        >>> intersection.tolist(), sizes.tolist()
        ([0.75, 0.5], [1.8125, 1.3125])
    """
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


def dice_score(intersection: np.ndarray, sizes: np.ndarray, *, smooth: float = 0.0, empty: float = 1.0) -> np.ndarray:
    """2 · intersection / (sizes + smooth).

    Args:
        intersection: Sums of products, or pixels that both have.
        sizes: Sums of squares of both, or pixels of the one and of the other.
        smooth: Added to the denominator.
        empty: The value where both are empty, whatever ``smooth`` is.

    Example:
        >>> dice_score(np.array([1.4, 0.0]), np.array([4.56, 0.0]), smooth=1e-5).round(7).tolist()
        [0.6140337, 1.0]
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    value = divide(2 * np.asarray(intersection, dtype=np.float64), np.where(sizes > 0, sizes + smooth, 0.0))
    return np.where(sizes > 0, value, empty)
