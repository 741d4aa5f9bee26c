"""Each check of ``mm_metrics_plugin.testing`` finds a metric with one fault."""

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


def draw(generator, count):
    """Samples of integers, whose sums are not rounded."""
    return [dict(value=torch.tensor(float(value))) for value in generator.integers(1, 100, count)]


def mean(samples):
    return {"mean": np.mean([float(sample["value"]) for sample in samples])}


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

    def read(self, samples):
        return Batch(np.array([float(sample["value"]) for sample in samples]))

    def compute(self, state):
        if state.total is None:
            self.warn_no_samples("The mean")
            return {self.key: float("nan")}
        return {self.key: state.total / state.count}


class CountsPadding(Mean):
    """A class of the module, because it is sent to other processes."""

    def _local_state(self, *, drop_last):
        return super()._local_state(drop_last=False)


def faulty(**members):
    """A subclass of Mean with one fault."""
    return type("Faulty", (Mean,), members)


def value_of(metric, state):
    return Mean.compute(metric, state)[metric.key]


def with_counter(dtype):
    """A mean whose counter overflows."""

    def compute(self, state):
        if state.count is None:
            return Mean.compute(self, state)
        with np.errstate(all="ignore"):
            return {self.key: float(state.total / np.asarray(state.count).astype(dtype))}

    return faulty(compute=compute)


class NumPyValues(Mean):
    """Values that are not plain floats."""

    def compute_metrics(self, results):
        return {key: np.float64(value) for key, value in super().compute_metrics(results).items()}


def by_batch_size(self, samples):
    return Batch(Mean.read(self, samples).columns[0] + (len(samples) == 1))


def by_position(self, samples):
    return Batch(Mean.read(self, samples).columns[0] * (self._seen + np.arange(len(samples))))


def changing_input(self, samples):
    batch = Mean.read(self, samples)
    for sample in samples:
        sample["value"] *= 2
    return batch


def in_own_dtype(self, samples):
    return Batch(np.array([sample["value"].numpy() / 3 for sample in samples]))


def with_poor_message(self, samples):
    if any(sample["value"].isnan() for sample in samples):
        raise MetricInputError("something is wrong")
    return Mean.read(self, samples)


def counting_evaluations():
    """A mean that grows with every evaluation, of all metrics of the class."""
    evaluations = iter(range(1000))
    return faulty(compute=lambda self, state: {self.key: value_of(self, state) + next(evaluations)})


def keeping_results(self, size):
    values = StreamingMetric.evaluate(self, size)
    self.results.append(self.empty_state())
    return values


def keeping_batches(self):
    if len(self.results) > 2:
        StreamingMetric._flush(self)


def if_empty(result):
    return faulty(compute=lambda self, state: result if state.total is None else Mean.compute(self, state))


NOT_A_NUMBER = InvalidInput("a NaN", lambda sample: sample["value"].fill_(np.nan), ["'value'"])


def plain(build=Mean):
    return MetricCase("plain", build, draw, mean, dtypes=["float32", "float64", "int32"], rules={"mape": "less"})


def test_a_correct_metric_passes():
    for check in (*testing.LOCAL_CHECKS, testing.check_many):
        check(plain())
    testing.check_reference(replace(plain(with_counter(np.uint8)), counts=(64, 33)))
    testing.check_many(replace(plain(with_counter(np.uint16)), many=0))


@pytest.mark.parametrize(
    "check, build, message",
    [
        (
            testing.check_reference,
            faulty(compute=lambda self, state: {self.key: value_of(self, state) + 1e-9}),
            "plain against its reference, 64 samples: plain/mean",
        ),
        (testing.check_reference, with_counter(np.uint8), "plain against its reference, 300 samples: plain/mean"),
        (testing.check_many, with_counter(np.uint16), "plain against its reference, 70000 samples: plain/mean"),
        (testing.check_values, NumPyValues, "plain/mean is a float64, expected a plain float"),
        (testing.check_values, faulty(key="loss"), "plain/loss as a mean over a window"),
        (testing.check_batches, faulty(read=by_batch_size), "plain in batches of 1: plain/mean"),
        (testing.check_batches, faulty(read=by_position), "plain in another order: plain/mean"),
        (testing.check_reuse, counting_evaluations(), "plain in its second evaluation: plain/mean"),
        (testing.check_offline, counting_evaluations(), "plain evaluated offline: plain/mean"),
        (testing.check_inputs_unchanged, faulty(read=changing_input), "plain changed its input"),
        (testing.check_memory, faulty(_flush=keeping_batches), "plain keeps 3 results"),
        (testing.check_memory, faulty(evaluate=keeping_results), "plain keeps results after the evaluation"),
        (testing.check_empty, if_empty({}), "plain gives no key"),
        (testing.check_empty, if_empty({"mean": 1.0}), r"plain/mean of an empty dataset is 1\.0"),
        (testing.check_empty, faulty(warn_no_samples=lambda self, what: None), "does not warn"),
        (testing.check_single_sample, NumPyValues, "plain of one sample: plain/mean is a float64"),
        (testing.check_dtypes, faulty(read=in_own_dtype), "plain from float32: plain/mean"),
        (testing.check_directions, faulty(key="mape"), "plain/mape for 'greater', but the rule is 'less'"),
        (testing.check_metric, NumPyValues, "plain/mean is a float64"),
    ],
)
def test_faults_are_found(check, build, message):
    with pytest.raises(AssertionError, match=message):
        check(plain(build))


def test_a_reference_without_values_is_found():
    with pytest.raises(AssertionError, match="no value"):
        testing.check_reference(replace(plain(), reference=lambda samples: {}))


@pytest.mark.parametrize(
    ("build", "message"),
    [(Mean, "accepts a sample with a NaN"), (faulty(read=with_poor_message), "'sample 5' is not in")],
)
def test_invalid_input_without_a_good_message_is_found(build, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_bad_input(replace(plain(build), invalid_inputs=[NOT_A_NUMBER]))


def test_padding_that_is_counted_on_real_processes_is_found():
    with pytest.raises(AssertionError, match="plain, 3 samples, round_up=True, rank 0 of 2: plain/mean"):
        testing.check_processes([plain(CountsPadding)], 2, sizes=(3,))
    testing.check_processes([plain()], 2, sizes=(3,))


def test_other_keys_and_other_orders_of_keys_are_found():
    for values in ({"a": 1.0}, {"a": 1.0, "b": 2.0, "c": 3.0}, {"b": 2.0, "a": 1.0}):
        with pytest.raises(AssertionError, match="differ from"):
            testing.assert_same(values, {"a": 1.0, "b": 2.0}, 0.0, "keys")
    testing.assert_same({"a": float("nan")}, {"a": float("nan")}, 0.0, "NaN")
    for value in (1.0 + 1e-9, float("nan")):
        with pytest.raises(AssertionError, match="values: a is"):
            testing.assert_same({"a": value}, {"a": 1.0}, 1e-12, "values")


def test_an_error_of_a_process_is_raised():
    with pytest.raises(RuntimeError, match=r"(?s)rank 0 failed:.*invalid literal"):
        testing.run_processes(1, int, ["no number"])


def test_processes_import_the_modules_of_the_caller(tmp_path):
    """Also in another folder, where another package of the same name comes first."""
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
