"""The checks of ``mm_metrics_plugin.testing`` find what they are there to find."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mm_metrics_plugin import FieldMean, MetricInputError, StreamingMetric, testing
from mm_metrics_plugin.states.base import SUM, Batch, State
from mm_metrics_plugin.testing import InvalidInput, MetricCase


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


def test_wrong_values_are_found():
    wrong = replace(SOUND, reference=lambda drawn: {"mean": mean(drawn)["mean"] + 1e-9})
    with pytest.raises(AssertionError, match="against its reference"):
        testing.check_reference(wrong)
    with pytest.raises(AssertionError, match="no value"):
        testing.check_reference(replace(SOUND, reference=lambda drawn: {}))


def test_values_without_samples_are_found():
    with pytest.raises(AssertionError, match=r"empty dataset is 1\.0"):
        testing.check_empty(careless(fault="empty"))
    with pytest.raises(AssertionError, match="does not warn"):
        testing.check_empty(careless())


def test_numbers_that_depend_on_the_batches_are_found():
    with pytest.raises(AssertionError, match="batches of"):
        testing.check_batches(careless(fault="shape"))


def test_numbers_that_depend_on_the_dtype_are_found():
    with pytest.raises(AssertionError, match="from float16"):
        testing.check_dtypes(replace(careless(), dtypes=["float16"]))


def test_accepted_invalid_input_and_poor_messages_are_found():
    def corrupt(sample):
        sample["value"] = torch.tensor(float("nan"))

    invalid = InvalidInput("a NaN", corrupt, ["'value'"])
    with pytest.raises(AssertionError, match="accepts a sample with a NaN"):
        testing.check_bad_input(replace(careless(), invalid_inputs=[invalid]))
    with pytest.raises(AssertionError, match="'sample 5' is not in the message"):
        testing.check_bad_input(replace(careless(fault="message"), invalid_inputs=[invalid]))
    testing.check_bad_input(replace(SOUND, invalid_inputs=[invalid]))


def test_wrong_guesses_are_found():
    with pytest.raises(AssertionError, match="takes careless/mape for 'greater', but the rule is 'less'"):
        testing.check_directions(replace(careless(key="mape"), rules={"mape": "less"}))
    with pytest.raises(AssertionError, match="the rule is None"):
        testing.check_directions(replace(careless(key="top_count"), rules={"*_count": None}))
    testing.check_directions(replace(careless(key="mae"), rules={"mae": "less"}))


def test_keys_that_are_smoothed_are_found():
    with pytest.raises(AssertionError, match="mean over a window"):
        testing.check_values(careless(key="loss"))


# --- one fault each, on whole numbers, so that nothing else can differ ------------------------------------------------


def whole_numbers(generator, count):
    return [dict(value=torch.tensor(float(value))) for value in generator.integers(1, 100, count)]


class Plain(Careless):
    """Nothing wrong with it but what a subclass adds."""

    def read(self, drawn):
        return Batch(np.array([float(sample["value"]) for sample in drawn]))

    def compute(self, state):
        if state.total is None:
            self.warn_undefined("The mean", "there were no samples", ["the dataset"])
        return super().compute(state)


def plain(build=Plain):
    return MetricCase("plain", build, whole_numbers, mean, dtypes=["float32", "float64", "int32", "numpy"])


class ByPlace(Plain):
    """Samples weigh by the place at which they come."""

    def read(self, drawn):
        return Batch(super().read(drawn).columns[0] * (self._seen + np.arange(len(drawn))))


class KeepsCounting(Plain):
    """Remembers former evaluations."""

    evaluated = 0

    def compute(self, state):
        self.evaluated += 1
        return {self.key: super().compute(state)[self.key] + self.evaluated}


class Shared(Plain):
    """All metrics of the class have one memory."""

    seen_by_all = []

    def compute(self, state):
        self.seen_by_all.append(state.count)
        return {self.key: super().compute(state)[self.key] + len(self.seen_by_all)}


class ChangesInput(Plain):
    """Works in the caller's memory."""

    def read(self, drawn):
        batch = super().read(drawn)
        for sample in drawn:
            sample["value"] *= 2
        return batch


