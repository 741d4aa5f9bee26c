"""``ci``: what it logs, what it keeps, and what it does not go with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mm_metrics_plugin import DetectionPRF, SingleLabelAUC
from mm_metrics_plugin.states.detection import DetectionState
from mm_metrics_plugin.states.scores import ScoreState
from tests.cases_detection import CLASSES, detections
from tests.cases_single_label import NAMES, single_label


def evaluated(metric, samples, classes):
    metric.dataset_meta = dict(classes=classes)
    for start in range(0, len(samples), 7):
        metric.process(None, samples[start : start + 7])
    return metric.evaluate(len(samples))


@pytest.fixture(scope="module")
def images():
    return detections(np.random.default_rng(0), 80)


def test_nothing_is_kept_when_it_is_off():
    assert type(DetectionPRF(num_classes=2).empty_state()) is DetectionState
    assert type(SingleLabelAUC().empty_state()) is ScoreState
    assert type(SingleLabelAUC(ci=0.95).empty_state()) is ScoreState  # all it needs is kept anyway


@pytest.mark.parametrize("options", [{}, {"average": "micro"}, {"ap": True, "iou_thr": 0.42}, {"nms_iou_thr": 0.6}])
def test_the_other_numbers_stay_and_lie_within(options, images):
    plain = evaluated(DetectionPRF(classwise=True, **options), images, CLASSES)
    found = evaluated(DetectionPRF(classwise=True, ci=0.95, resamples=200, **options), images, CLASSES)
    assert {key: found[key] for key in plain} == plain
    ends = {key for key in found if key not in plain}
    rates = [key for key in plain if not any(word in key for word in ("tp", "fp", "fn", "averaged"))]
    assert ends == {f"{key}_{end}" for key in rates for end in ("low", "high")}
    for key in rates:
        low, high = found[f"{key}_low"], found[f"{key}_high"]
        assert 0 <= low < high <= 1
        if "mAP" not in key:
            assert low <= found[key] <= high


def test_wider_levels_give_wider_intervals_and_seeds_others(images):
    def width(**options):
        found = evaluated(DetectionPRF(resamples=200, **options), images, CLASSES)
        return found["det/micro_f1_high"] - found["det/micro_f1_low"]

    assert width(ci=0.5) < width(ci=0.9) < width(ci=0.99)
    assert width(ci=0.9) == width(ci=0.9, seed=0) != width(ci=0.9, seed=1)


def test_auc_intervals_narrow_with_more_samples():
    widths = []
    for count in (60, 600):
        found = evaluated(SingleLabelAUC(ci=0.95), single_label(np.random.default_rng(1), count), NAMES)
        assert list(found) == [f"single-label/{key}" for key in ("auc", "classes_averaged", "auc_low", "auc_high")]
        assert found["single-label/auc_low"] < found["single-label/auc"] < found["single-label/auc_high"]
        widths.append(found["single-label/auc_high"] - found["single-label/auc_low"])
    assert widths[1] == pytest.approx(widths[0] / math.sqrt(10), rel=0.4)


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        (DetectionPRF, {"ci": 1.0}),
        (DetectionPRF, {"ci": 95}),
        (DetectionPRF, {"ci": 0.95, "matching": "mmdet"}),
        (DetectionPRF, {"ci": 0.95, "average": "weighted"}),
        (DetectionPRF, {"ci": 0.95, "resamples": 0}),
        (SingleLabelAUC, {"ci": 0}),
        (SingleLabelAUC, {"ci": 0.95, "curve": "pr"}),
        (SingleLabelAUC, {"ci": 0.95, "multi_class": "ovo"}),
        (SingleLabelAUC, {"ci": 0.95, "average": "micro"}),
        (SingleLabelAUC, {"ci": 0.95, "max_fpr": 0.5}),
        (SingleLabelAUC, {"ci": 0.95, "num_thresholds": 100}),
        (SingleLabelAUC, {"ci": 0.95, "thrs": 0.5}),
    ],
)
def test_what_it_does_not_go_with(metric, options):
    with pytest.raises(ValueError, match=r"ci|resamples"):
        metric(**options)
