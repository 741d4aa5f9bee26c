"""Confidence intervals of precision, recall and F1, whose sampling unit is the image.

All intervals are Wilson score intervals with an effective sample size. Objects of one image are not independent, so the
number of objects is divided by the design effect: the cluster-robust variance of the ratio over that of independent
objects. Unlike percentile intervals of a bootstrap, these keep their coverage for few objects and have a width where
every object is found or none is.

* A proportion is TP out of TP + FP (precision) or TP + FN (recall).
* F1 is 2J / (1 + J) with the proportion J = TP / (TP + FP + FN), so its interval is that of J, transformed.
* The variance of a mean over classes is the sum of those of the classes plus the covariance of classes of the same
  images. The variance of a class with few objects uses a share that is shrunken towards that of all classes.

docs/en/concepts/statistics.md shows the coverage; ``python -m benchmarks coverage`` makes the table.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence, Union

import numpy as np

from mm_metrics_plugin.functional._arrays import divide

Numbers = Union[float, np.ndarray]

# Chosen by simulation (python -m benchmarks coverage).
_PRIOR_CORRELATION = 0.15  # between objects of one image, as far as the data say nothing about it
_PRIOR_WEIGHT = 4.0  # objects; of the share of all classes in the variance of one class


class Ratios(NamedTuple):
    """Ratios of sums over images, one per group (a class, or all classes pooled)."""

    value: np.ndarray  # (G,) successes out of trials; NaN without trials
    trials: np.ndarray  # (G,) how many trials
    images: np.ndarray  # (G,) how many images have a trial
    size: np.ndarray  # (G,) effective number of trials: the number divided by the design effect
    df: np.ndarray  # (G,) degrees of freedom of the t quantile
    shrunken: np.ndarray  # (G,) the value shrunken towards that of all groups, never 0 or 1
    spread: np.ndarray  # (G,) root of the sum of squared residuals
    image: np.ndarray  # (E,) image of each entry
    group: np.ndarray  # (E,) group of each entry
    residual: np.ndarray  # (E,) what an image adds to the error of the value

    @property
    def defined(self) -> np.ndarray:
        """(G,) whether there is a trial."""
        return self.trials > 0

    @property
    def variance(self) -> np.ndarray:
        """(G,) of the value, at the shrunken value; 0 without trials."""
        return np.where(self.defined, self.shrunken * (1 - self.shrunken) / self.size, 0.0)


def shrink(value: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Values shrunken towards their mean, those of small size the most; never 0 or 1."""
    weight = np.minimum(size, _PRIOR_WEIGHT)
    prior = (np.nansum(weight * value) + 0.5) / (weight.sum() + 1)
    return (size * np.nan_to_num(value) + _PRIOR_WEIGHT * prior) / (size + _PRIOR_WEIGHT)


