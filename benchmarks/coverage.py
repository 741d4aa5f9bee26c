"""Coverage of confidence intervals on simulated datasets with known true values.

``bench_coverage.py`` prints the tables of docs/en/concepts/statistics.md;
``tests/functional/statistics/test_coverage.py`` checks the coverage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from mm_metrics_plugin.functional.classification.delong import delong_ci
from mm_metrics_plugin.functional.detection.average_precision import APCurves
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.statistics.bootstrap import Interval, bootstrap_ci, bootstrap_counts, bootstrap_draws
from mm_metrics_plugin.functional.statistics.per_image_counts import (
    PerImageCounts,
    WeightedMetrics,
    map_draws,
    per_image_counts,
)
from mm_metrics_plugin.settings import DetectionSettings

Random = np.random.Generator
LEVEL = 0.95


class Coverage(NamedTuple):
    """Share of intervals that contain the true value, their mean width, and the number of intervals."""

    share: float
    width: float
    number: int

    @classmethod
    def of(cls, low: np.ndarray, high: np.ndarray, true_value: np.ndarray) -> Coverage:
        """From intervals; NaN are left out."""
        low, high, true_value = (
            np.asarray(part, dtype=np.float64) for part in np.broadcast_arrays(low, high, true_value)
        )
        defined = ~np.isnan(low)
        covered = (low <= true_value) & (true_value <= high)
        return cls(float(covered[defined].mean()), float((high - low)[defined].mean()), int(defined.sum()))


class Sizes(NamedTuple):
    """Images of unequal size: the expected number of objects of an image, relative to the mean of ordinary images."""

    spread: float = 0.0  # standard deviation of its logarithm
    crowded: float = 1.0  # factor of 5 % of the images

    def sample(self, random: Random, shape: tuple[int, ...]) -> np.ndarray:
        """Relative sizes."""
        sizes = np.exp(self.spread * random.normal(size=shape) - self.spread**2 / 2) if self.spread else np.ones(shape)
        return np.where(random.random(shape) < 0.05, self.crowded, 1.0) * sizes if self.crowded != 1 else sizes


# --- proportions and F1 -----------------------------------------------------------------------------------------------


class Proportion(NamedTuple):
    """Recall with correlated detections within an image (a beta-binomial)."""

    images: int
    per_image: float
    share: float
    correlation: float
    sizes: Sizes = Sizes()

    def sample(self, random: Random, datasets: int) -> tuple[np.ndarray, np.ndarray]:
        """(datasets, images) objects found, and objects."""
        shape = (datasets, self.images)
        objects = random.poisson(self.per_image * self.sizes.sample(random, shape))
        return random.binomial(objects, _shares(random, self.share, self.correlation, shape)), objects


def _shares(random: Random, share: float, correlation: float, shape: tuple[int, ...]) -> np.ndarray:
    if correlation in (0, 1):
        return (random.random(shape) < share).astype(float) if correlation else np.full(shape, share)
    weight = (1 - correlation) / correlation
    return random.beta(share * weight, (1 - share) * weight, shape)


def stacked(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray) -> PerImageCounts:
    """(datasets, images) counts as the classes of one dataset: every interval per class is one of a dataset."""
    datasets, images = tp.shape
    counts = np.stack([part.reshape(-1) for part in (tp, fp, fn)])
    image, label = np.arange(datasets * images), np.repeat(np.arange(datasets), images)
    kept = counts.any(axis=0)
    return PerImageCounts(datasets * images, datasets, image[kept], label[kept], counts[:, kept])


def proportion_coverage(setting: Proportion, *, datasets: int, seed: int = 0) -> Coverage:
    """Coverage of the interval of recall."""
    found, objects = setting.sample(np.random.default_rng(seed), datasets)
    recall = bootstrap_counts(stacked(found, np.zeros_like(found), objects - found), ci=LEVEL).per_class["recall"]
    return Coverage.of(recall.low, recall.high, np.array(setting.share))


def percentile_proportion_coverage(setting: Proportion, *, datasets: int, seed: int = 0) -> Coverage:
    """Coverage of the percentile bootstrap."""
    random = np.random.default_rng(seed)
    found, objects = setting.sample(random, datasets)
    weights = random.multinomial(setting.images, np.full(setting.images, 1 / setting.images), size=400).astype(float)
    with np.errstate(invalid="ignore"):
        drawn = (found @ weights.T) / (objects @ weights.T)
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    enough = objects.sum(axis=1) >= 10
    return Coverage.of(low[enough], high[enough], np.array(setting.share))


class Detector(NamedTuple):
    """Counts of a detector for one class: objects, recall, false positives; images differ in difficulty.

    False positives depend on the difficulty as well, or only on the size of the image (``even``).
    """

    images: int
    objects: float
    recall: float
    false_positives: float
    correlation: float = 1 / 6
    sizes: Sizes = Sizes()
    even: bool = False

    @property
    def f1(self) -> float:
        """Its true F1."""
        found = self.recall * self.objects
        return 2 * found / (found + self.false_positives + self.objects)

    def sample(self, random: Random, datasets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(datasets, images) TP, FP, FN."""
        shape = (datasets, self.images)
        sizes = self.sizes.sample(random, shape)
        objects = random.poisson(self.objects * sizes)
        ease = _shares(random, self.recall, self.correlation, shape)
        tp = random.binomial(objects, ease)
        difficulty = 1.0 if self.even else (1 - ease) / (1 - self.recall)
        return tp, random.poisson(self.false_positives * sizes * difficulty), objects - tp


