"""Cases of RegressionError, FieldMean, FieldSum and PosNegRatio."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from functools import partial

import numpy as np
import torch
from sklearn.metrics import (
    max_error,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    r2_score,
    root_mean_squared_error,
)

from mm_metrics_plugin import FieldMean, FieldSum, PosNegRatio, RegressionError
from mm_metrics_plugin.testing import MetricCase
from tests.helpers.invalid_input import replaced, with_value, without


def numbers(generator, count, *, mean=0.0, dtype=torch.float32, zero=False):
    """Predictions and targets of different shapes."""
    samples = []
    for index in range(count):
        shape = [(), (1,), (3,), (2, 3)][index % 4]
        target = generator.normal(mean, 2.0, shape)
        predicted = target + generator.normal(0, 0.5, shape)
        if zero and index == 2:
            target[0] = 0
        samples.append(
            dict(pred_score=torch.tensor(predicted, dtype=dtype), gt_score=torch.tensor(target, dtype=dtype))
        )
    return samples


def scalars(generator, count):
    """One number per sample, of very different sizes and both signs, inside another field."""
    values = generator.standard_cauchy(count) * 10.0 ** generator.integers(-8, 9, count)
    return [dict(scores=dict(penalty=torch.tensor(value, dtype=torch.float64))) for value in values]


def pairs(generator, count):
    """Scores of one digit, so that many tie; one to three pairs per sample."""
    return [
        dict(
            pos_score=torch.tensor(np.round(generator.random(1 + index % 3) + 0.1, 1)),
            neg_score=torch.tensor(np.round(generator.random(1 + index % 3), 1)),
        )
        for index in range(count)
    ]


def flat(samples, field):
    return np.concatenate([sample[field].double().reshape(-1).numpy() for sample in samples])


def errors(samples):
    target, predicted = flat(samples, "gt_score"), flat(samples, "pred_score")
    return dict(
        mse=mean_squared_error(target, predicted),
        rmse=root_mean_squared_error(target, predicted),
        mae=mean_absolute_error(target, predicted),
        percentage_error=mean_absolute_percentage_error(target, predicted),
        r2=r2_score(target, predicted),
        max_error=max_error(target, predicted),
    )


def errors_without_zero(samples):
    """The percentage error over the targets that are not 0."""
    target, predicted = flat(samples, "gt_score"), flat(samples, "pred_score")
    percentage_error = mean_absolute_percentage_error(target[target != 0], predicted[target != 0])
    return dict(mse=mean_squared_error(target, predicted), percentage_error=percentage_error, zero_targets=1.0)


def rational_errors(samples):
    """In rational arithmetic, because float64 loses half of its digits in the variance of numbers around 1e8."""
    target, predicted = ([Fraction(v) for v in flat(samples, field)] for field in ("gt_score", "pred_score"))
    count = len(target)
    residual = sum((p - t) ** 2 for p, t in zip(predicted, target))
    spread = sum((t - sum(target) / count) ** 2 for t in target)
    return dict(mse=float(residual / count), r2=float(1 - residual / spread))


def mean_of(samples):
    return {"mean": statistics.fmean(float(sample["scores"]["penalty"]) for sample in samples)}


def sum_of(samples):
    return {"penalty": math.fsum(float(sample["scores"]["penalty"]) for sample in samples)}


def pair_ratio(samples):
    ordered = [p > n for s in samples for p, n in zip(s["pos_score"].tolist(), s["neg_score"].tolist())]
    right, wrong = ordered.count(True), ordered.count(False)
    return {"pn": (right + 1) / (wrong + 1), "right": float(right), "wrong": float(wrong)}


ERROR_RULES = {"r2": "greater", "zero_targets": None, "*": "less"}
NUMBER_INVALID = [
    ("no prediction", without("pred_score"), ["pred_score"]),
    ("no target", without("gt_score"), ["gt_score"]),
    ("NaN", with_value("pred_score", np.nan), ["'pred_score'", "finite", "nan at index 0"]),
    ("infinity", with_value("gt_score", np.inf), ["'gt_score'", "finite", "inf at index 0"]),
    ("another shape", replaced("gt_score", torch.zeros(2, 2)), ["'gt_score'", "(2, 2)"]),
    ("text", replaced("pred_score", "much"), ["'pred_score'", "numbers", "much"]),
    ("too large a number", replaced("gt_score", 1e200), ["'gt_score'", "at most 1e+149", "1e+200"]),
]
PAIR_INVALID = [
    ("no score", without("neg_score"), ["neg_score"]),
    ("NaN", with_value("pos_score", np.nan), ["'pos_score'", "finite"]),
    ("another shape", replaced("neg_score", torch.zeros(5)), ["'neg_score'", "(5,)"]),
]
SCALAR_INVALID = [
    ("no field", without("scores.penalty"), ["scores.penalty"]),
    ("NaN", with_value("scores.penalty", np.nan), ["'scores.penalty'", "finite"]),
    ("two numbers", replaced("scores.penalty", torch.zeros(2)), ["'scores.penalty'", "found 2"]),
]
# Dtypes that hold the numbers; in float16 they are infinite.
WIDE = ("float64", "numpy")

regression = partial(MetricCase, rules=ERROR_RULES)

# Sums are exact and rounded once, so the values do not depend on batches, and no case needs a tolerance.
REGRESSION_CASES = [
    regression("regression", RegressionError, numbers, errors, invalid_inputs=NUMBER_INVALID),
    regression("regression-zero-target", RegressionError, partial(numbers, zero=True), errors_without_zero),
    regression(
        "regression-floor",
        partial(RegressionError, percentage_floor=float(np.finfo(np.float64).eps)),
        partial(numbers, dtype=torch.float64),
        errors,
    ),
    regression(
        "regression-large-mean",
        RegressionError,
        partial(numbers, mean=1e8, dtype=torch.float64),
        rational_errors,
        dtypes=WIDE,
    ),
    MetricCase(
        "field-mean",
        partial(FieldMean, field="scores.penalty"),
        scalars,
        mean_of,
        reference_tolerance=1e-15,
        invalid_inputs=SCALAR_INVALID,
        rules={"mean": None},
        dtypes=WIDE,
    ),
    MetricCase(
        "field-sum",
        partial(FieldSum, field="scores.penalty", key="penalty"),
        scalars,
        sum_of,
        reference_tolerance=0.0,
        invalid_inputs=SCALAR_INVALID,
        rules={"penalty": None},
        dtypes=WIDE,
    ),
    MetricCase(
        "pos-neg-ratio",
        PosNegRatio,
        pairs,
        pair_ratio,
        invalid_inputs=PAIR_INVALID,
        rules={"right": None, "wrong": None},
    ),
]