def ratios(image: np.ndarray, group: np.ndarray, successes: np.ndarray, trials: np.ndarray, *, groups: int) -> Ratios:
    """Ratios of sums over entries (E,), one per image and group, with their effective sample sizes."""
    kept = np.asarray(trials) > 0
    image, group = np.asarray(image)[kept], np.asarray(group)[kept]
    x, n = (np.asarray(part, dtype=np.float64)[kept] for part in (successes, trials))

    def total(weights: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(group, weights=weights, minlength=groups).astype(np.float64)

    # Sums of whole numbers are exact, so the order of images and processes changes no digit.
    hits, number, images = total(x), total(n), total()
    value = divide(hits, number)
    share = np.nan_to_num(value)
    squares = np.maximum(total(x * x) - 2 * share * total(x * n) + share**2 * total(n * n), 0.0)
    varies = (hits > 0) & (hits < number)
    alone = np.nan_to_num(divide(total((n == 1).astype(np.float64)), number))
    together = np.nan_to_num(divide(total(n * n), number), nan=1.0)  # objects in the image of an object
    design = np.where(varies, divide(squares, share * (1 - share) * number), 1.0)
    few_images = np.where(images > 1, divide(images, images - 1), 1.0)
    design = np.maximum(np.nan_to_num(design, nan=1.0) * (1 + (few_images - 1) * (1 - alone)), 1.0)
    # Few successes or failures say little about how objects of an image depend on each other.
    unknown = 2 / (np.minimum(hits, number - hits) + 2)
    design += unknown * np.maximum(1 + _PRIOR_CORRELATION * (together - 1) - design, 0.0)
    size = np.where(number > 0, number / design, 1.0)
    return Ratios(
        value=value,
        trials=number,
        images=images,
        size=size,
        df=images * (1 + alone) + 1,
        shrunken=shrink(value, np.where(number > 0, size, 0.0)),
        spread=np.where(varies, np.sqrt(squares), 0.0) / np.maximum(number, 1),
        image=image,
        group=group,
        residual=(x - share[group] * n) / np.maximum(number, 1)[group],
    )


def wilson_interval(
    value: Numbers, size: Numbers, df: Numbers, *, ci: float, center: Numbers | None = None, exact_ends: bool = False
) -> np.ndarray:
    """(2, ...) ends of Wilson's score interval with an effective sample size and the t quantile.

    Args:
        value: The observed shares; the interval always contains them. NaN gives NaN.
        size: Effective sample sizes.
        df: Degrees of freedom of the t quantile.
        ci: Confidence level.
        center: The shares without their bias, if the observed ones are biased.
        exact_ends: Widen it to the one-sided limits of Clopper and Pearson at the same level. Without them, coverage
            falls below 87 % where about one success is expected.
    """
    from scipy.special import betaincinv, stdtrit  # importing it takes long

    value, size = np.asarray(value, dtype=np.float64), np.asarray(size, dtype=np.float64)
    share = np.clip(value if center is None else center, 0.0, 1.0)
    squared = stdtrit(np.asarray(df, dtype=np.float64), (1 + ci) / 2) ** 2
    middle = (size * share + squared / 2) / (size + squared)
    half = np.sqrt(squared * (size * share * (1 - share) + squared / 4)) / (size + squared)
    low, high = middle - half, middle + half
    if exact_ends:
        hits, misses = np.nan_to_num(size * share), np.nan_to_num(size * (1 - share))
        tiny = np.finfo(np.float64).tiny
        low = np.minimum(low, np.where(hits > 0, betaincinv(np.maximum(hits, tiny), misses + 1, 1 - ci), 0.0))
        high = np.maximum(high, np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, tiny), ci), 1.0))
    low = np.where(share <= 0, 0.0, low)
    high = np.where(share >= 1, 1.0, high)
    ends = np.stack([np.minimum(low, value), np.maximum(high, value)])
    return np.where(np.isnan(value), np.nan, np.clip(ends, 0.0, 1.0))


def ratio_intervals(found: Ratios, *, ci: float) -> np.ndarray:
    """(2, G) ends of the intervals of proportions."""
    return wilson_interval(found.value, found.size, found.df, ci=ci, exact_ends=True)


def f1_of_jaccard(jaccard: np.ndarray) -> np.ndarray:
    """F1 = 2J / (1 + J), with J = TP / (TP + FP + FN)."""
    return 2 * jaccard / (1 + jaccard)


def mean_interval(found: Ratios, *, ci: float) -> np.ndarray:
    """(2,) ends of the interval of the mean of proportions over the groups that have one."""
    weight = _mean_weights(found)
    if not weight.any():
        return np.full(2, np.nan)
    shrunken = (weight * found.shrunken).sum()
    variance, df = _variance([(found, weight)], least=_least_variance(shrunken, found))
    return wilson_interval(np.nansum(weight * found.value), shrunken * (1 - shrunken) / variance, df, ci=ci)


