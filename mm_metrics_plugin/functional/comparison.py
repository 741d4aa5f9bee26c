"""Is one run really better than another? Paired tests over images.

If two runs were equally good, swapping their results on an image would change nothing but chance. So the results of
half of the images, drawn at random, are swapped again and again; the p-value is the share of swaps (the data as they
are among them) that part the runs at least as far as they are found apart. The interval of the difference is that of
drawing the images again, the same ones for both runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.image_counts import ImageCounts
from mm_metrics_plugin.functional.intervals import check_level
from mm_metrics_plugin.functional.resampling import (
    Figures,
    WeightedFigures,
    drawn_images,
    drawn_swaps,
    interval_ends,
    over_draws,
)
from mm_metrics_plugin.functional.scored_matches import ScoredMatches, arrange_matches

_SAME = 1e-12  # differences closer than this are equal: sums in another order


@dataclass(frozen=True)
class Difference:
    """One figure of two runs: floats, or arrays with one value a class.

    Attributes:
        first: Of the first run.
        second: Of the second run.
        difference: Second less first.
        low: Of the interval of the difference.
        high: Of the interval of the difference.
        p_value: That there is no difference.
        p_adjusted: By Holm's method for the classes tested beside it; the same as ``p_value`` for a single figure.

    Example:
        >>> print(Difference(0.41, 0.422, 0.012, 0.004, 0.02, 0.003, 0.003))
        +0.0120 [+0.0040, +0.0200], p = 0.003
    """

    first: Any
    second: Any
    difference: Any
    low: Any
    high: Any
    p_value: Any
    p_adjusted: Any

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {name: np.asarray(value).tolist() for name, value in vars(self).items()}

    def __str__(self) -> str:
        if np.ndim(self.first):
            return "; ".join(str(Difference(*row)) for row in zip(*vars(self).values()))
        return f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}], p = {self.p_value:.3g}"


@dataclass(frozen=True, eq=False)
class Comparison:
    """How two runs differ on the same images.

    Attributes:
        level: Of the intervals.
        resamples: How many times the images were drawn.
        permutations: How many times runs were swapped.
        seed: Of both.
        overall: By name, over all classes.
        per_class: By name, arrays with one value a class.
    """

    level: float
    resamples: int
    permutations: int
    seed: int
    overall: Dict[str, Difference]
    per_class: Dict[str, Difference]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {
            "level": self.level,
            "resamples": self.resamples,
            "permutations": self.permutations,
            "seed": self.seed,
            "overall": {name: value.to_dict() for name, value in self.overall.items()},
            "per_class": {name: value.to_dict() for name, value in self.per_class.items()},
        }

    def __str__(self) -> str:
        return "\n".join(f"{name:<16}{value}" for name, value in self.overall.items())


@dataclass(frozen=True)
class ChangedImage:
    """An image on which two runs differ: second less first.

    Example:
        >>> print(ChangedImage(image=7, tp=2, fp=-1, fn=-2))
        image 7: +2 true positives, -1 false positives, -2 false negatives
    """

    image: int
    tp: int
    fp: int
    fn: int

    def to_dict(self) -> Dict[str, int]:
        """As a plain dict."""
        return dict(vars(self))

    def __str__(self) -> str:
        changes = f"{self.tp:+d} true positives, {self.fp:+d} false positives, {self.fn:+d} false negatives"
        return f"image {self.image}: {changes}"


def holm(p_values: np.ndarray) -> np.ndarray:
    """P-values adjusted by Holm's step-down method; NaN stays, and is no test.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03, np.nan]))
        array([0.03, 0.06, 0.06,  nan])
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted = np.full(p_values.shape, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def changed_images(first: ImageCounts, second: ImageCounts, *, most: int = 20) -> Tuple[ChangedImage, ...]:
    """The images on which two runs differ most: by right detections, then wrong ones, gained or lost.

    Example:
        >>> truth = np.array([0, 1, 1])
        >>> first, second = (ImageCounts.from_labels(truth, found, num_classes=2) for found in ([0, 0, 1], [0, 1, 1]))
        >>> [str(image) for image in changed_images(first, second)]
        ['image 1: +1 true positives, -1 false positives, -1 false negatives']
    """
    _check_pair(first, second)
    change = _by_cell(second) - _by_cell(first)
    # Cells first, so that a class gained does not hide another one lost on the same image.
    size = np.abs(change).sum(axis=1)
    totals = change.sum(axis=1)
    order = np.lexsort((np.arange(first.num_images), -size[1], -size[0]))[:most]
    return tuple(
        ChangedImage(int(image), *(int(part[image]) for part in totals)) for image in order if size[:, image].any()
    )


def _by_cell(counts: ImageCounts) -> np.ndarray:
    """(3, classes, images): dense, but whole numbers of small size."""
    result = np.zeros((3, counts.num_classes, counts.num_images), dtype=np.int32)
    result[:, counts.label, counts.image] = counts.counts
    return result


def _check_pair(first: ImageCounts, second: ImageCounts) -> None:
    for name in ("num_images", "num_classes"):
        if getattr(first, name) != getattr(second, name):
            raise MetricInputError(
                f"'{name}' of both runs must be the same (found {getattr(first, name)} and {getattr(second, name)})"
            )


def _side_by_side(first: ImageCounts, second: ImageCounts) -> ImageCounts:
    """Both runs as one of twice the images, so that weights can take an image from either."""
    return ImageCounts(
        2 * first.num_images,
        first.num_classes,
        np.concatenate([first.image, second.image + first.num_images]),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.counts, second.counts], axis=1),
    )


