"""How sure a figure is: bootstrap intervals over images, which are what was sampled.

Images are drawn with replacement, and the figures of each draw follow from what was counted image by image and from the
sorted scores, with weights. Nothing is matched again. How draws become an interval is said in
:func:`~mm_metrics_plugin.functional.resampling.interval_ends`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence

import numpy as np

from mm_metrics_plugin.functional.image_counts import ImageCounts
from mm_metrics_plugin.functional.resampling import (
    WeightedFigures,
    drawn_images,
    interval_ends,
    over_draws,
    quantiles,
)
from mm_metrics_plugin.functional.scored_matches import ScoredMatches


@dataclass(frozen=True)
class Interval:
    """A figure and its interval: floats, or arrays with one value a class.

    Example:
        >>> print(Interval(0.75, 0.7, 0.8))
        0.7500 [0.7000, 0.8000]
    """

    value: Any
    low: Any
    high: Any

    def to_dict(self) -> Dict[str, Any]:
        """The three as plain Python values."""
        return {name: np.asarray(value).tolist() for name, value in vars(self).items()}

    def __str__(self) -> str:
        if np.ndim(self.value):
            return ", ".join(str(Interval(*row)) for row in zip(self.value, self.low, self.high))
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True, eq=False)
class Intervals:
    """Every figure with its interval.

    Attributes:
        level: How often such intervals hold the truth.
        resamples: How many times the images were drawn.
        seed: Of the draws.
        overall: By name, over all classes.
        per_class: By name, arrays with one value a class; NaN where a class has none.
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
        lines = [f"{100 * self.level:g} % intervals of {self.resamples} draws of the images"]
        return "\n".join(lines + [f"{name:<16}{value}" for name, value in self.overall.items()])


def check_level(level: float) -> None:
    """Raises unless a level of confidence lies between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"'level' must lie between 0 and 1 (found {level})")


def bootstrap(figures: WeightedFigures, *, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> Intervals:
    """Intervals of all figures at once. Options as in :func:`bootstrap_counts`."""
    check_level(level)
    if resamples < 1:
        raise ValueError(f"'resamples' must be at least 1 (found {resamples})")
    value = figures.of_all()
    draws = over_draws(
        figures, drawn_images(figures.num_images, draws=resamples, seed=seed, at_once=figures.draws_at_once)
    )
    overall: Dict[str, Interval] = {}
    per_class: Dict[str, Interval] = {}
    for found, observed, drawn in (
        (overall, value.overall, draws.overall),
        (per_class, value.per_class, draws.per_class),
    ):
        for name in observed:
            ends = np.clip(interval_ends(name, observed[name][0], drawn[name], level=level), 0, 1)
            found[name] = Interval(*(part if part.ndim else float(part) for part in (observed[name][0], *ends)))
    return Intervals(level, resamples, seed, overall, per_class)


def bootstrap_counts(counts: ImageCounts, *, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> Intervals:
    """Intervals of precision, recall and F1, per class, mean and micro.

    Args:
        counts: True and false positives and false negatives, image by image.
        level: How often the interval should hold the truth.
        resamples: How many times the images are drawn.
        seed: Of the draws; the same seed gives the same interval.

    Example:
        >>> truth = np.arange(200) % 2
        >>> predicted = np.where(np.arange(200) % 10 < 8, truth, 1 - truth)
        >>> result = bootstrap_counts(ImageCounts.from_labels(truth, predicted, num_classes=2))
        >>> result.overall["micro_recall"].value, round(result.overall["micro_recall"].low, 3)
        (0.8, 0.745)
    """
    return bootstrap(WeightedFigures(counts), level=level, resamples=resamples, seed=seed)


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
    """Intervals of a detector's precision, recall and F1 at a score threshold, and of its average precision.

    Args:
        matches: Every detection, matched; at COCO's ten IoU thresholds for ``mAP``, at 0.5 for ``mAP_50``.
        score_threshold: Least score of a detection that counts for precision and recall.
        iou_threshold: Least overlap of a pair that counts for precision and recall.
        counts: In place of those that follow from the two thresholds.
        average_precision: Whether average precision is wanted.
        level: How often the interval should hold the truth.
        resamples: How many times the images are drawn.
        seed: Of the draws.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
        >>> from mm_metrics_plugin.functional.scored_matches import match_scores
        >>> image, box = np.arange(50), np.tile([0.0, 0.0, 10.0, 10.0], (50, 1))
        >>> found = Detections(image, box + 30 * (image % 5 == 0)[:, None], 1 - image / 100, np.zeros(50))
        >>> matches = match_scores(DetectionBatch(found, Objects(image, box, np.zeros(50)), 50), num_classes=1)
        >>> print(bootstrap_detection(matches).overall["micro_recall"])
        0.8000 [0.6800, 0.9200]
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
    """Intervals of means over samples, for figures that are nothing more.

    Args:
        values: (samples, figures), NaN where a sample has no value.
        level: How often the interval should hold the truth.
        resamples: How many times the samples are drawn.
        seed: Of the draws.
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
    low, high = quantiles(np.concatenate(draws), np.array([(1 - level) / 2, (1 + level) / 2]))
    keys = [str(index) for index in range(values.shape[1])] if names is None else names
    return {key: Interval(*(float(part) for part in row)) for key, row in zip(keys, zip(observed, low, high))}
