"""TP, FP and FN per image and class, and the metrics of weighted (resampled or swapped) images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import map_in_order, mean_of_defined, rates_from_counts
from mm_metrics_plugin.functional.detection.average_precision import APCurves
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.settings import COCO_IOU_THRS

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_BATCH_WEIGHTS = 1 << 20  # images x draws: 8 MB


@dataclass(frozen=True, eq=False)
class PerImageCounts:
    """TP, FP and FN of every image and class with at least one of them.

    Example:
        >>> counts = PerImageCounts.from_labels(np.array([0, 1, 1]), np.array([0, 1, 0]), num_classes=2)
        >>> [part.tolist() for part in counts.totals()]
        [[1, 1], [1, 0], [0, 1]]
    """

    num_images: int  # including images without counts
    num_classes: int
    image: np.ndarray  # (E,) image of each entry
    label: np.ndarray  # (E,) class of each entry
    counts: np.ndarray  # (3, E) true positives, false positives, false negatives

    @classmethod
    def from_events(cls, *events: tuple[np.ndarray, np.ndarray], num_images: int, num_classes: int) -> PerImageCounts:
        """Counts (images, classes) of the TP, the FP and the FN."""
        cells = [np.asarray(image, dtype=np.int64) * num_classes + label for image, label in events]
        known, place = np.unique(np.concatenate(cells), return_inverse=True)
        parts = np.split(place.reshape(-1), np.cumsum([len(cell) for cell in cells])[:-1])
        counts = np.stack([np.bincount(part, minlength=len(known)) for part in parts])
        return cls(num_images, num_classes, known // num_classes, known % num_classes, counts)

    @classmethod
    def from_labels(cls, labels: np.ndarray, predicted: np.ndarray, *, num_classes: int) -> PerImageCounts:
        """The counts of a single-label classifier; negative predictions are no decision."""
        labels, predicted = np.asarray(labels), np.asarray(predicted)
        sample, wrong = np.arange(len(labels)), labels != predicted
        decided = wrong & (predicted >= 0)
        return cls.from_events(
            (sample[~wrong], labels[~wrong]),
            (sample[decided], predicted[decided]),
            (sample[wrong], labels[wrong]),
            num_images=len(labels),
            num_classes=num_classes,
        )

    @classmethod
    def from_decisions(cls, targets: np.ndarray, predicted: np.ndarray) -> PerImageCounts:
        """The counts of a multi-label classifier: targets (samples, classes) of 1, 0 and -1 (ignored)."""
        targets, predicted = np.asarray(targets), np.asarray(predicted, dtype=bool)
        masks = ((targets == 1) & predicted, (targets == 0) & predicted, (targets == 1) & ~predicted)
        tp, fp, fn = (np.nonzero(mask) for mask in masks)
        return cls.from_events(
            (tp[0], tp[1]), (fp[0], fp[1]), (fn[0], fn[1]), num_images=targets.shape[0], num_classes=targets.shape[1]
        )

    def matrix(self) -> csr_matrix:
        """(3 x classes, images) sparse counts, to be multiplied by image weights."""
        from scipy.sparse import csr_matrix  # slow to import

        rows = (np.arange(3)[:, None] * self.num_classes + self.label).reshape(-1)
        return csr_matrix(
            (self.counts.reshape(-1).astype(np.float64), (rows, np.tile(self.image, 3))),
            shape=(3 * self.num_classes, self.num_images),
        )

    def totals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(classes,) TP, FP and FN."""
        sums = [np.bincount(self.label, weights=part, minlength=self.num_classes) for part in self.counts]
        tp, fp, fn = (part.astype(np.int64) for part in sums)
        return tp, fp, fn


def per_image_counts(table: MatchTable, *, score_thr: float, iou_thr: float = 0.5) -> PerImageCounts:
    """TP, FP and FN per image at a score threshold, as in the ``coco`` confusion matrix.

    Args:
        table: Match table of :func:`match_images`.
        score_thr: Score threshold.
        iou_thr: IoU threshold, one of the table's.

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
    counts.counts[2] -= counts.counts[0]  # FN: ground truths minus TP
    return counts


class MetricValues(NamedTuple):
    """Metrics by name: (draws, classes) per class, (draws,) over all classes; NaN where undefined."""

    per_class: dict[str, np.ndarray]
    overall: dict[str, np.ndarray]

    def minus(self, other: MetricValues) -> MetricValues:
        """The differences of all metrics."""
        return MetricValues(
            *({name: part[name] - subtracted[name] for name in part} for part, subtracted in zip(self, other))
        )

    @classmethod
    def concatenate(cls, parts: list[MetricValues]) -> MetricValues:
        """The draws of all parts, in order."""
        return cls(*({name: np.concatenate([part[name] for part in side]) for name in side[0]} for side in zip(*parts)))


class WeightedMetrics:
    """Precision, recall, F1 and, if ``curves`` of a detector are given, average precision of weighted images.

    Average precision is ``mAP``, ``mAP_50`` and ``mAP_75`` for COCO's ten IoU thresholds, else ``mAP_<percent>`` of
    each threshold; per class without the m.
    """

    def __init__(self, counts: PerImageCounts, curves: APCurves | None = None) -> None:
        self.counts, self.curves = counts, curves
        self._matrix = counts.matrix()

    @property
    def num_images(self) -> int:
        """Number of images."""
        return self.counts.num_images

    @property
    def batch_size(self) -> int:
        """Number of draws to compute at a time."""
        limit = max(1, _BATCH_WEIGHTS // max(1, self.num_images, 3 * self.counts.num_classes))
        return min(256, limit) if self.curves is None else min(limit, self.curves.batch_size)

    def __call__(self, weights: np.ndarray) -> MetricValues:
        """The metrics for integer weights (images, draws)."""
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        per_class, overall = rates_from_counts(*np.split((self._matrix @ weights).T, 3, axis=1))
        for name, value in self.average_precisions(weights).items():
            per_class[name], overall[f"m{name}"] = value, mean_of_defined(value)
        return MetricValues(per_class, overall)

    def average_precisions(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """(draws, classes) average precision by name; empty without curves."""
        if self.curves is None:
            return {}
        return self.ap_by_name(np.swapaxes(self.curves.average_precision(weights), 1, 2))

    def ap_by_name(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Names the mean and the rows of values (thresholds, ...)."""
        thresholds = () if self.curves is None else self.curves.iou_thrs
        complete = len(thresholds) == 10 and np.allclose(thresholds, COCO_IOU_THRS, rtol=0, atol=1e-9)
        named = {"AP": values.mean(axis=0)} if complete else {}
        for threshold, value in zip(thresholds, values):
            percent = round(100 * threshold)
            if not complete or percent in (50, 75):
                named[f"AP_{percent}"] = value
        return named

    def of_all(self) -> MetricValues:
        """The metrics of the data itself: one draw with all weights 1."""
        return self(np.ones((self.num_images, 1)))


# Wraps the starts of batches to show progress; ``iter`` shows none.
Track = Callable[[Sequence[int]], Iterable[int]]


def map_draws(function: Callable[[np.ndarray], MetricValues], weights: Iterator[np.ndarray]) -> MetricValues:
    """The metrics of all draws, computed on all cores."""
    return MetricValues.concatenate(list(map_in_order(function, weights)))
