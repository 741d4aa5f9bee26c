"""The invariances themselves: each raises AssertionError with what was expected and what came."""

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

# Rates of any kind; what is counted or a threshold has a name of its own.
_RATE = re.compile(
    r"(operating_|cross_fitted_)?(f1|f_score|precision|recall|specificity|accuracy|auc|m?AP|m?IoU)(?!_count)"
)


def numbers(metric, batches, size):
    """What the metric says of the batches."""
    for batch in batches:
        metric.process(None, batch)
    return metric.evaluate(size)


def _bare(metric, found):
    prefix = f"{metric.prefix}/" if metric.prefix else ""
    return {key[len(prefix) :]: value for key, value in found.items()}


# --- one metric, fed in several ways ----------------------------------------------------------------------------------


def check_split(case, samples, expected, feeding):
    """Cut into any batches, and in any order, the samples give the same."""
    batches = cut_at([samples[index] for index in feeding.order], feeding.cuts)
    assert_same(numbers(small_metric(case), batches, len(samples)), expected, case.tolerance, "in other batches")


def check_sharded(case, samples, expected, feeding):
    """On any number of ranks that share the samples in any way, every rank gives the same."""

    def evaluate(rank):
        metric = small_metric(case)
        if feeding.sharding == "any":
            share = [sample for sample, owner in zip(samples, feeding.owners) if owner == rank]
            return numbers(metric, cut_at(share, [len(share) // 2]), 0)  # size 0: nothing is padding
        share = dealt(samples, padded=feeding.sharding == "padded")
        return numbers(metric, batches_of(share, feeding.batch_size), len(samples))

    for rank, found in enumerate(on_ranks(feeding.world_size, evaluate)):
        assert_same(found, expected, case.tolerance, f"rank {rank} of {feeding.world_size}, {feeding.sharding}")


def batches_of(samples, size):
    """The samples in batches of a size."""
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def check_merging(case, parts, expected=None):
    """Merging states is associative and commutative, the empty state changes nothing, and neither side changes.

    ``expected`` is what the samples of all parts give together, where that is known.
    """
    metric = small_metric(case)
    before = _map_tensors(parts, torch.clone)  # arrays are read-only
    states = [_state(metric, part) for part in parts]
    assert _equal(parts, before), f"{case.name} changed its input"
    # Made anew: only samples may tell how many classes there are.
    states = [_frozen(state if part else metric.empty_state()) for state, part in zip(states, parts)]
    kept = [state.arrays() for state in states]
    first, second, third = states
    whole = first.merge(second).merge(third)
    assert _equal([state.arrays() for state in states], kept), "merge changed one of its sides"
    _assert_equal_arrays(whole, first.merge(second.merge(third)), "merge is not associative")
    for state in states:
        _assert_equal_arrays(state.merge(metric.empty_state()), state, "the empty state is no identity on the right")
        _assert_equal_arrays(metric.empty_state().merge(state), state, "the empty state is no identity on the left")
    expected = metric.compute_metrics([_frozen(whole)]) if expected is None else _bare(metric, expected)
    swapped = metric.compute_metrics([_frozen(third.merge(first).merge(second))])
    assert_same(swapped, expected, case.tolerance, "merge is not commutative")


def _state(metric, samples):
    batch = metric.read(samples) if samples else None  # first: it may tell how many classes there are
    return metric.empty_state() if batch is None else metric.empty_state().update(*batch.columns)


def _frozen(state):
    """The state with arrays that nobody may write to."""

    def frozen(array):
        if array is not None:
            array = np.array(array)
            array.setflags(write=False)
        return array

    return state.with_arrays({name: frozen(array) for name, array in state.arrays().items()})


def _assert_equal_arrays(found, expected, what):
    pairs = zip(found.arrays().items(), expected.arrays().values())
    for (name, left), right in pairs:
        same = left is right or (left is not None and right is not None and np.array_equal(left, right))
        assert same, f"{what}: {name} is {left!r}, expected {right!r}"


def check_rates(found):
    """Every rate lies in 0 to 1, or is undefined."""
    for key, value in found.items():
        if any(map(_RATE.match, key.split("/"))) and not (0 <= value <= 1 or math.isnan(value)):
            raise AssertionError(f"{key} is {value!r}, expected 0 to 1")


# --- classes and scores -----------------------------------------------------------------------------------------------

# Distances between classes are part of these: with other neighbors they are others.
_ORDINAL = ("kappa_linear", "kappa_quadratic")


def check_classes(case, samples, permutation):
    """With the classes in another order, and their names along, every number is the same within 1e-12."""
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
        found = _bare(metric, numbers(metric, [given] if given else [], len(given)))
        results.append({key: found[key] for key in sorted(found) if not key.startswith(_ORDINAL)})
    assert_same(results[1], results[0], 1e-12, "with the classes in another order")


def relabelled(sample, permutation):
    """The sample with class ``permutation[c]`` wherever it was c."""
    permutation = np.asarray(permutation)
    back = np.argsort(permutation)
    changed = dict(sample)
    for field in ("pred_score", "gt_score"):
        if field in sample:
            changed[field] = sample[field][back]
    for field in ("gt_label", "pred_label"):
        if field in sample:
            changed[field] = _renamed(sample[field], permutation)
    for field in ("gt_sem_seg", "pred_sem_seg"):
        if field in sample:
            changed[field] = {"data": _renamed(sample[field]["data"], permutation)}
    if "seg_logits" in sample:
        changed["seg_logits"] = {"data": sample["seg_logits"]["data"][back]}
    for field in ("gt_instances", "pred_instances", "ignored_instances"):
        if field in sample:
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
    """A strictly growing map of all scores changes none of the numbers whose keys are like ``patterns``."""
    results = []
    for given in (samples, mapped(samples, score_map)):
        metric = small_metric(case)
        found = _bare(metric, numbers(metric, [given] if given else [], len(given)))
        results.append({key: found[key] for key in found if any(fnmatchcase(key, one) for one in patterns)})
    assert results[0], f"no key of {case.name} is like {patterns}"
    assert_same(results[1], results[0], case.tolerance, f"scores {score_map.kind}")


def mapped(samples, score_map):
    """The samples with other scores in the same order."""
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
    """The function accepts arrays that nobody may write to, and leaves others as they are."""
    given = [np.array(array) for array in arrays]
    function(*given)
    for number, (found, array) in enumerate(zip(given, arrays)):
        assert np.array_equal(found, array), f"argument {number} was changed"
    for array in given:
        array.setflags(write=False)
    function(*given)


def check_same_figures(found, expected, what, *, tolerance=0.0):
    """Two dictionaries of arrays hold the same, NaN included."""
    assert found.keys() == expected.keys(), f"{what}: {list(found)} differ from {list(expected)}"
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=0, atol=tolerance, equal_nan=True, err_msg=f"{what}: {name}"
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
    """The matrix's rows are the ground truths of each class, its columns the detections, its diagonal what is right."""
    np.testing.assert_array_equal(matrix[:-1].sum(axis=1), ground_truths, err_msg="rows are not the ground truths")
    np.testing.assert_array_equal(matrix[:, :-1].sum(axis=0), detections, err_msg="columns are not the detections")
    np.testing.assert_array_equal(matrix.diagonal()[:-1], tp, err_msg="the diagonal is not what is right")
    assert matrix[-1, -1] == 0, "background was taken for background"


def check_agreement(found, said, what):
    """Every number found stands in what is said under the same name, bit for bit; null is NaN."""
    for name, value in found.items():
        other = np.asarray(said[name], dtype=float)
        if not np.array_equal(np.asarray(value, dtype=float), other, equal_nan=True):
            raise AssertionError(f"{what}: {name} is {value}, elsewhere {other}")