def mean_f1_interval(jaccard: Ratios, *, ci: float) -> np.ndarray:
    """(2,) ends of the interval of the mean F1 over classes, from J = TP / (TP + FP + FN) of each class.

    F1 of few objects is biased downwards, because it is a concave function of J. The bias is estimated by a second
    difference and subtracted from the center of the interval.
    """
    weight = _mean_weights(jaccard)
    if not weight.any():
        return np.full(2, np.nan)
    share, variance = jaccard.shrunken, jaccard.variance
    up, down = (np.minimum(1 / np.maximum(jaccard.size, 1.0), part) for part in (1 - share, share))
    middle = f1_of_jaccard(share)
    rise, fall = f1_of_jaccard(share + up) - middle, middle - f1_of_jaccard(share - down)
    bias = (up * fall - down * rise) / (up + down) * variance / (up * down)
    value, shrunken = (np.nansum(weight * part) for part in (f1_of_jaccard(jaccard.value), middle))
    total, df = _variance([(jaccard, weight * 2 / (1 + share) ** 2)], least=_least_variance(shrunken, jaccard))
    center = value + (weight * bias).sum()
    return wilson_interval(value, shrunken * (1 - shrunken) / total, df, ci=ci, center=center)


def f1_of_means_interval(precision: Ratios, recall: Ratios, *, ci: float) -> np.ndarray:
    """(2,) ends of the interval of F1 of the mean precision and the mean recall."""
    weights = [_mean_weights(one) for one in (precision, recall)]
    if not weights[0].any() or not weights[1].any():
        return np.full(2, np.nan)
    p, r = (np.nansum(weight * one.value) for weight, one in zip(weights, (precision, recall)))
    value = 2 * p * r / (p + r) if p + r > 0 else 0.0
    p, r = ((weight * one.shrunken).sum() for weight, one in zip(weights, (precision, recall)))
    shrunken = 2 * p * r / (p + r)
    slopes = 2 * r**2 / (p + r) ** 2, 2 * p**2 / (p + r) ** 2
    least = _least_variance(shrunken, precision, recall)
    variance, df = _variance([(precision, weights[0] * slopes[0]), (recall, weights[1] * slopes[1])], least=least)
    return wilson_interval(value, shrunken * (1 - shrunken) / variance, df, ci=ci)


def _least_variance(share: float, *parts: Ratios) -> float:
    """A quarter of the variance of independent trials; a smaller one is due to chance, and may be 0."""
    return share * (1 - share) / (4 * max(float(found.trials.sum()) for found in parts))


def _mean_weights(found: Ratios) -> np.ndarray:
    return found.defined / max(1, int(found.defined.sum()))


def _variance(parts: Sequence[tuple[Ratios, np.ndarray]], *, least: float) -> tuple[float, float]:
    """Variance of the sum of slope x value over the groups of all parts, and its degrees of freedom (Satterthwaite).

    Residuals of one image are added before they are squared, since classes and rates share images. A group whose
    residuals are all 0 counts as independent of the other groups, but not of itself in another part. The variance is at
    least ``least``, because errors of classes may cancel in every image.
    """
    number = max((int(found.image.max()) + 1 for found, _ in parts if len(found.image)), default=0)
    shared = np.zeros(number)
    constant, own, df = (np.zeros(len(parts[0][1])) for _ in range(3))
    for found, slope in parts:
        error = slope * np.sqrt(found.variance)
        factor = divide(error, found.spread)
        varies = found.spread > 0
        factor = np.where(varies, np.nan_to_num(factor, posinf=0.0), 0.0)
        shared += np.bincount(found.image, weights=factor[found.group] * found.residual, minlength=number)
        constant += np.where(varies, 0.0, error)
        own += error
        df = np.maximum(df, found.df)
    variance = max(float(np.sort(shared**2).sum() + np.sort(constant**2).sum()), float(least))
    return variance, max(1.0, variance**2 / float((own**4 / df).sum()))
