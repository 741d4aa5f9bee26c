"""What must hold for every metric, run over every case of ``tests/helpers/cases.py``."""

from __future__ import annotations

import inspect

import pytest
import torch

import mm_metrics_plugin
from mm_metrics_plugin import StreamingMetric
from mm_metrics_plugin.testing import LOCAL_CHECKS, PRELOAD, assert_same, check_many, check_processes, evaluate
from tests.helpers.cases import CASES
from tests.metrics.test_streaming import Away

PRELOAD.append("tests.helpers.cases")


# Some cases lack a class or hold a target of 0 on purpose; that they are announced is tested elsewhere.
@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("check", LOCAL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check(case, check):
    check(case)


# One for each kind of state, those whose samples and reference are cheap.
CHEAP = ("prf-paddlerec", "ks-binned", "recall-at-k", "multi-prf-top", "field-mean", "field-sum", "auc")


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("name", CHEAP)
def test_more_samples_than_16_bits_can_count(name):
    (case,) = [case for case in CASES if case.name == name]
    check_many(case)


def away(value):
    """The same with every tensor on a device that is not here."""
    if isinstance(value, torch.Tensor):
        return value.as_subclass(Away)
    if isinstance(value, dict):
        return {key: away(inner) for key, inner in value.items()}
    return [away(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tensors_on_a_device_are_fetched_once_a_batch(case):
    metric, samples = case.metric(), away(case.draw(24))
    for start in range(0, 24, 8):
        Away.fetched = 0
        metric.process(None, samples[start : start + 8])
        assert Away.fetched == 1
    assert_same(metric.evaluate(24), evaluate(case.metric(), case.draw(24), batch_size=8), 0.0, case.name)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_processes_give_the_numbers_of_one(world_size):
    check_processes(CASES, world_size)


def test_every_registered_metric_has_a_case():
    public = {
        value
        for name, value in inspect.getmembers(mm_metrics_plugin, inspect.isclass)
        if issubclass(value, StreamingMetric) and not inspect.isabstract(value)
    }
    assert public == {type(case.metric()) for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_metric_is_tried_with_bad_input():
    assert {type(case.metric()) for case in CASES if case.invalid_inputs} == {type(case.metric()) for case in CASES}
