"""Confidence intervals of metrics; images are the sampling unit.

All are Wilson score intervals with an effective sample size. For precision, recall, F1 and their means it is computed
in closed form (``ratio_intervals``). For average precision it follows from the variance over bootstrap resamples of the
images, and the estimated bias is subtracted from the center. An interval that the data cannot support is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import Result
from mm_metrics_plugin.functional.detection.average_precision import APCurves, ap_curves
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.statistics.per_image_counts import (
    MetricValues,
    PerImageCounts,
    Track,
    WeightedMetrics,
    map_draws,
    per_image_counts,
)
from mm_metrics_plugin.functional.statistics.ratio_intervals import (
    Numbers,
    Ratios,
    f1_of_jaccard,
    f1_of_means_interval,
    jaccard_ratios,
    mean_f1_interval,
    mean_images,
    mean_interval,
    ratio_intervals,
    ratios,
    shrink,
    wilson_interval,
)
from mm_metrics_plugin.settings import MAX_RESAMPLES, require_ci, require_int

UNDEFINED, TOO_FEW_OBJECTS, TOO_FEW_IMAGES = "undefined", "too few objects", "too few images"
TOO_FEW = (TOO_FEW_OBJECTS, TOO_FEW_IMAGES)
MIN_OBJECTS = 10  # ground truths for recall, detections for precision
MIN_IMAGES = 5  # effective images, with ground truths or detections
MIN_EFFECTIVE_IMAGES_AP = 10  # for average precision
MIN_IMAGES_F1_AP = 30  # for F1, average precision and means over classes, in number


@dataclass(frozen=True)
class Interval(Result):
    """A value and its confidence interval: floats, or arrays with one value per class."""

    value: Any
    low: Any  # lower bound; NaN without an interval
    high: Any  # upper bound; NaN without an interval
    reason: Any = ""  # why there is no interval; else empty

    def to_dict(self) -> dict[str, Any]:
        """The interval as plain Python values; the reason is None if there is an interval."""
        reasons = np.broadcast_to(np.asarray(self.reason, dtype=object), np.shape(self.value)).tolist()
        reason: Any = [text or None for text in reasons] if np.ndim(self.value) else str(self.reason) or None
        values = {name: np.asarray(getattr(self, name)).tolist() for name in ("value", "low", "high")}
        return {**values, "reason": reason}

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
    """Confidence intervals of all metrics, by name."""

    ci: float  # confidence level
    resamples: int  # bootstrap resamples over images; 0 without average precision
    seed: int  # random seed of the resamples
    overall: dict[str, Interval]  # over all classes
    per_class: dict[str, Interval]  # arrays with one value per class; NaN where undefined


def _interval(value: Numbers, ends: np.ndarray, *rules: tuple[str, np.ndarray]) -> Interval:
    """The interval, or no interval with the reason of the first rule that applies."""
    value = np.asarray(value, dtype=np.float64)
    reason = np.full(value.shape, "", dtype="<U16")
    for name, applies in (*reversed(rules), (UNDEFINED, np.isnan(value))):
        reason = np.where(applies, name, reason)
    low, high = np.where(reason == "", ends, np.nan)
    if value.ndim:
        return Interval(value, low, high, reason)
    return Interval(float(value), float(low), float(high), str(reason))


def _single_class(per_class: Interval, defined: np.ndarray) -> Interval | None:
    """If one class only is defined, its interval, which is also that of the mean; else None."""
    return per_class.at(int(np.argmax(defined))) if defined.sum() == 1 else None


def _proportion_intervals(ratio: Ratios, ci: float) -> Interval:
    return _interval(
        ratio.value,
        ratio_intervals(ratio, ci=ci),
        (TOO_FEW_OBJECTS, ratio.trials < MIN_OBJECTS),
        (TOO_FEW_IMAGES, ratio.effective_images < MIN_IMAGES),
    )


def proportion_interval(successes: np.ndarray, trials: np.ndarray, *, ci: float = 0.95) -> Interval:
    """Confidence interval of a proportion, from the successes and trials (images,) of each image or sample."""
    require_ci(ci)
    number = len(trials)
    ratio = ratios(np.arange(number), np.zeros(number, dtype=np.int64), successes, trials, groups=1)
    return _proportion_intervals(ratio, ci).at(0)


def _f1_intervals(jaccard: Ratios, ci: float) -> Interval:
    ends = f1_of_jaccard(ratio_intervals(jaccard, ci=ci))
    few = _few_images(jaccard.images, jaccard.effective_images)
    return _interval(f1_of_jaccard(jaccard.value), ends, (TOO_FEW_IMAGES, few))


def _few_images(images: Numbers, effective_images: Numbers, least: int = MIN_IMAGES) -> np.ndarray:
    """Whether F1, average precision or a mean over classes has too few images for an interval."""
    return np.less(images, MIN_IMAGES_F1_AP) | np.less(effective_images, least)


def _count_intervals(
    counts: PerImageCounts, value: dict[str, np.ndarray], ci: float
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Intervals of precision, recall and F1: per class, and macro and micro averages around the estimates ``value``."""
    tp, fp, fn = counts.counts
    precision, recall, jaccard = (
        ratios(counts.image, counts.label, tp, trials, groups=counts.num_classes)
        for trials in (tp + fp, tp + fn, tp + fp + fn)
    )
    jaccard = jaccard_ratios(jaccard, precision, recall)
    per_class = {
        "precision": _proportion_intervals(precision, ci),
        "recall": _proportion_intervals(recall, ci),
        "f1": _f1_intervals(jaccard, ci),
    }
    both = jaccard.defined & np.array_equal(precision.defined, recall.defined)
    means = {  # name: bounds, name of the metric per class, defined classes, ratios
        "precision": (mean_interval(precision, ci=ci), "precision", precision.defined, precision),
        "recall": (mean_interval(recall, ci=ci), "recall", recall.defined, recall),
        "f1_of_means": (f1_of_means_interval(precision, recall, ci=ci), "f1", both, jaccard),
        "f1": (mean_f1_interval(jaccard, ci=ci), "f1", jaccard.defined, jaccard),
    }
    overall = {}
    for name, (ends, class_name, defined, ratio) in means.items():
        few = _few_images(*ratio.mean_images[:2])
        single = _single_class(per_class[class_name], defined)
        overall[name] = single or _interval(value[name], ends, (TOO_FEW_IMAGES, few))
    images, zeros = np.arange(counts.num_images), np.zeros(counts.num_images, dtype=np.int64)
    tp, fp, fn = (np.bincount(counts.image, weights=part, minlength=counts.num_images) for part in counts.counts)
    precision, recall, jaccard = (
        ratios(images, zeros, tp, trials, groups=1) for trials in (tp + fp, tp + fn, tp + fp + fn)
    )
    jaccard = jaccard_ratios(jaccard, precision, recall)
    micro = {"precision_micro": _proportion_intervals(precision, ci), "recall_micro": _proportion_intervals(recall, ci)}
    # In single-label classification every error is one FP and one FN, so precision, recall and F1 are equal.
    micro["f1_micro"] = micro["recall_micro"] if np.array_equal(fp, fn) else _f1_intervals(jaccard, ci)
    for name, interval in micro.items():
        overall[name] = replace(interval.at(0), value=float(value[name]))
    return per_class, overall


