"""TP, FP and FN of every image and class, for resampling images and swapping them between runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Iterator, NamedTuple

import numpy as np

from mm_metrics_plugin.functional._arrays import map_in_order, mean_of_defined, rates_from_counts
from mm_metrics_plugin.functional.detection.ap_curves import RangeCurves
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.settings import COCO_IOU_THRS

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_WEIGHTS_AT_ONCE = 1 << 20  # images x draws: 8 MB


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
    def from_events(cls, *events: tuple[np.ndarray, np.ndarray], num_images: int, num_classes: int) -> PerImageCounts:
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

    def totals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


class MetricValues(NamedTuple):
    """Metrics by name: (draws, classes) per class, (draws,) over all classes. Undefined ones are NaN."""

    per_class: dict[str, np.ndarray]
    overall: dict[str, np.ndarray]

    def minus(self, other: MetricValues) -> MetricValues:
        """These minus ``other``."""
        return MetricValues(*({name: part[name] - less[name] for name in part} for part, less in zip(self, other)))

    @classmethod
    def concatenate(cls, parts: list[MetricValues]) -> MetricValues:
        """The draws of all parts."""
        return cls(*({name: np.concatenate([part[name] for part in side]) for name in side[0]} for side in zip(*parts)))


class WeightedMetrics:
    """Precision, recall, F1 and, of a detector, average precision, of weighted images.

    Keys are ``mAP`` if the curves have COCO's ten IoU thresholds, and ``mAP_50``, ``mAP_75`` (or those of their
    thresholds); per class without the m. A classifier has no curves.
    """

    def __init__(self, counts: PerImageCounts, curves: RangeCurves | None = None) -> None:
        self.counts, self.curves = counts, curves
        self._matrix = counts.matrix()

    @property
    def num_images(self) -> int:
        """How many images there are."""
        return self.counts.num_images

    @property
    def draws_at_once(self) -> int:
        """How many sets of weights to compute at once."""
        most = max(1, _WEIGHTS_AT_ONCE // max(1, self.num_images, 3 * self.counts.num_classes))
        return min(256, most) if self.curves is None else min(most, self.curves.draws_at_once)

    def __call__(self, weights: np.ndarray) -> MetricValues:
        """The figures for weights (images, draws) that are whole numbers."""
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        per_class, overall = rates_from_counts(*np.split((self._matrix @ weights).T, 3, axis=1))
        for name, value in self.average_precisions(weights).items():
            per_class[name], overall[f"m{name}"] = value, mean_of_defined(value)
        return MetricValues(per_class, overall)

    def average_precisions(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """(draws, classes) arrays of average precision by name; none for a classifier."""
        if self.curves is None:
            return {}
        return self.ap_by_name(np.swapaxes(self.curves.average_precision(weights), 1, 2))

    def ap_by_name(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Values (thresholds, ...) by the name of the average precision: their mean, and those of single thresholds."""
        thresholds = () if self.curves is None else self.curves.iou_thrs
        complete = len(thresholds) == 10 and np.allclose(thresholds, COCO_IOU_THRS, rtol=0, atol=1e-9)
        named = {"AP": values.mean(axis=0)} if complete else {}
        for threshold, value in zip(thresholds, values):
            percent = round(100 * threshold)
            if not complete or percent in (50, 75):
                named[f"AP_{percent}"] = value
        return named

    def of_all(self) -> MetricValues:
        """The metrics of the data: one draw, every weight 1."""
        return self(np.ones((self.num_images, 1)))


def map_draws(function: Callable[[np.ndarray], MetricValues], weights: Iterator[np.ndarray]) -> MetricValues:
    """The metrics of all draws, in order, computed on all cores."""
    return MetricValues.concatenate(list(map_in_order(function, weights)))
