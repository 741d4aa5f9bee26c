"""Confidence intervals of a model's figures; images are the sampling unit.

Precision, recall, F1 and their means have Wilson score intervals with an effective sample size
(:mod:`~mm_metrics_plugin.functional.ratio_intervals`). Average precision has the same kind of interval: its variance
comes from bootstrap resamples over images, and its known bias is taken off the center. Nothing is matched again.

Where the data cannot carry an interval, its ends are NaN and ``reason`` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np
from scipy.special import ndtr

from mm_metrics_plugin.functional.image_counts import ImageCounts
from mm_metrics_plugin.functional.ratio_intervals import (
    Numbers,
    Ratios,
    f1_of_jaccard,
    f1_of_means_interval,
    mean_f1_interval,
    mean_interval,
    ratio_intervals,
    ratios,
    shrink,
    t_quantile,
    wilson_interval,
)
from mm_metrics_plugin.functional.resampling import Figures, WeightedFigures, drawn_images, over_draws, quantiles
from mm_metrics_plugin.functional.scored_matches import ScoredMatches

UNDEFINED, TOO_FEW_OBJECTS, TOO_FEW_IMAGES = "undefined", "too few objects", "too few images"
TOO_FEW = (TOO_FEW_OBJECTS, TOO_FEW_IMAGES)
LEAST_OBJECTS = 10  # of a proportion: objects for recall, detections for precision
LEAST_IMAGES = 5  # that have them
LEAST_IMAGES_F1_AP = 30  # of F1, of average precision and of means over classes


@dataclass(frozen=True)
class Interval:
    """A figure and its confidence interval: floats, or arrays with one value per class.

    Attributes:
        value: The figure.
        low: Lower end; NaN where there is no interval.
        high: Upper end; NaN where there is no interval.
        reason: Why there is none (``'undefined'``, ``'too few objects'``, ``'too few images'``); empty if there is one.

    Example:
        >>> print(Interval(0.75, 0.7, 0.8), "|", Interval(0.75, float("nan"), float("nan"), "too few objects"))
        0.7500 [0.7000, 0.8000] | 0.7500 (too few objects)
    """

    value: Any
    low: Any
    high: Any
    reason: Any = ""

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values; the reason is None where there is an interval."""
        reasons = np.broadcast_to(np.asarray(self.reason, dtype=object), np.shape(self.value)).tolist()
        reason: Any = [one or None for one in reasons] if np.ndim(self.value) else str(self.reason) or None
        ends = {name: np.asarray(getattr(self, name)).tolist() for name in ("value", "low", "high")}
        return {**ends, "reason": reason}

    def __str__(self) -> str:
        if np.ndim(self.value):
            reasons = np.broadcast_to(np.asarray(self.reason, dtype=object), np.shape(self.value))
            return ", ".join(str(Interval(*row)) for row in zip(self.value, self.low, self.high, reasons))
        return f"{self.value:.4f} " + (f"({self.reason})" if self.reason else f"[{self.low:.4f}, {self.high:.4f}]")


@dataclass(frozen=True, eq=False)
class Intervals:
    """Every figure with its confidence interval.

    Attributes:
        level: Confidence level.
        resamples: Bootstrap resamples over images that the intervals of average precision are made of; 0 without it.
        seed: Of the resamples.
        overall: By name, over all classes.
        per_class: By name, arrays with one value per class; NaN where a class has none.
    """

    level: float
    resamples: int
    seed: int
    overall: Dict[str, Interval]
    per_class: Dict[str, Interval]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "overall": {name: value.to_dict() for name, value in self.overall.items()},
            "per_class": {name: value.to_dict() for name, value in self.per_class.items()},
        }

    def __str__(self) -> str:
        lines = [f"{100 * self.level:g} % confidence intervals"]
        return "\n".join(lines + [f"{name:<16}{value}" for name, value in self.overall.items()])


