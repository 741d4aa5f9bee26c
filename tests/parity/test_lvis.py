"""The conventions of federated datasets compared with lvis-api."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin import evaluate_detection
from mm_metrics_plugin.exceptions import MetricWarning
from tests.helpers.detection_problems import undefined_as_nan
from tests.helpers.lvis_problems import best_of_each_class, lvis_problem, lvis_results

KEYS = {
    "AP": "mAP",
    "AP50": "mAP_50",
    "AP75": "mAP_75",
    "APs": "mAP_s",
    "APm": "mAP_m",
    "APl": "mAP_l",
    "APr": "mAP_r",
    "APc": "mAP_c",
    "APf": "mAP_f",
    "AR@300": "AR@{}",
    "ARs@300": "AR_s@{}",
    "ARm@300": "AR_m@{}",
    "ARl@300": "AR_l@{}",
}


def assert_equal(report, evaluation, *, seed):
    """All 13 numbers of lvis-api, and the AP of every class; returns the numbers."""
    actual = report.analysis.average_precision
    values = actual.to_dict()
    expected = undefined_as_nan([evaluation.results[key] for key in KEYS])
    numbers = [values[key.format(report.settings.max_dets)] for key in KEYS.values()]
    np.testing.assert_allclose(numbers, expected, rtol=0, atol=1e-10, err_msg=f"seed {seed}")
    order = np.argsort([row["id"] for row in evaluation.lvis_gt.dataset["categories"]])
    precision = undefined_as_nan(evaluation.eval["precision"])[..., 0].mean(axis=(0, 1))
    np.testing.assert_allclose(actual.per_class[order], precision, rtol=0, atol=1e-10, err_msg=f"seed {seed}")
    return numbers


@pytest.mark.parametrize("iou_type", ["bbox", "segm"])
def test_all_numbers_equal_lvis(iou_type):
    between = 0
    for seed in range(80 if iou_type == "bbox" else 30):
        content, results = lvis_problem(seed, masks=iou_type == "segm")
        if results:
            expected = lvis_results(content, results, iou_type)
            report = evaluate_detection(content, results, convention="lvis", iou_type=iou_type, gallery=None)
            between += 0 < assert_equal(report, expected, seed=seed)[0] < 1
    assert between > 20


@pytest.mark.filterwarnings("ignore:AP uses the best")
@pytest.mark.parametrize("iou_type", ["bbox", "segm"])
def test_detections_per_image_are_limited_as_in_lvis(iou_type):
    """Most images have more detections than the limit, many of them at the score of the last one that counts."""
    limited = 0
    for seed in range(40 if iou_type == "bbox" else 20):
        content, results = lvis_problem(seed, masks=iou_type == "segm")
        if results:
            expected = lvis_results(content, results, iou_type, max_dets=15)
            options = {"convention": "lvis", "max_dets": 15, "iou_type": iou_type, "gallery": None}
            report = evaluate_detection(content, results, **options)
            assert_equal(report, expected, seed=seed)
            limited += report.analysis.most_detections > 15
    assert limited > 10


def test_more_than_300_detections_per_image_equal_lvis():
    for seed in range(4):
        content, results = lvis_problem(seed, most=500)
        with pytest.warns(MetricWarning, match=r"AP uses the best 300 of up to \d+ detections per image"):
            report = evaluate_detection(content, results, convention="lvis", gallery=None)
        assert_equal(report, lvis_results(content, results, "bbox"), seed=seed)


@pytest.mark.filterwarnings("ignore:AP uses the best")
@pytest.mark.parametrize("iou_type", ["bbox", "segm"])
def test_fixed_ap_equals_lvis_on_the_best_detections_of_each_class(iou_type):
    limited = 0
    for seed in range(40 if iou_type == "bbox" else 20):
        content, results = lvis_problem(seed, masks=iou_type == "segm")
        results.sort(key=lambda row: row["image_id"])  # ties at the limit are decided by image, not by the file
        for number in (10_000, 8):
            best = best_of_each_class(results, number)
            if best:
                expected = lvis_results(content, best, iou_type, max_dets=-1)
                options = {"convention": "lvis-fixed", "max_dets": number, "iou_type": iou_type, "gallery": None}
                report = evaluate_detection(content, results, **options)
                assert_equal(report, expected, seed=seed)
                limited += len(best) < len(results)
    assert limited > 10


def test_fixed_ap_has_no_limit_per_image():
    content, results = lvis_problem(3, most=500)
    report = evaluate_detection(content, results, convention="lvis-fixed", gallery=None)
    assert report.settings.max_dets == 10_000
    assert_equal(report, lvis_results(content, results, "bbox", max_dets=-1), seed=3)
