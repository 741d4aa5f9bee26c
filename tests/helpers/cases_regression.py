"""Cases of the metrics of numbers: errors, running values, pairs of scores."""

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
from tests.helpers.invalid_input import drop, poke, put


def numbers(generator, count, *, mean=0.0, dtype=torch.float32, zero=False):
    """Predictions and targets whose shape changes from sample to sample, all axes of one value among them."""
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
    """One number a sample, of very different sizes and with both signs, inside another field."""
    values = generator.standard_cauchy(count) * 10.0 ** generator.integers(-8, 9, count)
    return [dict(scores=dict(penalty=torch.tensor(value, dtype=torch.float64))) for value in values]


def pairs(generator, count):
    """Scores of one digit, so that many tie; one, two or three pairs a sample."""
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
    used = target != 0
    return dict(
        mse=mean_squared_error(target, predicted),
        percentage_error=mean_absolute_percentage_error(target[used], predicted[used]),
        zero_targets=1.0,
    )


def rational_errors(samples):
    """In rational arithmetic, because float64 loses half its digits in the spread of numbers around 1e8."""
    target, predicted = ([Fraction(v) for v in flat(samples, field)] for field in ("gt_score", "pred_score"))
    count = len(target)
    residual = sum((p - t) ** 2 for p, t in zip(predicted, target))
    spread = sum((t - sum(target) / count) ** 2 for t in target)
    return dict(mse=float(residual / count), r2=float(1 - residual / spread))


def mean_of(samples):
    return {"mean": statistics.fmean(float(sample["scores"]["penalty"]) for sample in samples)}


def sum_of(samples):
    return {"penalty": math.fsum(float(sample["scores"]["penalty"]) for sample in samples)}


def ordered(samples):
    pairs_ = [(p, n) for s in samples for p, n in zip(s["pos_score"].tolist(), s["neg_score"].tolist())]
    right = sum(p > n for p, n in pairs_)
    wrong = sum(p <= n for p, n in pairs_)
    return {"pn": (right + 1) / (wrong + 1), "right": float(right), "wrong": float(wrong)}


ERROR_RULES = {"r2": "greater", "zero_targets": None, "*": "less"}
NUMBER_INVALID = [
    ("no prediction", drop("pred_score"), ["pred_score"]),
    ("no target", drop("gt_score"), ["gt_score"]),
    ("NaN", poke("pred_score", np.nan), ["'pred_score'", "finite", "nan at index 0"]),
    ("infinity", poke("gt_score", np.inf), ["'gt_score'", "finite", "inf at index 0"]),
    ("another shape", put("gt_score", torch.zeros(2, 2)), ["'gt_score'", "(2, 2)"]),
    ("text", put("pred_score", "much"), ["'pred_score'", "numbers", "much"]),
    ("too large a number", put("gt_score", 1e200), ["'gt_score'", "at most 1e+149", "1e+200"]),
]
PAIR_INVALID = [
    ("no score", drop("neg_score"), ["neg_score"]),
    ("NaN", poke("pos_score", np.nan), ["'pos_score'", "finite"]),
    ("another shape", put("neg_score", torch.zeros(5)), ["'neg_score'", "(5,)"]),
]
SCALAR_INVALID = [
    ("no field", drop("scores.penalty"), ["scores.penalty"]),
    ("NaN", poke("scores.penalty", np.nan), ["'scores.penalty'", "finite"]),
    ("two numbers", put("scores.penalty", torch.zeros(2)), ["'scores.penalty'", "found 2"]),
]
# Numbers that fit into float16 only as infinities.
WIDE = ("float64", "numpy")

regression = partial(MetricCase, rules=ERROR_RULES)

# Sums are exact and rounded once, so no case needs a tolerance between ways of feeding the same samples.
REGRESSION_CASES = [
    regression("regression", RegressionError, numbers, errors, invalid_inputs=NUMBER_INVALID),
    regression("regression-half", RegressionError, partial(numbers, dtype=torch.float16, mean=3.0), errors),
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
        "pos-neg-ratio", PosNegRatio, pairs, ordered, invalid_inputs=PAIR_INVALID, rules={"right": None, "wrong": None}
    ),
]
