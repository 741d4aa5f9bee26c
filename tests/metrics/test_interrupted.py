"""An evaluation after an interrupted one: only its own samples are counted, or an error says that there are others."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler
from mmengine.evaluator import Evaluator
from mmengine.structures import BaseDataElement

from mm_metrics_plugin import EvaluationCheckHook, FieldSum, MetricInputError, MetricWarning, SingleLabelAUC
from mm_metrics_plugin.metrics.padding import sample_identity
from mm_metrics_plugin.testing import assert_same, evaluate
from tests.helpers.cases import CASES
from tests.helpers.ranks import on_ranks
from tests.helpers.runners import Model, log_text, runner_for
from tests.metrics.test_concatenated import multi

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")


def digits(size, *, named=True, distinct=None):
    """Samples with the value 10^i, so that the digits of the sum are the counts; the identities repeat."""
    return [
        dict(value=10.0**index, **({"img_id": index % (distinct or size)} if named else {})) for index in range(size)
    ]


def counts(values, size):
    return f"{int(values['field/sum']):0{size}d}"[::-1]


def in_batches(samples, size):
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def feed(metric, samples, batch_size):
    for batch in in_batches(samples, batch_size):
        metric.process(None, batch)


def recorded(function):
    """The value of a function, or its MetricInputError, and the messages of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", MetricWarning)
        try:
            value = function()
        except MetricInputError as error:
            value = error
    return value, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("seed", range(40))
def test_only_the_samples_of_the_evaluation_are_counted(seed):
    """Every process was interrupted after any number of batches, once or twice."""
    random = np.random.default_rng(seed)
    world_size, size, batch_size = (int(random.integers(*limits)) for limits in ((1, 4), (1, 13), (1, 4)))
    round_up, samples = bool(random.integers(2)), digits(size)
    interruptions = random.integers(0, 5, (int(random.integers(1, 3)), world_size))

    def run(rank):
        metric = FieldSum(field="value")
        share = [samples[index] for index in DefaultSampler(samples, shuffle=False, round_up=round_up)]
        for batches in interruptions[:, rank]:
            feed(metric, share[: batches * batch_size], batch_size)
        feed(metric, share, batch_size)
        first = metric.evaluate(size)
        feed(metric, share, batch_size)
        return first, metric.evaluate(size)

    values, messages = recorded(lambda: on_ranks(world_size, run))
    if isinstance(values, MetricInputError):  # the first batch was incomplete
        assert (interruptions * batch_size).max() > 0
        return
    assert all(counts(value, size) == "1" * size for rank in values for value in rank)
    left_out = [message for message in messages if "left out" in message and "of an interrupted" in message]
    assert len(left_out) == (interruptions.sum() > 0)


def test_samples_without_identity_or_in_another_order_raise():
    for first, second, size in (
        (digits(7, named=False)[:4], digits(7, named=False), 7),
        (digits(7)[::-1][:4], digits(7), 7),
    ):
        metric = FieldSum(field="value")
        feed(metric, first, 2)
        feed(metric, second, 2)
        with pytest.raises(MetricInputError, match="FieldSum: read 11 samples, but the dataset has 7"):
            metric.evaluate(size)
        feed(metric, second, 2)
        assert counts(metric.evaluate(size), size) == "1111111"

    def run(rank):
        metric, samples = FieldSum(field="value"), digits(8, named=False)
        feed(metric, samples[rank::2][: 3 - rank], 2)
        feed(metric, samples[rank::2], 2)
        try:
            metric.evaluate(8)
        except MetricInputError as error:
            feed(metric, samples[rank::2], 2)
            return str(error), counts(metric.evaluate(8), 8)

    results = on_ranks(2, run)
    assert results[0] == results[1] and results[0][1] == "11111111"
    assert "read 7, 6 samples on 2 processes, but the dataset has 8" in results[0][0]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4])
def test_datasets_that_repeat_samples_are_counted_whole(batch_size):
    samples = digits(12, distinct=4)
    assert recorded(lambda: counts(evaluate(FieldSum(field="value"), samples, batch_size), 12)) == ("1" * 12, [])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_metric_equals_a_new_one(case):
    samples = case.draw(20)
    expected = evaluate(case.metric(), samples, batch_size=4)
    metric = case.metric()
    feed(metric, samples[:8], 4)
    assert len(metric.results)
    if metric.in_one_state or sample_identity(samples[0]) is None:
        with pytest.raises(MetricInputError, match="read 28 samples, but the dataset has 20"):
            evaluate(metric, samples, batch_size=4)
    else:
        with pytest.warns(MetricWarning, match="left out 8 samples of an interrupted evaluation"):
            assert_same(evaluate(metric, samples, batch_size=4), expected, 0.0, case.name)
    assert_same(evaluate(metric, samples, batch_size=4), expected, 0.0, case.name)