class KeepsAll(Plain):
    """Keeps every batch."""

    def _flush(self):
        if len(self.results) > 2:
            super()._flush()


class ReplacesInput(Plain):
    """Puts something else in the caller's place."""

    def read(self, drawn):
        batch = super().read(drawn)
        for sample in drawn:
            sample["value"] = float(sample["value"])
        return batch


class KeepsResults(Plain):
    """Does not let go after the evaluation."""

    def evaluate(self, size):
        found = super().evaluate(size)
        self.results.append(self.empty_state())
        return found


class NoKeys(Plain):
    """Has nothing to say of nothing."""

    def compute(self, state):
        return {} if state.total is None else super().compute(state)


class CountsInBytes(Plain):
    """Counts samples in a type that holds too few."""

    counter = np.uint8

    def compute(self, state):
        found = super().compute(state)
        if state.count is None:
            return found
        with np.errstate(all="ignore"):
            return {self.key: float(state.total / np.asarray(state.count).astype(self.counter))}


class CountsIn16Bits(CountsInBytes):
    """The same with a type that holds more."""

    counter = np.uint16


class NotPlain(Plain):
    """Leaves NumPy's numbers as they are."""

    def compute_metrics(self, results):
        return {key: np.float64(value) for key, value in super().compute_metrics(results).items()}


class CountsEmptyBatches(Plain):
    """Takes a batch of nothing for a sample."""

    def process(self, data_batch, data_samples):
        super().process(data_batch, data_samples or [dict(value=torch.tensor(1000.0))])


class CountsPadding(Plain):
    """Drops nothing, whatever the sampler has repeated."""

    def _local_state(self, *, drop_last):
        return super()._local_state(drop_last=False)


def test_the_plain_metric_passes():
    for check in (*testing.LOCAL_CHECKS, testing.check_many):
        check(plain())
    testing.check_reference(replace(plain(CountsInBytes), counts=(64, 33)))
    testing.check_many(replace(plain(CountsIn16Bits), many=0))


@pytest.mark.parametrize(
    "check, build, message",
    [
        (testing.check_reference, CountsInBytes, "plain against its reference, 300 samples: careless/mean"),
        (testing.check_many, CountsIn16Bits, "plain against its reference, 70000 samples: careless/mean"),
        (testing.check_values, NotPlain, "careless/mean is a float64, expected a plain float"),
        (testing.check_batches, ByPlace, "plain in another order: careless/mean"),
        (testing.check_reuse, KeepsCounting, "plain in its second evaluation: careless/mean"),
        (testing.check_offline, Shared, "plain evaluated offline: careless/mean"),
        (testing.check_inputs_unchanged, ChangesInput, "plain changed its input"),
        (testing.check_inputs_unchanged, ReplacesInput, "plain changed its input"),
        (testing.check_memory, KeepsResults, "plain keeps results after the evaluation"),
        (testing.check_single_sample, NotPlain, "careless/mean of one sample is a float64"),
        (testing.check_memory, KeepsAll, "plain keeps 3 results"),
        (testing.check_empty, NoKeys, "plain gives no key for an empty dataset"),
        (testing.check_single_sample, CountsEmptyBatches, "plain of one sample after an empty batch: careless/mean"),
        (testing.check_metric, NotPlain, "careless/mean is a float64"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_faults_are_found(check, build, message):
    with pytest.raises(AssertionError, match=message):
        check(plain(build))


def test_padding_that_is_counted_on_real_processes_is_found():
    case = plain(CountsPadding)
    with pytest.raises(AssertionError, match="plain, 3 samples, round_up=True, rank 0 of 2: careless/mean"):
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
