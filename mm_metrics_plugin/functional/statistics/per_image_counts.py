"""TP, FP and FN per image and class, and the metrics of weighted (resampled or swapped) images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import (
    fbeta_of_rates,
    fbeta_score,
    index_array,
    map_in_order,
    mean_of_defined,
    rates_from_counts,
)
from mm_metrics_plugin.functional.detection.average_precision import APCurves, ap_by_name
from mm_metrics_plugin.functional.detection.cross_fitting import (
    CrossFittedCounts,
    cross_fitted_thresholds,
    reached_by_fold,
)
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.settings import OperatingRule, require_int

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

    def __post_init__(self) -> None:
        for name, limit in (("image", "num_images"), ("label", "num_classes")):
            value = require_int(limit, getattr(self, limit), low=0)
            object.__setattr__(self, name, index_array(name, getattr(self, name), limit, value))
        object.__setattr__(self, "counts", np.asarray(self.counts))
        shape = 3, len(self.image)
        if len(self.label) != len(self.image) or self.counts.shape != shape:
            raise MetricInputError(
                f"'label' and 'counts' must have shapes {shape[1:]} and {shape}, as 'image' has {shape[1]} rows "
                f"(found {self.label.shape} and {self.counts.shape})"
            )

    @classmethod
    def from_events(cls, *events: tuple[np.ndarray, np.ndarray], num_images: int, num_classes: int) -> PerImageCounts:
        """Counts (images, classes) of the TP, the FP and the FN."""
        cells = [
            index_array("image", image) * num_classes + index_array("label", label, "num_classes", num_classes)
            for image, label in events
        ]
        known, place = np.unique(np.concatenate(cells), return_inverse=True)
        parts = np.split(place.reshape(-1), np.cumsum([len(cell) for cell in cells])[:-1])
        counts = np.stack([np.bincount(part, minlength=len(known)) for part in parts])
        return cls(num_images, num_classes, known // num_classes, known % num_classes, counts)

    @classmethod
    def from_labels(cls, labels: np.ndarray, predicted: np.ndarray, *, num_classes: int) -> PerImageCounts:
        """The counts of a single-label classifier; negative predictions are no decision."""
        labels, predicted = np.asarray(labels), np.asarray(predicted)
        _check_same_shape("labels", labels, predicted)
        for name, values in (("labels", labels), ("predicted", np.maximum(predicted, 0))):
            index_array(name, values, "num_classes", num_classes)
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
        _check_same_shape("targets", targets, predicted)
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

    def per_image(self) -> np.ndarray:
        """(3, images) TP, FP and FN of every image."""
        sums = [np.bincount(self.image, weights=part, minlength=self.num_images) for part in self.counts]
        return np.array(sums).reshape(3, self.num_images).astype(np.int64)


def _check_same_shape(name: str, values: np.ndarray, predicted: np.ndarray) -> None:
    if values.shape != predicted.shape:
        raise MetricInputError(f"'predicted' must have the shape of '{name}', {values.shape} (found {predicted.shape})")


def per_image_counts(
    table: MatchTable,
    *,
    score_thr: float | None = None,
    iou_thr: float | None = None,
    reached: np.ndarray | None = None,
) -> PerImageCounts:
    """TP, FP and FN per image at a score threshold, as in the ``coco`` confusion matrix.

    Args:
        table: Match table of :func:`match_images`. Its settings are the defaults of the other arguments.
        score_thr: Score threshold.
        iou_thr: IoU threshold, one of the table's.
        reached: (N,) which detections count, instead of those that reach ``score_thr``.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]]
        >>> detections = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 1])
        >>> batch = DetectionBatch(detections, GroundTruths([0], boxes[:1], [0]), 1)
        >>> table = match_images(batch, num_classes=2, keep="scores").table
        >>> [part.tolist() for part in per_image_counts(table, score_thr=0.75).totals()]
        [[1, 0], [1, 0], [0, 0]]
    """
    settings = table.settings_with(score_thr=score_thr, iou_thr=iou_thr)
    is_tp, is_tp_or_fp = table.tp_fp_masks(settings.iou_thr)
    reached = table.reach(settings.score_thr) if reached is None else reached
    tp, fp = is_tp & reached, is_tp_or_fp & ~is_tp & reached
    gts = table.grid.at(table.gt_valid, "any", settings.iou_thr)
    counts = PerImageCounts.from_events(
        (table.image[tp], table.label[tp]),
        (table.image[fp], table.label[fp]),
        (table.gt_image[gts], table.gt_label[gts]),
        num_images=table.num_images,
        num_classes=table.num_classes,
    )
    counts.counts[2] -= counts.counts[0]  # FN: ground truths minus TP
    return counts


def cross_fitted_counts(
    table: MatchTable, fold: np.ndarray, rule: OperatingRule, *, iou_thr: float | None = None
) -> PerImageCounts:
    """The same at the best score threshold of all classes together, which is selected on the other folds."""
    thresholds = cross_fitted_thresholds(table, fold, rule, iou_thr=iou_thr)
    return per_image_counts(table, iou_thr=iou_thr, reached=reached_by_fold(table, fold, thresholds))


def f1_gain(first: PerImageCounts, second: PerImageCounts) -> tuple[float, float]:
    """How much higher the micro F1 of the second counts is, and the standard error of this over images.

    Example:
        >>> labels = np.array([0, 0, 0, 0])
        >>> first, second = (PerImageCounts.from_labels(labels, labels + number, num_classes=2) for number in (1, 0))
        >>> f1_gain(first, second)
        (1.0, 0.0)
    """
    values, residuals = [], []
    for counts in (first, second):
        tp, fp, fn = counts.per_image().astype(np.float64)
        total = 2 * tp + fp + fn
        values.append(float(fbeta_score(tp.sum(), fp.sum(), fn.sum())))
        residuals.append((2 * tp - values[-1] * total) / max(total.sum(), 1.0))  # of the linearized ratio
    return values[1] - values[0], float(np.sqrt(np.square(residuals[1] - residuals[0]).sum()))


def mean_name(name: str) -> str:
    """The name of the mean over classes of a metric."""
    return f"m{name}" if name.startswith("AP") else name


class MetricValues(NamedTuple):
    """Metrics by name: (draws, classes) per class, (draws,) over all classes; NaN where undefined."""

    per_class: dict[str, np.ndarray]
    overall: dict[str, np.ndarray]

    def minus(self, other: MetricValues) -> MetricValues:
        """The differences of all metrics."""
        return MetricValues(
            *({name: part[name] - subtracted[name] for name in part} for part, subtracted in zip(self, other))
        )

    def over_classes_of(self, other: MetricValues) -> MetricValues:
        """The same values, with means over only the classes in which the other run is defined as well."""
        means = {
            mean_name(name): mean_of_defined(np.where(np.isnan(other.per_class[name]), np.nan, values))
            for name, values in self.per_class.items()
        }
        means["f1_of_means"] = fbeta_of_rates(means["precision"], means["recall"])
        return MetricValues(self.per_class, {**self.overall, **means})

    @classmethod
    def concatenate(cls, parts: list[MetricValues]) -> MetricValues:
        """The draws of all parts, in order."""
        return cls(*({name: np.concatenate([part[name] for part in side]) for name in side[0]} for side in zip(*parts)))


class WeightedMetrics:
    """Precision, recall, F1 and, if ``curves`` of a detector are given, average precision of weighted images.

    Average precision is ``mAP``, the mean over the IoU thresholds of the curves, and ``mAP_50`` and ``mAP_75`` if these
    are among them; per class without the m. The counts are sums over the images, or else ``cross_fitted``.
    """

    def __init__(
        self,
        counts: PerImageCounts,
        curves: APCurves | None = None,
        cross_fitted: CrossFittedCounts | None = None,
    ) -> None:
        self.counts, self.curves, self._cross_fitted = counts, curves, cross_fitted
        self._matrix = counts.matrix()

    @property
    def num_images(self) -> int:
        """Number of images."""
        return self.counts.num_images

    @property
    def batch_size(self) -> int:
        """Number of draws to compute at a time."""
        limit = max(1, _BATCH_WEIGHTS // max(1, self.num_images, 3 * self.counts.num_classes))
        limits = [part.batch_size for part in (self.curves, self._cross_fitted) if part is not None]
        return min(limit, *(limits or [256]))

    def __call__(self, weights: np.ndarray) -> MetricValues:
        """The metrics for integer weights (images, draws)."""
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        if self._cross_fitted is None:
            tp, fp, fn = np.split((self._matrix @ weights).T, 3, axis=1)
        else:
            tp, fp, fn = self._cross_fitted(weights)
        per_class, overall = rates_from_counts(tp, fp, fn)
        for name, value in self.average_precisions(weights).items():
            per_class[name], overall[mean_name(name)] = value, mean_of_defined(value)
        return MetricValues(per_class, overall)

    def average_precisions(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """(draws, classes) average precision by name; empty without curves."""
        if self.curves is None:
            return {}
        return self.ap_by_name(np.swapaxes(self.curves.average_precision(weights), 1, 2))

    def ap_by_name(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Names the mean and the rows of values (thresholds, ...)."""
        curves = self.curves
        if curves is None:
            return {}
        return ap_by_name(values, curves.iou_thrs, max_dets=curves.max_dets, mean_max_dets=curves.mean_max_dets)

    def of_all(self) -> MetricValues:
        """The metrics of the data itself: one draw with all weights 1."""
        return self(np.ones((self.num_images, 1)))


# Wraps the starts of batches to show progress; ``iter`` shows none.
Track = Callable[[Sequence[int]], Iterable[int]]


def map_draws(function: Callable[[np.ndarray], MetricValues], weights: Iterator[np.ndarray]) -> MetricValues:
    """The metrics of all draws, computed on all cores."""
    return MetricValues.concatenate(list(map_in_order(function, weights)))
