"""Confidence intervals written out one image and one class at a time, to compare the package with."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def wilson(value, size, df, level, center=None, exact_ends=False):
    """By solving (p - center)^2 = t^2 p (1 - p) / size for p."""
    t = stats.t.ppf((1 + level) / 2, df)
    share = min(max(value if center is None else center, 0.0), 1.0)
    roots = np.roots([1 + t * t / size, -(2 * share + t * t / size), share * share]).real
    low, high = (0.0 if share == 0 else min(roots)), (1.0 if share == 1 else max(roots))
    if exact_ends:
        if share > 0:
            low = min(low, stats.beta.ppf(1 - level, size * share, size * (1 - share) + 1))
        if share < 1:
            high = max(high, stats.beta.ppf(level, size * share + 1, size * (1 - share)))
    return min(low, value), max(high, value)


class Ratio:
    """A ratio of sums over images."""

    def __init__(self, successes, trials):
        rows = [(x, n) for x, n in zip(successes, trials) if n > 0]
        self.trials, self.images, self.by_image = sum(n for _, n in rows), len(rows), list(trials)
        if not rows:
            return
        hits = sum(x for x, _ in rows)
        self.value = hits / self.trials
        self.effective_images = images = self.trials**2 / sum(n * n for _, n in rows)
        alone = sum(n == 1 for _, n in rows) / self.trials
        self.residuals = [(x - self.value * n) / self.trials for x, n in zip(successes, trials)]
        robust = sum(residual**2 for residual in self.residuals)
        design = 1.0
        if 0 < hits < self.trials:
            design = robust / (self.value * (1 - self.value) / self.trials)
            if images > 1:
                design *= 1 + (1 / (1 - 1 / max(images, 2)) - 1) * (1 - alone)
            design = max(design, 1.0)
        expected = self.value * (1 - self.value) * (self.trials - len(rows))
        observed = sum(x * (n - x) / n for x, n in rows)
        correlation = min(max((expected - observed + 0.4) / (expected + 2), 0), 1)
        model = 1 + correlation * (sum(n * n for _, n in rows) / self.trials - 1)
        weight = 10 / (10 + images * min(self.value, 1 - self.value))
        self.observed_size, self.skew = self.trials / design, weight * (1 - images / self.images)
        design += weight * max(model - design, 0)
        self.size, self.df = self.trials / design, images * (1 + alone) + 1
        self.spread = math.sqrt(robust) if 0 < hits < self.trials else 0.0

    def interval(self, level):
        return wilson(self.value, self.size, self.df, level, exact_ends=True)

    def variance(self, near):
        """In means and F1, at the shrunken value."""
        variance = near * (1 - near) / self.size
        low, high = self.interval(0.95)
        half = max(self.value - low, high - self.value) / stats.t.ppf(0.975, self.df)
        return variance + self.skew * max(half**2 - variance, 0)


def jaccard_ratios(tp, fp, fn):
    """By class, from (images, classes) counts: the Jaccard index with the excess variance of precision and recall."""
    (precision, near_p), (recall, near_r), (jaccard, near_j) = (
        _class_ratios(tp, trials)[:2] for trials in (tp + fp, tp + fn, tp + fp + fn)
    )
    for label, ratio in jaccard.items():
        excess = 0.0
        for parts, near, power in ((recall, near_r, 1), (precision, near_p, 2)):
            if label in parts:
                part, value = parts[label], near[label]
                observed = value * (1 - value) / part.observed_size
                slope = (part.trials / ratio.trials) ** power
                excess += slope**2 * max(part.variance(value) - observed, 0)
        spread = near_j[label] * (1 - near_j[label])
        ratio.size = spread / max(spread / ratio.size, spread / ratio.observed_size + excess)
    return jaccard, near_j


def f1_of(jaccard):
    return 2 * jaccard / (1 + jaccard)


def shrunken(values, sizes):
    weights = [min(size, 4) for size in sizes]
    prior = (sum(w * v for w, v in zip(weights, values)) + 0.5) / (sum(weights) + 1)
    return [(n * v + 4 * prior) / (n + 4) for v, n in zip(values, sizes)]


def variance_of_sum(parts, classes):
    """Parts: by class, a ratio, the variance of its value and a slope."""
    images = max(len(ratio.residuals) for part in parts for ratio, _, _ in part.values())
    shared, constant, own, df = np.zeros(images), np.zeros(classes), np.zeros(classes), np.ones(classes)
    for part in parts:
        for label, (ratio, variance, slope) in part.items():
            error = slope * math.sqrt(variance)
            own[label] += error
            df[label] = max(df[label], ratio.df)
            if ratio.spread > 0:
                shared += np.array(ratio.residuals) * error / ratio.spread
            else:
                constant[label] += error
    total = (shared**2).sum() + (constant**2).sum()
    most = max(mean_df([ratio for ratio, _, _ in part.values()]) for part in parts)
    return total, max(1.0, min(total**2 / (own**4 / df).sum(), most))


def mean_df(ratios):
    """Degrees of freedom of the effective number of images of a mean over classes."""
    trials = np.array([ratio.by_image for ratio in ratios], dtype=float)
    weight = (trials / trials.sum(axis=1, keepdims=True)).sum(axis=0)
    alone = weight[trials.sum(axis=0) == 1].sum() / weight.sum()
    return max(1.0, weight.sum() ** 2 / (weight**2).sum() * (1 + alone) - 1)


def _class_ratios(successes, trials):
    """Ratios of the classes that have any, and their shrunken values."""
    ratios = {c: Ratio(successes[:, c], trials[:, c]) for c in range(trials.shape[1]) if trials[:, c].any()}
    values = shrunken([ratio.value for ratio in ratios.values()], [ratio.size for ratio in ratios.values()])
    return ratios, dict(zip(ratios, values))


def mean_interval(successes, trials, level):
    ratios, near = _class_ratios(successes, trials)
    weight = 1 / len(ratios)
    part = {c: (ratio, ratio.variance(near[c]), weight) for c, ratio in ratios.items()}
    total, df = variance_of_sum([part], trials.shape[1])
    share = np.mean(list(near.values()))
    return wilson(np.mean([ratio.value for ratio in ratios.values()]), share * (1 - share) / total, df, level)


def mean_f1_interval(tp, fp, fn, level):
    ratios, near = jaccard_ratios(tp, fp, fn)
    weight, part, bias = 1 / len(ratios), {}, 0.0
    for c, ratio in ratios.items():
        share, variance = near[c], near[c] * (1 - near[c]) / ratio.size
        up, down = min(1 / max(ratio.size, 1), 1 - share), min(1 / max(ratio.size, 1), share)
        rise, fall = f1_of(share + up) - f1_of(share), f1_of(share) - f1_of(share - down)
        bias += weight * (up * fall - down * rise) / (up + down) * variance / (up * down)
        part[c] = (ratio, ratio.variance(share), weight * 2 / (1 + share) ** 2)
    total, df = variance_of_sum([part], tp.shape[1])
    value, share = (np.mean([f1_of(v) for v in vs]) for vs in ([o.value for o in ratios.values()], list(near.values())))
    return wilson(value, share * (1 - share) / total, df, level, center=value + bias)


def f1_of_means_interval(tp, fp, fn, level):
    parts = [_class_ratios(tp, trials) for trials in (tp + fp, tp + fn)]
    p, r = (np.mean([ratio.value for ratio in ratios.values()]) for ratios, _ in parts)
    value = 2 * p * r / (p + r) if p + r else 0.0
    p, r = (np.mean(list(near.values())) for _, near in parts)
    slopes = 2 * r * r / (p + r) ** 2, 2 * p * p / (p + r) ** 2
    weighted = [
        {c: (ratio, ratio.variance(near[c]), slope / len(ratios)) for c, ratio in ratios.items()}
        for (ratios, near), slope in zip(parts, slopes)
    ]
    total, df = variance_of_sum(weighted, tp.shape[1])
    share = 2 * p * r / (p + r)
    return wilson(value, share * (1 - share) / total, df, level)


def count_intervals(tp, fp, fn, level):
    """By name, from (images, classes) counts: the rates over all classes."""
    pooled = [part.sum(axis=1) for part in (tp, fp, fn)]
    jaccard = jaccard_ratios(*(part[:, None] for part in pooled))[0][0].interval(level)
    return {
        "precision": mean_interval(tp, tp + fp, level),
        "recall": mean_interval(tp, tp + fn, level),
        "f1": mean_f1_interval(tp, fp, fn, level),
        "f1_of_means": f1_of_means_interval(tp, fp, fn, level),
        "precision_micro": Ratio(pooled[0], pooled[0] + pooled[1]).interval(level),
        "recall_micro": Ratio(pooled[0], pooled[0] + pooled[2]).interval(level),
        "f1_micro": (f1_of(jaccard[0]), f1_of(jaccard[1])),
    }


def auc_variance(kernel):
    """The AUC, the AUC shrunken, and DeLong's variance raised towards that of the exponential model."""
    auc, (p, n) = kernel.mean(), kernel.shape
    near = (auc * p * n + 0.5) / (p * n + 1)
    m = (p + n) / 2 - 1
    least = near * (1 - near) * (1 + m * (1 - near) / (2 - near) + m * near / (1 + near)) / (p * n)
    delong = sum(kernel.mean(axis=1 - side).var(ddof=1) / size for side, size in enumerate((p, n)) if size > 1)
    in_order = [(kernel == end).all(axis=side) for end in (0, 1) for side in (0, 1)]
    disorder = min(int((~side).sum()) for side in in_order)
    few, most = min(p, n), max(auc, 1 - auc)
    variance = delong + max(50 / (50 + few), 4 / (4 + disorder)) * max(least - delong, 0)
    mixture = near * (1 - near) / (1.5 * few)
    return auc, near, variance + 2 / (2 + few * (1 - most)) * 50 / (50 + few) * max(mixture - variance, 0)


def auc_interval(scores, positive, level):
    above, below = scores[positive], scores[~positive]
    auc, near, variance = auc_variance(np.sign(above[:, None] - below[None]) / 2 + 0.5)
    fewest = min(len(above), len(below))
    return auc, *wilson(auc, near * (1 - near) / variance, 2 * fewest if fewest < 5 else 4 * fewest, level)
