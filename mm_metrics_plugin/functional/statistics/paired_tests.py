"""Paired permutation tests of two runs on the same images.

Runs are swapped image by image (``permutation``). Interval and p-value of a difference come from the same permutations,
so 0 lies outside the interval exactly where the difference is significant. Metrics over all classes are one family of
tests; the classes of a metric are another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import Result, mean_of_defined, stable_order
from mm_metrics_plugin.functional.detection.ap_curves import RangeCurves, ap_iou_thrs
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.statistics.per_image_counts import (
    MetricValues,
    PerImageCounts,
    WeightedMetrics,
    map_draws,
    per_image_counts,
)
from mm_metrics_plugin.settings import COCO_MAX_DETS, MAX_RESAMPLES, PERMUTATIONS, require_ci, require_int

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification.delong import AUCSwaps

_SAME = 1e-12  # differences closer than this are equal: sums in another order
_ROUNDING = 1e-9  # of 1 - ci


@dataclass(frozen=True)
class Difference(Result):
    """One metric of two runs, or a family of tests: floats, or arrays with one value per metric or class.

    The adjusted values are for metrics that are tested together, the unadjusted ones for a metric that was chosen
    before the results were known.
    """

    first: Any  # of the first run
    second: Any  # of the second run
    difference: Any  # second minus first; NaN where undefined
    low: Any  # lower end of the simultaneous interval; NaN where the runs are identical
    high: Any  # upper end of the simultaneous interval
    p_value: Any  # adjusted for the family; never 0
    low_unadjusted: Any
    high_unadjusted: Any
    p_unadjusted: Any

    def at(self, index: int) -> Difference:
        """One of the family."""
        return Difference(*(column[index].item() for column in vars(self).values()))

    def __str__(self) -> str:
        if np.ndim(self.first):
            return "; ".join(str(self.at(index)) for index in range(len(self.first)))
        return f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}], p = {self.p_value:.3g}"


def significant(p_value: float | np.ndarray, *, ci: float) -> np.ndarray:
    """Whether p <= 1 - ci."""
    return np.asarray(p_value) <= 1 - ci + _ROUNDING


def family_tests(first: np.ndarray, second: np.ndarray, permuted: np.ndarray, *, ci: float = 0.95) -> Difference:
    """Tests every difference of a family: (F,) metrics of both runs, NaN where undefined.

    ``permuted`` (permutations, F) has the differences with the runs swapped on some images; undefined ones count as
    extreme. Intervals lie in -1 to 1. They are NaN, and p is 1, where no permutation changes the metric.
    """
    observed = second - first
    size = np.abs(observed)
    swapped = np.abs(permuted)
    swapped = np.where(np.abs(swapped - size) <= _SAME, size, swapped)
    undefined = np.isnan(swapped)
    known = np.where(undefined, 0.0, swapped)
    scale = np.sqrt((np.square(known).sum(axis=0) + np.nan_to_num(size) ** 2) / (len(known) + 1))
    tested = ~np.isnan(observed) & (scale > _SAME)
    alone = _interval_and_p_value(observed, size, np.where(undefined, np.inf, swapped), size, np.ones_like(scale), ci)
    unit = np.where(tested, scale, 1.0)
    relative = np.where(tested, size, 0.0) / unit
    largest = (np.where(tested, known, 0.0) / unit).max(axis=1, initial=0.0)
    extreme, identity = np.where(undefined, np.inf, largest[:, None]), np.full(len(size), relative.max(initial=0.0))
    together = _interval_and_p_value(observed, relative, extreme, identity, unit, ci)
    parts = []
    for low, high, p_value in (together, alone):
        parts += [np.where(tested, low, np.nan), np.where(tested, high, np.nan)]
        parts.append(np.where(tested, p_value, np.where(np.isnan(observed), np.nan, 1.0)))
    return Difference(first, second, observed, *parts)


def _interval_and_p_value(
    observed: np.ndarray, statistic: np.ndarray, permuted: np.ndarray, identity: np.ndarray, unit: np.ndarray, ci: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Low, high and p-value. ``identity`` is the statistic of the observed arrangement, one of the permutations."""
    number = len(permuted) + 1
    count = 1 + (permuted >= statistic).sum(axis=0)
    allowed = min(int(np.floor((1 - ci + _ROUNDING) * number)), number - 1)
    # At most `allowed` of all arrangements are as extreme exactly if the next largest one is less extreme.
    every = np.concatenate([permuted, identity[None]])
    quantile = -np.partition(-every, allowed, axis=0)[allowed] * unit
    size = np.abs(observed)
    half = np.where(count <= allowed, np.minimum(quantile, np.nextafter(size, 0.0)), np.maximum(quantile, size))
    return np.clip(observed - half, -1.0, 1.0), np.clip(observed + half, -1.0, 1.0), count / number


