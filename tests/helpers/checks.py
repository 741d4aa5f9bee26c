"""Checks of invariances, which raise AssertionError with the expected and the actual value."""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase

import numpy as np
import torch

from mm_metrics_plugin.metrics.sample_fields import to_host
from mm_metrics_plugin.testing import _equal, _map_tensors, assert_same
from tests.helpers.ranks import dealt, on_ranks
from tests.helpers.strategies import cut_at, small_metric

# Rates, not counts or thresholds.
_RATE = re.compile(
    r"(operating_|cross_fitted_)?(f1|f_score|precision|recall|specificity|accuracy|auc|m?AP|m?IoU)(?!_count)"
)


def numbers(metric, batches, size):
    """The values of a metric on the batches."""
    for batch in batches:
        metric.process(None, batch)
    return metric.evaluate(size)


def _bare(metric, values):
    prefix = f"{metric.prefix}/" if metric.prefix else ""
    return {key[len(prefix) :]: value for key, value in values.items()}


# --- samples in other batches or on other ranks -----------------------------------------------------------------------


def check_split(case, samples, expected, feeding):
    """The values do not depend on batches and order."""
    batches = cut_at([samples[index] for index in feeding.order], feeding.cuts)
    assert_same(numbers(small_metric(case), batches, len(samples)), expected, case.tolerance, "in other batches")