def check_level(level: float) -> None:
    """Raises unless a level of confidence lies between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"'level' must lie between 0 and 1 (found {level})")


def _check_options(level: float, resamples: int) -> None:
    check_level(level)
    if resamples < 1:
        raise ValueError(f"'resamples' must be at least 1 (found {resamples})")


def _interval(value: Numbers, ends: np.ndarray, *rules: Tuple[str, np.ndarray]) -> Interval:
    """An interval, or the reason why there is none: the first rule that holds."""
    value = np.asarray(value, dtype=np.float64)
    reason = np.full(value.shape, "", dtype="<U16")
    for name, holds in (*reversed(rules), (UNDEFINED, np.isnan(value))):
        reason = np.where(holds, name, reason)
    low, high = np.where(reason == "", ends, np.nan)
    if value.ndim:
        return Interval(value, low, high, reason)
    return Interval(float(value), float(low), float(high), str(reason))


def _only(per_class: Interval, defined: np.ndarray) -> Optional[Interval]:
    """The interval of the one class that has a value, which is also that of the mean; None where there are several."""
    if defined.sum() != 1:
        return None
    index = int(np.argmax(defined))
    value, low, high = (float(part[index]) for part in (per_class.value, per_class.low, per_class.high))
    return Interval(value, low, high, str(per_class.reason[index]))


def _proportions(found: Ratios, level: float) -> Interval:
    return _interval(
        found.value,
        ratio_intervals(found, level=level),
        (TOO_FEW_OBJECTS, found.trials < LEAST_OBJECTS),
        (TOO_FEW_IMAGES, found.images < LEAST_IMAGES),
    )


def proportion_interval(successes: np.ndarray, trials: np.ndarray, *, level: float = 0.95) -> Interval:
    """Confidence interval of a proportion whose sampling unit is the image or sample.

    Args:
        successes: (images,) successes of each image.
        trials: (images,) trials of each image.
        level: Confidence level.

    Example:
        >>> print(proportion_interval(np.arange(200) % 10 < 8, np.ones(200)))
        0.8000 [0.7389, 0.8497]
    """
    check_level(level)
    number = len(trials)
    found = ratios(np.arange(number), np.zeros(number, dtype=np.int64), successes, trials, groups=1)
    one = _proportions(found, level)
    return Interval(float(one.value[0]), float(one.low[0]), float(one.high[0]), str(one.reason[0]))


class _CountIntervals:
    """Intervals of all rates of what was counted image by image."""

    def __init__(self, counts: ImageCounts, level: float) -> None:
        self.level = level
        tp, fp, fn = counts.counts
        pooled = [np.bincount(counts.image, weights=part, minlength=counts.num_images) for part in counts.counts]
        images, zeros = np.arange(counts.num_images), np.zeros(counts.num_images, dtype=np.int64)
        trials = {"precision": tp + fp, "recall": tp + fn, "jaccard": tp + fp + fn}
        pooled_trials = [pooled[0] + pooled[1], pooled[0] + pooled[2], pooled[0] + pooled[1] + pooled[2]]
        self.classes: Dict[str, Ratios] = {
            name: ratios(counts.image, counts.label, tp, number, groups=counts.num_classes)
            for name, number in trials.items()
        }
        self.pooled: Dict[str, Ratios] = {
            name: ratios(images, zeros, pooled[0], number, groups=1) for name, number in zip(trials, pooled_trials)
        }
        # Of a classifier with one label per sample every error is an FP and an FN: precision, recall and F1 are one
        # number, and get one interval.
        self.one_number = bool(np.array_equal(pooled[1], pooled[2]))

    def per_class(self) -> Dict[str, Interval]:
        """``precision``, ``recall``, ``f1``."""
        return {
            "precision": self._proportion(self.classes["precision"]),
            "recall": self._proportion(self.classes["recall"]),
            "f1": self._f1(self.classes["jaccard"]),
        }

    def overall(self, value: Dict[str, np.ndarray], per_class: Dict[str, Interval]) -> Dict[str, Interval]:
        """Means over classes, and the rates of all classes pooled. ``value`` has the figures themselves."""
        precision, recall, jaccard = (self.classes[name] for name in ("precision", "recall", "jaccard"))
        level = self.level
        both = jaccard.defined & np.array_equal(precision.defined, recall.defined)
        # Ends; intervals per class and which classes have one: the mean over one class has the interval of that class.
        means = {
            "mean_precision": (
                mean_interval(precision, level=level),
                per_class["precision"],
                precision.defined,
                precision,
            ),
            "mean_recall": (mean_interval(recall, level=level), per_class["recall"], recall.defined, recall),
            "f1_of_means": (f1_of_means_interval(precision, recall, level=level), per_class["f1"], both, jaccard),
            "macro_f1": (mean_f1_interval(jaccard, level=level), per_class["f1"], jaccard.defined, jaccard),
        }
        found = {}
        for name, (ends, of_classes, defined, part) in means.items():
            few = np.array(len(np.unique(part.image)) < LEAST_IMAGES_F1_AP)
            found[name] = _only(of_classes, defined) or _interval(value[name], ends, (TOO_FEW_IMAGES, few))
        pooled = {
            "micro_precision": self._proportion(self.pooled["precision"]),
            "micro_recall": self._proportion(self.pooled["recall"]),
            "micro_f1": self._proportion(self.pooled["recall"])
            if self.one_number
            else self._f1(self.pooled["jaccard"]),
        }
        for name, one in pooled.items():
            found[name] = Interval(float(value[name]), float(one.low[0]), float(one.high[0]), str(one.reason[0]))
        return found

    def _proportion(self, found: Ratios) -> Interval:
        return _proportions(found, self.level)

    def _f1(self, jaccard: Ratios) -> Interval:
        return _interval(
            f1_of_jaccard(jaccard.value),
            f1_of_jaccard(ratio_intervals(jaccard, level=self.level)),
            (TOO_FEW_IMAGES, jaccard.images < LEAST_IMAGES_F1_AP),
        )


def _average_precision_intervals(
    figures: WeightedFigures, matches: ScoredMatches, *, level: float, resamples: int, seed: int
) -> Tuple[Dict[str, Interval], Dict[str, Interval]]:
    """Per class and overall. The variance is that of the resamples, but at least that of as many yes-or-no outcomes.

    A class without objects in a resample keeps its observed value there: the mean is over the same classes always.
    """
    number = figures.num_images
    chosen = matches.object_in_range
    label, image = matches.object_label[chosen], matches.object_image[chosen]
    objects = np.bincount(label, minlength=matches.num_classes).astype(np.float64)
    with_objects = np.bincount(
        np.unique(label.astype(np.int64) * number + image) // max(number, 1), minlength=len(objects)
    )
    images = len(np.unique(image))

    def resampled(weights: np.ndarray) -> Figures:
        return Figures(figures.average_precisions(weights), {})

    observed, optimism = figures.average_precisions(np.ones((number, 1))), figures.optimism()
    draws = over_draws(
        resampled, drawn_images(number, draws=resamples, seed=seed, at_once=figures.draws_at_once)
    ).per_class
    per_class, overall = {}, {}
    for name, (value,) in observed.items():
        defined = ~np.isnan(value)
        drawn = np.where(np.isnan(draws[name]), value, draws[name])[:, defined]
        several = number / max(number - 1, 1)
        known, bias, size = value[defined], optimism[name][defined], objects[defined]
        shrunken = shrink(known, size)
        floor = shrunken * (1 - shrunken) / size
        variance = several * drawn.var(axis=0)
        rows = np.full((2, len(value)), np.nan)
        rows[:, defined] = _biased(
            known, bias, np.maximum(variance, floor), shrunken, 1 / (size + 1), with_objects[defined], level
        )
        per_class[name] = _interval(value, rows, (TOO_FEW_IMAGES, with_objects < LEAST_IMAGES_F1_AP))
        classes = max(1, len(known))
        total = several * drawn.mean(axis=1).var() if len(known) else 0.0
        total += np.maximum(floor - variance, 0.0).sum() / classes**2
        mean = known.mean() if len(known) else np.nan
        ends = (
            _biased(mean, bias.mean(), total, shrunken.mean(), 1 / (size.sum() + 1), max(images - 1, 1), level)
            if len(known)
            else np.full(2, np.nan)
        )
        overall[f"m{name}"] = _only(per_class[name], defined) or _interval(
            mean, ends, (TOO_FEW_IMAGES, np.array(images < LEAST_IMAGES_F1_AP))
        )
    return per_class, overall


def _biased(value: Any, bias: Any, variance: Any, shrunken: Any, least: Any, df: Any, level: float) -> np.ndarray:
    """Wilson's interval around a value without its bias; the effective size follows from the variance."""
    share = np.clip(shrunken - bias, least / 2, 1 - least / 2)
    return wilson_interval(value, share * (1 - share) / variance, df, level=level, center=value - bias)


