"""``zero_division``, and warnings of undefined values."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

from mm_metrics_plugin import (
    DetectionPRF,
    DiceScore,
    MeanIoU,
    MetricWarning,
    RegressionError,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
    UndefinedMetricWarning,
)
from tests.helpers.cases_segmentation import label_maps

CLASSES = ("cat", "dog", "bird", "fish")


def decided(predicted, true, num_classes=4):
    """Samples with these decisions and labels."""
    scores = np.eye(num_classes)[predicted] * 0.5 + 0.1
    return [dict(pred_score=torch.tensor(row), gt_label=torch.tensor([label])) for row, label in zip(scores, true)]


def evaluated(metric, samples, classes=CLASSES):
    """The numbers and the warnings of an evaluation."""
    metric.dataset_meta = {"classes": classes}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        metric.process(None, samples)
        found = metric.evaluate(len(samples))
    assert all(issubclass(one.category, UndefinedMetricWarning) for one in caught)
    return found, [str(one.message) for one in caught]


TRUE = np.repeat([0, 1, 2], [90, 5, 5])
COLLAPSED = np.zeros_like(TRUE)
FAIR = np.where(np.arange(len(TRUE)) % 5 == 0, (TRUE + 1) % 3, TRUE)


def test_a_collapsed_model_is_the_best_only_where_classes_are_left_out():
    names = CLASSES[:3]

    def precision(predicted, **options):
        found, _ = evaluated(SingleLabelPRF(**options), decided(predicted, TRUE, 3), names)
        return found["single-label-prf/precision"]

    assert precision(COLLAPSED) == 0.9 > precision(FAIR)
    assert precision(COLLAPSED, zero_division=0) == pytest.approx(0.3)
    assert precision(COLLAPSED, zero_division=0) < precision(FAIR, zero_division=0)
    assert precision(FAIR, zero_division=0) == precision(FAIR)


def test_a_mean_over_fewer_classes_gives_one_warning():
    metric = SingleLabelPRF()
    _, messages = evaluated(metric, decided(COLLAPSED, TRUE))
    by_rate = {message.split(" ")[1]: message for message in messages}
    for rate, classes, number in (("precision", "dog, bird, fish", 1), ("recall", "fish", 3), ("f1", "fish", 3)):
        assert f"undefined for {classes}:" in by_rate[rate]
        assert f"The mean is over {number} of 4 classes, also in save_best" in by_rate[rate]
        assert ("zero_division=0" in by_rate[rate]) == (rate != "recall")
    assert [one for one in evaluated(metric, decided(COLLAPSED, TRUE))[1] if "mean" in one] == []  # once
    for options in ({"average": "micro"}, {"average": None}):  # there is no mean over classes
        assert not any("mean" in one for one in evaluated(SingleLabelPRF(**options), decided(COLLAPSED, TRUE))[1])
    messages = evaluated(SingleLabelPRF(zero_division=0), decided(COLLAPSED, TRUE))[1]
    assert not any("mean is over" in one or "precision" in one for one in messages)


def boxes(labels, found):
    """An image with an object of each label, and a right detection of those that are found."""
    place = torch.arange(len(CLASSES), dtype=torch.float32)[:, None] * 20 + torch.tensor([0.0, 0, 10, 10])
    true, right = torch.tensor(labels), torch.tensor(found, dtype=torch.int64)
    return dict(
        pred_instances=dict(bboxes=place[right], scores=torch.full((len(right),), 0.9), labels=right),
        gt_instances=dict(bboxes=place[true], labels=true),
    )


def test_detections_of_one_class_only(tmp_path):
    samples = [boxes([0, 1, 2], [0]) for _ in range(3)]
    found, messages = evaluated(DetectionPRF(), samples)
    assert found["det/precision"] == 1.0 and found["det/classes_averaged"] == 3.0
    start = "DetectionPRF: precision is undefined for dog, bird, fish:"
    assert any(one.startswith(start) and "The mean is over 1 of 4" in one for one in messages)
    prefix = str(tmp_path / "latest")
    found, messages = evaluated(DetectionPRF(zero_division=0, classwise=True, outfile_prefix=prefix), samples)
    assert messages == []
    assert (found["det/precision"], found["det/recall"], found["det/f1"]) == (0.25, 0.25, 0.25)
    assert found["det/precision/dog"] == 0.0 and found["det/classes_averaged"] == 4.0
    assert json.loads((tmp_path / "latest.json").read_text())["precision"] == 0.25
    assert evaluated(DetectionPRF(zero_division=1), samples)[0]["det/precision"] == 1.0
    empty = dict(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.int64))
    nothing = [dict(pred_instances=dict(empty, scores=torch.zeros(0)), gt_instances=empty)]
    assert np.isnan(evaluated(DetectionPRF(zero_division=0), nothing)[0]["det/f1"])


@pytest.mark.parametrize(
    ("metric", "samples", "skipped"),
    [
        (SingleLabelAUC(), decided(FAIR, TRUE), True),
        (SingleLabelAUC(absent="nan"), decided(FAIR, TRUE), False),
        (SingleLabelKS(), decided(FAIR, TRUE), True),
        (DetectionPRF(ap=True), [boxes([0, 1, 2], [0, 1, 2])], True),
        (MeanIoU(), label_maps(np.random.default_rng(0), 3, num_classes=3), True),
        (MeanIoU(absent="nan"), label_maps(np.random.default_rng(0), 3, num_classes=3), False),
        (DiceScore(empty="skip"), label_maps(np.random.default_rng(0), 3, num_classes=3), True),
    ],
    ids=["auc", "auc-nan", "ks", "detection", "iou", "iou-nan", "dice"],
)
def test_every_metric_warns_of_a_mean_over_fewer_classes(metric, samples, skipped):
    _, messages = evaluated(metric, samples)
    assert messages
    assert all(("The mean is over 3 of 4 classes, also in save_best" in one) == skipped for one in messages)


def test_undefined_regression_errors_are_announced():
    metric = RegressionError()
    metric.process(None, [dict(pred_score=1.0, gt_score=0.0), dict(pred_score=2.0, gt_score=0.0)])
    with pytest.warns(UndefinedMetricWarning) as caught:
        found = metric.evaluate(2)
    assert np.isnan(found["regression/r2"])
    assert np.isnan(found["regression/percentage_error"])
    assert found["regression/mae"] == 1.5
    assert found["regression/zero_targets"] == 2
    messages = " ".join(str(warning.message) for warning in caught)
    assert "all targets are equal" in messages
    assert "2 values" in messages