def check_sharded(case, samples, expected, feeding):
    """The values do not depend on the number of ranks and their shares of the samples."""

    def evaluate(rank):
        metric = small_metric(case)
        if feeding.sharding == "any":
            share = [sample for sample, owner in zip(samples, feeding.owners) if owner == rank]
            return numbers(metric, cut_at(share, [len(share) // 2]), 0)  # size 0: nothing is padding
        share = dealt(samples, padded=feeding.sharding == "padded")
        return numbers(metric, batches_of(share, feeding.batch_size), len(samples))

    for rank, values in enumerate(on_ranks(feeding.world_size, evaluate)):
        assert_same(values, expected, case.tolerance, f"rank {rank} of {feeding.world_size}, {feeding.sharding}")


def batches_of(samples, size):
    """The samples in batches of this size."""
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def check_merging(case, parts, expected=None):
    """Merging is associative and commutative, the empty state is its identity, and it does not change its inputs.

    ``expected`` are the values of all samples, if they are known.
    """
    metric = small_metric(case)
    before = _map_tensors(parts, torch.clone)  # arrays are read-only
    states = [_state(metric, part) for part in parts]
    assert _equal(parts, before), f"{case.name} changed its input"
    # New empty states: the number of classes may come from samples.
    states = [_frozen(state if part else metric.empty_state()) for state, part in zip(states, parts)]
    kept = [state.arrays() for state in states]
    first, second, third = states
    whole = first.merge(second).merge(third)
    assert _equal([state.arrays() for state in states], kept), "merge changed an input"
    _assert_equal_arrays(whole, first.merge(second.merge(third)), "merge is not associative")
    for state in states:
        _assert_equal_arrays(state.merge(metric.empty_state()), state, "the empty state is not the right identity")
        _assert_equal_arrays(metric.empty_state().merge(state), state, "the empty state is not the left identity")
    expected = metric.compute_metrics([_frozen(whole)]) if expected is None else _bare(metric, expected)
    swapped = metric.compute_metrics([_frozen(third.merge(first).merge(second))])
    assert_same(swapped, expected, case.tolerance, "merge is not commutative")


def _state(metric, samples):
    batch = metric.read(samples) if samples else None  # first: the number of classes may come from it
    return metric.empty_state() if batch is None else metric.empty_state().update(*batch.columns)


def _frozen(state):
    """The state with read-only arrays."""

    def frozen(array):
        if array is not None:
            array = np.array(array)
            array.setflags(write=False)
        return array

    return state.with_arrays({name: frozen(array) for name, array in state.arrays().items()})


def _assert_equal_arrays(values, expected, what):
    pairs = zip(values.arrays().items(), expected.arrays().values())
    for (name, left), right in pairs:
        same = left is right or (left is not None and right is not None and np.array_equal(left, right))
        assert same, f"{what}: {name} is {left!r}, expected {right!r}"


def check_rates(values):
    """Every rate is in 0 to 1 or undefined."""
    for key, value in values.items():
        if any(map(_RATE.match, key.split("/"))) and not (0 <= value <= 1 or math.isnan(value)):
            raise AssertionError(f"{key} is {value!r}, expected 0 to 1")


# --- classes and scores -----------------------------------------------------------------------------------------------

# Values that depend on the order of the classes.
_ORDINAL = ("kappa_linear", "kappa_quadratic")


def check_classes(case, samples, permutation):
    """With permuted classes and names, all values are equal within 1e-12."""
    names = [None] * len(permutation)
    for old, new in enumerate(permutation):
        names[new] = case.classes[old] if case.classes else None
    results = []
    for classes, given in (
        (case.classes, samples),
        (names if case.classes else None, [relabelled(sample, permutation) for sample in samples]),
    ):
        metric = small_metric(case)
        metric.dataset_meta = {"classes": list(classes)} if classes else {}
        values = _bare(metric, numbers(metric, [given] if given else [], len(given)))
        results.append({key: values[key] for key in sorted(values) if not key.startswith(_ORDINAL)})
    assert_same(results[1], results[0], 1e-12, "with the classes in another order")


def relabelled(sample, permutation):
    """The sample with class ``permutation[c]`` instead of c."""
    permutation = np.asarray(permutation)
    back = np.argsort(permutation)
    changed = dict(sample)
    for field in sample.keys() & {"pred_score", "gt_score"}:
        changed[field] = sample[field][back]
    for field in sample.keys() & {"gt_label", "pred_label"}:
        changed[field] = _renamed(sample[field], permutation)
    for field in sample.keys() & {"gt_sem_seg", "pred_sem_seg"}:
        changed[field] = {"data": _renamed(sample[field]["data"], permutation)}
    if "seg_logits" in sample:
        changed["seg_logits"] = {"data": sample["seg_logits"]["data"][back]}
    for field in sample.keys() & {"gt_instances", "pred_instances", "ignored_instances"}:
        changed[field] = {**sample[field], "labels": _renamed(sample[field]["labels"], permutation)}
    return changed


def _renamed(labels, permutation):
    values = np.asarray(labels)
    known = (values >= 0) & (values < len(permutation))
    result = values.copy()
    result[known] = permutation[values[known].astype(np.int64)]
    return result


SCORE_FIELDS = ("pred_score", "pos_score", "neg_score")


def check_ranked(case, samples, score_map, patterns):
    """A strictly increasing map of all scores does not change the values whose keys match ``patterns``."""
    results = []
    for given in (samples, mapped(samples, score_map)):
        metric = small_metric(case)
        values = _bare(metric, numbers(metric, [given] if given else [], len(given)))
        results.append({key: values[key] for key in values if any(fnmatchcase(key, pattern) for pattern in patterns)})
    assert results[0], f"no key of {case.name} matches {patterns}"
    assert_same(results[1], results[0], case.tolerance, f"scores {score_map.kind}")


def mapped(samples, score_map):
    """The samples with mapped scores."""
    samples = _map_tensors(samples, lambda tensor: to_host([tensor])[0])
    parts = [sample.get("pred_instances", sample) for sample in samples]
    fields = [name for name in (*SCORE_FIELDS, "scores") if samples and name in parts[0]]
    known = np.unique(np.concatenate([np.ravel(part[name]) for part in parts for name in fields] or [np.empty(0)]))
    result = []
    for sample, part in zip(samples, parts):
        other = {**part, **{name: score_map(part[name], known) for name in fields}}
        result.append({**sample, "pred_instances": other} if "pred_instances" in sample else other)
    return result


# --- functions of arrays ----------------------------------------------------------------------------------------------


def check_inputs_kept(function, arrays):
    """The function accepts read-only arrays and does not change writable ones."""
    given = [np.array(array) for array in arrays]
    function(*given)
    for number, (values, array) in enumerate(zip(given, arrays)):
        assert np.array_equal(values, array), f"argument {number} was changed"
    for array in given:
        array.setflags(write=False)
    function(*given)


def check_same_figures(values, expected, what, *, tolerance=0.0):
    """Two dictionaries have equal arrays, NaN included."""
    assert values.keys() == expected.keys(), f"{what}: {list(values)} differ from {list(expected)}"
    for name, value in expected.items():
        np.testing.assert_allclose(
            values[name], value, rtol=0, atol=tolerance, equal_nan=True, err_msg=f"{what}: {name}"
        )


def permuted_figures(figures, permutation):
    """Metrics of :mod:`tests.helpers.detection_metrics` after class c is renamed to ``permutation[c]``."""
    back = np.argsort(permutation)
    with_background = np.append(back, len(back))
    result = {}
    for name, value in figures.items():
        kind = name.split("/")[0]
        if kind == "matrix":
            value = value[np.ix_(with_background, with_background)]
        elif kind == "class":
            value = value[back]
        result[name] = value
    return result


def check_confusion(matrix, *, ground_truths, detections, tp):
    """Rows sum to the ground truths of each class, columns to the detections, and the diagonal is TP."""
    np.testing.assert_array_equal(matrix[:-1].sum(axis=1), ground_truths, err_msg="rows are not the ground truths")
    np.testing.assert_array_equal(matrix[:, :-1].sum(axis=0), detections, err_msg="columns are not the detections")
    np.testing.assert_array_equal(matrix.diagonal()[:-1], tp, err_msg="the diagonal is not TP")
    assert matrix[-1, -1] == 0, "background is matched to background"


def check_agreement(values, others, what):
    """Every value is equal to the other one of the same name; null is NaN."""
    for name, value in values.items():
        other = np.asarray(others[name], dtype=float)
        if not np.array_equal(np.asarray(value, dtype=float), other, equal_nan=True):
            raise AssertionError(f"{what}: {name} is {value}, elsewhere {other}")
