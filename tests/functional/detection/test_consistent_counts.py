"""No two tables of one report disagree about TP, FP or FN at the same threshold, however many boxes an image has."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.reports.detection_analysis import DetectionAnalysis
from mm_metrics_plugin.settings import COCO_IOU_THRS, DetectionSettings
from tests.helpers.detection_problems import accumulated, dense_batch, undefined_as_nan

GRIDS = [
    {"iou_thrs": (0.75,)},
    {"iou_thrs": (0.5, 0.75), "iou_thr": 0.75},
    {"iou_thrs": (0.3, *COCO_IOU_THRS)},
    {"iou_thrs": (0.42, 0.61, 0.87), "iou_thr": 0.1},
]


@pytest.mark.parametrize("options", [*({"max_dets": number} for number in (1, 7, 100, 1000)), *GRIDS])
def test_every_average_precision_of_a_report_is_the_same_and_equals_pycocotools(options):
    for seed in range(3):
        batch, size = dense_batch(seed)
        settings = DetectionSettings(ci=0.9, resamples=2, **options)
        table = match_images(batch, settings, num_classes=size).table
        analysis = DetectionAnalysis([str(label) for label in range(size)], table)
        compared = paired_permutation_test(table, table, permutations=2).overall
        values = analysis.average_precision.to_dict()
        grid = {"maxDets": [settings.max_dets], "iouThrs": np.array(settings.iou_thrs)}
        precision = undefined_as_nan(accumulated(batch, size, **grid)["precision"][..., 0, -1])
        assert values["mAP"] == pytest.approx(np.nanmean(precision), abs=1e-10)
        for key in ("mAP", "mAP_50", "mAP_75"):
            if key not in values:  # the threshold is not among iou_thrs
                assert key not in compared and key not in analysis.intervals.overall
                continue
            assert key == "mAP_75" or analysis.sizes.metrics()["all"][key] == pytest.approx(values[key], abs=1e-12)
            assert analysis.intervals.overall[key].value == pytest.approx(values[key], abs=1e-12)
            assert compared[key].first == compared[key].second == pytest.approx(values[key], abs=1e-12)
        expected = average_precision(table, iou_thrs=[settings.iou_thr]).to_dict()["mAP"]
        assert np.nanmean(analysis.curves.average_precision) == pytest.approx(expected, abs=1e-12)


def test_overlap_between_a_threshold_and_its_coco_float_is_counted_consistently():
    """The overlap is 0.8999999999999999: COCO's float of 0.9, but below 0.9."""
    batch = DetectionBatch(
        Detections([0], [[0, 0, 1, 0.3 * 0.9]], [0.9], [0]), GroundTruths([0], [[0, 0, 1, 0.3]], [0]), 1
    )
    settings = DetectionSettings(iou_thr=0.9)
    full, alone = (match_images(batch, settings, num_classes=1, keep=keep) for keep in ("full", "matrix"))
    assert full.rules["coco"].matrix.tolist() == alone.rules["coco"].matrix.tolist() == [[0, 1], [1, 0]]
    analysis = DetectionAnalysis(["cat"], full.table)
    assert analysis.sizes.tp[0].tolist() == [0] and analysis.errors_at_threshold["localization"].tolist() == [1]
    assert analysis.average_precision.ap[0, :, 0].tolist() == [1.0] * 9 + [0.0]  # as pycocotools
