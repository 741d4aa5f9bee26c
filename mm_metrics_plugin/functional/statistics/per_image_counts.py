"""TP, FP and FN of every image and class, for resampling images and swapping them between runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import divide, fbeta_of_rates, fbeta_score, mean_of_defined
from mm_metrics_plugin.functional.detection.matching import MatchTable

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, eq=False)
class PerImageCounts:
    """True positives, false positives and false negatives of every image and class that have any.

    Example:
        >>> counts = PerImageCounts.from_labels(np.array([0, 1, 1]), np.array([0, 1, 0]), num_classes=2)
        >>> [part.tolist() for part in counts.totals()]
        [[1, 1], [1, 0], [0, 1]]
    """

    num_images: int  # how many images, those without anything included
    num_classes: int  # how many classes
    image: np.ndarray  # (E,) image of each entry
    label: np.ndarray  # (E,) class of each entry
    counts: np.ndarray  # (3, E) true positives, false positives, false negatives

    @classmethod
    def from_events(cls, *events: Tuple[np.ndarray, np.ndarray], num_images: int, num_classes: int) -> PerImageCounts:
        """Counts the images and classes of the true positives, the false positives and the false negatives."""
        cells = [np.asarray(image, dtype=np.int64) * num_classes + label for image, label in events]
        known, place = np.unique(np.concatenate(cells), return_inverse=True)
        parts = np.split(place.reshape(-1), np.cumsum([len(cell) for cell in cells])[:-1])
        counts = np.stack([np.bincount(part, minlength=len(known)) for part in parts])
        return cls(num_images, num_classes, known // num_classes, known % num_classes, counts)

    @classmethod
    def from_labels(cls, truth: np.ndarray, predicted: np.ndarray, *, num_classes: int) -> PerImageCounts:
        """The counts of a classifier, one sample per image. Predictions below 0 are no decision."""
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
        """The counts of a multi-label classifier: (samples, classes) of 1, 0 and -1 (ignored), and of bool."""
        truth, decided = np.asarray(truth), np.asarray(decided, dtype=bool)
        cells = [(truth == 1) & decided, (truth == 0) & decided, (truth == 1) & ~decided]
        events = [np.nonzero(cell) for cell in cells]
        return cls.from_events(*events, num_images=truth.shape[0], num_classes=truth.shape[1])  # type: ignore[arg-type]

    def matrix(self) -> csr_matrix:
        """(3 x classes, images) counts, to be multiplied with weights of images."""
        from scipy.sparse import csr_matrix  # counts alone do not need it

        rows = (np.arange(3)[:, None] * self.num_classes + self.label).reshape(-1)
        return csr_matrix(
            (self.counts.reshape(-1).astype(np.float64), (rows, np.tile(self.image, 3))),
            shape=(3 * self.num_classes, self.num_images),
        )

    def totals(self) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(classes,) true positives, false positives and false negatives."""
        sums = [np.bincount(self.label, weights=part, minlength=self.num_classes) for part in self.counts]
        tp, fp, fn = (part.astype(np.int64) for part in sums)
        return tp, fp, fn


def per_image_counts(table: MatchTable, *, score_thr: float, iou_thr: float = 0.5) -> PerImageCounts:
    """TP, FP and FN at a score threshold, image by image: the counts of the ``coco`` confusion matrix.

    Args:
        table: Every detection and ground truth, matched.
        score_thr: Score threshold of detections.
        iou_thr: One of the IoU thresholds of the table.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]]
        >>> detections = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 1])
        >>> batch = DetectionBatch(detections, GroundTruths([0], boxes[:1], [0]), 1)
        >>> table = match_images(batch, num_classes=2, table="ap").table
        >>> [part.tolist() for part in per_image_counts(table, score_thr=0.75).totals()]
        [[1, 0], [1, 0], [0, 0]]
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
    """The rates of counts (…, classes): per class, and over all classes. Undefined ones are NaN."""
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
