"""Paired comparison of two runs on the same images.

The test is the paired permutation test of :mod:`~mm_metrics_plugin.functional.permutation`: runs are swapped image by
image. Interval and p-value of a difference come from the same permutations, so 0 lies outside the interval exactly
where the difference is significant. Figures over all classes are one family of tests; the classes of a figure are
another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.delong import AUCSwaps
from mm_metrics_plugin.functional.image_counts import ImageCounts, mean_of_defined
from mm_metrics_plugin.functional.intervals import check_level
from mm_metrics_plugin.functional.permutation import PERMUTATIONS, family_tests
from mm_metrics_plugin.functional.resampling import Figures, WeightedFigures, drawn_swaps, over_draws
from mm_metrics_plugin.functional.scored_matches import ScoredMatches, arrange_matches


@dataclass(frozen=True)
class Difference:
    """One figure of two runs: floats, or arrays with one value per class.

    ``low``, ``high`` and ``p_value`` are adjusted for the family of figures that are tested together. The unadjusted
    ones are for a figure that was chosen before the results were seen. In both cases 0 lies outside the interval
    exactly where the p-value is at most 1 - level.

    Attributes:
        first: Of the first run.
        second: Of the second run.
        difference: Second minus first.
        low: Lower end of the simultaneous interval of the difference; NaN where the runs are identical in it.
        high: Upper end of the simultaneous interval.
        p_value: Adjusted for the family. Never 0.
        low_unadjusted: Lower end of the interval for this figure alone.
        high_unadjusted: Upper end of the interval for this figure alone.
        p_unadjusted: For this figure alone.

    Example:
        >>> print(Difference(0.41, 0.422, 0.012, 0.004, 0.02, 0.003, 0.005, 0.019, 0.001))
        +0.0120 [+0.0040, +0.0200], p = 0.003
    """

    first: Any
    second: Any
    difference: Any
    low: Any
    high: Any
    p_value: Any
    low_unadjusted: Any
    high_unadjusted: Any
    p_unadjusted: Any

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
        level: Confidence level; the significance level is 1 - level.
        permutations: How many times runs were swapped.
        seed: Of the permutations.
        overall: By name, over all classes. They are one family of tests.
        per_class: By name, arrays with one value per class. The classes of a figure are a family of tests.
    """

    level: float
    permutations: int
    seed: int
    overall: Dict[str, Difference]
    per_class: Dict[str, Difference]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {
            "level": self.level,
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


def changed_images(first: ImageCounts, second: ImageCounts, *, most: int = 20) -> Tuple[ChangedImage, ...]:
    """The images on which two runs differ most: by right detections, then wrong ones, gained or lost.

    Example:
        >>> truth = np.array([0, 1, 1])
        >>> first, second = (ImageCounts.from_labels(truth, found, num_classes=2) for found in ([0, 0, 1], [0, 1, 1]))
        >>> [str(image) for image in changed_images(first, second)]
        ['image 1: +1 true positives, -1 false positives, -1 false negatives']
    """
    _check_pair(first, second)
    # Cells (image and class) first, so that a class gained does not hide another one lost on the same image.
    images, change = _changed_cells(first, second)
    size, totals = (
        np.stack([np.bincount(images, weights=part, minlength=first.num_images) for part in parts])
        for parts in (np.abs(change), change)
    )
    order = np.lexsort((np.arange(first.num_images), -size[1], -size[0]))[:most]
    return tuple(
        ChangedImage(int(image), *(int(part[image]) for part in totals)) for image in order if size[:, image].any()
    )


def _changed_cells(first: ImageCounts, second: ImageCounts) -> Tuple[np.ndarray, np.ndarray]:
    """For every image and class that either run has counts of: the image (E,), and the second minus the first (3, E).

    Only these cells take memory. All images times all classes would be gigabytes for 1,000 classes.
    """
    cells = [run.image.astype(np.int64) * run.num_classes + run.label for run in (first, second)]
    known, place = np.unique(np.concatenate(cells), return_inverse=True)
    signed = np.concatenate([-first.counts, second.counts], axis=1)
    change = np.stack([np.bincount(place.reshape(-1), weights=part, minlength=len(known)) for part in signed])
    return known // max(first.num_classes, 1), change.astype(np.int64)


def _check_pair(first: ImageCounts, second: ImageCounts) -> None:
    for name in ("num_images", "num_classes"):
        if getattr(first, name) != getattr(second, name):
            raise MetricInputError(
                f"'{name}' of both runs must be the same (found {getattr(first, name)} and {getattr(second, name)})"
            )


def _side_by_side(first: ImageCounts, second: ImageCounts) -> ImageCounts:
    """Both runs as one of twice the images, so that weights can take an image from either.

    Image ``i`` of the first run is number ``2 * i``, that of the second run follows it. Rows of equal scores are ranked
    by image number, so a mixture of the runs is ranked by image, as each run is.
    """
    return ImageCounts(
        2 * first.num_images,
        first.num_classes,
        np.concatenate([2 * first.image, 2 * second.image + 1]),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.counts, second.counts], axis=1),
    )


