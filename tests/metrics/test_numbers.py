"""PosNegRatio, RegressionError, FieldMean and FieldSum: worked numbers, keys and warnings."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mm_metrics_plugin import FieldMean, FieldSum, PosNegRatio, RegressionError, UndefinedMetricWarning
from mm_metrics_plugin.testing import evaluate, guessed_rule


@pytest.mark.parametrize("together", [True, False])
def test_worked_pairs(together):
    positive, negative = [0.9, 0.5, 0.5], [0.1, 0.5, 0.6]
    samples = [dict(a=dict(p=p), n=n) for p, n in zip(positive, negative)]
    if together:
        samples = [dict(a=dict(p=torch.tensor(positive)), n=np.array(negative, dtype=np.float32))]
    found = evaluate(PosNegRatio(positive_field="a.p", negative_field="n"), samples)
    assert found == {"ranking/pn": 2 / 3, "ranking/right": 1.0, "ranking/wrong": 2.0}


def test_errors_are_never_guessed_to_be_better_when_greater():
    found = evaluate(RegressionError(), [dict(pred_score=1.0, gt_score=2.0), dict(pred_score=3.0, gt_score=0.0)])
    assert set(found) == {
        f"regression/{key}" for key in ("mse", "rmse", "mae", "percentage_error", "r2", "max_error", "zero_targets")
    }
    assert {guessed_rule(key) for key in found} == {None}
    assert guessed_rule("regression/mape") == "greater"  # why it has another name


def test_undefined_values_are_announced():
    metric = RegressionError()
    metric.process(None, [dict(pred_score=1.0, gt_score=0.0), dict(pred_score=2.0, gt_score=0.0)])
    with pytest.warns(UndefinedMetricWarning) as caught:
        found = metric.evaluate(2)
    assert math.isnan(found["regression/r2"])
    assert math.isnan(found["regression/percentage_error"])
    assert found["regression/mae"] == 1.5
    assert found["regression/zero_targets"] == 2
    messages = " ".join(str(warning.message) for warning in caught)
    assert "all targets are equal" in messages
    assert "2 values" in messages


def test_mixed_kinds_of_numbers_in_a_batch():
    samples = [
        dict(pred_score=torch.tensor([1.0]), gt_score=2),
        dict(pred_score=np.float64(2.0), gt_score=torch.tensor(2, dtype=torch.int32)),
        dict(pred_score=[[3.0]], gt_score=torch.tensor([True])),
    ]
    assert evaluate(RegressionError(), samples)["regression/mae"] == 1.0


def test_running_values_are_correctly_rounded():
    values = [1e16, 1.0, -1e16, 0.1, 0.2]
    samples = [dict(loss=value) for value in values]
    assert evaluate(FieldSum(field="loss"), samples, batch_size=2) == {"field/sum": math.fsum(values)}
    assert evaluate(FieldMean(field="loss"), samples, batch_size=1) == {"field/mean": math.fsum(values) / 5}
