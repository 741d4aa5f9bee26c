"""Class names never make two values share a key."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm_metrics_plugin import SingleLabelAUC
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.functional._arrays import unique_names
from tests.helpers.cases import CASES
from tests.helpers.result_files import pair

# Parts of keys, and names that look like names made unique.
HOSTILE = [
    *("50", "75", "low", "high", "error", "micro", "weighted", "f1_micro", "f1", "of_means", "threshold", "thr-0.30"),
    *("no-thr", "thr-0.30/a", "low/a", "/", "", " ", "a", "a_0", "a_1", "a_0_0", "a_1_1", "0", "1", "background"),
]
class_names = st.sampled_from(HOSTILE) | st.text(max_size=3)
CLASSWISE = {case.name: case for case in CASES if getattr(case.metric(), "classwise", False) and case.classes}


@lru_cache(maxsize=None)
def prepared(name):
    """A metric, its state and its values with plain class names."""
    case = CLASSWISE[name]
    metric = case.metric()
    metric.dataset_meta = {"classes": [f"class {index}" for index in range(len(case.classes))]}
    metric.process(None, case.draw(30))
    state = metric._local_state(drop_last=False)[0]
    return metric, state, values_of(metric, state)


def values_of(metric, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return metric.compute_metrics([state])


@pytest.mark.parametrize("name", CLASSWISE)
@settings(max_examples=25, deadline=None)
@given(names=st.lists(class_names, min_size=4, max_size=4))
def test_no_class_name_replaces_another_key(name, names):
    metric, state, expected = prepared(name)
    num_classes = len(CLASSWISE[name].classes)
    metric.dataset_meta = {"classes": names[:num_classes]}
    values = values_of(metric, state)
    assert np.array_equal(list(values.values()), list(expected.values()), equal_nan=True)
    unique = {f"class {index}": unique for index, unique in enumerate(metric.class_names(num_classes))}
    assert len(set(unique.values())) == num_classes
    for plain_key, key in zip(expected, values):
        value, slash, class_name = plain_key.partition("/")
        assert key == value + (slash + unique[class_name] if slash else "")


@given(st.lists(class_names, max_size=30))
def test_names_become_unique_and_unique_names_stay(names):
    unique = unique_names(names)
    assert len(unique) == len(set(unique)) == len(names)
    assert all(new == old for new, old in zip(unique, names) if names.count(old) == 1)


def test_many_equal_names():
    """Quadratic time would be minutes."""
    metric = SingleLabelAUC()
    metric.dataset_meta = {"classes": ["same"] * 100_000}
    assert len(set(metric.class_names(100_000))) == 100_000


@pytest.mark.filterwarnings("ignore:.*several categories have the same name")
def test_thresholds_of_classes_with_the_same_name(tmp_path):
    annotations, _ = pair(tmp_path)
    content = json.loads(annotations.read_text())
    for category in content["categories"]:
        category["name"] = "same"
    annotations.write_text(json.dumps(content))
    arguments = ["detection", str(annotations), str(tmp_path / "results.pkl"), str(tmp_path / "out"), "--quiet"]
    assert main([*arguments, "--operating-point", "f1"]) == 0
    thresholds = json.loads((tmp_path / "out" / "thresholds.json").read_text())["per_class"]
    assert list(thresholds) == [f"same_{index}" for index in range(len(content["categories"]))]
