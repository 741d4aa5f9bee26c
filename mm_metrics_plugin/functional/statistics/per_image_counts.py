"""TP, FP and FN of every image and class, so that images can be resampled or swapped between runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import divide, fbeta_of_rates, fbeta_score, mean_of_defined
from mm_metrics_plugin.functional.detection.matching import MatchTable

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, eq=False)
class PerImageCounts:
    """True positives, false positives and false negatives of every image and class that have any.

    Attributes:
        num_images: How many images, those without anything included.
        num_classes: How many classes.
        image: (E,) image of each entry.
        label: (E,) class of each entry.
        counts: (3, E) true positives, false positives, false negatives.

    Example:
        >>> counts = PerImageCounts.from_labels(np.array([0, 1, 1]), np.array([0, 1, 0]), num_classes=2)
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
    def from_events(cls, *events: Tuple[np.ndarray, np.ndarray], num_images: int, num_classes: int) -> PerImageCounts:
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
    def from_labels(cls, truth: np.ndarray, predicted: np.ndarray, *, num_classes: int) -> PerImageCounts:
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
    def from_decisions(cls, truth: np.ndarray, decided: np.ndarray) -> PerImageCounts:
        """The counts of a multi-label classifier: (samples, classes) of 1, 0 and -1 (not counted), and of bool."""
        truth, decided = np.asarray(truth), np.asarray(decided, dtype=bool)
        cells = [(truth == 1) & decided, (truth == 0) & decided, (truth == 1) & ~decided]
        events = [np.nonzero(cell) for cell in cells]
        return cls.from_events(*events, num_images=truth.shape[0], num_classes=truth.shape[1])  # type: ignore[arg-type]

    def matrix(self) -> csr_matrix:
        """(3 x classes, images): what weights of images are multiplied with."""
        from scipy.sparse import csr_matrix  # counts alone do not need it

        rows = (np.arange(3)[:, None] * self.num_classes + self.label).reshape(-1)
        return csr_matrix(
            (self.counts.reshape(-1).astype(np.float64), (rows, np.tile(self.image, 3))),
            shape=(3 * self.num_classes, self.num_images),
        )

    def totals(self, weights: Optional[np.ndarray] = None) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """True positives, false positives and false negatives of each class.

        Args:
            weights: (images, draws) how often each image counts. None: once.

        Returns:
            Three arrays (classes), or (draws, classes) with weights.
        """
        if weights is None:
            found = [np.bincount(self.label, weights=part, minlength=self.num_classes) for part in self.counts]
            tp, fp, fn = (part.astype(np.int64) for part in found)
            return tp, fp, fn
        tp, fp, fn = np.split((self.matrix() @ weights).T, 3, axis=1)
        return tp, fp, fn

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


def per_image_counts(table: MatchTable, *, score_thr: float, iou_thr: float = 0.5) -> PerImageCounts:
    """TP, FP and FN at a score threshold, image by image: the counts of the confusion matrix under ``coco``.

    Args:
        table: Every detection and ground truth, matched.
        score_thr: Least score of a detection that counts.
        iou_thr: One of the IoU thresholds of the table.

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
        >>> from mm_metrics_plugin.functional.detection.matching import match_images
        >>> from mm_metrics_plugin.settings import DetectionSettings
        >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]]
        >>> detections = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 1])
        >>> batch = DetectionBatch(detections, GroundTruths([0], boxes[:1], [0]), 1)
        >>> table = match_images(batch, DetectionSettings(), num_classes=2, table="ap").table
        >>> print(per_image_counts(table, score_thr=0.75))
        1 images, 2 classes: 1 true positives, 1 false positives, 0 false negatives
    """
    is_tp, is_tp_or_fp = table.flags(iou_thr)
    reached = table.reach(score_thr)
    tp, fp = is_tp & reached, is_tp_or_fp & ~is_tp & reached
    gts = table.grid.at(table.gt_counts, "any", iou_thr)
    counts = PerImageCounts.from_events(
        (table.image[tp], table.label[tp]),
        (table.image[fp], table.label[fp]),
        (table.gt_image[gts], table.gt_label[gts]),
        num_images=table.num_images,
        num_classes=table.num_classes,
    )
    counts.counts[2] -= counts.counts[0]  # ground truths less TP: which ones are matched is not needed
    return counts


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
    per_class = {"precision": divide(tp, tp + fp), "recall": divide(tp, tp + fn), "f1": fbeta_score(tp, fp, fn)}
    precision, recall = mean_of_defined(per_class["precision"]), mean_of_defined(per_class["recall"])
    pooled = [part.sum(axis=-1) for part in (tp, fp, fn)]
    return per_class, {
        "mean_precision": precision,
        "mean_recall": recall,
        "f1_of_means": fbeta_of_rates(precision, recall),
        "macro_f1": mean_of_defined(per_class["f1"]),
        "micro_precision": divide(pooled[0], pooled[0] + pooled[1]),
        "micro_recall": divide(pooled[0], pooled[0] + pooled[2]),
        "micro_f1": fbeta_score(*pooled),
    }
