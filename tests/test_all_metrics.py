"""What must hold for every metric, run over every case of ``tests/cases.py``."""

from __future__ import annotations

import inspect

import pytest

import mm_metrics_plugin
from mm_metrics_plugin import StreamingMetric
from mm_metrics_plugin.testing import LOCAL_CHECKS, PRELOAD, check_processes
from tests.cases import CASES

PRELOAD.append("tests.cases")


# Some cases lack a class or hold a target of 0 on purpose; that they are announced is tested elsewhere.
@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("check", LOCAL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check(case, check):
    check(case)


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
    assert {type(case.metric()) for case in CASES if case.damages} == {type(case.metric()) for case in CASES}
