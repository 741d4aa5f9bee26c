"""Confidence intervals of precision, recall and F1; images are the sampling unit.

All are Wilson score intervals with an effective sample size. Objects in one image are not independent, so the number of
objects is divided by the design effect: the ratio of the cluster-robust variance to that of independent objects. Unlike
bootstrap percentile intervals, these keep their coverage for few objects and for proportions of 0 and 1.

* Precision and recall are the proportions TP / (TP + FP) and TP / (TP + FN).
* F1 is 2J / (1 + J) with the Jaccard index J = TP / (TP + FP + FN), so its interval is that of J, transformed.
* The variance of a mean over classes includes the covariance of classes in the same images. For a class with few
  objects, the proportion is shrunken towards that of all classes.
* Where few large images have successes or failures, F1 and means get the variance of the longer half of the interval of
  precision and recall: the residuals do not show what another large image could change.

docs/en/concepts/statistics.md shows the coverage, which ``python -m benchmarks coverage`` measures.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence, Union

import numpy as np

from mm_metrics_plugin.functional._arrays import divide

Numbers = Union[float, np.ndarray]

# Chosen by simulation (python -m benchmarks coverage).
_PRIOR_CORRELATION = 0.2  # of the objects of one image
_CORRELATION_WEIGHT = 2.0  # of this prior, in expected disagreements
_MODEL_WEIGHT = 10.0  # of the design effect of this correlation, in effective images with successes or failures
_PRIOR_WEIGHT = 4.0  # in objects, of the proportion of all classes in the variance of one class
_HALF_CI = 0.95  # confidence level of the half interval that a variance is computed from


class Ratios(NamedTuple):
    """Ratios of sums over images, one per group (class), from entries (one per image and group)."""

    value: np.ndarray  # (G,) successes / trials; NaN without trials
    trials: np.ndarray  # (G,) number of trials
    images: np.ndarray  # (G,) number of images with trials
    effective_images: np.ndarray  # (G,) trials² / sum of squared trials of the images
    size: np.ndarray  # (G,) effective sample size: trials / design effect
    observed_size: np.ndarray  # (G,) the same without the prior of the correlation
    skew: np.ndarray  # (G,) from 0 to 1: images of unequal size, few of which have successes or failures
    df: np.ndarray  # (G,) degrees of freedom of the t quantile
    shrunken: np.ndarray  # (G,) the value shrunken towards that of all groups; never 0 or 1
    spread: np.ndarray  # (G,) root of the sum of squared residuals
    image: np.ndarray  # (E,) image of each entry
    group: np.ndarray  # (E,) group of each entry
    entry_trials: np.ndarray  # (E,) number of trials of each entry
    residual: np.ndarray  # (E,) contribution of each entry to the error of the value

    @property
    def defined(self) -> np.ndarray:
        """(G,) whether there are trials."""
        return self.trials > 0

    @property
    def mean_images(self) -> MeanImages:
        """The effective number of images of the mean over the groups."""
        return mean_images(self.image, self.group, self.entry_trials)

    def variance(self) -> np.ndarray:
        """(G,) variance of the value in means and in F1, at the shrunken value; 0 without trials."""
        from scipy.special import stdtrit  # slow to import

        variance = self.shrunken * (1 - self.shrunken) / self.size
        quantile = stdtrit(self.df, (1 + _HALF_CI) / 2)
        half = np.abs(ratio_intervals(self, ci=_HALF_CI) - self.value).max(axis=0) / quantile
        return np.where(self.defined, variance + self.skew * np.maximum(half**2 - variance, 0.0), 0.0)

    def excess_variance(self) -> np.ndarray:
        """(G,) by how much this exceeds the variance of the residuals."""
        observed = self.shrunken * (1 - self.shrunken) / self.observed_size
        return np.asarray(np.maximum(self.variance() - observed, 0.0))


class MeanImages(NamedTuple):
    """Images of a mean over groups."""

    images: int  # with trials
    effective: float  # (sum of weights)² / sum of squared weights of the images
    df: float  # degrees of freedom


def mean_images(image: np.ndarray, group: np.ndarray, trials: np.ndarray) -> MeanImages:
    """The effective number of images of a mean over groups, from entries (one per image and group).

    The weight of an image is the sum over the groups of its share of their trials.
    """
    if not len(image):
        return MeanImages(0, 0.0, 1.0)
    present, place = np.unique(image, return_inverse=True)
    weight = np.bincount(place.reshape(-1), weights=trials / np.bincount(group, weights=trials)[group])
    alone = np.bincount(place.reshape(-1), weights=trials) == 1
    total = np.sort(weight).sum()
    effective = float(total**2 / np.sort(weight**2).sum())
    return MeanImages(
        len(present), effective, max(1.0, effective * (1 + float(np.sort(weight[alone]).sum() / total)) - 1)
    )


def shrink(value: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Values shrunken towards their mean, more for smaller sizes; never 0 or 1."""
    weight = np.minimum(size, _PRIOR_WEIGHT)
    prior = (np.nansum(weight * value) + 0.5) / (weight.sum() + 1)
    return np.asarray((size * np.nan_to_num(value) + _PRIOR_WEIGHT * prior) / (size + _PRIOR_WEIGHT))


