"""Paired permutation tests of two runs on the same images, with consistent confidence intervals.

If two runs are equally good, their results on an image are exchangeable. So the runs are swapped on a random half of
the images, many times. The p-value is the fraction of these permutations, the observed one included, whose difference
is at least as large as the observed one. The interval is d ± q, where q is the quantile that the test uses: it excludes
0 exactly if p <= 1 - ci.

Metrics over all classes are a family of tests, and so are the classes of a metric. Differences are studentized and
compared with the maximum over the family in each permutation (the max-T method of Westfall and Young), which controls
the family-wise error rate at 1 - ci. The intervals are simultaneous.

A class may have a value in one run only: a run without detections of a class has no precision there. Means are compared
over the classes in which both runs have a value, in the observed arrangement and in every permutation. The statistic is
therefore the same function of every arrangement, and the test is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import Result, mean_of_defined, stable_order
from mm_metrics_plugin.functional.detection.average_precision import APCurves, ap_curves
from mm_metrics_plugin.functional.detection.cross_fitting import CrossFittedCounts, image_folds, num_folds
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.statistics.per_image_counts import (
    MetricValues,
    PerImageCounts,
    Track,
    WeightedMetrics,
    cross_fitted_counts,
    map_draws,
    mean_name,
    per_image_counts,
)
from mm_metrics_plugin.settings import MAX_RESAMPLES, PERMUTATIONS, OperatingRule, require_ci, require_int

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification.delong import AUCSwaps

_SAME = 1e-12  # smaller differences are rounding errors
_ROUNDING = 1e-9  # tolerance of 1 - ci


@dataclass(frozen=True)
class Difference(Result):
    """The difference of a metric between two runs: floats, or arrays of a family of tests."""

    first: Any  # metric of the first run
    second: Any  # metric of the second run
    difference: Any  # second minus first; NaN where undefined
    low: Any  # lower bound of the simultaneous interval; NaN where the runs are identical
    high: Any  # upper bound of the simultaneous interval
    p_value: Any  # adjusted for the family; never 0
    low_unadjusted: Any  # for a metric chosen before the results were known, as the next two
    high_unadjusted: Any
    p_unadjusted: Any

    def at(self, index: int) -> Difference:
        """One test of the family."""
        return Difference(*(column[index].item() for column in vars(self).values()))

    def __str__(self) -> str:
        if np.ndim(self.first):
            return "; ".join(str(self.at(index)) for index in range(len(self.first)))
        return f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}], p = {self.p_value:.3g}"


def significant(p_value: float | np.ndarray, *, ci: float) -> np.ndarray:
    """Whether p <= 1 - ci."""
    return np.asarray(p_value) <= 1 - ci + _ROUNDING


def family_tests(first: np.ndarray, second: np.ndarray, permuted: np.ndarray, *, ci: float = 0.95) -> Difference:
    """Tests all differences of a family, from (F,) metrics of both runs and permuted differences (permutations, F).

    Undefined permuted differences count as extreme. An observed difference that is undefined has no p-value, but its
    permuted ones are in the maximum over the family, which is then the same for every arrangement. Bounds are clipped
    to [-1, 1]. If no permutation changes a metric, its bounds are NaN and p is 1.
    """
    observed = second - first
    size, swapped = np.abs(observed), np.abs(permuted)
    swapped = np.where(np.abs(swapped - size) <= _SAME, size, swapped)
    undefined = np.isnan(swapped)
    defined_swapped = np.where(undefined, 0.0, swapped)
    scale = np.sqrt((np.square(defined_swapped).sum(axis=0) + np.nan_to_num(size) ** 2) / (len(swapped) + 1))
    varies = scale > _SAME
    tested = varies & ~np.isnan(observed)
    extreme = np.where(undefined, np.inf, swapped)
    unadjusted = _interval_and_p_value(observed, size, extreme, size, np.ones_like(scale), ci)
    scale = np.where(varies, scale, 1.0)
    studentized = np.where(tested, size, 0.0) / scale
    maximum = (np.where(varies, defined_swapped, 0.0) / scale).max(axis=1, initial=0.0)
    extreme = np.where(undefined, np.inf, maximum[:, None])
    observed_maximum = np.full(len(size), studentized.max(initial=0.0))
    adjusted = _interval_and_p_value(observed, studentized, extreme, observed_maximum, scale, ci)
    columns = []
    for low, high, p_value in (adjusted, unadjusted):
        columns += [np.where(tested, low, np.nan), np.where(tested, high, np.nan)]
        columns.append(np.where(tested, p_value, np.where(np.isnan(observed), np.nan, 1.0)))
    return Difference(first, second, observed, *columns)


def _interval_and_p_value(
    observed: np.ndarray,
    statistic: np.ndarray,
    permuted: np.ndarray,
    identity: np.ndarray,
    scale: np.ndarray,
    ci: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds and p-value; ``identity`` is the statistic of the observed arrangement, which is a permutation too."""
    number = len(permuted) + 1
    count = 1 + (permuted >= statistic).sum(axis=0)
    allowed = min(int(np.floor((1 - ci + _ROUNDING) * number)), number - 1)
    every = np.concatenate([permuted, identity[None]])
    quantile = -np.partition(-every, allowed, axis=0)[allowed] * scale
    size = np.abs(observed)
    # Rounding must not make the interval disagree with the p-value.
    half = np.where(count <= allowed, np.minimum(quantile, np.nextafter(size, 0.0)), np.maximum(quantile, size))
    return np.clip(observed - half, -1.0, 1.0), np.clip(observed + half, -1.0, 1.0), count / number