def _matches_side_by_side(first: ScoredMatches, second: ScoredMatches) -> ScoredMatches:
    shift = first.num_images
    columns = {
        name: np.concatenate([getattr(first.records, name), getattr(second.records, name)])
        for name in ("label", "score", "rank", "matched", "ignored")
    }
    # Rows of equal scores come in the order of images, the first run's first: as good as any, and always the same.
    columns["image"] = np.concatenate([first.records.image, second.records.image + shift])
    return arrange_matches(
        first.settings,
        image_keys=np.arange(2 * shift),
        columns=columns,
        objects={
            "image": np.concatenate([first.object_image, second.object_image + shift]),
            "label": np.concatenate([first.object_label, second.object_label]),
            "in_range": np.concatenate([first.object_in_range, second.object_in_range]),
        },
    )


def compare_counts(
    first: ImageCounts,
    second: ImageCounts,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    permutations: Optional[int] = None,
    seed: int = 0,
) -> Comparison:
    """Compares the precision, recall and F1 of two runs on the same images.

    Args:
        first: Counts of the first run.
        second: Counts of the second run; the images in the same order.
        level: Of the intervals of the differences.
        resamples: How many times the images are drawn.
        permutations: How many times runs are swapped. By default 1,000, or 25 a class if that is more: with fewer,
            no class could be told from chance after Holm's correction.
        seed: Of the draws and the swaps.

    Raises:
        MetricInputError: The runs are not of the same number of images and classes.

    Example:
        >>> truth = np.arange(300) % 2
        >>> worse, better = (np.where(np.arange(300) % 10 < right, truth, 1 - truth) for right in (7, 9))
        >>> runs = [ImageCounts.from_labels(truth, found, num_classes=2) for found in (worse, better)]
        >>> print(compare_counts(*runs).overall["micro_recall"])
        +0.2000 [+0.1600, +0.2467], p = 0.000999
    """
    _check_pair(first, second)
    return _compare(first, second, None, level=level, resamples=resamples, permutations=permutations, seed=seed)


