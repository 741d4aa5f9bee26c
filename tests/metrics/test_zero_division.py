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


def classified(predicted, labels):
    """Samples with these predictions and labels."""
    scores = np.eye(4)[predicted] * 0.5 + 0.1
    return [dict(pred_score=torch.tensor(row), gt_label=torch.tensor([label])) for row, label in zip(scores, labels)]


def evaluated(metric, samples):
    """The values and the warnings of an evaluation."""
    metric.dataset_meta = {"classes": CLASSES}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        metric.process(None, samples)
        values = metric.evaluate(len(samples))
    assert all(issubclass(warning.category, UndefinedMetricWarning) for warning in caught)
    return values, [str(warning.message) for warning in caught]


LABELS = np.repeat([0, 1, 2], [90, 5, 5])
COLLAPSED = classified(np.zeros_like(LABELS), LABELS)  # a model that predicts one class only
FAIR = classified(np.where(np.arange(len(LABELS)) % 5 == 0, (LABELS + 1) % 3, LABELS), LABELS)


def test_a_collapsed_model_has_the_best_precision_only_if_classes_are_skipped():
    def precision(samples, **options):
        return evaluated(SingleLabelPRF(**options), samples)[0]["single-label-prf/precision"]

    assert precision(COLLAPSED) == 0.9 > precision(FAIR)
    assert precision(COLLAPSED, zero_division=0) == 0.9 / 4 < precision(FAIR, zero_division=0)


def test_a_mean_over_fewer_classes_gives_one_warning():
    metric = SingleLabelPRF()
    by_rate = {message.split(" ")[1]: message for message in evaluated(metric, COLLAPSED)[1]}
    for rate, classes, number in (("precision", "dog, bird, fish", 1), ("recall", "fish", 3), ("f1", "fish", 3)):
        assert f"undefined for {classes}:" in by_rate[rate]
        assert f"The mean is over {number} of 4 classes, also in save_best" in by_rate[rate]
        assert ("zero_division=0" in by_rate[rate]) == (rate != "recall")
    assert not any("mean" in message for message in evaluated(metric, COLLAPSED)[1])  # only once
    for options in ({"average": "micro"}, {"average": None}, {"zero_division": 0}):
        messages = evaluated(SingleLabelPRF(**options), COLLAPSED)[1]
        assert not any("mean is over" in message for message in messages)


def image(labels, detected):
    """An image with an object of each label, and a correct detection of some of them."""
    boxes = torch.arange(len(CLASSES), dtype=torch.float32)[:, None] * 20 + torch.tensor([0.0, 0, 10, 10])
    labels, detected = (torch.tensor(indices, dtype=torch.int64) for indices in (labels, detected))
    return dict(
        pred_instances=dict(bboxes=boxes[detected], scores=torch.full((len(detected),), 0.9), labels=detected),
        gt_instances=dict(bboxes=boxes[labels], labels=labels),
    )


def test_detections_of_one_class_only(tmp_path):
    samples = [image([0, 1, 2], [0]) for _ in range(3)]
    values, messages = evaluated(DetectionPRF(), samples)
    assert values["det/precision"] == 1.0 and values["det/classes_averaged"] == 3.0
    start = "DetectionPRF: precision is undefined for dog, bird, fish:"
    assert any(message.startswith(start) and "The mean is over 1 of 4" in message for message in messages)
    metric = DetectionPRF(zero_division=0, classwise=True, outfile_prefix=str(tmp_path / "latest"))
    values, messages = evaluated(metric, samples)
    assert messages == []
    assert (values["det/precision"], values["det/recall"], values["det/f1"]) == (0.25, 0.25, 0.25)
    assert values["det/precision/dog"] == 0.0 and values["det/classes_averaged"] == 4.0
    assert json.loads((tmp_path / "latest.json").read_text())["precision"] == 0.25
    assert evaluated(DetectionPRF(zero_division=1), samples)[0]["det/precision"] == 1.0
    assert np.isnan(evaluated(DetectionPRF(zero_division=0), [image([], [])])[0]["det/f1"])


MAPS = label_maps(np.random.default_rng(0), 3, num_classes=3)


@pytest.mark.parametrize(
    ("metric", "samples"),
    [
        (SingleLabelAUC(), FAIR),
        (SingleLabelAUC(absent="nan"), FAIR),
        (SingleLabelKS(), FAIR),
        (DetectionPRF(ap=True), [image([0, 1, 2], [0, 1, 2])]),
        (MeanIoU(), MAPS),
        (MeanIoU(absent="nan"), MAPS),
        (DiceScore(empty="skip"), MAPS),
    ],
    ids=["auc", "auc-nan", "ks", "detection", "iou", "iou-nan", "dice"],
)
def test_every_metric_warns_of_a_mean_over_fewer_classes(metric, samples):
    values, messages = evaluated(metric, samples)
    skipped = getattr(metric, "absent", "skip") == "skip"
    assert messages and all(("mean is over 3 of 4 classes, also in save_best" in one) == skipped for one in messages)
    assert np.isnan(next(iter(values.values()))) != skipped


def test_undefined_regression_errors_give_warnings():
    samples = [dict(pred_score=value, gt_score=0.0) for value in (1.0, 2.0)]
    values, messages = evaluated(RegressionError(), samples)
    assert np.isnan([values["regression/r2"], values["regression/percentage_error"]]).all()
    assert (values["regression/mae"], values["regression/zero_targets"]) == (1.5, 2)
    assert "all targets are equal" in messages[0] and "2 values" in messages[1]
