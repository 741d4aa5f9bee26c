"""StreamingMetric where it bites: padding, failing and dying ranks, other people's evaluators, devices, memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from mmengine.dist import get_rank

from mm_metrics_plugin import MetricInputError, MetricWarning, SingleLabelAUC, StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import stack_fields
from mm_metrics_plugin.states.base import SUM, Batch, State
from mm_metrics_plugin.testing import evaluate, run_processes
from tests.helpers.cases_single_label import single_label


class CountState(State):
    """How many samples."""

    reductions = {"count": SUM, "weight": SUM}

    def update(self, values):
        self.add("count", np.int64(len(values)))
        self.add("weight", np.float32(0.5) * np.float32(len(values)))
        return self


class Count(StreamingMetric):
    """Counts, and fails where it is told to."""

    default_prefix = "count"

    def __init__(self, fail=None):
        super().__init__()
        self.fail = fail

    def empty_state(self):
        return CountState()

    def read(self, samples):
        return Batch(np.array([sample["value"] for sample in samples]))

    def compute(self, state):
        if self.fail == "compute":
            raise KeyError("no such thing")
        if self.fail == "odd":
            raise Unpicklable("kept at home")
        return {"samples": float("nan") if state.count is None else state.count, "weight": state.weight or 0.0}


class Unpicklable(Exception):
    """Cannot travel between processes."""

    def __reduce__(self):
        raise TypeError("never")


def values(count):
    return [{"value": index} for index in range(count)]


# --- errors reach every rank ---


def outcome(job):
    """What a rank sees: its error's type and message, and how many batches it keeps."""
    kind, failing_rank = job
    metric = Count(fail=kind if kind in ("compute", "odd") else None)
    try:
        metric.process(None, values(3))
        if kind == "update" and get_rank() == failing_rank:
            metric.results[1] = Batch(None)
        metric.evaluate(3 * 3)
    except Exception as error:
        return type(error).__name__, str(error), len(metric.results)
    return None


@pytest.fixture(scope="module")
def failures():
    jobs = [("compute", 0), ("odd", 0), ("update", 1), ("update", 0)]
    return dict(zip(jobs, run_processes(3, outcome, jobs)))


@pytest.mark.parametrize(
    ("job", "first", "others"),
    [
        (("compute", 0), ("KeyError", "'no such thing'"), ("KeyError", "'no such thing'")),
        (("odd", 0), ("Unpicklable", "kept at home"), ("RuntimeError", "Unpicklable: kept at home")),
        (("update", 0), ("TypeError", None), ("TypeError", None)),
        (("update", 1), ("TypeError", None), ("TypeError", None)),
    ],
)
def test_an_error_reaches_every_rank(failures, job, first, others):
    for rank, (name, message, kept) in enumerate(failures[job]):
        expected = first if rank == 0 else others
        assert name == expected[0]
        assert expected[1] is None or message == expected[1]
        assert message == failures[job][1][1] or rank == 0
        assert kept == 0


def different_classes(_):
    samples = [dict(pred_score=torch.rand(3 + get_rank()), gt_label=torch.tensor([0]))]
    try:
        evaluate(SingleLabelAUC(), samples, size=2)
    except MetricInputError as error:
        return str(error)


def test_ranks_with_different_numbers_of_classes_raise():
    (messages,) = run_processes(2, different_classes, [None])
    assert messages[0] == messages[1]
    assert "'scores' must have the same shape on all processes (found (3,) on rank 0 and (4,) on rank 1)" in messages[0]


def large_counts(_):
    metric = Count()
    metric.process(None, values(1))
    metric.results[0].add("count", np.int64(2**53 + 1 if get_rank() else 2**24 + 1))
    metric.results[0].add("weight", np.float32(0))
    return metric._local_state(drop_last=False)[0].count, metric.evaluate(3)


def test_counts_never_pass_through_a_float():
    (found,) = run_processes(2, large_counts, [None])
    total = sum(int(count) for count, _ in found)
    assert total == 2**53 + 2**24 + 4
    assert all(metrics["count/samples"] == float(total) for _, metrics in found)


def filtered(_):
    """A metric that sees only some samples of the dataset, as in mmpretrain's MultiTasksMetric."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        metric = Count()
        metric.process(None, values(1))
        metric.evaluate(5)
    return [str(warning.message) for warning in caught]


def test_possible_padding_gives_a_warning():
    (messages,) = run_processes(2, filtered, [None])
    assert any("read 2 samples of a dataset of 5 on 2 processes" in message for message in messages[0])
    assert messages[1] == []


# --- a rank that dies ---


# --- other people's evaluators ---


def test_mmpretrain_multi_task_metric():
    from mmpretrain.evaluation import MultiTasksMetric

    samples = single_label(np.random.default_rng(0), 40)
    multi = MultiTasksMetric(
        task_metrics={"animal": [dict(type="SingleLabelAUC")], "never": [dict(type="SingleLabelAUC")]}
    )
    tasks = [
        {
            "animal": dict(sample, eval_mask=index % 3 > 0),
            "never": dict(sample, eval_mask=False),
        }
        for index, sample in enumerate(samples)
    ]
    for start in range(0, 40, 8):
        multi.process(None, tasks[start : start + 8])
    with pytest.warns(UserWarning, match="there were no samples"):
        found = multi.evaluate(40)
    shown = [sample for index, sample in enumerate(samples) if index % 3]
    expected = evaluate(SingleLabelAUC(), shown)["single-label/auc"]
    assert found["animal_single-label/auc"] == expected
    assert np.isnan(found["never_single-label/auc"])


# --- one copy from the device ---


class Away(torch.Tensor):
    """A tensor that says it lies on a device, and counts how often it is fetched."""

    fetched = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function == torch.Tensor.device.__get__:
            return torch.device("cuda", 0)
        result = super().__torch_function__(function, types, args, kwargs or {})
        if function in (torch.Tensor.cpu, torch.Tensor.to, torch.Tensor.numpy, torch.Tensor.item, torch.Tensor.tolist):
            Away.fetched += 1
            return result.as_subclass(torch.Tensor) if isinstance(result, torch.Tensor) else result
        return result


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_batch_is_fetched_in_one_copy(dtype):
    samples = single_label(np.random.default_rng(0), 64, dtype=dtype)
    away = [
        {key: value.as_subclass(Away) if isinstance(value, torch.Tensor) else value for key, value in sample.items()}
        for sample in samples
    ]
    expected = stack_fields(samples, ["gt_label", "pred_score", "pred_label"], str)
    Away.fetched = 0
    found = stack_fields(away, ["gt_label", "pred_score", "pred_label"], str)
    assert Away.fetched == 1
    for mine, theirs in zip(found, expected):
        assert mine.dtype == theirs.dtype
        assert np.array_equal(mine, theirs)
    Away.fetched = 0
    metric = SingleLabelAUC()
    metric.process(None, away)
    assert Away.fetched == 1
    assert metric.evaluate(64) == evaluate(SingleLabelAUC(), samples)


# --- memory ---
