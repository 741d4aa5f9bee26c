"""Right and wrong decisions counted image by image, so that images can be drawn again, swapped or left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import numpy as np
from scipy.sparse import csr_matrix

from mm_metrics_plugin.functional.averaging import divide

PER_CLASS = ("precision", "recall", "f1")


@dataclass(frozen=True, eq=False)
class ImageCounts:
    """True positives, false positives and false negatives of every image and class that have any.

    Attributes:
        num_images: How many images, those without anything included.
        num_classes: How many classes.
        image: (E,) image of each entry.
        label: (E,) class of each entry.
        counts: (3, E) true positives, false positives, false negatives.

    Example:
        >>> counts = ImageCounts.from_labels(np.array([0, 1, 1]), np.array([0, 1, 0]), num_classes=2)
        >>> [part.tolist() for part in counts.totals()]
        [[1, 1], [1, 0], [0, 1]]
        >>> print(counts)
        3 images, 2 classes: 2 true positives, 1 false positives, 1 false negatives
    """

    num_images: int
    num_classes: int
    image: np.ndarray
    label: np.ndarray
    counts: np.ndarray

    @classmethod
    def from_events(cls, *events: Tuple[np.ndarray, np.ndarray], num_images: int, num_classes: int) -> ImageCounts:
        """Counts events.

        Args:
            *events: Images and classes of the true positives, of the false positives and of the false negatives.
            num_images: How many images.
            num_classes: How many classes.
        """
        cells = [np.asarray(image, dtype=np.int64) * num_classes + label for image, label in events]
        known, place = np.unique(np.concatenate(cells), return_inverse=True)
        parts = np.split(place.reshape(-1), np.cumsum([len(cell) for cell in cells])[:-1])
        counts = np.stack([np.bincount(part, minlength=len(known)) for part in parts])
        return cls(num_images, num_classes, known // num_classes, known % num_classes, counts)

    @classmethod
    def from_labels(cls, truth: np.ndarray, predicted: np.ndarray, *, num_classes: int) -> ImageCounts:
        """The counts of a classifier: one sample an image. Predictions below 0 are no decision."""
        truth, predicted = np.asarray(truth), np.asarray(predicted)
        sample, wrong = np.arange(len(truth)), truth != predicted
        decided = wrong & (predicted >= 0)
        return cls.from_events(
            (sample[~wrong], truth[~wrong]),
            (sample[decided], predicted[decided]),
            (sample[wrong], truth[wrong]),
            num_images=len(truth),
            num_classes=num_classes,
        )

    @classmethod
    def from_decisions(cls, truth: np.ndarray, decided: np.ndarray) -> ImageCounts:
        """The counts of a multi-label classifier: (samples, classes) of 1, 0 and -1 (not counted), and of bool."""
        truth, decided = np.asarray(truth), np.asarray(decided, dtype=bool)
        cells = [(truth == 1) & decided, (truth == 0) & decided, (truth == 1) & ~decided]
        events = [np.nonzero(cell) for cell in cells]
        return cls.from_events(*events, num_images=truth.shape[0], num_classes=truth.shape[1])  # type: ignore[arg-type]

    def matrix(self) -> csr_matrix:
        """(3 x classes, images): what weights of images are multiplied with."""
        rows = (np.arange(3)[:, None] * self.num_classes + self.label).reshape(-1)
        return csr_matrix(
            (self.counts.reshape(-1).astype(np.float64), (rows, np.tile(self.image, 3))),
            shape=(3 * self.num_classes, self.num_images),
        )

    def totals(self, weights: Optional[np.ndarray] = None) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """True positives, false positives and false negatives of each class.

        Args:
            weights: (images, draws), how often each image counts. None: once.

        Returns:
            Three arrays (classes), or (draws, classes) with weights.
        """
        if weights is None:
            found = [np.bincount(self.label, weights=part, minlength=self.num_classes) for part in self.counts]
            tp, fp, fn = (part.astype(np.int64) for part in found)
            return tp, fp, fn
        tp, fp, fn = np.split((self.matrix() @ weights).T, 3, axis=1)
        return tp, fp, fn

    def of_images(self, chosen: np.ndarray) -> ImageCounts:
        """The counts of some images (a mask); the others stay as images without anything."""
        kept = np.asarray(chosen, dtype=bool)[self.image]
        return ImageCounts(self.num_images, self.num_classes, self.image[kept], self.label[kept], self.counts[:, kept])

    def to_dict(self) -> Dict[str, Any]:
        """The totals as plain Python values."""
        tp, fp, fn = (part.tolist() for part in self.totals())
        return {"images": self.num_images, "tp": tp, "fp": fp, "fn": fn}

    def __str__(self) -> str:
        tp, fp, fn = self.counts.sum(axis=1)
        return (
            f"{self.num_images} images, {self.num_classes} classes: {tp} true positives, {fp} false positives, "
            f"{fn} false negatives"
        )


def mean_of_defined(values: np.ndarray) -> np.ndarray:
    """The mean along the last axis of what is not NaN; NaN where nothing is.

    Example:
        >>> mean_of_defined(np.array([[0.5, np.nan], [np.nan, np.nan]]))
        array([0.5, nan])
    """
    defined = ~np.isnan(values)
    return divide(np.where(defined, values, 0).sum(axis=-1), defined.sum(axis=-1))


def _f1(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray) -> np.ndarray:
    return divide(2 * tp, 2 * tp + fp + fn)


def count_figures(
    tp: np.ndarray, fp: np.ndarray, fn: np.ndarray
) -> Tuple[Dict[str, np.ndarray], Dict[str, np.ndarray]]:
    """The rates that counts (…, classes) give: per class, and over all classes. Undefined ones are NaN.

    Returns:
        ``precision``, ``recall`` and ``f1`` with the shape of the counts; and, without their last axis,
        ``mean_precision``, ``mean_recall``, ``f1_of_means``, ``macro_f1`` and ``micro_precision``, ``micro_recall``,
        ``micro_f1``.

    Example:
        >>> per_class, overall = count_figures(np.array([1, 1]), np.array([1, 0]), np.array([0, 1]))
        >>> per_class["precision"].tolist(), float(overall["mean_recall"])
        ([0.5, 1.0], 0.75)
    """
    per_class = {"precision": divide(tp, tp + fp), "recall": divide(tp, tp + fn), "f1": _f1(tp, fp, fn)}
    precision, recall = mean_of_defined(per_class["precision"]), mean_of_defined(per_class["recall"])
    both = precision + recall
    of_means = np.where(both == 0, 0.0, divide(2 * precision * recall, both))
    pooled = [part.sum(axis=-1) for part in (tp, fp, fn)]
    return per_class, {
        "mean_precision": precision,
        "mean_recall": recall,
        "f1_of_means": of_means,
        "macro_f1": mean_of_defined(per_class["f1"]),
        "micro_precision": divide(pooled[0], pooled[0] + pooled[1]),
        "micro_recall": divide(pooled[0], pooled[0] + pooled[2]),
        "micro_f1": _f1(*pooled),
    }