def f1_coverage(setting: Detector, *, datasets: int, seed: int = 0) -> Coverage:
    """Coverage of the interval of F1."""
    counts = stacked(*setting.sample(np.random.default_rng(seed), datasets))
    found = bootstrap_counts(counts, ci=LEVEL).per_class["f1"]
    return Coverage.of(found.low, found.high, np.array(setting.f1))


def percentile_f1_coverage(setting: Detector, *, datasets: int, seed: int = 0) -> Coverage:
    """Coverage of the percentile bootstrap."""
    random = np.random.default_rng(seed)
    tp, fp, fn = setting.sample(random, datasets)
    weights = random.multinomial(setting.images, np.full(setting.images, 1 / setting.images), size=400).astype(float)
    hits = 2 * tp @ weights.T
    with np.errstate(invalid="ignore"):
        drawn = hits / (hits + (fp + fn) @ weights.T)
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return Coverage.of(low, high, np.array(setting.f1))


# --- means over classes -----------------------------------------------------------------------------------------------


class Classes(NamedTuple):
    """A detector of several classes. Hard images are hard for all classes."""

    images: int
    objects: np.ndarray
    recall: np.ndarray
    false_positives: np.ndarray
    shape: float = 4.0
    sizes: Sizes = Sizes()

    def rates(self) -> dict[str, np.ndarray]:
        """The true precision, recall and F1 of each class: ratios of expected counts."""
        # The expected value of recall ** difficulty, a moment-generating function of the gamma distribution.
        recall = (1 - np.log(self.recall) / self.shape) ** -self.shape
        tp, fp = self.objects * recall, self.false_positives
        return {"precision": tp / (tp + fp), "recall": recall, "f1": 2 * tp / (tp + fp + self.objects)}

    def sample(self, random: Random) -> PerImageCounts:
        """The counts of a dataset."""
        images = self.images
        sizes = self.sizes.sample(random, (images, 1))
        objects = random.poisson(self.objects * sizes)
        difficulty = random.gamma(self.shape, 1 / self.shape, (images, 1))
        tp = random.binomial(objects, self.recall**difficulty)
        fp = random.poisson(self.false_positives * difficulty * sizes)
        counts = np.stack([tp, fp, objects - tp])
        image, label = np.nonzero(counts.any(axis=0))
        return PerImageCounts(images, len(self.objects), image, label, counts[:, image, label])

    def table(self, random: Random, images: int = 0) -> MatchTable:
        """A dataset of boxes with scores, matched."""
        images = images or self.images
        sizes = self.sizes.sample(random, (images, 1))
        number = random.poisson(self.objects * sizes)
        difficulty = random.gamma(self.shape, 1 / self.shape, (images, 1))
        image, label = _rows(number)
        boxes = 20.0 * np.arange(len(image))[:, None] + np.array([0, 0, 10, 10])
        hit = random.random(len(image)) < self.recall[label] ** difficulty[image, 0]
        wrong_image, wrong_label = _rows(random.poisson(self.false_positives * difficulty * sizes))
        wrong = -100 - 20.0 * np.arange(len(wrong_image))[:, None] + np.array([0, 0, 10, 10])
        scores = np.concatenate([random.beta(3, 2, hit.sum()), random.beta(2, 3, len(wrong))])
        detections = Detections(
            np.concatenate([image[hit], wrong_image]),
            np.concatenate([boxes[hit], wrong]),
            scores,
            np.concatenate([label[hit], wrong_label]),
        )
        batch = DetectionBatch(detections, GroundTruths(image, boxes, label), images)
        settings = DetectionSettings(iou_thrs=(0.5,))
        found = match_images(batch, settings, num_classes=len(self.objects), keep="scores").table
        assert found is not None
        return found


