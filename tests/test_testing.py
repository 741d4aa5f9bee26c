"""The checks of ``mm_metrics_plugin.testing`` find what they are there to find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mm_metrics_plugin import FieldMean, MetricInputError, StreamingMetric, testing
from mm_metrics_plugin.states.base import SUM, State
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.testing import Damage, MetricCase


def samples(generator, count):
    return [dict(value=torch.tensor(value)) for value in generator.random(count)]


def mean(drawn):
    return {"mean": np.mean([float(sample["value"]) for sample in drawn])}


SOUND = MetricCase("sound", lambda: FieldMean(field="value"), samples, mean)


class Total(State):
    """A sum that rounds in whatever dtype comes."""

    reductions = {"total": SUM, "count": SUM}

    def update(self, values):
        self.add("total", values.sum())
        self.add("count", np.int64(len(values)))
        return self


class Careless(StreamingMetric):
    """Everything a metric should not do, by option."""

    def __init__(self, key="mean", fault=None):
        super().__init__(prefix="careless")
        self.key, self.fault = key, fault

    def empty_state(self):
        return Total()

    def read(self, drawn):
        if self.fault == "message":
            for sample in drawn:
                if not torch.isfinite(sample["value"]):
                    raise MetricInputError("something is wrong")
        if self.fault == "shape" and len(drawn) == 1:
            return Batch(np.array([float(drawn[0]["value"]) + 1]))
        return Batch(np.array([sample["value"].numpy() for sample in drawn]))

    def compute(self, state):
        if state.total is None:
            return {self.key: 1.0 if self.fault == "empty" else float("nan")}
        return {self.key: state.total / state.count}


def careless(**options):
    return MetricCase("careless", lambda: Careless(**options), samples, mean)


def test_a_sound_metric_passes():
    for check in testing.LOCAL_CHECKS:
        check(SOUND)


def test_wrong_values_are_found():
    wrong = replace(SOUND, reference=lambda drawn: {"mean": mean(drawn)["mean"] + 1e-9})
    with pytest.raises(AssertionError, match="against its reference"):
        testing.check_reference(wrong)
    with pytest.raises(AssertionError, match="no value"):
        testing.check_reference(replace(SOUND, reference=lambda drawn: {}))


def test_values_without_samples_are_found():
    with pytest.raises(AssertionError, match=r"empty data set is 1\.0"):
        testing.check_empty(careless(fault="empty"))
    with pytest.raises(AssertionError, match="does not warn"):
        testing.check_empty(careless())


def test_numbers_that_depend_on_the_batches_are_found():
    with pytest.raises(AssertionError, match="batches of"):
        testing.check_batches(careless(fault="shape"))


def test_numbers_that_depend_on_the_dtype_are_found():
    with pytest.raises(AssertionError, match="from float16"):
        testing.check_dtypes(replace(careless(), dtypes=["float16"]))


def test_accepted_damage_and_poor_messages_are_found():
    def spoil(sample):
        sample["value"] = torch.tensor(float("nan"))

    damage = Damage("a NaN", spoil, ["'value'"])
    with pytest.raises(AssertionError, match="accepts a sample with a NaN"):
        testing.check_bad_input(replace(careless(), damages=[damage]))
    with pytest.raises(AssertionError, match="'sample 5' is not in the message"):
        testing.check_bad_input(replace(careless(fault="message"), damages=[damage]))
    testing.check_bad_input(replace(SOUND, damages=[damage]))


def test_wrong_guesses_are_found():
    with pytest.raises(AssertionError, match="takes careless/mape for 'greater', but the rule is 'less'"):
        testing.check_directions(replace(careless(key="mape"), rules={"mape": "less"}))
    with pytest.raises(AssertionError, match="the rule is None"):
        testing.check_directions(replace(careless(key="top_count"), rules={"*_count": None}))
    testing.check_directions(replace(careless(key="mae"), rules={"mae": "less"}))


def test_keys_that_are_smoothed_are_found():
    with pytest.raises(AssertionError, match="mean over a window"):
        testing.check_values(careless(key="loss"))
