"""Each check of ``mm_metrics_plugin.testing`` finds a metric with one fault."""
# ruff: noqa: D101 (the name of a class is its fault)

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mm_metrics_plugin import MetricInputError, StreamingMetric, testing
from mm_metrics_plugin.states.base import SUM, Batch, State
from mm_metrics_plugin.testing import InvalidInput, MetricCase


def samples(generator, count):
    """Integers, so that nothing differs by rounding."""
    return [dict(value=torch.tensor(float(value))) for value in generator.integers(1, 100, count)]


def mean(drawn):
    return {"mean": np.mean([float(sample["value"]) for sample in drawn])}


class Total(State):
    """A sum in the dtype of the values."""

    reductions = {"total": SUM, "count": SUM}

    def update(self, values):
        self.add("total", values.sum())
        self.add("count", np.int64(len(values)))
        return self


class Mean(StreamingMetric):
    """A correct metric; each subclass has one fault."""

    default_prefix = "plain"
    key = "mean"

    def empty_state(self):
        return Total()

    def read(self, drawn):
        return Batch(np.array([float(sample["value"]) for sample in drawn]))

    def compute(self, state):
        if state.total is None:
            self.warn_no_samples("The mean")
            return {self.key: float("nan")}
        return {self.key: state.total / state.count}


class OffByLittle(Mean):
    def compute(self, state):
        return {self.key: super().compute(state)[self.key] + 1e-9}


class ByteCount(Mean):
    counter = np.uint8

    def compute(self, state):
        found = super().compute(state)
        if state.count is None:
            return found
        with np.errstate(all="ignore"):
            return {self.key: float(state.total / np.asarray(state.count).astype(self.counter))}


class ShortCount(ByteCount):
    counter = np.uint16


class NumPyValues(Mean):
    def compute_metrics(self, results):
        return {key: np.float64(value) for key, value in super().compute_metrics(results).items()}


class LossKey(Mean):
    key = "loss"


class ByBatchSize(Mean):
    def read(self, drawn):
        return Batch(super().read(drawn).columns[0] + (len(drawn) == 1))


class ByPosition(Mean):
    def read(self, drawn):
        return Batch(super().read(drawn).columns[0] * (self._seen + np.arange(len(drawn))))


class KeepsCounting(Mean):
    evaluated = 0

    def compute(self, state):
        self.evaluated += 1
        return {self.key: super().compute(state)[self.key] + self.evaluated}


class SharedMemory(Mean):
    evaluations = []

    def compute(self, state):
        self.evaluations.append(state.count)
        return {self.key: super().compute(state)[self.key] + len(self.evaluations)}


class ChangesInput(Mean):
    def read(self, drawn):
        batch = super().read(drawn)
        for sample in drawn:
            sample["value"] *= 2
        return batch


class ReplacesInput(Mean):
    def read(self, drawn):
        batch = super().read(drawn)
        for sample in drawn:
            sample["value"] = float(sample["value"])
        return batch


class KeepsBatches(Mean):
    def _flush(self):
        if len(self.results) > 2:
            super()._flush()


class KeepsResults(Mean):
    def evaluate(self, size):
        found = super().evaluate(size)
        self.results.append(self.empty_state())
        return found


class NoKeys(Mean):
    def compute(self, state):
        return {} if state.total is None else super().compute(state)


class EmptyIsOne(Mean):
    def compute(self, state):
        return {self.key: 1.0} if state.total is None else super().compute(state)


class NoWarning(Mean):
    def warn_no_samples(self, what):
        pass


class CountsEmptyBatches(Mean):
    def process(self, data_batch, data_samples):
        super().process(data_batch, data_samples or [dict(value=torch.tensor(1000.0))])


class OwnDtype(Mean):
    def read(self, drawn):
        return Batch(np.array([sample["value"].numpy() / 3 for sample in drawn]))


class PoorMessage(Mean):
    def read(self, drawn):
        if any(sample["value"].isnan() for sample in drawn):
            raise MetricInputError("something is wrong")
        return super().read(drawn)


class MapeKey(Mean):
    key = "mape"


class CountsPadding(Mean):
    def _local_state(self, *, drop_last):
        return super()._local_state(drop_last=False)


NOT_A_NUMBER = InvalidInput("a NaN", lambda sample: sample["value"].fill_(np.nan), ["'value'"])


def plain(build=Mean):
    return MetricCase("plain", build, samples, mean, dtypes=["float32", "float64", "int32"], rules={"mape": "less"})