def swap_draws(num_images: int, *, draws: int, seed: int, at_once: int) -> Iterator[np.ndarray]:
    """Which images are swapped, (images, draws) of 0 and 1 at a time; the same for every ``at_once``."""
    random = np.random.default_rng(seed)
    for start in range(0, draws, at_once):
        number = min(at_once, draws - start)
        yield np.stack([random.random(num_images) < 0.5 for _ in range(number)], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """How two runs differ on the same images."""

    ci: float  # confidence level; the significance level is 1 - ci
    permutations: int  # how many times runs were swapped
    seed: int  # of the permutations
    overall: dict[str, Difference]  # By name, over all classes. They are one family of tests.
    per_class: dict[str, Difference]  # by name, one value per class: a family of tests

    def __str__(self) -> str:
        return "\n".join(f"{name:<16}{value}" for name, value in self.overall.items())


@dataclass(frozen=True)
class ChangedImage(Result):
    """An image on which two runs differ: second minus first."""

    image: int
    tp: int
    fp: int
    fn: int


def changed_images(first: PerImageCounts, second: PerImageCounts) -> tuple[ChangedImage, ...]:
    """The images on which two runs differ, those that differ most first: by TP, then FP, gained or lost."""
    _check_pair(first, second)
    # Cells (image and class) first, so that a class gained does not hide another one lost on the same image.
    images, change = _changed_cells(first, second)
    size, totals = (
        np.stack([np.bincount(images, weights=part, minlength=first.num_images) for part in parts])
        for parts in (np.abs(change), change)
    )
    order = np.lexsort((-size[1], -size[0]))
    order = order[size[:, order].any(axis=0)]
    rows = np.stack([order, *totals[:, order].astype(np.int64)], axis=1)
    return tuple(ChangedImage(*row) for row in rows.tolist())


def _changed_cells(first: PerImageCounts, second: PerImageCounts) -> tuple[np.ndarray, np.ndarray]:
    """Images (E,) and second minus first (3, E) of every image and class with counts in either run.

    All images times all classes would be gigabytes for 1,000 classes.
    """
    cells = [run.image.astype(np.int64) * run.num_classes + run.label for run in (first, second)]
    known, place = np.unique(np.concatenate(cells), return_inverse=True)
    signed = np.concatenate([-first.counts, second.counts], axis=1)
    change = np.stack([np.bincount(place.reshape(-1), weights=part, minlength=len(known)) for part in signed])
    return known // max(first.num_classes, 1), change.astype(np.int64)


def _check_pair(first: PerImageCounts, second: PerImageCounts) -> None:
    for name in ("num_images", "num_classes"):
        if getattr(first, name) != getattr(second, name):
            raise MetricInputError(
                f"'{name}' of both runs must be the same (found {getattr(first, name)} and {getattr(second, name)})"
            )


def _side_by_side(first: PerImageCounts, second: PerImageCounts) -> PerImageCounts:
    """Both runs as one of twice the images, so that weights can take an image from either.

    Image ``i`` of the first run becomes ``2 * i``, that of the second run ``2 * i + 1``. Equal scores are ranked by
    image number, so a mixture of the runs is ranked by image, as each run is.
    """
    return PerImageCounts(
        2 * first.num_images,
        first.num_classes,
        np.concatenate([2 * first.image, 2 * second.image + 1]),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.counts, second.counts], axis=1),
    )


def _tables_side_by_side(first: MatchTable, second: MatchTable) -> MatchTable:
    """:func:`_side_by_side` of match tables."""
    tables = (first, second)
    image, gt_image = (
        np.concatenate([2 * getattr(table, name).astype(np.int64) + run for run, table in enumerate(tables)])
        for name in ("image", "gt_image")
    )
    rows, gt_rows = stable_order(image), stable_order(gt_image)
    names = {"label": rows, "score": rows, "matched": rows, "ignored": rows, "gt_label": gt_rows, "gt_counts": gt_rows}
    columns = {name: np.concatenate([getattr(table, name) for table in tables])[at] for name, at in names.items()}
    return replace(
        first,
        num_images=2 * first.num_images,
        image=image[rows],
        gt_image=gt_image[gt_rows],
        precision=None,  # AP compares scores with each other, not with a threshold
        details=None,
        **columns,
    )


