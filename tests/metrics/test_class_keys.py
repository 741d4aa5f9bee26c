"""No name of a class makes two numbers share a key."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm_metrics_plugin import (
    DetectionPRF,
    DiceScore,
    MeanIoU,
    MultiLabelAUC,
    MultiLabelPRF,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
)
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.metrics.runner_log import class_key
from tests.helpers.cases_classification import multi_label
from tests.helpers.cases_detection import CLASSES as BOX_CLASSES
from tests.helpers.cases_detection import detections
from tests.helpers.cases_segmentation import NAMES as MAP_CLASSES
from tests.helpers.cases_segmentation import label_maps
from tests.helpers.cases_single_label import NAMES, single_label
from tests.helpers.result_files import pair

AVERAGES = ("macro", "micro", "weighted")
METRICS = {
    "auc": (partial(SingleLabelAUC, ci=0.9), single_label, len(NAMES)),
    "auc-binned": (partial(SingleLabelAUC, num_thresholds=64), single_label, len(NAMES)),
    "auc-decisions": (partial(SingleLabelAUC, thrs=(0.3, 0.5)), single_label, len(NAMES)),
    "prf": (
        partial(SingleLabelPRF, average=AVERAGES, counts=True, thrs=(0.3, None), topk=(1, 2)),
        single_label,
        len(NAMES),
    ),
    "ks": (partial(SingleLabelKS, num_thresholds=64), single_label, len(NAMES)),
    "multi-auc": (partial(MultiLabelAUC, num_thresholds=64), multi_label, len(NAMES)),
    "multi-prf": (partial(MultiLabelPRF, average=AVERAGES, counts=True), multi_label, len(NAMES)),
    "detection": (
        partial(DetectionPRF, ap=True, ci=0.9, operating_point="f1", resamples=10),
        detections,
        len(BOX_CLASSES),
    ),
    "iou": (MeanIoU, label_maps, len(MAP_CLASSES)),
    "dice": (DiceScore, label_maps, len(MAP_CLASSES)),
}
# Pieces of keys, and names that look like names made unique.
HOSTILE = [
    *("50", "75", "low", "high", "error", "micro", "weighted", "f1_micro", "f1", "of_means", "threshold", "thr-0.30"),
    *("no-thr", "thr-0.30/a", "low/a", "/", "", " ", "a", "a_0", "a_1", "a_0_0", "a_1_1", "0", "1", "background"),
]
names_of_classes = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=3), min_size=6, max_size=6)


@lru_cache(maxsize=None)
def prepared(which):
    """A metric, what it has added up, and its numbers with names that harm nobody."""
    build, samples, num_classes = METRICS[which]
    metric = build(classwise=True)
    metric.dataset_meta = {"classes": [f"class {index}" for index in range(num_classes)]}
    metric.process(None, samples(np.random.default_rng(0), 30))
    state = metric._local_state(drop_last=False)[0]
    return metric, state, numbers(metric, state)


def numbers(metric, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return metric.compute_metrics([state])


@pytest.mark.parametrize("which", METRICS)
@settings(max_examples=25, deadline=None)
@given(names=names_of_classes)
def test_no_class_name_replaces_another_key(which, names):
    metric, state, plain = prepared(which)
    num_classes = METRICS[which][2]
    metric.dataset_meta = {"classes": names[:num_classes]}
    found = numbers(metric, state)
    assert np.array_equal(list(found.values()), list(plain.values()), equal_nan=True)
    named = metric.class_names(num_classes)
    assert len(set(named)) == num_classes
    translated = {class_key("", f"class {index}"): class_key("", name) for index, name in enumerate(named)}
    for theirs, ours in zip(plain, found):
        figure, slash, name = theirs.partition("/")
        assert ours == figure + (translated[slash + name] if slash else "")


@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=3), max_size=30))
def test_names_become_unique_and_single_ones_stay(names):
    found = unique_names(names)
    assert len(found) == len(set(found)) == len(names)
    assert all(new == old for new, old in zip(found, names) if names.count(old) == 1)


def test_many_equal_names():
    """Quadratic work would take minutes."""
    metric = SingleLabelAUC()
    metric.dataset_meta = {"classes": ["same"] * 100_000}
    assert len(set(metric.class_names(100_000))) == 100_000


def test_unnamed_classes_beyond_75_keep_the_headline_of_ap():
    metric = DetectionPRF(ap=True, classwise=True, num_classes=80)
    samples = detections(np.random.default_rng(0), 12)
    metric.process(None, samples)
    state = metric._local_state(drop_last=False)[0]
    metric.classwise = False
    plain = numbers(metric, state)
    metric.classwise = True
    found = numbers(metric, state)
    assert [found[key] for key in ("mAP", "mAP_50", "mAP_75")] == [plain[key] for key in ("mAP", "mAP_50", "mAP_75")]
    assert {"AP/50", "AP/75"} <= set(found)


@pytest.mark.filterwarnings("ignore:.*several categories have the same name")
def test_the_thresholds_of_a_report_keep_equal_names_apart(tmp_path):
    """``thresholds.json`` has one entry a class, also where the annotation file gives two the same name."""
    truth, _ = pair(tmp_path)
    content = json.loads(truth.read_text())
    for category in content["categories"]:
        category["name"] = "same"
    truth.write_text(json.dumps(content))
    arguments = ["detection", str(truth), str(tmp_path / "results.pkl"), str(tmp_path / "out"), "--quiet"]
    assert main([*arguments, "--operating-point", "f1"]) == 0
    found = json.loads((tmp_path / "out" / "thresholds.json").read_text())["per_class"]
    assert list(found) == [f"same_{index}" for index in range(len(content["categories"]))]
