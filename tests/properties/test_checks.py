"""Each check of ``checks.py`` finds what it is there to find, with the examples that the strategies make of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from mmengine.dist import get_dist_info

from mm_metrics_plugin import SingleLabelAUC, SingleLabelPRF, StreamingMetric
from mm_metrics_plugin.functional.classification.auc import histogram_auc, roc_auc
from mm_metrics_plugin.functional.detection.confusion_rules import TP
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.base import CONCAT, SUM, State
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.scores import ScoreHistogramState
from mm_metrics_plugin.testing import MetricCase
from tests.helpers import checks
from tests.helpers.cases_single_label import NUM_CLASSES, single_label
from tests.helpers.coco_problems import match_table
from tests.helpers.ranks import dealt, on_ranks
from tests.helpers.strategies import (
    ScoreMap,
    cut_at,
    detection_problem_of,
    feeding_of,
    order_of,
    rolls,
    samples_of,
    score_map_of,
    scored_labels_of,
    small_metric,
)
from tests.properties.test_agreement import check_grid, detection_report

pytestmark = [
    pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning"),
    # Samples without names, or drawn twice, cannot be told from padding; tests/metrics/test_padding.py expects this.
    pytest.mark.filterwarnings("ignore:.* samples of a data set of:mm_metrics_plugin.exceptions.MetricWarning"),
]


def must_find(match, error=AssertionError):
    """Runs the decorated property over the usual examples, and fails unless one of them breaks it in this way."""

    def run(check):
        @settings(phases=[Phase.generate])
        @given(rolls)
        def tried(roll):
            check(roll)

        with pytest.raises(error, match=match):
            tried()

    return run


# --- a metric with every fault there can be, one at a time ------------------------------------------------------------


def numbered(generator, count):
    """Whole numbers, so that sums are exact, and all different, so that it shows which ones are missing."""
    return [dict(value=torch.tensor(float(value))) for value in generator.permutation(count) + 1]


class Total(State):
    """A sum, its number of terms, and all terms."""

    reductions = {"total": SUM, "count": SUM, "terms": CONCAT}

    def update(self, values):
        self.add("total", values.sum())
        self.add("count", np.int64(len(values)))
        self.add("terms", values)
        return self


class LastBatch(Total):
    """Forgets all batches but the last."""

    def update(self, values):
        self._clear()
        return super().update(values)


class MeanOfMeans(Total):
    """Every batch weighs the same, however many samples it holds."""

    def update(self, values):
        return super().update(values.mean(keepdims=True))


class Hidden(Total):
    """Counts in a place that nobody adds up."""

    def _clear(self):
        super()._clear()
        self.seen = 0

    def update(self, values):
        self.seen += len(values)
        return super().update(values)


class Forgetful(Total):
    """Keeps one side only."""

    def merge(self, other):
        return self if self.count is not None else other


class Averaging(Total):
    """Halves the sum at every merge."""

    def merge(self, other):
        merged = super().merge(other)
        if self.count is not None and other.count is not None:
            merged.total = merged.total / 2
        return merged


class NeverEmpty(Total):
    """Has seen something before it has seen anything."""

    def _clear(self):
        super()._clear()
        self.total, self.count = np.float64(0), np.int64(1)


class NotFromTheLeft(Total):
    """Merged into one that is empty, it is gone."""

    def merge(self, other):
        return self if self.count is None else super().merge(other)


class InPlace(Total):
    """Takes in what it is merged with."""

    def merge(self, other):
        merged = super().merge(other)
        for block in other.terms.blocks:
            self.terms.append(block)
        return merged


class Faulty(StreamingMetric):
    """The mean of a field, and the faults."""

    def __init__(self, state=Total, fault=None):
        super().__init__(prefix="faulty")
        self.state, self.fault = state, fault

    def empty_state(self):
        return self.state()

    def read(self, samples):
        values = np.array([float(sample["value"]) for sample in samples])
        if self.fault == "changes its input":
            for sample in samples:
                sample["value"] = sample["value"] * 2
        return Batch(values)

    def evaluate(self, size):
        self.size = size
        return super().evaluate(size)

    def _local(self, *, drop_last):
        state, samples = super()._local(drop_last=drop_last and self.fault != "counts padding")
        if self.fault == "ranks are equally long" and self.size:
            terms = state.arrays()["terms"]
            kept = [] if terms is None else terms[: self.size // get_dist_info()[1]]
            state = self.state().update(np.array(kept)) if len(kept) else self.state()
        return state, samples

    def compute(self, state):
        if not state.count:
            return {"mean": float("nan")}
        if self.fault == "the first is special":
            return {"mean": state.arrays()["terms"][0]}
        if self.fault == "counts elsewhere":
            return {"mean": state.total / state.seen}
        return {"mean": state.total / state.count}


def faulty(state=Total, fault=None, **options):
    return MetricCase(
        "faulty", partial(Faulty, state, fault), numbered, lambda samples: {}, dtypes=["float64"], **options
    )


def feed(check, case, roll):
    samples = samples_of(roll, case)
    feeding = feeding_of(roll, len(samples))
    check(case, samples, checks.numbers(small_metric(case), [samples], len(samples)), feeding)


def merge(case, roll):
    samples = samples_of(roll, case)
    checks.check_merging(case, cut_at(samples, feeding_of(roll, len(samples)).ends))


def test_the_same_metric_without_fault_passes():
    case = faulty()

    @given(rolls)
    def tried(roll):
        feed(checks.check_split, case, roll)
        feed(checks.check_sharded, case, roll)
        merge(case, roll)

    tried()


@pytest.mark.parametrize("state", [LastBatch, MeanOfMeans])
def test_states_that_depend_on_the_batches_are_found(state):
    must_find("in other batches: faulty/mean")(partial(feed, checks.check_split, faulty(state)))


def test_metrics_that_depend_on_the_order_are_found():
    case = faulty(fault="the first is special")
    must_find("in other batches: faulty/mean")(partial(feed, checks.check_split, case))


def test_metrics_that_count_padding_are_found():
    case = faulty(fault="counts padding")
    must_find(r"rank \d of \d, padded: faulty/mean")(partial(feed, checks.check_sharded, case))


def test_what_is_lost_between_ranks_is_found():
    case = faulty(Hidden, "counts elsewhere")
    must_find(r"rank \d of \d, \w+: faulty/mean")(partial(feed, checks.check_sharded, case))


def test_metrics_that_cut_longer_ranks_are_found():
    """What all ranks have is right, and with one rank nothing shows."""
    case = faulty(fault="ranks are equally long")
    must_find(r"rank \d of \d, (padded|uneven): faulty/mean")(partial(feed, checks.check_sharded, case))


MERGES = {
    "merge is not commutative": (Total, "the first is special"),
    "merge is not (associative: total|commutative: mean)": (Averaging, None),
    "the empty state is no identity on the right: count": (NeverEmpty, None),
    "merge changed one of its sides": (InPlace, None),
    "faulty changed its input": (Total, "changes its input"),
}


@pytest.mark.parametrize("message", MERGES)
def test_wrong_merges_are_found(message):
    must_find(message)(partial(merge, faulty(*MERGES[message])))


def test_what_is_lost_in_an_empty_state_is_found():
    case = faulty(NotFromTheLeft)
    with pytest.raises(AssertionError, match="the empty state is no identity on the left: total"):
        checks.check_merging(case, [case.draw(3), [], []])


def test_merges_that_forget_are_found():
    """They are associative, and the empty state is their identity."""
    must_find("merge is not commutative")(partial(merge, faulty(Forgetful)))


def test_rates_outside_of_0_to_1_are_found():
    for found in ({"det/f1": 1.5}, {"recall@1": -0.5}, {"single-label-prf/precision/cat": 2.0}, {"mAP_50": -1.0}):
        with pytest.raises(AssertionError, match="expected 0 to 1"):
            checks.check_rates(found)
    checks.check_rates({"det/tp": 5.0, "single-label/recall_count@1": 3.0, "f1": float("nan"), "mcc": -0.5})


# --- classes and scores -----------------------------------------------------------------------------------------------


class FirstClassTwice(SingleLabelPRF):
    """A mean in which the first class weighs more than the others."""

    def compute(self, state):
        found = super().compute(state)
        recalls = np.nan_to_num([found[f"recall/{name}"] for name in self.class_names(NUM_CLASSES)])
        return {**found, "recall": (recalls[0] + recalls.sum()) / (NUM_CLASSES + 1)}


class OnScores(SingleLabelAUC):
    """Looks at how much the scores are, not only at their order."""

    def read(self, samples):
        scores, labels = super().read(samples).columns
        return Batch(np.round(scores.astype(np.float64)), labels)


def test_classes_that_are_not_alike_are_found():
    build = partial(FirstClassTwice, classwise=True)
    case = MetricCase("unfair", build, single_label, dict, classes=("a", "b", "c", "d"))

    @must_find("with the classes in another order: recall")
    def _(roll):
        samples = samples_of(roll, case, rows_differ=True)
        checks.check_classes(case, samples, roll.order(NUM_CLASSES))


def test_rank_metrics_that_look_at_the_scores_are_found():
    case = MetricCase("greedy", OnScores, single_label, dict)

    @must_find("scores (ranks|negative|scaled|neighbours): auc")
    def _(roll):
        checks.check_ranked(case, samples_of(roll, case), score_map_of(roll), ("auc",))

    with pytest.raises(AssertionError, match="no key of greedy"):
        checks.check_ranked(case, [], ScoreMap("ranks", 1), ("speed",))


def test_certificates_that_promise_too_much_are_found():
    @must_find("further than")
    def _(roll):
        problem = scored_labels_of(roll)
        state = ScoreHistogramState(4).update(problem.scores, problem.labels)
        binned = histogram_auc(state.positives, state.totals)
        exact = roc_auc([problem.scores], problem.labels)
        checks.check_certificate(exact.value, binned.value, binned.error / 2)

    with pytest.raises(AssertionError, match="where the exact value is nan"):
        checks.check_certificate(float("nan"), 0.5, 1.0)


# --- functions of arrays ----------------------------------------------------------------------------------------------


def test_functions_that_change_their_arrays_are_found():
    @must_find("argument 0 was changed|read-only", error=(AssertionError, ValueError))
    def _(roll):
        problem = scored_labels_of(roll)
        checks.check_inputs_kept(lambda scores, labels: scores.sort(axis=0), (problem.scores, problem.labels))

    def writes_back(scores):
        scores[:] = scores

    with pytest.raises(ValueError, match="read-only"):
        checks.check_inputs_kept(writes_back, [np.ones(3)])


def in_order_of_rows(problem):
    """True positives of a matching that takes detections as they stand, whatever their scores."""
    dets = problem.batch.detections
    scores = 1 - np.arange(len(dets)) / 100
    in_order = replace(problem.batch, detections=replace(dets, scores=scores, precision=None))
    table = match_images(in_order, DetectionSettings(), num_classes=problem.num_classes).table
    score = dets.scores[np.round((1 - table.score) * 100).astype(int)]
    weights = score * (table.details.outcome == TP)
    return {"class/right": np.bincount(table.label, weights=weights, minlength=problem.num_classes)}


def test_matching_in_the_order_of_rows_is_found():
    @must_find("in another order: class/right")
    def _(roll):
        problem = detection_problem_of(roll, distinct=True)
        found = problem.batch.detections
        moved = problem.with_rows(detections=found.take(order_of(roll, found, within_images=True)))
        checks.check_same_figures(in_order_of_rows(moved), in_order_of_rows(problem), "in another order")


def test_figures_that_differ_are_found():
    figures = {"class/f1": np.array([0.5, np.nan])}
    checks.check_same_figures({"class/f1": np.array([0.5, np.nan])}, figures, "same")
    for other in ({"class/f1": np.array([0.5, 0.0])}, {"class/f1": np.array([np.nextafter(0.5, 1), np.nan])}, {}):
        with pytest.raises(AssertionError, match="other"):
            checks.check_same_figures(other, figures, "other")


def test_figures_permute_along_with_the_classes():
    figures = {"matrix/m": np.arange(9).reshape(3, 3), "class/c": np.array([10, 11]), "all/a": np.array(7)}
    found = checks.permuted_figures(figures, [1, 0])
    assert found["matrix/m"].tolist() == [[4, 3, 5], [1, 0, 2], [7, 6, 8]]
    assert found["class/c"].tolist() == [11, 10] and found["all/a"] == 7
    three = checks.permuted_figures({"class/c": np.array([10, 11, 12])}, [2, 0, 1])
    assert three["class/c"].tolist() == [11, 12, 10]  # what was 0 is called 2


@pytest.mark.parametrize(
    "matrix, message",
    [
        ([[2, 0, 0], [0, 0, 0], [0, 1, 0]], "rows are not the objects"),  # one object twice
        ([[1, 0, 0], [0, 0, 0], [1, 1, 0]], "columns are not the detections"),
        ([[0, 1, 0], [0, 0, 0], [1, 0, 0]], "the diagonal is not what is right"),
        ([[1, 0, 0], [0, 0, 0], [0, 1, 3]], "background was taken for background"),
    ],
)
def test_wrong_matrices_are_found(matrix, message):
    with pytest.raises(AssertionError, match=message):
        checks.check_confusion(np.array(matrix), objects=[1, 0], detections=[1, 1], tp=[1, 0])
    checks.check_confusion(np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0]]), objects=[1, 0], detections=[1, 1], tp=[1, 0])


def test_curves_of_other_detections_are_found():
    @must_find("curves.csv: (precision|recall|f1)")
    def _(roll):
        problem = detection_problem_of(roll, least_images=1)
        report, _ = detection_report(problem, 0.5)
        found = problem.batch.detections
        other = replace(problem.batch, detections=found.take(np.arange(len(found) // 2)))
        check_grid(report.analysis, match_table(other, problem.num_classes))


def test_disagreement_in_the_last_digit_is_found():
    checks.check_agreement({"f1": np.array([0.5, np.nan])}, {"f1": [0.5, None]}, "log and table")
    for said in ([np.nextafter(0.5, 1), None], [0.5, 0.0], [0.5]):
        with pytest.raises(AssertionError, match="log and table: f1"):
            checks.check_agreement({"f1": np.array([0.5, np.nan])}, {"f1": said}, "log and table")


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_ranks_exchange_and_errors_come_out():
    from mm_metrics_plugin.states import distributed

    def talk(rank):
        told = torch.tensor([rank, 10 - rank])
        largest = told.clone()
        distributed.all_reduce(told, op="sum")
        distributed.all_reduce(largest, op="max")
        gathered = distributed.all_gather(torch.tensor([rank]))
        return told.tolist(), largest.tolist(), distributed.all_gather_object(rank), [int(one) for one in gathered]

    assert on_ranks(3, talk) == [([3, 27], [2, 10], [0, 1, 2], [0, 1, 2])] * 3
    assert distributed.get_world_size() == 1

    def fail(rank):
        if rank == 1:
            raise KeyError("rank 1")
        return distributed.all_gather_object(rank)

    with pytest.raises(KeyError, match="rank 1"):
        on_ranks(3, fail)


def test_samples_are_dealt_as_the_sampler_deals_them():
    assert on_ranks(3, lambda rank: dealt([0, 1, 2, 3], padded=True)) == [[0, 3], [1, 0], [2, 1]]
    assert on_ranks(3, lambda rank: dealt([0, 1, 2, 3], padded=False)) == [[0, 3], [1], [2]]
    assert on_ranks(3, lambda rank: dealt([0], padded=True)) == [[0], [0], [0]]
    assert on_ranks(2, lambda rank: dealt([], padded=True)) == [[], []]