def _interleaved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Weights of the images of both runs, in the order of :func:`_side_by_side`."""
    return np.stack([first, second], axis=1).reshape(2 * len(first), *first.shape[1:])


def compare_counts(
    first: PerImageCounts,
    second: PerImageCounts,
    *,
    auc: AUCSwaps | None = None,
    ci: float = 0.95,
    permutations: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compares the precision, recall and F1 of two runs, and the ``auc`` of the same samples if it is given.

    Options as in :func:`paired_permutation_test`.
    """
    _check_pair(first, second)
    return _compare(first, second, None, auc, ci=ci, permutations=permutations, seed=seed)


def paired_permutation_test(
    first: MatchTable,
    second: MatchTable,
    *,
    score_thr: float = 0.3,
    iou_thr: float = 0.5,
    average_precision: bool = True,
    max_dets: int = COCO_MAX_DETS,
    iou_thrs: Sequence[float] | None = None,
    ci: float = 0.95,
    permutations: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compares two detectors on the same images: precision, recall and F1 at a score threshold, and average precision.

    Args:
        first: Every detection of the first run, matched.
        second: The same of the second run; the images in the same order, the same ground truths and settings.
        score_thr: Score threshold of precision and recall.
        iou_thr: IoU threshold of precision and recall.
        average_precision: Whether average precision is wanted.
        max_dets: Number of detections per class and image that average precision uses. Nothing else is limited.
        iou_thrs: IoU thresholds of average precision. None: COCO's ten, or all of a table without them.
        ci: Confidence level of the intervals of the differences; the significance level is 1 - ci.
        permutations: Number of permutations; 2,000 by default.
        seed: Of the permutations.

    Raises:
        MetricInputError: The runs differ in images, classes, IoU thresholds or area ranges.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> image, box = np.arange(60), np.tile([0.0, 0.0, 10.0, 10.0], (60, 1))
        >>> ground_truths, tables = GroundTruths(image, box, np.zeros(60)), []
        >>> for every in (2, 5):
        ...     boxes = box + 30 * (image % every == 0)[:, None]
        ...     batch = DetectionBatch(Detections(image, boxes, 1 - image / 100, np.zeros(60)), ground_truths, 60)
        ...     tables.append(match_images(batch, num_classes=1, table="ap").table)
        >>> paired_permutation_test(*tables).overall["mAP_50"].p_value < 0.05
        True
    """
    if first.grid != second.grid:
        raise MetricInputError(
            "both runs must be matched at the same IoU thresholds and area ranges "
            f"(found {first.grid} and {second.grid})"
        )
    before, after = (per_image_counts(run, score_thr=score_thr, iou_thr=iou_thr) for run in (first, second))
    _check_pair(before, after)
    curves = None
    if average_precision:
        thresholds = ap_iou_thrs(first, iou_thrs)
        tables = (first, second, _tables_side_by_side(first, second))
        curves = tuple(RangeCurves(table, "all", max_dets, thresholds) for table in tables)
    return _compare(before, after, curves, None, ci=ci, permutations=permutations, seed=seed)


def _compare(
    first: PerImageCounts,
    second: PerImageCounts,
    curves: tuple[RangeCurves, ...] | None,
    auc: AUCSwaps | None,
    *,
    ci: float,
    permutations: int | None,
    seed: int,
) -> Comparison:
    require_ci(ci)
    permutations = PERMUTATIONS if permutations is None else permutations
    require_int("permutations", permutations, low=1, high=MAX_RESAMPLES)
    before, after, both = (
        WeightedMetrics(counts, curve)
        for counts, curve in zip((first, second, _side_by_side(first, second)), curves or [None] * 3)
    )

    def swapped(swap: np.ndarray) -> MetricValues:
        stays = 1 - swap
        return both(_interleaved(swap, stays)).minus(both(_interleaved(stays, swap)))

    observed = (before.of_all(), after.of_all())
    permuted = map_draws(
        swapped, swap_draws(first.num_images, draws=permutations, seed=seed, at_once=both.draws_at_once)
    )
    if auc is not None:
        means, classes = auc.permuted(permutations=permutations, seed=seed, at_once=both.draws_at_once)
        permuted.overall["auc"], permuted.per_class["auc"] = means, classes
        for figures, each in zip(observed, (auc.first, auc.second)):
            figures.overall["auc"], figures.per_class["auc"] = mean_of_defined(each[None]), each[None]

    names = list(permuted.overall)
    first_values, second_values = (np.array([figures.overall[name][0] for name in names]) for figures in observed)
    draws = np.stack([permuted.overall[name] for name in names], axis=1)
    family = family_tests(first_values, second_values, draws, ci=ci)
    overall = {name: family.at(index) for index, name in enumerate(names)}
    per_class = {
        name: family_tests(observed[0].per_class[name][0], observed[1].per_class[name][0], swapped_values, ci=ci)
        for name, swapped_values in permuted.per_class.items()
    }
    return Comparison(ci, permutations, seed, overall, per_class)
