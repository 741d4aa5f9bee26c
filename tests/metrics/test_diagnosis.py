"""``DetectionPRF`` warns of the cause of an impossible result, once, and the same on several processes."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from mm_metrics_plugin import DetectionPRF, MetricWarning, UndefinedMetricWarning
from mm_metrics_plugin.testing import evaluate
from mm_metrics_plugin.testing.processes import run_processes
from tests.helpers import mistakes as made
from tests.helpers.result_files import CLASSES

OF_METRIC = [
    mistake
    for mistake in made.MISTAKES
    if mistake.name
    in (
        *("no annotations", "all crowds", "xywh in results.pkl", "normalized detections"),
        *("detections of resized images", "labels off by one", "other order of classes", "disjoint classes", "logits"),
    )
]
WORDS = {
    "no_ground_truth": "there are no ground truths",
    "all_ignored": "are ignored",
    "box_format": "fit if they are read as left, top, width, height",
    "box_scale": "the coordinates of the detections are",
    "labels_off_by_one": "labels of detections are one above",
    "class_order": "each class is detected as another one",
    "class_names": "have no class in common",
    "scores_outside": r"scores are outside \[0, 1\]",
}


def metric(**options):
    result = DetectionPRF(**options)
    result.dataset_meta = {"classes": CLASSES}
    return result


def diagnoses(detector, samples, batch_size=8, size=None):
    """The categories and messages of warnings, except of those that name undefined values."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for start in range(0, len(samples), batch_size):
            detector.process(None, samples[start : start + batch_size])
        detector.evaluate(len(samples) if size is None else size)
    found = [(warning.category, str(warning.message)) for warning in caught]
    return [(category, message) for category, message in found if "undefined for" not in message]


@pytest.mark.parametrize("options", [{}, {"ap": True}], ids=["matrix", "ap"])
@pytest.mark.parametrize("mistake", OF_METRIC, ids=lambda mistake: mistake.name)
def test_a_mistake_gives_one_warning(mistake, options):
    samples, detector = made.samples_of(mistake.make()), metric(**options)
    ((category, message),) = diagnoses(detector, samples)
    assert re.search(WORDS[mistake.cause], message) and message.startswith("DetectionPRF: ")
    assert category == (
        UndefinedMetricWarning if mistake.cause in ("no_ground_truth", "all_ignored") else MetricWarning
    )
    assert diagnoses(detector, samples) == []  # the next validation


@pytest.mark.parametrize("options", [{}, {"ap": True}, {"matching": "agnostic"}, {"matching": "mmdet"}])
def test_a_healthy_detector_gives_none(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(metric(**options), made.samples_of(made.healthy()))


def test_an_evaluation_without_samples_gives_none():
    assert metric(ap=True).log_keys() is not None
    assert diagnoses(metric(ap=True), []) == []


def resized_samples(images=150):
    samples = made.samples_of(made.healthy(images))
    for sample in samples:
        sample["pred_instances"]["bboxes"] = sample["pred_instances"]["bboxes"] * np.float32(0.5)
    return samples


def diagnoses_of_rank(batch_size):
    from torch import distributed

    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    samples = resized_samples()
    return diagnoses(metric(ap=True), samples[rank::world_size], batch_size, len(samples))


def test_several_processes_and_any_batch_size_give_the_same_finding():
    expected = diagnoses(metric(ap=True), resized_samples(), batch_size=150)
    assert len(expected) == 1 and "64 images" in expected[0][1]
    assert diagnoses(metric(ap=True), resized_samples(), batch_size=1) == expected
    assert run_processes(2, diagnoses_of_rank, [1, 16]) == [[expected, []], [expected, []]]
