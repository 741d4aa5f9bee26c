"""StreamingMetric: errors on every rank, exact counts, mmpretrain's MultiTasksMetric."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.dist import get_rank

from mm_metrics_plugin import MetricInputError, SingleLabelAUC, StreamingMetric
from mm_metrics_plugin.states.base import SUM, Batch, State
from mm_metrics_plugin.testing import evaluate, run_processes
from tests.helpers.cases_single_label import single_label


class CountState(State):
    """The number of samples."""

    reductions = {"count": SUM, "weight": SUM}

    def update(self, values):
        self.add("count", np.int64(len(values)))
        self.add("weight", np.float32(0.5) * np.float32(len(values)))
        return self


class Count(StreamingMetric):
    """Counts samples, or raises an error in ``compute``."""

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
        if self.fail == "unpicklable":
            raise Unpicklable("local message")
        return {"samples": state.count, "weight": state.weight}


class Unpicklable(Exception):
    """Cannot be sent between processes."""

    def __reduce__(self):
        raise TypeError("never")


def processed(fail=None, count=3):
    metric = Count(fail)
    metric.process(None, [{"value": index} for index in range(count)])
    return metric


JOBS = {
    ("compute", 0): [("KeyError", "'no such thing'")] * 3,
    ("unpicklable", 0): [("Unpicklable", "local message")] + [("RuntimeError", "Unpicklable: local message")] * 2,
    ("update", 1): [("TypeError", None)] * 3,
    ("update", 0): [("TypeError", None)] * 3,
}


def outcome(job):
    """The type and message of a rank's error, and the number of batches it keeps."""
    fail, failing_rank = job
    metric = processed(fail if fail != "update" else None)
    if fail == "update" and get_rank() == failing_rank:
        metric.results[1] = Batch(None)
    try:
        metric.evaluate(3 * 3)
    except Exception as error:
        return type(error).__name__, str(error), len(metric.results)
    return None


def test_an_error_is_raised_on_every_rank():
    for (job, expected), outcomes in zip(JOBS.items(), run_processes(3, outcome, list(JOBS))):
        for (name, message, kept), (expected_name, expected_message) in zip(outcomes, expected):
            assert (name, kept) == (expected_name, 0), job
            assert message == (expected_message or outcomes[0][1]), job


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
    metric = processed(count=1)
    metric.results[0].add("count", np.int64(2**53 + 1 if get_rank() else 2**24 + 1))
    metric.results[0].add("weight", np.float32(0))
    return metric._local_state(drop_last=False)[0].count, metric.evaluate(3)


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")
def test_counts_are_reduced_as_integers():
    (outcomes,) = run_processes(2, large_counts, [None])
    total = sum(int(count) for count, _ in outcomes)
    assert total == 2**53 + 2**24 + 4
    assert all(metrics["count/samples"] == float(total) for _, metrics in outcomes)


def test_mmpretrain_multi_task_metric():
    from mmpretrain.evaluation import MultiTasksMetric

    samples = single_label(np.random.default_rng(0), 40)
    metric = MultiTasksMetric(task_metrics={task: [dict(type="SingleLabelAUC")] for task in ("animal", "never")})
    for start in range(0, 40, 8):
        rows = enumerate(samples[start : start + 8], start)
        tasks = [dict(animal=dict(s, eval_mask=i % 3 > 0), never=dict(s, eval_mask=False)) for i, s in rows]
        metric.process(None, tasks)
    with pytest.warns(UserWarning, match="there were no samples"):
        values = metric.evaluate(40)
    expected = evaluate(SingleLabelAUC(), [sample for index, sample in enumerate(samples) if index % 3])
    assert values["animal_single-label/auc"] == expected["single-label/auc"]
    assert np.isnan(values["never_single-label/auc"])