def swap_draws(num_images: int, *, draws: int, seed: int, batch_size: int, track: Track = iter) -> Iterator[np.ndarray]:
    """Random swaps (images, draws) of 0 and 1 in batches; the batch size does not change the draws."""
    random = np.random.default_rng(seed)
    for start in track(range(0, draws, batch_size)):
        number = min(batch_size, draws - start)
        yield np.stack([random.random(num_images) < 0.5 for _ in range(number)], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Differences of two runs on the same images, by metric."""

    ci: float  # confidence level; the significance level is 1 - ci
    permutations: int  # number of permutations
    seed: int  # random seed of the permutations
    overall: dict[str, Difference]  # over all classes; together a family of tests
    per_class: dict[str, Difference]  # arrays with one value per class, each a family of tests
    classes_averaged: dict[str, int]  # number of classes of each mean: those with a value in both runs

    def __str__(self) -> str:
        return "\n".join(f"{name:<16}{value}" for name, value in self.overall.items())


@dataclass(frozen=True)
class ChangedImage(Result):
    """Changes of TP, FP and FN on one image, second run minus first."""

    image: int
    tp: int
    fp: int
    fn: int


def changed_images(first: PerImageCounts, second: PerImageCounts) -> tuple[ChangedImage, ...]:
    """The images on which two runs differ, by the number of TP, then of FP, gained or lost in any class."""
    _check_pair(first, second)
    # Absolute changes are summed per image and class, so that a gain in one class does not hide a loss in another.
    cells = [run.image.astype(np.int64) * run.num_classes + run.label for run in (first, second)]
    known, inverse = np.unique(np.concatenate(cells), return_inverse=True)
    signed = np.concatenate([-first.counts, second.counts], axis=1)
    change = np.stack([np.bincount(inverse.reshape(-1), weights=row, minlength=len(known)) for row in signed])
    images = known // max(first.num_classes, 1)
    size, totals = (
        np.stack([np.bincount(images, weights=row, minlength=first.num_images) for row in rows])
        for rows in (np.abs(change), change)
    )
    order = np.lexsort((-size[1], -size[0]))
    order = order[size[:, order].any(axis=0)]
    rows = np.stack([order, *totals[:, order].astype(np.int64)], axis=1)
    return tuple(ChangedImage(*row) for row in rows.tolist())


def _check_pair(first: PerImageCounts | MatchTable, second: PerImageCounts | MatchTable) -> None:
    for name in ("num_images", "num_classes"):
        if getattr(first, name) != getattr(second, name):
            raise MetricInputError(
                f"'{name}' of both runs must be the same (found {getattr(first, name)} and {getattr(second, name)})"
            )


def _interleave_counts(first: PerImageCounts, second: PerImageCounts) -> PerImageCounts:
    """Both runs as one run of twice the images, so that weights select an image from either run.

    Image ``i`` becomes ``2 * i`` in the first run and ``2 * i + 1`` in the second. Ties of scores are ranked by image,
    so a mixture of the runs is ranked like each run.
    """
    return PerImageCounts(
        2 * first.num_images,
        first.num_classes,
        np.concatenate([2 * first.image, 2 * second.image + 1]),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.counts, second.counts], axis=1),
    )


def _interleave_tables(first: MatchTable, second: MatchTable) -> MatchTable:
    """The same for match tables."""
    tables = (first, second)
    image, gt_image = (
        np.concatenate([2 * getattr(table, name).astype(np.int64) + run for run, table in enumerate(tables)])
        for name in ("image", "gt_image")
    )
    rows, gt_rows = stable_order(image), stable_order(gt_image)
    names = dict.fromkeys(("label", "score", "matched", "ignored", "precision_codes"), rows)
    names.update(gt_label=gt_rows, gt_valid=gt_rows)
    if first.ap_matched is not None:
        names.update(ap_matched=rows, ap_ignored=rows, gt_ap_valid=gt_rows)
    columns = {name: np.concatenate([getattr(table, name) for table in tables])[at] for name, at in names.items()}
    return replace(
        first,
        num_images=2 * first.num_images,
        image=image[rows],
        gt_image=gt_image[gt_rows],
        precision=columns.pop("precision_codes"),
        details=None,
        image_columns={name: np.repeat(column, 2, axis=0) for name, column in first.image_columns.items()},
        num_runs=2,
        **columns,
    )


def _interleave_weights(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The same for weights (images, draws)."""
    return np.stack([first, second], axis=1).reshape(2 * len(first), *first.shape[1:])


def compare_counts(
    first: PerImageCounts,
    second: PerImageCounts,
    *,
    auc: AUCSwaps | None = None,
    curves: Sequence[APCurves | None] | None = None,
    cross_fitted: CrossFittedCounts | None = None,
    ci: float = 0.95,
    permutations: int | None = None,
    seed: int = 0,
    track: Track = iter,
) -> Comparison:
    """Compares precision, recall, F1 and, if given, AUC or average precision of two runs.

    ``curves`` are those of the first run, the second run, and both interleaved. ``cross_fitted``, of both interleaved,
    gives the counts of a permutation; without it, they are sums of ``first`` and ``second``. Options as in
    :func:`paired_permutation_test`.
    """
    _check_pair(first, second)
    require_ci(ci)
    permutations = PERMUTATIONS if permutations is None else permutations
    require_int("permutations", permutations, low=1, high=MAX_RESAMPLES)
    counts = (first, second, _interleave_counts(first, second))
    *runs, both = map(WeightedMetrics, counts, curves or [None] * 3, [None, None, cross_fitted])

    def swapped(swap: np.ndarray) -> MetricValues:
        stays = 1 - swap
        first, second = both(_interleave_weights(stays, swap)), both(_interleave_weights(swap, stays))
        return second.over_classes_of(first).minus(first.over_classes_of(second))

    own = [run.of_all() for run in runs]
    observed = [values.over_classes_of(other) for values, other in zip(own, own[::-1])]
    draws_of_swaps = swap_draws(
        first.num_images, draws=permutations, seed=seed, batch_size=both.batch_size, track=track
    )
    permuted = map_draws(swapped, draws_of_swaps)
    if auc is not None:
        means, classes = auc.permuted(permutations=permutations, seed=seed, batch_size=both.batch_size)
        permuted.overall["auc"], permuted.per_class["auc"] = means, classes
        for metrics, values in zip(observed, (auc.first, auc.second)):
            metrics.overall["auc"], metrics.per_class["auc"] = mean_of_defined(values[None]), values[None]

    names = list(permuted.overall)
    first_values, second_values = (np.array([metrics.overall[name][0] for name in names]) for metrics in observed)
    draws = np.stack([permuted.overall[name] for name in names], axis=1)
    family = family_tests(first_values, second_values, draws, ci=ci)
    overall = {name: family.at(index) for index, name in enumerate(names)}
    per_class = {
        name: family_tests(observed[0].per_class[name][0], observed[1].per_class[name][0], swapped_values, ci=ci)
        for name, swapped_values in permuted.per_class.items()
    }
    shared = {mean_name(name): int((~np.isnan(test.difference)).sum()) for name, test in per_class.items()}
    shared["f1_of_means"] = min(shared["precision"], shared["recall"])
    return Comparison(ci, permutations, seed, overall, per_class, shared)


def paired_permutation_test(
    first: MatchTable,
    second: MatchTable,
    *,
    score_thr: float | None = None,
    iou_thr: float | None = None,
    operating_point: str | None = None,
    average_precision: bool = True,
    max_dets: int | None = None,
    iou_thrs: Sequence[float] | None = None,
    ci: float = 0.95,
    permutations: int | None = None,
    seed: int = 0,
    track: Track = iter,
) -> Comparison:
    """Compares two detectors on the same images: precision, recall and F1 at a score threshold, and average precision.

    Args:
        first: Match table of the first run. Its settings are the defaults of thresholds, ``operating_point`` and
            ``max_dets``.
        second: Match table of the second run, with the same images, ground truths and settings.
        score_thr: Score threshold of precision and recall, the same for both runs.
        iou_thr: IoU threshold of precision and recall.
        operating_point: Rule that selects the score threshold of each run instead, as in :func:`operating_points`. The
            threshold of an image is selected on other images (5 folds), and again in each permutation.
        average_precision: Also compare average precision.
        max_dets: Maximum number of detections per class and image for average precision.
        iou_thrs: IoU thresholds of average precision.
        ci: Confidence level of the intervals; the significance level is 1 - ci.
        permutations: Number of permutations; 2,000 by default.
        seed: Random seed of the permutations.
        track: Wraps the batches of permutations to show progress.

    Raises:
        MetricInputError: The runs differ in images, classes, IoU thresholds or area ranges.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> image, box = np.arange(60), np.tile([0.0, 0.0, 10.0, 10.0], (60, 1))
        >>> ground_truths, tables = GroundTruths(image, box, np.zeros(60)), []
        >>> for every in (2, 5):
        ...     boxes = box + 30 * (image % every == 0)[:, None]
        ...     batch = DetectionBatch(Detections(image, boxes, 1 - image / 100, np.zeros(60)), ground_truths, 60)
        ...     tables.append(match_images(batch, num_classes=1, keep="scores").table)
        >>> paired_permutation_test(*tables).overall["mAP_50"].p_value < 0.05
        True
    """
    if first.grid != second.grid:
        raise MetricInputError(
            "both runs must be matched at the same IoU thresholds and area ranges "
            f"(found {first.grid} and {second.grid})"
        )
    settings = first.settings_with(score_thr=score_thr, iou_thr=iou_thr, max_dets=max_dets, iou_thrs=iou_thrs)
    _check_pair(first, second)
    tables = (first, second, _interleave_tables(first, second))
    options: dict[str, Any] = {"ci": ci, "permutations": permutations, "seed": seed, "track": track}
    if average_precision:
        options["curves"] = [ap_curves(table, settings) for table in tables]
    text = operating_point or (settings.operating_point if score_thr is None else None)
    if text is None:
        counts = [per_image_counts(run, score_thr=settings.score_thr, iou_thr=settings.iou_thr) for run in tables[:2]]
        return compare_counts(*counts, **options)
    rule = OperatingRule.parse(text)
    fold = image_folds(first.num_images, folds=num_folds(first.num_images), seed=seed)
    counts = [cross_fitted_counts(run, fold, rule, iou_thr=settings.iou_thr) for run in (first, second)]
    options["cross_fitted"] = CrossFittedCounts(tables[2], np.repeat(fold, 2), rule, settings.iou_thr)
    return compare_counts(*counts, **options)
