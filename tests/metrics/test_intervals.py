"""``ci``: what it logs, what it keeps, and what it does not go with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mm_metrics_plugin import DetectionPRF, SingleLabelAUC
from mm_metrics_plugin.exceptions import UndefinedMetricWarning
from mm_metrics_plugin.states.scores import ScoreState
from tests.helpers.cases_detection import CLASSES, detections


def evaluated(metric, samples, classes):
    metric.dataset_meta = dict(classes=classes)
    for start in range(0, len(samples), 7):
        metric.process(None, samples[start : start + 7])
    return metric.evaluate(len(samples))


@pytest.fixture(scope="module")
def images():
    return detections(np.random.default_rng(0), 80)


def test_without_ci_no_matches_are_kept():
    assert "matches" not in DetectionPRF(num_classes=2).empty_state().members
    for metric in (SingleLabelAUC(), SingleLabelAUC(ci=0.95)):  # all that intervals need is kept anyway
        (state,) = metric.empty_state().members.values()
        assert type(state) is ScoreState


@pytest.mark.parametrize("options", [{}, {"average": "micro"}, {"ap": True, "iou_thr": 0.42}, {"nms_iou_thr": 0.6}])
def test_ci_keeps_other_values_and_covers_them(options, images):
    plain = evaluated(DetectionPRF(classwise=True, **options), images, CLASSES)
    found = evaluated(DetectionPRF(classwise=True, ci=0.95, resamples=200, **options), images, CLASSES)
    assert {key: found[key] for key in plain} == plain
    ends = {key for key in found if key not in plain}
    rates = [key for key in plain if not any(word in key for word in ("tp", "fp", "fn", "averaged"))]

    def end_of(key, end):  # the end stands behind the figure, before the class
        prefix, figure, *name = key.split("/", 2)
        return "/".join([prefix, f"{figure}_{end}", *name])

    assert ends == {end_of(key, end) for key in rates for end in ("low", "high")}
    for key in rates:
        low, high = found[end_of(key, "low")], found[end_of(key, "high")]
        assert 0 <= low < high <= 1
        assert low <= found[key] <= high


def test_wider_levels_give_wider_intervals_and_seeds_others(images):
    def width(key, **options):
        found = evaluated(DetectionPRF(ap=True, resamples=50, **options), images, CLASSES)
        return found[f"det/{key}_high"] - found[f"det/{key}_low"]

    for key in ("f1_micro", "mAP"):
        assert width(key, ci=0.5) < width(key, ci=0.9) < width(key, ci=0.99)
    assert width("mAP", ci=0.9) == width("mAP", ci=0.9, seed=0) != width("mAP", ci=0.9, seed=1)
    assert width("f1_micro", ci=0.9) == width("f1_micro", ci=0.9, seed=1)  # nothing is drawn at random


def test_too_few_images_give_nan_and_one_warning():
    samples = detections(np.random.default_rng(0), 20)
    metric = DetectionPRF(ap=True, classwise=True, ci=0.95, resamples=20)
    with pytest.warns(UndefinedMetricWarning, match="confidence interval is undefined for f1, precision"):
        found = evaluated(metric, samples, CLASSES)
    for key in ("f1", "precision", "mAP", "mAP_50"):
        assert math.isnan(found[f"det/{key}_low"]) and math.isnan(found[f"det/{key}_high"])
        assert not math.isnan(found[f"det/{key}"])
    assert found["det/recall_micro_low"] < found["det/recall_micro"] < found["det/recall_micro_high"]