def _rows(number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    image, label = np.nonzero(number)
    repeats = number[image, label]
    return np.repeat(image, repeats), np.repeat(label, repeats)


def classes(kind: str, number: int, images: int, recall: tuple[float, float] = (0.9, 0.3)) -> Classes:
    """``'even'`` classes, a long tail (``'zipf'``), or half of the classes with 0.03 objects per image (``'rare'``)."""
    objects = {
        "even": np.full(number, 1.5 if number == 1 else 0.5),
        "zipf": 1.5 / np.arange(1, number + 1) ** 1.2,
        "rare": np.where(np.arange(number) < number // 2, 0.5, 0.03),
    }[kind]
    found = np.linspace(*recall, number)
    return Classes(images, objects, found, objects * (1.1 - found))


MEANS = ("precision", "recall", "f1", "f1_of_means")


def mean_coverage(setting: Classes, *, datasets: int, seed: int = 0) -> dict[str, Coverage]:
    """Coverage of the intervals of the means over classes; true values are those of the classes that a dataset has."""
    random = np.random.default_rng(seed)
    true = setting.rates()
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in MEANS}
    for _ in range(datasets):
        counts = setting.sample(random)
        found = bootstrap_counts(counts, ci=LEVEL)
        rates = ("precision", "recall", "f1")
        true_value = {name: float(true[name][~np.isnan(found.per_class[name].value)].mean()) for name in rates}
        both = true_value["precision"], true_value["recall"]
        true_value["f1_of_means"] = 2 * both[0] * both[1] / sum(both)
        for name in MEANS:
            rows[name].append((found.overall[name].low, found.overall[name].high, true_value[name]))
    return {name: Coverage.of(*np.array(row).T) for name, row in rows.items()}


def ap_coverage(
    setting: Classes, *, datasets: int, resamples: int = 200, images: int = 160_000, seed: int = 0
) -> tuple[Coverage, Coverage, Coverage]:
    """Coverage of the intervals of mAP_50; of AP_50 of the classes that have one; of the basic bootstrap of mAP_50.

    The true value is that of ``images`` other images.
    """
    random = np.random.default_rng(seed)
    true = _true_ap(setting, random, images)
    overall, per_class, basic = [], [], []
    for run in range(datasets):
        table = setting.table(random)
        found = bootstrap_ci(table, ci=LEVEL, resamples=resamples, seed=run)
        one, each = found.overall["mAP_50"], found.per_class["AP_50"]
        true_value = float(true[~np.isnan(each.value)].mean())
        overall.append((one.low, one.high, true_value))
        per_class.append(np.stack([each.low, each.high, true], axis=1))
        basic.append((*_basic(table, one, resamples, run), true_value))
    return tuple(Coverage.of(*part.T) for part in (np.array(overall), np.concatenate(per_class), np.array(basic)))  # type: ignore[return-value]


def _true_ap(setting: Classes, random: Random, images: int) -> np.ndarray:
    values = []
    for _ in range(4):
        curves = APCurves(setting.table(random, images=images // 4), "all", 100)
        values.append(curves.average_precision()[0, :, 0])
    return np.mean(values, axis=0)


def _basic(table: MatchTable, one: Interval, resamples: int, seed: int) -> np.ndarray:
    metrics = WeightedMetrics(per_image_counts(table, score_thr=0.3), APCurves(table, "all", 100))
    draws = map_draws(metrics, bootstrap_draws(table.num_images, draws=resamples, seed=seed, batch_size=64))
    low, high = np.quantile(draws.overall["mAP_50"], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return np.clip([2 * one.value - high, 2 * one.value - low], 0, 1)


# --- AUC --------------------------------------------------------------------------------------------------------------


class Scores(NamedTuple):
    """Normal scores of positives and negatives; ``spread`` is the standard deviation of the positives'.

    A share of the positives, ``alike``, has the scores of negatives.
    """

    auc: float
    positives: int
    negatives: int
    spread: float = 1.0
    alike: float = 0.0


def auc_coverage(setting: Scores, *, datasets: int, seed: int = 0) -> tuple[Coverage, Coverage]:
    """Coverage of the intervals of AUC, and of DeLong's plain ones."""
    random = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [setting.positives, setting.negatives])
    noise = random.normal(size=(len(labels), datasets))
    distance = norm.ppf((setting.auc - setting.alike / 2) / (1 - setting.alike)) * np.sqrt(1 + setting.spread**2)
    moved = labels[:, None] == 1
    if setting.alike:
        moved = moved & (random.random(noise.shape) >= setting.alike)
    scores = np.where(moved, noise * setting.spread + distance, noise)
    found = delong_ci([scores], np.repeat(labels[:, None], datasets, axis=1), ci=LEVEL)
    half = norm.ppf((1 + LEVEL) / 2) * found.standard_error
    value = found.per_class.value
    true_value = np.array(setting.auc)
    plain = Coverage.of(np.clip(value - half, 0, 1), np.clip(value + half, 0, 1), true_value)
    return Coverage.of(found.per_class.low, found.per_class.high, true_value), plain


def macro_auc_coverage(samples: int, shares: np.ndarray, *, distance: float, datasets: int, seed: int = 0) -> Coverage:
    """Coverage of the interval of the macro AUC; ``shares`` of the samples of each class, at least one sample each."""
    random = np.random.default_rng(seed)
    number = len(shares)
    true_value = norm.cdf(distance / np.sqrt(2))
    ends = []
    for _ in range(datasets):
        labels = np.concatenate([np.arange(number), random.choice(number, samples - number, p=shares)])
        common = random.normal(size=(samples, 1))
        scores = np.sqrt(0.5) * (random.normal(size=(samples, number)) + common)
        scores[np.arange(samples), labels] += distance
        macro = delong_ci([scores], labels, ci=LEVEL).macro
        ends.append((macro.low, macro.high))
    return Coverage.of(*np.array(ends).T, np.array(true_value))


PROPORTIONS = (
    Proportion(13, 5, 0.1, 0.0),
    Proportion(15, 1, 0.9, 0.0),
    Proportion(15, 3, 0.9, 0.2),
    Proportion(30, 1.5, 0.95, 0.1),
    Proportion(50, 3, 0.8, 0.3),
    Proportion(10, 4, 0.5, 0.3),
    Proportion(100, 1, 0.05, 0.0),
    Proportion(40, 0.6, 0.97, 0.0),
    Proportion(25, 6, 0.9, 0.3),
    Proportion(13, 1, 0.1, 0.0),
    Proportion(1000, 0.02, 0.5, 0.0),
    Proportion(60, 4, 0.98, 0.2),
    Proportion(200, 4, 0.99, 0.1),
    Proportion(500, 3, 0.9, 0.3),
)
DETECTORS = tuple(
    Detector(images, objects, recall, wrong)
    for objects, recall, wrong in (
        (2.5, 0.65, 0.9),
        (2.5, 0.93, 0.2),
        (2.5, 0.3, 2.0),
        (2.5, 0.1, 2.5),
        (2.5, 0.03, 2.5),
        (2.5, 0.98, 0.05),
    )
    for images in (40, 60, 200)
)
# Images of very unequal size: log-normal, or 5 % of the images with 60 % or 84 % of the objects.
UNEQUAL = (Sizes(spread=1.0), Sizes(spread=1.5), Sizes(crowded=30), Sizes(crowded=100))
UNEQUAL_PROPORTIONS = tuple(
    Proportion(images, 4, share, correlation, sizes)
    for sizes in UNEQUAL
    for images in (40, 100)
    for share, correlation in ((0.6, 0.3), (0.9, 1.0))
)
UNEQUAL_DETECTORS = tuple(
    Detector(images, 2.5, recall, 0.9, correlation, sizes, even)
    for sizes in UNEQUAL
    for images in (100, 300)
    for recall, correlation, even in ((0.65, 1 / 6, False), (0.65, 0.3, False), (0.9, 1.0, True))
)
UNEQUAL_CLASSES = tuple(
    classes(kind, number, images)._replace(shape=shape, sizes=sizes)
    for sizes in UNEQUAL
    for kind, number, images, shape in (("even", 5, 100, 4.0), ("zipf", 10, 60, 4.0), ("even", 5, 100, 0.5))
)
# Few positives, some of which look like negatives.
ALIKE = tuple(
    Scores(auc, positives, 1000, alike=alike)
    for auc, alike in ((0.88, 0.2), (0.94, 0.1), (0.97, 0.05))
    for positives in (10, 15, 30)
)
SCORES = tuple(
    Scores(auc, positives, negatives)
    for auc in (0.6, 0.8, 0.95, 0.99)
    for positives, negatives in ((5, 50), (10, 10), (100, 100))
)