def bootstrap_draws(
    num_images: int, *, draws: int, seed: int, batch_size: int, track: Track = iter
) -> Iterator[np.ndarray]:
    """Bootstrap weights (images, draws) in batches; the batch size does not change the draws."""
    random = np.random.default_rng(seed)
    for start in track(range(0, draws, batch_size)):
        number = min(batch_size, draws - start)
        draw = [np.bincount(random.integers(0, num_images, num_images), minlength=num_images) for _ in range(number)]
        yield np.stack(draw, axis=1)


def ap_bias(curves: APCurves) -> np.ndarray:
    """(thresholds, classes) the optimistic bias of average precision; 0 for classes without true positives.

    The precision at a true positive includes this true positive, so it exceeds the expected precision p by
    (1 - p) / rank on average. The bias is the mean of this over the ground truths; p is estimated from the detections
    ranked higher, with the average precision as a prior.
    """
    num_gts = curves.num_gts()
    rows = []
    for value, hits in zip(curves.average_precision()[..., 0], curves.hit_counts()):
        prior = (1 + shrink(value, np.where(np.isnan(value), 0.0, num_gts))) / 2
        precision = (hits.tp - 1 + prior[hits.label]) / hits.tp_and_fp
        excess = np.bincount(hits.label, weights=(1 - precision) / hits.tp_and_fp, minlength=len(num_gts))
        rows.append(excess / np.maximum(num_gts, 1))
    return np.stack(rows)


