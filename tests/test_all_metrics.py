"""The checks of ``mm_metrics_plugin.testing`` on every case of ``tests/helpers/cases.py``."""

from __future__ import annotations

import inspect

import pytest
import torch

import mm_metrics_plugin
from mm_metrics_plugin import StreamingMetric
from mm_metrics_plugin.testing import (
    LOCAL_CHECKS,
    PRELOAD,
    _map_tensors,
    assert_same,
    check_many,
    check_processes,
    evaluate,
)
from tests.helpers.cases import CASES

PRELOAD.append("tests.helpers.cases")
# Some cases lack a class or hold a target of 0 on purpose; other tests check the warnings.
pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
over_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.parametrize("check", LOCAL_CHECKS, ids=lambda check: check.__name__)
@over_cases
def test_check(case, check):
    check(case)


# One for each kind of state, with cheap samples and references.
CHEAP = ("prf-paddlerec", "ks-binned", "recall-at-k", "multi-prf-top", "field-mean", "field-sum", "auc")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in CHEAP], ids=lambda case: case.name)
def test_more_samples_than_16_bits_can_count(case):
    check_many(case)


class DeviceTensor(torch.Tensor):
    """A tensor that claims to be on a device, and counts the copies to the host."""

    copies = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function == torch.Tensor.device.__get__:
            return torch.device("cuda", 0)
        result = super().__torch_function__(function, types, args, kwargs or {})
        if function in (torch.Tensor.cpu, torch.Tensor.to, torch.Tensor.numpy, torch.Tensor.item, torch.Tensor.tolist):
            DeviceTensor.copies += 1
            return result.as_subclass(torch.Tensor) if isinstance(result, torch.Tensor) else result
        return result


@over_cases
def test_a_batch_is_copied_from_the_device_once(case):
    metric, samples = case.metric(), _map_tensors(case.draw(24), lambda tensor: tensor.as_subclass(DeviceTensor))
    for start in range(0, 24, 8):
        DeviceTensor.copies = 0
        metric.process(None, samples[start : start + 8])
        assert DeviceTensor.copies == 1
    assert_same(metric.evaluate(24), evaluate(case.metric(), case.draw(24), batch_size=8), 0.0, case.name)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_processes_give_the_values_of_one_process(world_size):
    check_processes(CASES, world_size)


def test_every_registered_metric_has_a_case_with_invalid_input():
    registered = {
        value
        for _, value in inspect.getmembers(mm_metrics_plugin, inspect.isclass)
        if issubclass(value, StreamingMetric) and not inspect.isabstract(value)
    }
    assert registered == {type(case.metric()) for case in CASES}
    assert registered == {type(case.metric()) for case in CASES if case.invalid_inputs}
    assert len({case.name for case in CASES}) == len(CASES)
