"""No two tables of one report disagree about TP, FP or FN at the same threshold, however many boxes an image has."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.evaluation.detection import analyze_detections
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers.detection_problems import dense_batch


@pytest.mark.parametrize("max_dets", [1, 7, 100, 1000])
def test_every_average_precision_of_a_report_is_the_same(max_dets):
    for seed in range(3):
        batch, size = dense_batch(seed)
        settings = DetectionSettings(max_dets=max_dets, ci=0.9, resamples=2)
        table = match_images(batch, settings, num_classes=size).table
        analysis = analyze_detections(table, settings, classes=[str(label) for label in range(size)])
        compared = paired_permutation_test(table, table, max_dets=max_dets, permutations=2).overall
        expected = average_precision(table, max_dets=max_dets).to_dict()
        for key in ("mAP", "mAP_50"):
            assert analysis.average_precision.to_dict()[key] == expected[key]
            assert analysis.sizes.metrics()["all"][key] == pytest.approx(expected[key], abs=1e-12)
            assert analysis.intervals.overall[key].value == pytest.approx(expected[key], abs=1e-12)
            assert compared[key].first == compared[key].second == pytest.approx(expected[key], abs=1e-12)
        assert np.nanmean(analysis.curves.average_precision) == pytest.approx(expected["mAP_50"], abs=1e-12)


def test_overlap_between_a_threshold_and_its_coco_float_is_counted_consistently():
    """The overlap is 0.8999999999999999: COCO's float of 0.9, but below 0.9."""
    batch = DetectionBatch(
        Detections([0], [[0, 0, 1, 0.3 * 0.9]], [0.9], [0]), GroundTruths([0], [[0, 0, 1, 0.3]], [0]), 1
    )
    settings = DetectionSettings(iou_thr=0.9)
    full, alone = (match_images(batch, settings, num_classes=1, table=kind) for kind in ("full", "none"))
    assert full.rules["coco"].matrix.tolist() == alone.rules["coco"].matrix.tolist() == [[0, 1], [1, 0]]
    analysis = analyze_detections(full.table, settings, classes=["cat"])
    assert analysis.sizes.tp[0].tolist() == [0] and analysis.errors_at_threshold["localization"].tolist() == [1]
    assert analysis.average_precision.ap[0, :, 0].tolist() == [1.0] * 9 + [0.0]  # as pycocotools