def ratios(image: np.ndarray, group: np.ndarray, successes: np.ndarray, trials: np.ndarray, *, groups: int) -> Ratios:
    """Ratios of sums over entries (E,), with effective sample sizes."""
    kept = np.asarray(trials) > 0
    image, group = np.asarray(image)[kept], np.asarray(group)[kept]
    x, n = (np.asarray(part, dtype=np.float64)[kept] for part in (successes, trials))

    def total(weights: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(group, weights=weights, minlength=groups).astype(np.float64)

    # Sums of integers are exact, so the order of images and processes does not matter.
    hits, number, squared_sizes = total(x), total(n), total(n * n)
    value = divide(hits, number)
    share = np.nan_to_num(value)
    squares = np.maximum(total(x * x) - 2 * share * total(x * n) + share**2 * squared_sizes, 0.0)
    varies = (hits > 0) & (hits < number)
    alone = np.nan_to_num(divide(total((n == 1).astype(np.float64)), number))
    together = np.nan_to_num(divide(squared_sizes, number), nan=1.0)  # objects in the image of an object
    images = number / together
    design = np.where(varies, divide(squares, share * (1 - share) * number), 1.0)
    few_images = np.where(images > 1, 1 / (1 - 1 / np.maximum(images, 2.0)), 1.0)
    design = np.maximum(np.nan_to_num(design, nan=1.0) * (1 + (few_images - 1) * (1 - alone)), 1.0)
    # If few large images have successes or failures, the correlation in the other images prevails.
    weight = _MODEL_WEIGHT / (_MODEL_WEIGHT + images * np.minimum(share, 1 - share))
    correlation = _correlation(x, n, group, share * (1 - share) * (number - total()))
    observed_size = np.where(number > 0, number / design, 1.0)
    design += weight * np.maximum(1 + correlation * (together - 1) - design, 0.0)
    size = np.where(number > 0, number / design, 1.0)
    return Ratios(
        value=value,
        trials=number,
        images=total(),
        effective_images=images,
        size=size,
        observed_size=observed_size,
        skew=weight * (1 - images / np.maximum(total(), 1)),
        df=images * (1 + alone) + 1,
        shrunken=shrink(value, np.where(number > 0, size, 0.0)),
        spread=np.where(varies, np.sqrt(squares), 0.0) / np.maximum(number, 1),
        image=image,
        group=group,
        entry_trials=n,
        residual=(x - share[group] * n) / np.maximum(number, 1)[group],
    )


def _correlation(x: np.ndarray, n: np.ndarray, group: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """(G,) correlation of the objects of one image (Fleiss and Cuzick), between 0 and 1, with a prior.

    It is 1 minus the disagreement of the objects within images, divided by the ``expected`` one of independent objects.
    """
    disagreement = x * (n - x) / n
    order = np.lexsort((disagreement, group))  # the order of images does not change the sums
    observed = np.bincount(group[order], weights=disagreement[order], minlength=len(expected))
    prior = _CORRELATION_WEIGHT * _PRIOR_CORRELATION
    return np.asarray(np.clip((expected - observed + prior) / (expected + _CORRELATION_WEIGHT), 0.0, 1.0))


def jaccard_ratios(jaccard: Ratios, precision: Ratios, recall: Ratios) -> Ratios:
    """The Jaccard index with the excess variance of precision and of recall, if it is larger than its own.

    J = TP / (TP + FP + FN): its derivative is trials / trials of J by recall, where FP are fixed, and the square of the
    same by precision, where TP are fixed.
    """
    number = np.maximum(jaccard.trials, 1)
    slopes = recall.trials / number, (precision.trials / number) ** 2
    excess = sum(slope**2 * part.excess_variance() for slope, part in zip(slopes, (recall, precision)))
    spread = jaccard.shrunken * (1 - jaccard.shrunken)
    variance = np.maximum(spread / jaccard.size, spread / jaccard.observed_size + excess)
    return jaccard._replace(size=np.where(jaccard.defined, spread / variance, jaccard.size))


def wilson_interval(
    value: Numbers, size: Numbers, df: Numbers, *, ci: float, center: Numbers | None = None, exact_ends: bool = False
) -> np.ndarray:
    """(2, ...) ends of Wilson's score interval with an effective sample size and the t quantile.

    Args:
        value: Observed proportions, which the interval always contains. NaN gives NaN.
        size: Effective sample sizes.
        df: Degrees of freedom of the t quantile.
        ci: Confidence level.
        center: Bias-corrected proportions. None: the observed ones.
        exact_ends: Extend the interval to the one-sided Clopper-Pearson limits. Without them, coverage falls below 87 %
            where about one success is expected.
    """
    from scipy.special import betaincinv, stdtrit  # slow to import

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


def ratio_intervals(ratio: Ratios, *, ci: float) -> np.ndarray:
    """(2, G) ends of the intervals of proportions."""
    return wilson_interval(ratio.value, ratio.size, ratio.df, ci=ci, exact_ends=True)


def f1_of_jaccard(jaccard: np.ndarray) -> np.ndarray:
    """F1 = 2J / (1 + J), with J = TP / (TP + FP + FN)."""
    return np.asarray(2 * jaccard / (1 + jaccard))


def mean_interval(ratio: Ratios, *, ci: float) -> np.ndarray:
    """(2,) ends of the interval of the mean proportion over the groups with trials."""
    weight = _mean_weights(ratio)
    if not weight.any():
        return np.full(2, np.nan)
    shrunken = (weight * ratio.shrunken).sum()
    variance, df = _variance([(ratio, weight)], minimum=_min_variance(shrunken, ratio))
    return wilson_interval(np.nansum(weight * ratio.value), shrunken * (1 - shrunken) / variance, df, ci=ci)


def mean_f1_interval(jaccard: Ratios, *, ci: float) -> np.ndarray:
    """(2,) ends of the interval of the mean F1 over classes, from the Jaccard index of each class.

    F1 of few objects is biased downwards, because it is a concave function of J. The bias is estimated by a second
    difference and subtracted from the center.
    """
    weight = _mean_weights(jaccard)
    if not weight.any():
        return np.full(2, np.nan)
    share, variance = jaccard.shrunken, jaccard.shrunken * (1 - jaccard.shrunken) / jaccard.size
    up, down = (np.minimum(1 / np.maximum(jaccard.size, 1.0), part) for part in (1 - share, share))
    middle = f1_of_jaccard(share)
    rise, fall = f1_of_jaccard(share + up) - middle, middle - f1_of_jaccard(share - down)
    bias = (up * fall - down * rise) / (up + down) * variance / (up * down)
    value, shrunken = (np.nansum(weight * part) for part in (f1_of_jaccard(jaccard.value), middle))
    total, df = _variance([(jaccard, weight * 2 / (1 + share) ** 2)], minimum=_min_variance(shrunken, jaccard))
    center = value + (weight * bias).sum()
    return wilson_interval(value, shrunken * (1 - shrunken) / total, df, ci=ci, center=center)


def f1_of_means_interval(precision: Ratios, recall: Ratios, *, ci: float) -> np.ndarray:
    """(2,) ends of the interval of F1 of the mean precision and the mean recall."""
    weights = [_mean_weights(ratio) for ratio in (precision, recall)]
    if not weights[0].any() or not weights[1].any():
        return np.full(2, np.nan)
    p, r = (np.nansum(weight * ratio.value) for weight, ratio in zip(weights, (precision, recall)))
    value = 2 * p * r / (p + r) if p + r > 0 else 0.0
    p, r = ((weight * ratio.shrunken).sum() for weight, ratio in zip(weights, (precision, recall)))
    shrunken = 2 * p * r / (p + r)
    slopes = 2 * r**2 / (p + r) ** 2, 2 * p**2 / (p + r) ** 2
    minimum = _min_variance(shrunken, precision, recall)
    variance, df = _variance([(precision, weights[0] * slopes[0]), (recall, weights[1] * slopes[1])], minimum=minimum)
    return wilson_interval(value, shrunken * (1 - shrunken) / variance, df, ci=ci)


def _min_variance(share: float, *ratios: Ratios) -> float:
    """A quarter of the variance of independent trials; a smaller estimate, which may be 0, is due to chance."""
    return share * (1 - share) / (4 * max(float(ratio.trials.sum()) for ratio in ratios))


def _mean_weights(ratio: Ratios) -> np.ndarray:
    return ratio.defined / max(1, int(ratio.defined.sum()))


def _variance(terms: Sequence[tuple[Ratios, np.ndarray]], *, minimum: float) -> tuple[float, float]:
    """Variance of the sum of slope x value over the groups of all terms, and its degrees of freedom.

    These are Satterthwaite's, but at most those of the effective number of images, which the groups share. Residuals of
    one image are added before they are squared, because classes and rates share images. A group with all residuals 0 is
    independent of the other groups, but not of itself in another term.
    """
    num_images = max((int(ratio.image.max()) + 1 for ratio, _ in terms if len(ratio.image)), default=0)
    shared = np.zeros(num_images)
    constant, own, df = (np.zeros(len(terms[0][1])) for _ in range(3))
    for ratio, slope in terms:
        error = slope * np.sqrt(ratio.variance())
        varies = ratio.spread > 0
        factor = np.where(varies, np.nan_to_num(divide(error, ratio.spread), posinf=0.0), 0.0)
        shared += np.bincount(ratio.image, weights=factor[ratio.group] * ratio.residual, minlength=num_images)
        constant += np.where(varies, 0.0, error)
        own += error
        df = np.maximum(df, ratio.df)
    variance = max(float(np.sort(shared**2).sum() + np.sort(constant**2).sum()), float(minimum))
    most = max(ratio.mean_images.df for ratio, _ in terms)
    return variance, max(1.0, min(variance**2 / float((own**4 / df).sum()), most))