def test_a_correct_metric_passes():
    for check in (*testing.LOCAL_CHECKS, testing.check_many):
        check(plain())
    testing.check_reference(replace(plain(ByteCount), counts=(64, 33)))
    testing.check_many(replace(plain(ShortCount), many=0))


@pytest.mark.parametrize(
    "check, build, message",
    [
        (testing.check_reference, OffByLittle, "plain against its reference, 64 samples: plain/mean"),
        (testing.check_reference, ByteCount, "plain against its reference, 300 samples: plain/mean"),
        (testing.check_many, ShortCount, "plain against its reference, 70000 samples: plain/mean"),
        (testing.check_values, NumPyValues, "plain/mean is a float64, expected a plain float"),
        (testing.check_values, LossKey, "plain/loss as a mean over a window"),
        (testing.check_batches, ByBatchSize, "plain in batches of 1: plain/mean"),
        (testing.check_batches, ByPosition, "plain in another order: plain/mean"),
        (testing.check_reuse, KeepsCounting, "plain in its second evaluation: plain/mean"),
        (testing.check_offline, SharedMemory, "plain evaluated offline: plain/mean"),
        (testing.check_inputs_unchanged, ChangesInput, "plain changed its input"),
        (testing.check_inputs_unchanged, ReplacesInput, "plain changed its input"),
        (testing.check_memory, KeepsBatches, "plain keeps 3 results"),
        (testing.check_memory, KeepsResults, "plain keeps results after the evaluation"),
        (testing.check_empty, NoKeys, "plain gives no key"),
        (testing.check_empty, EmptyIsOne, r"plain/mean of an empty dataset is 1\.0"),
        (testing.check_empty, NoWarning, "does not warn"),
        (testing.check_single_sample, NumPyValues, "plain/mean of one sample is a float64"),
        (testing.check_single_sample, CountsEmptyBatches, "plain of one sample after an empty batch: plain/mean"),
        (testing.check_dtypes, OwnDtype, "plain from float32: plain/mean"),
        (testing.check_directions, MapeKey, "plain/mape for 'greater', but the rule is 'less'"),
        (testing.check_metric, NumPyValues, "plain/mean is a float64"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_faults_are_found(check, build, message):
    with pytest.raises(AssertionError, match=message):
        check(plain(build))


def test_a_reference_without_values_is_found():
    with pytest.raises(AssertionError, match="no value"):
        testing.check_reference(replace(plain(), reference=lambda drawn: {}))


@pytest.mark.parametrize(
    ("build", "message"), [(Mean, "accepts a sample with a NaN"), (PoorMessage, "'sample 5' is not in the message")]
)
def test_invalid_input_without_a_good_message_is_found(build, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_bad_input(replace(plain(build), invalid_inputs=[NOT_A_NUMBER]))


def test_padding_that_is_counted_on_real_processes_is_found():
    case = plain(CountsPadding)
    with pytest.raises(AssertionError, match="plain, 3 samples, round_up=True, rank 0 of 2: plain/mean"):
        testing.check_processes([case], 2, sizes=(3,))
    testing.check_processes([plain()], 2, sizes=(3,))


def test_other_keys_and_other_orders_of_keys_are_found():
    for found in ({"a": 1.0}, {"a": 1.0, "b": 2.0, "c": 3.0}, {"b": 2.0, "a": 1.0}):
        with pytest.raises(AssertionError, match="differ from"):
            testing.assert_same(found, {"a": 1.0, "b": 2.0}, 0.0, "keys")
    testing.assert_same({"a": float("nan")}, {"a": float("nan")}, 0.0, "NaN")
    for found in (1.0 + 1e-9, float("nan")):
        with pytest.raises(AssertionError, match="values: a is"):
            testing.assert_same({"a": found}, {"a": 1.0}, 1e-12, "values")


def test_an_error_of_a_process_is_raised():
    with pytest.raises(RuntimeError, match=r"(?s)rank 0 failed:.*invalid literal"):
        testing.run_processes(1, int, ["no number"])


def test_processes_import_the_modules_of_the_caller(tmp_path):
    """From a folder elsewhere, where another package of the same name comes first."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").write_text("")
    code = """
import pkgutil, sys
if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    from mm_metrics_plugin import testing
    testing.PRELOAD.append("tests.helpers.cases")
    print(testing.run_processes(1, pkgutil.resolve_name, ["tests.metrics:__name__"]))
"""
    (tmp_path / "run.py").write_text(code)
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "run.py", str(root)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[['tests.metrics']]\n", done.stderr