@pytest.mark.parametrize("interrupted", [1, 2, 3])
@pytest.mark.parametrize("named", [True, False])
def test_concatenated_datasets(interrupted, named):
    """The position tells the dataset, so an interrupted evaluation is known while the samples are read."""
    ends, samples = [4, 8, 10], digits(10, named=named, distinct=4)
    evaluator = multi([FieldSum(field="value") for _ in ends], {"classes": ("a",), "cumulative_sizes": ends})

    def run(batches):
        for batch in in_batches(samples, 2)[:batches]:
            evaluator.process(batch)
        return evaluator.evaluate(10) if batches is None else None

    run(interrupted)
    # After the second batch, the first one may come again because the second dataset has the same samples.
    values, messages = recorded(lambda: run(None))
    if named and interrupted != 2:
        assert len(messages) == len(ends) and all("left out" in message for message in messages)
    else:
        assert "samples on this process, but the dataset has 10 for it" in str(values) and not messages
        for metric in evaluator.metrics:
            metric.results.clear()
        values = run(None)
    assert [int(values[f"set{index}/field/sum"]) for index in range(3)] == [1111, 11110000, 1100000000]


def test_tasks_and_offline_evaluation():
    """A task reads some of the samples, so their number does not tell."""
    from mmpretrain.evaluation import MultiTasksMetric

    rows = [{"task": dict(sample, eval_mask=index % 3 > 0)} for index, sample in enumerate(digits(9))]
    metric = MultiTasksMetric(task_metrics={"task": [dict(type="FieldSum", field="value")]})
    feed(metric, rows[:4], 2)
    feed(metric, rows, 2)
    values, messages = recorded(lambda: metric.evaluate(9))
    assert counts({"field/sum": values["task_field/sum"]}, 9) == "011011011" and len(messages) == 1
    evaluator = Evaluator(FieldSum(field="value"))
    evaluator.process(digits(9)[:3])
    values, messages = recorded(lambda: evaluator.offline_evaluate(digits(9), chunk_size=3))
    assert counts(values, 9) == "1" * 9 and len(messages) == 1


# --- Runners ----------------------------------------------------------------------------------------------------------


class InterruptedModel(Model):
    """Is interrupted once, in the third batch."""

    calls = 0

    def forward(self, inputs, data_samples, mode="tensor"):
        self.calls += 1
        if self.calls == 3:
            raise self.error
        return super().forward(inputs, data_samples, mode)


def elements(count, **changes):
    random = np.random.default_rng(0)
    return [
        BaseDataElement(
            metainfo=dict(sample_idx=index, **changes),
            pred_score=torch.tensor([score, 1 - score]),
            gt_label=torch.tensor([int(score + noise < 0.5)]),
        )
        for index, (score, noise) in enumerate(zip(random.random(count), random.normal(0, 0.2, count)))
    ]


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=str)
@pytest.mark.parametrize("hook", [False, True])
def test_a_runner_that_validates_again(tmp_path, error, hook):
    samples = elements(30)
    hooks = [EvaluationCheckHook()] if hook else []
    expected = runner_for(tmp_path / "whole", samples, [SingleLabelAUC()], classes="ab").val()
    runner = runner_for(tmp_path / "again", samples, [SingleLabelAUC()], hooks, classes="ab")
    runner.model = InterruptedModel()
    runner.model.error = error
    with pytest.raises(type(error)):
        runner.val()
    assert runner.val() == expected
    # The hook starts every validation anew, so that nothing has to be found out.
    assert ("left out 16 samples of an interrupted evaluation" in log_text(tmp_path / "again")) != hook


def test_the_hook_starts_anew_without_identities(tmp_path):
    samples = elements(30)
    for sample in samples:
        del sample.sample_idx
    for hooks in ([], [EvaluationCheckHook()]):
        runner = runner_for(tmp_path / str(len(hooks)), samples, [SingleLabelAUC()], hooks, classes="ab")
        whole = runner.val()
        runner.model = InterruptedModel()
        runner.model.error = RuntimeError("out of memory")
        with pytest.raises(RuntimeError):
            runner.val()
        if hooks:
            assert runner.val() == whole
        else:
            with pytest.raises(MetricInputError, match="read 46 samples, but the dataset has 30"):
                runner.val()
            assert runner.val() == whole