def _average_precision_intervals(
    metrics: WeightedMetrics, curves: APCurves, *, ci: float, resamples: int, seed: int, track: Track
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Per class and overall. The variance is that of the resamples, but at least that of as many Bernoulli trials.

    A class without ground truths in a resample keeps its observed value, so the mean is over the same classes.
    """
    number = metrics.num_images
    table, chosen = curves.table, curves.counted_gts()
    label, image = table.gt_label[chosen], table.gt_image[chosen]
    objects = np.bincount(label, minlength=table.num_classes).astype(np.float64)
    entry, per_entry = np.unique(label.astype(np.int64) * number + image, return_counts=True)
    entry_label, entry_image = np.divmod(entry, max(number, 1))
    with_objects = np.bincount(entry_label, minlength=len(objects))
    squares = np.bincount(entry_label, weights=per_entry.astype(np.float64) ** 2, minlength=len(objects))
    effective = np.where(objects > 0, objects**2 / np.maximum(squares, 1), 0.0)
    shared = mean_images(entry_image, entry_label, per_entry)

    def resampled(weights: np.ndarray) -> MetricValues:
        return MetricValues(metrics.average_precisions(weights), {})

    observed = metrics.average_precisions(np.ones((number, 1)))
    biases = metrics.ap_by_name(ap_bias(curves))
    weights = bootstrap_draws(number, draws=resamples, seed=seed, batch_size=metrics.batch_size, track=track)
    draws = map_draws(resampled, weights).per_class
    per_class, overall = {}, {}
    for name, (value,) in observed.items():
        defined = ~np.isnan(value)
        drawn = np.where(np.isnan(draws[name]), value, draws[name])[:, defined]
        known, bias, size = value[defined], biases[name][defined], objects[defined]
        shrunken = shrink(known, size)
        floor = shrunken * (1 - shrunken) / size
        variance = _few_images_factor(effective[defined]) * drawn.var(axis=0)
        rows = np.full((2, len(value)), np.nan)
        rows[:, defined] = _bias_corrected(
            known, bias, np.maximum(variance, floor), shrunken, 1 / (size + 1), effective[defined], ci
        )
        few = _few_images(with_objects, effective, MIN_EFFECTIVE_IMAGES_AP)
        per_class[name] = _interval(value, rows, (TOO_FEW_IMAGES, few))
        classes = max(1, len(known))
        total = _few_images_factor(shared.effective) * drawn.mean(axis=1).var() if len(known) else 0.0
        total += np.maximum(floor - variance, 0.0).sum() / classes**2
        mean = known.mean() if len(known) else np.nan
        ends = (
            _bias_corrected(mean, bias.mean(), total, shrunken.mean(), 1 / (size.sum() + 1), shared.df, ci)
            if len(known)
            else np.full(2, np.nan)
        )
        overall[f"m{name}"] = _single_class(per_class[name], defined) or _interval(
            mean, ends, (TOO_FEW_IMAGES, _few_images(shared.images, shared.effective, MIN_EFFECTIVE_IMAGES_AP))
        )
    return per_class, overall


def _few_images_factor(effective_images: Numbers) -> np.ndarray:
    """By how much a variance over resamples of few images is too small."""
    return np.asarray(1 / (1 - 1 / np.maximum(effective_images, 2.0)))


def _bias_corrected(value: Any, bias: Any, variance: Any, shrunken: Any, least: Any, df: Any, ci: float) -> np.ndarray:
    """Wilson's interval centered at the value minus its bias; the effective size follows from the variance."""
    share = np.clip(shrunken - bias, least / 2, 1 - least / 2)
    return wilson_interval(value, share * (1 - share) / variance, df, ci=ci, center=value - bias)


def bootstrap_counts(
    counts: PerImageCounts,
    curves: APCurves | None = None,
    *,
    ci: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    track: Track = iter,
) -> Intervals:
    """Confidence intervals of precision, recall and F1, which need no resamples, and of average precision."""
    require_ci(ci)
    require_int("resamples", resamples, low=1, high=MAX_RESAMPLES)
    metrics = WeightedMetrics(counts, curves)
    value = {name: values[0] for name, values in metrics.of_all().overall.items()}
    per_class, overall = _count_intervals(counts, value, ci)
    if curves is None:
        return Intervals(ci, 0, seed, overall, per_class)
    ap_per_class, mean_ap = _average_precision_intervals(
        metrics, curves, ci=ci, resamples=resamples, seed=seed, track=track
    )
    return Intervals(ci, resamples, seed, {**overall, **mean_ap}, {**per_class, **ap_per_class})


def bootstrap_ci(
    table: MatchTable,
    *,
    score_thr: float | None = None,
    iou_thr: float | None = None,
    average_precision: bool = True,
    max_dets: int | None = None,
    iou_thrs: Sequence[float] | None = None,
    ci: float | None = None,
    resamples: int | None = None,
    seed: int | None = None,
    track: Track = iter,
) -> Intervals:
    """Confidence intervals of a detector's precision, recall and F1 at a score threshold, and of average precision.

    Args:
        table: Match table of :func:`match_images`. Its settings are the defaults of the other arguments.
        score_thr: Score threshold of precision and recall.
        iou_thr: IoU threshold of precision and recall.
        average_precision: Also compute the intervals of average precision.
        max_dets: Maximum number of detections per class and image for average precision.
        iou_thrs: IoU thresholds of average precision.
        ci: Confidence level; 0.95 without a setting.
        resamples: Number of bootstrap resamples over images.
        seed: Random seed of the resamples.
        track: Wraps the batches of resamples to show progress.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> image, box = np.arange(50), np.tile([0.0, 0.0, 10.0, 10.0], (50, 1))
        >>> detections = Detections(image, box + 30 * (image % 5 == 0)[:, None], 1 - image / 100, np.zeros(50))
        >>> batch = DetectionBatch(detections, GroundTruths(image, box, np.zeros(50)), 50)
        >>> table = match_images(batch, num_classes=1, keep="scores").table
        >>> print(bootstrap_ci(table).overall["recall_micro"])
        0.8000 [0.6679, 0.8884]
    """
    counts = per_image_counts(table, score_thr=score_thr, iou_thr=iou_thr)
    settings = table.settings_with(max_dets=max_dets, iou_thrs=iou_thrs, ci=ci, resamples=resamples, seed=seed)
    curves = ap_curves(table, settings) if average_precision else None
    level = 0.95 if settings.ci is None else settings.ci
    return bootstrap_counts(counts, curves, ci=level, resamples=settings.resamples, seed=settings.seed, track=track)
