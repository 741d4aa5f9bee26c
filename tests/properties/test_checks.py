"""Each check of ``checks.py`` finds one metric or function that breaks it, with the examples of the strategies."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings

from mm_metrics_plugin import SingleLabelAUC, SingleLabelPRF, StreamingMetric
from mm_metrics_plugin.states.base import SUM, Batch, State
from mm_metrics_plugin.testing import MetricCase
from tests.helpers import checks
from tests.helpers.cases_single_label import NUM_CLASSES, single_label
from tests.helpers.strategies import (
    cut_at,
    feeding_of,
    rolls,
    samples_of,
    score_map_of,
    small_metric,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:.* samples of a dataset of:mm_metrics_plugin.exceptions.MetricWarning"),
]


def must_find(match, check):
    """Runs the check over the usual examples, and fails unless one of them breaks it."""

    @settings(phases=[Phase.generate])
    @given(rolls)
    def tried(roll):
        check(roll)

    with pytest.raises(AssertionError, match=match):
        tried()


class Total(State):
    """A sum and its number of terms."""

    reductions = {"total": SUM, "count": SUM}

    def update(self, values):
        self.add("total", values.sum())
        self.add("count", np.int64(len(values)))
        return self


class MeanOfMeans(Total):
    """Every batch weighs the same, however many samples it holds."""

    def update(self, values):
        return super().update(values.mean(keepdims=True))


class Forgetful(Total):
    """A merge keeps one side only."""

    def merge(self, other):
        return self if self.count is not None else other


class Mean(StreamingMetric):
    """The mean of a field."""

    def __init__(self, state=Total, keep_padding=False):
        super().__init__(prefix="mean")
        self.state, self.keep_padding = state, keep_padding

    def empty_state(self):
        return self.state()

    def read(self, samples):
        return Batch(np.array([float(sample["value"]) for sample in samples]))

    def _local_state(self, *, drop_last):
        return super()._local_state(drop_last=drop_last and not self.keep_padding)

    def compute(self, state):
        return {"mean": state.total / state.count if state.count else float("nan")}


class FirstClassTwice(SingleLabelPRF):
    """A mean in which the first class weighs more than the others."""

    def compute(self, state):
        found = super().compute(state)
        recalls = np.nan_to_num([found[f"recall/{name}"] for name in self.class_names(NUM_CLASSES)])
        return {**found, "recall": (recalls[0] + recalls.sum()) / (NUM_CLASSES + 1)}


class Rounded(SingleLabelAUC):
    """Depends on the values of the scores, not only on their order."""

    def read(self, samples):
        scores, labels = super().read(samples).columns
        return Batch(np.round(scores.astype(np.float64)), labels)


def mean(*options):
    """Whole numbers, so that sums are exact, and all different, so that a missing one shows."""

    def numbered(generator, count):
        return [dict(value=torch.tensor(float(value))) for value in generator.permutation(count) + 1]

    return MetricCase("mean", partial(Mean, *options), numbered, lambda samples: {}, dtypes=["float64"])


def feed(check, case, roll):
    samples = samples_of(roll, case)
    feeding = feeding_of(roll, len(samples))
    check(case, samples, checks.numbers(small_metric(case), [samples], len(samples)), feeding)


def merge(case, roll):
    samples = samples_of(roll, case)
    checks.check_merging(case, cut_at(samples, feeding_of(roll, len(samples)).ends))


def test_faulty_metrics_are_found():
    must_find("in other batches", partial(feed, checks.check_split, mean(MeanOfMeans)))
    must_find(r"rank \d of \d, padded", partial(feed, checks.check_sharded, mean(Total, True)))
    must_find("merge is not commutative", partial(merge, mean(Forgetful)))
    unfair = MetricCase(
        "unfair", partial(FirstClassTwice, classwise=True), single_label, dict, classes=("a", "b", "c", "d")
    )
    rounded = MetricCase("rounded", Rounded, single_label, dict)
    must_find(
        "with the classes in another order: recall",
        lambda roll: checks.check_classes(unfair, samples_of(roll, unfair, rows_differ=True), roll.order(NUM_CLASSES)),
    )
    must_find(
        "scores .*: auc",
        lambda roll: checks.check_ranked(rounded, samples_of(roll, rounded), score_map_of(roll), ("auc",)),
    )


@pytest.mark.parametrize(
    "check",
    [
        lambda: checks.check_rates({"det/f1": 1.5}),
        lambda: checks.check_inputs_kept(lambda scores: scores.sort(), [np.array([2.0, 1.0])]),
        lambda: checks.check_same_figures({"class/f1": np.array([0.5])}, {"class/f1": np.array([np.nan])}, "other"),
        lambda: checks.check_confusion(np.array([[1, 0], [0, 3]]), ground_truths=[1], detections=[1], tp=[1]),
        lambda: checks.check_agreement({"f1": np.array([0.5])}, {"f1": [np.nextafter(0.5, 1)]}, "log and table"),
    ],
)
def test_wrong_values_are_found(check):
    with pytest.raises(AssertionError):
        check()
