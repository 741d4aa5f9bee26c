"""Confidence intervals of a model's metrics; images are the sampling unit.

Precision, recall, F1 and their means have Wilson score intervals with an effective sample size (``ratio_intervals``).
So has average precision; its variance comes from bootstrap resamples over images, and its known bias is subtracted from
the center. If the data are too few for an interval, its ends are NaN and ``reason`` says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import Result
from mm_metrics_plugin.functional.detection.ap_curves import RangeCurves, ap_iou_thrs
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.statistics.per_image_counts import (
    MetricValues,
    PerImageCounts,
    WeightedMetrics,
    map_draws,
    per_image_counts,
)
from mm_metrics_plugin.functional.statistics.ratio_intervals import (
    Numbers,
    Ratios,
    f1_of_jaccard,
    f1_of_means_interval,
    mean_f1_interval,
    mean_interval,
    ratio_intervals,
    ratios,
    shrink,
    wilson_interval,
)
from mm_metrics_plugin.settings import COCO_MAX_DETS, MAX_RESAMPLES, require_ci, require_int

UNDEFINED, TOO_FEW_OBJECTS, TOO_FEW_IMAGES = "undefined", "too few objects", "too few images"
TOO_FEW = (TOO_FEW_OBJECTS, TOO_FEW_IMAGES)
MIN_OBJECTS = 10  # of a proportion: objects for recall, detections for precision
MIN_IMAGES = 5  # that have them
MIN_IMAGES_F1_AP = 30  # of F1, of average precision and of means over classes


@dataclass(frozen=True)
class Interval(Result):
    """A value and its confidence interval: floats, or arrays with one value per class."""

    value: Any  # the figure
    low: Any  # lower end; NaN where there is no interval
    high: Any  # upper end; NaN where there is no interval
    reason: Any = ""  # why there is no interval: undefined, too few objects or images; else empty

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values; the reason is None where there is an interval."""
        reasons = np.broadcast_to(np.asarray(self.reason, dtype=object), np.shape(self.value)).tolist()
        reason: Any = [one or None for one in reasons] if np.ndim(self.value) else str(self.reason) or None
        ends = {name: np.asarray(getattr(self, name)).tolist() for name in ("value", "low", "high")}
        return {**ends, "reason": reason}

    def at(self, index: int) -> Interval:
        """The interval of one class."""
        low, high = float(self.low[index]), float(self.high[index])
        return Interval(float(self.value[index]), low, high, str(self.reason[index]))

    def __str__(self) -> str:
        if np.ndim(self.value):
            return ", ".join(str(self.at(index)) for index in range(len(self.value)))
        return f"{self.value:.4f} " + (f"({self.reason})" if self.reason else f"[{self.low:.4f}, {self.high:.4f}]")


@dataclass(frozen=True, eq=False)
class Intervals(Result):
    """Every metric with its confidence interval."""

    ci: float  # confidence level
    resamples: int  # bootstrap resamples over images that the intervals of average precision are made of; 0 without it
    seed: int  # of the resamples
    overall: dict[str, Interval]  # by name, over all classes
    per_class: dict[str, Interval]  # by name, arrays with one value per class; NaN where a class has none


def _interval(value: Numbers, ends: np.ndarray, *rules: tuple[str, np.ndarray]) -> Interval:
    """An interval, or the reason why there is none: the first rule that holds."""
    value = np.asarray(value, dtype=np.float64)
    reason = np.full(value.shape, "", dtype="<U16")
    for name, holds in (*reversed(rules), (UNDEFINED, np.isnan(value))):
        reason = np.where(holds, name, reason)
    low, high = np.where(reason == "", ends, np.nan)
    if value.ndim:
        return Interval(value, low, high, reason)
    return Interval(float(value), float(low), float(high), str(reason))


def _only(per_class: Interval, defined: np.ndarray) -> Interval | None:
    """The interval of the mean over one class: that of the class. None if several classes have a value."""
    return per_class.at(int(np.argmax(defined))) if defined.sum() == 1 else None


def _proportions(found: Ratios, ci: float) -> Interval:
    return _interval(
        found.value,
        ratio_intervals(found, ci=ci),
        (TOO_FEW_OBJECTS, found.trials < MIN_OBJECTS),
        (TOO_FEW_IMAGES, found.images < MIN_IMAGES),
    )


def proportion_interval(successes: np.ndarray, trials: np.ndarray, *, ci: float = 0.95) -> Interval:
    """Confidence interval of a proportion from the successes and trials (images,) of each image or sample."""
    require_ci(ci)
    number = len(trials)
    found = ratios(np.arange(number), np.zeros(number, dtype=np.int64), successes, trials, groups=1)
    return _proportions(found, ci).at(0)