def compare_detection(
    first: ScoredMatches,
    second: ScoredMatches,
    *,
    score_threshold: float = 0.3,
    iou_threshold: float = 0.5,
    average_precision: bool = True,
    level: float = 0.95,
    resamples: int = 1000,
    permutations: Optional[int] = None,
    seed: int = 0,
) -> Comparison:
    """Compares two detectors on the same images: precision, recall and F1 at a score threshold, and average precision.

    Args:
        first: Every detection of the first run, matched.
        second: The same of the second run, with the same images, objects and IoU thresholds.
        score_threshold: Least score of a detection that counts for precision and recall.
        iou_threshold: Least overlap of a pair that counts for precision and recall.
        average_precision: Whether average precision is wanted.
        level: Of the intervals of the differences.
        resamples: How many times the images are drawn.
        permutations: How many times runs are swapped; see :func:`compare_counts`.
        seed: Of the draws and the swaps.

    Raises:
        MetricInputError: The runs are not of the same images, or were not matched in the same way.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
        >>> from mm_metrics_plugin.functional.scored_matches import match_scores
        >>> image, box = np.arange(60), np.tile([0.0, 0.0, 10.0, 10.0], (60, 1))
        >>> there = Objects(image, box, np.zeros(60))
        >>> runs = []
        >>> for every in (2, 5):
        ...     found = Detections(image, box + 30 * (image % every == 0)[:, None], 1 - image / 100, np.zeros(60))
        ...     runs.append(match_scores(DetectionBatch(found, there, 60), num_classes=1))
        >>> compare_detection(*runs).overall["mAP_50"].p_value < 0.05
        True
    """
    if not np.array_equal(first.image_keys, second.image_keys):
        raise MetricInputError("both runs must be of the same images (found different ones)")
    if first.iou_thresholds != second.iou_thresholds:
        raise MetricInputError(
            "both runs must be matched at the same IoU thresholds "
            f"(found {first.iou_thresholds} and {second.iou_thresholds})"
        )
    before, after = (
        run.image_counts(score_threshold=score_threshold, iou_threshold=iou_threshold) for run in (first, second)
    )
    _check_pair(before, after)
    return _compare(
        before,
        after,
        (first, second) if average_precision else None,
        level=level,
        resamples=resamples,
        permutations=permutations,
        seed=seed,
    )


def _compare(
    first: ImageCounts,
    second: ImageCounts,
    matches: Optional[Tuple[ScoredMatches, ScoredMatches]],
    *,
    level: float,
    resamples: int,
    permutations: Optional[int],
    seed: int,
) -> Comparison:
    check_level(level)
    if permutations is None:
        permutations = max(1000, 25 * first.num_classes)
    runs = [
        WeightedFigures(counts, None if matches is None else matches[index])
        for index, counts in enumerate((first, second))
    ]
    both = WeightedFigures(_side_by_side(first, second), None if matches is None else _matches_side_by_side(*matches))
    number = first.num_images

    def drawn(weights: np.ndarray) -> Figures:
        return runs[1](weights).minus(runs[0](weights))

    def swapped(swap: np.ndarray) -> Figures:
        stays = 1 - swap
        return both(np.concatenate([swap, stays])).minus(both(np.concatenate([stays, swap])))

    values = [run.of_all() for run in runs]
    observed = values[1].minus(values[0])
    at_once = both.draws_at_once
    draws = over_draws(drawn, drawn_images(number, draws=resamples, seed=seed, at_once=at_once))
    swaps = over_draws(swapped, drawn_swaps(number, draws=permutations, seed=seed + 1, at_once=at_once))

    results: List[Dict[str, Difference]] = []
    for side in (1, 0):  # overall, per class
        found = {}
        for name, difference in observed[side].items():
            low, high = interval_ends(name, difference[0], draws[side][name], level=level)
            p_value = _permutation_p(difference[0], swaps[side][name])
            adjusted = holm(p_value) if p_value.ndim else p_value
            parts = (values[0][side][name][0], values[1][side][name][0], difference[0], low, high, p_value, adjusted)
            found[name] = Difference(*(part if part.ndim else float(part) for part in map(np.asarray, parts)))
        results.append(found)
    return Comparison(level, resamples, permutations, seed, *results)


def _permutation_p(observed: np.ndarray, swaps: np.ndarray) -> np.ndarray:
    """The share of swaps at least as far from 0 as what was observed, that one included."""
    defined = ~np.isnan(swaps)
    far = np.where(defined, np.abs(swaps), -1) >= np.abs(observed) - _SAME
    return np.where(np.isnan(observed), np.nan, (1 + (far & defined).sum(axis=0)) / (1 + defined.sum(axis=0)))