def _matches_side_by_side(first: ScoredMatches, second: ScoredMatches) -> ScoredMatches:
    """The same of matches."""
    columns = {
        name: np.concatenate([getattr(first.records, name), getattr(second.records, name)])
        for name in ("label", "score", "rank", "matched", "ignored")
    }
    columns["image"] = np.concatenate([2 * first.records.image, 2 * second.records.image + 1])
    return arrange_matches(
        first.settings,
        image_keys=np.arange(2 * first.num_images),
        columns=columns,
        objects={
            "image": np.concatenate([2 * first.object_image, 2 * second.object_image + 1]),
            "label": np.concatenate([first.object_label, second.object_label]),
            "in_range": np.concatenate([first.object_in_range, second.object_in_range]),
        },
    )


def _interleaved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Weights of the images of both runs, in the order of :func:`_side_by_side`."""
    return np.stack([first, second], axis=1).reshape(2 * len(first), *first.shape[1:])


def compare_counts(
    first: ImageCounts,
    second: ImageCounts,
    *,
    auc: Optional[AUCSwaps] = None,
    level: float = 0.95,
    permutations: Optional[int] = None,
    seed: int = 0,
) -> Comparison:
    """Compares the precision, recall and F1 of two runs on the same images.

    Args:
        first: Counts of the first run.
        second: Counts of the second run; the images in the same order.
        auc: The AUCs of the same samples, which are then figures as the others, called ``auc``.
        level: Confidence level of the intervals of the differences; the significance level is 1 - level.
        permutations: How many times runs are swapped; 2,000 by default.
        seed: Of the permutations.

    Raises:
        MetricInputError: The runs are not of the same number of images and classes.

    Example:
        >>> truth = np.arange(300) % 2
        >>> worse, better = (np.where(np.arange(300) % 10 < right, truth, 1 - truth) for right in (7, 9))
        >>> runs = [ImageCounts.from_labels(truth, found, num_classes=2) for found in (worse, better)]
        >>> print(compare_counts(*runs).overall["micro_recall"])
        +0.2000 [+0.1457, +0.2543], p = 0.0005
    """
    _check_pair(first, second)
    return _compare(first, second, None, auc, level=level, permutations=permutations, seed=seed)


def compare_detection(
    first: ScoredMatches,
    second: ScoredMatches,
    *,
    score_threshold: float = 0.3,
    iou_threshold: float = 0.5,
    counts: Optional[Tuple[ImageCounts, ImageCounts]] = None,
    average_precision: bool = True,
    level: float = 0.95,
    permutations: Optional[int] = None,
    seed: int = 0,
) -> Comparison:
    """Compares two detectors on the same images: precision, recall and F1 at a score threshold, and average precision.

    Args:
        first: Every detection of the first run, matched.
        second: The same of the second run, with the same images, objects and IoU thresholds.
        score_threshold: Least score of a detection that counts for precision and recall.
        iou_threshold: Least overlap of a pair that counts for precision and recall.
        counts: Of both runs, in place of those that follow from the two thresholds.
        average_precision: Whether average precision is wanted.
        level: Confidence level of the intervals of the differences; the significance level is 1 - level.
        permutations: How many times runs are swapped; see :func:`compare_counts`.
        seed: Of the permutations.

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
    if first.max_dets != second.max_dets:
        raise MetricInputError(
            f"both runs must have the same 'max_dets' (found {first.max_dets} and {second.max_dets})"
        )
    if counts is None:
        before, after = (
            run.image_counts(score_threshold=score_threshold, iou_threshold=iou_threshold) for run in (first, second)
        )
    else:
        before, after = counts
    _check_pair(before, after)
    matches = (first, second) if average_precision else None
    return _compare(before, after, matches, None, level=level, permutations=permutations, seed=seed)


def _compare(
    first: ImageCounts,
    second: ImageCounts,
    matches: Optional[Tuple[ScoredMatches, ScoredMatches]],
    auc: Optional[AUCSwaps],
    *,
    level: float,
    permutations: Optional[int],
    seed: int,
) -> Comparison:
    check_level(level)
    permutations = PERMUTATIONS if permutations is None else permutations
    runs = [
        WeightedFigures(counts, None if matches is None else matches[index])
        for index, counts in enumerate((first, second))
    ]
    both = WeightedFigures(_side_by_side(first, second), None if matches is None else _matches_side_by_side(*matches))

    def swapped(swap: np.ndarray) -> Figures:
        stays = 1 - swap
        return both(_interleaved(swap, stays)).minus(both(_interleaved(stays, swap)))

    values = [run.of_all() for run in runs]
    swaps = over_draws(
        swapped, drawn_swaps(first.num_images, draws=permutations, seed=seed, at_once=both.draws_at_once)
    )
    if auc is not None:
        means, classes = auc.permuted(permutations=permutations, seed=seed, at_once=both.draws_at_once)
        swaps.overall["auc"], swaps.per_class["auc"] = means, classes
        for value, each in zip(values, (auc.first, auc.second)):
            value.overall["auc"], value.per_class["auc"] = mean_of_defined(each[None]), each[None]

    names = list(swaps.overall)
    before, after = (np.array([value.overall[name][0] for name in names]) for value in values)
    tests = family_tests(after - before, np.stack([swaps.overall[name] for name in names], axis=1), level=level)
    columns = [part.tolist() for part in (before, after, after - before, *tests)]
    overall = {name: Difference(*row) for name, row in zip(names, zip(*columns))}
    per_class = {}
    for name, permuted in swaps.per_class.items():
        before, after = (value.per_class[name][0] for value in values)
        per_class[name] = Difference(
            before, after, after - before, *family_tests(after - before, permuted, level=level)
        )
    return Comparison(level, permutations, seed, overall, per_class)