def _f1(jaccard: Ratios, ci: float) -> Interval:
    ends = f1_of_jaccard(ratio_intervals(jaccard, ci=ci))
    return _interval(f1_of_jaccard(jaccard.value), ends, (TOO_FEW_IMAGES, jaccard.images < MIN_IMAGES_F1_AP))


def _count_intervals(
    counts: PerImageCounts, value: dict[str, np.ndarray], ci: float
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Per class and overall: precision, recall, F1, their means and the pooled rates; ``value`` are the estimates."""
    tp, fp, fn = counts.counts
    precision, recall, jaccard = (
        ratios(counts.image, counts.label, tp, trials, groups=counts.num_classes)
        for trials in (tp + fp, tp + fn, tp + fp + fn)
    )
    per_class = {"precision": _proportions(precision, ci), "recall": _proportions(recall, ci), "f1": _f1(jaccard, ci)}
    both = jaccard.defined & np.array_equal(precision.defined, recall.defined)
    # Ends, and the classes that have a value: the mean over one class has the interval of that class.
    means = {
        "precision": (mean_interval(precision, ci=ci), "precision", precision.defined, precision),
        "recall": (mean_interval(recall, ci=ci), "recall", recall.defined, recall),
        "f1_of_means": (f1_of_means_interval(precision, recall, ci=ci), "f1", both, jaccard),
        "f1": (mean_f1_interval(jaccard, ci=ci), "f1", jaccard.defined, jaccard),
    }
    overall = {}
    for name, (ends, name_of_class, defined, part) in means.items():
        few = np.array(len(np.unique(part.image)) < MIN_IMAGES_F1_AP)
        only = _only(per_class[name_of_class], defined)
        overall[name] = only or _interval(value[name], ends, (TOO_FEW_IMAGES, few))
    images, zeros = np.arange(counts.num_images), np.zeros(counts.num_images, dtype=np.int64)
    tp, fp, fn = (np.bincount(counts.image, weights=part, minlength=counts.num_images) for part in counts.counts)
    precision, recall, jaccard = (
        ratios(images, zeros, tp, trials, groups=1) for trials in (tp + fp, tp + fn, tp + fp + fn)
    )
    micro = {"precision_micro": _proportions(precision, ci), "recall_micro": _proportions(recall, ci)}
    # With one label per sample, every error is an FP and an FN: precision, recall and F1 are equal.
    micro["f1_micro"] = micro["recall_micro"] if np.array_equal(fp, fn) else _f1(jaccard, ci)
    for name, one in micro.items():
        overall[name] = replace(one.at(0), value=float(value[name]))
    return per_class, overall


def bootstrap_draws(num_images: int, *, draws: int, seed: int, at_once: int) -> Iterator[np.ndarray]:
    """How often each image is in a bootstrap sample, (images, draws) at a time; the same for every ``at_once``."""
    random = np.random.default_rng(seed)
    for start in range(0, draws, at_once):
        number = min(at_once, draws - start)
        parts = [np.bincount(random.integers(0, num_images, num_images), minlength=num_images) for _ in range(number)]
        yield np.stack(parts, axis=1)


def ap_bias(curves: RangeCurves) -> np.ndarray:
    """(thresholds, classes) the optimistic bias of average precision; 0 for classes without true positives.

    The precision at a true positive includes this true positive. So it exceeds the precision p among the detections of
    at least this score by (1 - p) / rank on average. The mean of this over the ground truths is the bias. p is
    estimated from the detections before it and, of the first ones, from the average precision.
    """
    num_gts = curves.num_gts()
    rows = []
    for value, hits in zip(curves.average_precision()[..., 0], curves.hit_counts()):
        prior = (1 + shrink(value, np.where(np.isnan(value), 0.0, num_gts))) / 2
        precision = (hits.tp - 1 + prior[hits.label]) / hits.seen
        excess = np.bincount(hits.label, weights=(1 - precision) / hits.seen, minlength=len(num_gts))
        rows.append(excess / np.maximum(num_gts, 1))
    return np.stack(rows)


def _average_precision_intervals(
    figures: WeightedMetrics, curves: RangeCurves, *, ci: float, resamples: int, seed: int
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Per class and overall. The variance is that of the resamples, but at least that of as many Bernoulli trials.

    A class without ground truths in a resample keeps its observed value, so the mean is always over the same classes.
    """
    number = figures.num_images
    table, chosen = curves.table, curves.counted_gts()
    label, image = table.gt_label[chosen], table.gt_image[chosen]
    objects = np.bincount(label, minlength=table.num_classes).astype(np.float64)
    with_objects = np.bincount(
        np.unique(label.astype(np.int64) * number + image) // max(number, 1), minlength=len(objects)
    )
    images = len(np.unique(image))

    def resampled(weights: np.ndarray) -> MetricValues:
        return MetricValues(figures.average_precisions(weights), {})

    observed = figures.average_precisions(np.ones((number, 1)))
    biases = figures.ap_by_name(ap_bias(curves))
    draws = map_draws(
        resampled, bootstrap_draws(number, draws=resamples, seed=seed, at_once=figures.draws_at_once)
    ).per_class
    per_class, overall = {}, {}
    for name, (value,) in observed.items():
        defined = ~np.isnan(value)
        drawn = np.where(np.isnan(draws[name]), value, draws[name])[:, defined]
        several = number / max(number - 1, 1)
        known, bias, size = value[defined], biases[name][defined], objects[defined]
        shrunken = shrink(known, size)
        floor = shrunken * (1 - shrunken) / size
        variance = several * drawn.var(axis=0)
        rows = np.full((2, len(value)), np.nan)
        rows[:, defined] = _biased(
            known, bias, np.maximum(variance, floor), shrunken, 1 / (size + 1), with_objects[defined], ci
        )
        per_class[name] = _interval(value, rows, (TOO_FEW_IMAGES, with_objects < MIN_IMAGES_F1_AP))
        classes = max(1, len(known))
        total = several * drawn.mean(axis=1).var() if len(known) else 0.0
        total += np.maximum(floor - variance, 0.0).sum() / classes**2
        mean = known.mean() if len(known) else np.nan
        ends = (
            _biased(mean, bias.mean(), total, shrunken.mean(), 1 / (size.sum() + 1), max(images - 1, 1), ci)
            if len(known)
            else np.full(2, np.nan)
        )
        overall[f"m{name}"] = _only(per_class[name], defined) or _interval(
            mean, ends, (TOO_FEW_IMAGES, np.array(images < MIN_IMAGES_F1_AP))
        )
    return per_class, overall


def _biased(value: Any, bias: Any, variance: Any, shrunken: Any, least: Any, df: Any, ci: float) -> np.ndarray:
    """Wilson's interval around a value without its bias; the effective size follows from the variance."""
    share = np.clip(shrunken - bias, least / 2, 1 - least / 2)
    return wilson_interval(value, share * (1 - share) / variance, df, ci=ci, center=value - bias)


def bootstrap(figures: WeightedMetrics, *, ci: float = 0.95, resamples: int = 1000, seed: int = 0) -> Intervals:
    """Confidence intervals of all metrics. Options as in :func:`bootstrap_ci`."""
    require_ci(ci)
    require_int("resamples", resamples, low=1, high=MAX_RESAMPLES)
    value = {name: one[0] for name, one in figures.of_all().overall.items()}
    per_class, overall = _count_intervals(figures.counts, value, ci)
    if figures.curves is not None:
        areas = _average_precision_intervals(figures, figures.curves, ci=ci, resamples=resamples, seed=seed)
        per_class.update(areas[0])
        overall.update(areas[1])
    return Intervals(ci, 0 if figures.curves is None else resamples, seed, overall, per_class)


def bootstrap_counts(counts: PerImageCounts, *, ci: float = 0.95) -> Intervals:
    """Confidence intervals of precision, recall and F1, per class, mean and micro. They need no resamples."""
    return bootstrap(WeightedMetrics(counts), ci=ci)


def bootstrap_ci(
    table: MatchTable,
    *,
    score_thr: float = 0.3,
    iou_thr: float = 0.5,
    average_precision: bool = True,
    max_dets: int = COCO_MAX_DETS,
    iou_thrs: Sequence[float] | None = None,
    ci: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Confidence intervals of a detector's precision, recall and F1 at a score threshold, and of average precision.

    Args:
        table: Every detection and ground truth, matched.
        score_thr: Score threshold of precision and recall.
        iou_thr: IoU threshold of precision and recall.
        average_precision: Whether average precision is wanted.
        max_dets: Number of detections per class and image that average precision uses. Nothing else is limited.
        iou_thrs: IoU thresholds of average precision. None: COCO's ten, or all of a table without them.
        ci: Confidence level.
        resamples: Bootstrap resamples over images, for average precision.
        seed: Of the resamples.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> image, box = np.arange(50), np.tile([0.0, 0.0, 10.0, 10.0], (50, 1))
        >>> detections = Detections(image, box + 30 * (image % 5 == 0)[:, None], 1 - image / 100, np.zeros(50))
        >>> batch = DetectionBatch(detections, GroundTruths(image, box, np.zeros(50)), 50)
        >>> table = match_images(batch, num_classes=1, table="ap").table
        >>> print(bootstrap_ci(table).overall["recall_micro"])
        0.8000 [0.6679, 0.8884]
    """
    counts = per_image_counts(table, score_thr=score_thr, iou_thr=iou_thr)
    curves = RangeCurves(table, "all", max_dets, ap_iou_thrs(table, iou_thrs)) if average_precision else None
    return bootstrap(WeightedMetrics(counts, curves), ci=ci, resamples=resamples, seed=seed)