def bootstrap(figures: WeightedFigures, *, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> Intervals:
    """Confidence intervals of all figures. Options as in :func:`bootstrap_detection`."""
    _check_options(level, resamples)
    value = figures.of_all()
    counts = _CountIntervals(figures.counts, level)
    per_class = counts.per_class()
    overall = counts.overall({name: one[0] for name, one in value.overall.items()}, per_class)
    if figures.matches is not None:
        areas = _average_precision_intervals(figures, figures.matches, level=level, resamples=resamples, seed=seed)
        per_class.update(areas[0])
        overall.update(areas[1])
    return Intervals(level, 0 if figures.matches is None else resamples, seed, overall, per_class)


def bootstrap_counts(counts: ImageCounts, *, level: float = 0.95) -> Intervals:
    """Confidence intervals of precision, recall and F1, per class, mean and micro.

    They need no resamples.

    Args:
        counts: TP, FP and FN, image by image.
        level: Confidence level.

    Example:
        >>> truth = np.arange(200) % 2
        >>> predicted = np.where(np.arange(200) % 10 < 8, truth, 1 - truth)
        >>> result = bootstrap_counts(ImageCounts.from_labels(truth, predicted, num_classes=2))
        >>> result.overall["micro_recall"].value, round(result.overall["micro_recall"].low, 3)
        (0.8, 0.739)
    """
    return bootstrap(WeightedFigures(counts), level=level)


def bootstrap_detection(
    matches: ScoredMatches,
    *,
    score_threshold: float = 0.3,
    iou_threshold: float = 0.5,
    counts: Optional[ImageCounts] = None,
    average_precision: bool = True,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Confidence intervals of a detector's precision, recall and F1 at a score threshold, and of average precision.

    Args:
        matches: Every detection, matched; at COCO's ten IoU thresholds for ``mAP``, at 0.5 for ``mAP_50``.
        score_threshold: Least score of a detection that counts for precision and recall.
        iou_threshold: Least overlap of a pair that counts for precision and recall.
        counts: In place of those that follow from the two thresholds.
        average_precision: Whether average precision is wanted.
        level: Confidence level.
        resamples: Bootstrap resamples over images, for average precision.
        seed: Of the resamples.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
        >>> from mm_metrics_plugin.functional.scored_matches import match_scores
        >>> image, box = np.arange(50), np.tile([0.0, 0.0, 10.0, 10.0], (50, 1))
        >>> found = Detections(image, box + 30 * (image % 5 == 0)[:, None], 1 - image / 100, np.zeros(50))
        >>> matches = match_scores(DetectionBatch(found, Objects(image, box, np.zeros(50)), 50), num_classes=1)
        >>> print(bootstrap_detection(matches).overall["micro_recall"])
        0.8000 [0.6679, 0.8884]
    """
    if counts is None:
        counts = matches.image_counts(score_threshold=score_threshold, iou_threshold=iou_threshold)
    figures = WeightedFigures(counts, matches if average_precision else None)
    return bootstrap(figures, level=level, resamples=resamples, seed=seed)


def bootstrap_means(
    values: np.ndarray,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    names: Optional[Sequence[str]] = None,
) -> Dict[str, Interval]:
    """Bootstrap intervals of means over samples, for figures that are nothing more.

    The quantiles are those of the expanded percentile bootstrap, which allows for the number of samples. Fewer than 10
    samples have no interval.

    Args:
        values: (samples, figures), NaN where a sample has no value.
        level: Confidence level.
        resamples: Bootstrap resamples over samples.
        seed: Of the resamples.
        names: Of the figures; their numbers by default.

    Example:
        >>> result = bootstrap_means(np.repeat([[0.0], [1.0]], 50, axis=0), names=["accuracy"])["accuracy"]
        >>> result.value, result.low < 0.5 < result.high
        (0.5, True)
    """
    check_level(level)
    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)
    with np.errstate(invalid="ignore"):
        observed = filled.sum(axis=0) / defined.sum(axis=0)
        draws = [
            (weights.T @ filled) / (weights.T @ defined)
            for weights in drawn_images(len(values), draws=resamples, seed=seed, at_once=64)
        ]
    drawn, number = np.concatenate(draws), defined.sum(axis=0)
    keys = [str(index) for index in range(values.shape[1])] if names is None else names
    found = {}
    for index, key in enumerate(keys):
        # As wide as a t interval with n - 1 in the estimate of the variance (Hesterberg, 2015).
        samples = max(int(number[index]), 2)
        tail = float(ndtr(-np.sqrt(samples / (samples - 1)) * t_quantile(np.array(samples - 1), level)))
        ends = quantiles(drawn[:, index], np.array([tail, 1 - tail]))
        found[key] = _interval(observed[index], ends, (TOO_FEW_OBJECTS, np.array(number[index] < LEAST_OBJECTS)))
    return found
