"""oLRP and FROC of every geometry compared with plain loops over the matches of pycocotools."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.functional import froc, match_images, olrp
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers import geometry_problems as problems
from tests.helpers.detection_problems import coco_eval, dense_batch, random_batch
from tests.helpers.olrp_froc_reference import counted_detections, froc_of, olrp_of_class

IOU_THRS = (0.3, 0.5, 0.55, 0.75, 1.0)


def with_distinct_scores(batch, seed):
    dets = batch.detections
    scores = np.random.default_rng(seed).permutation(len(dets)) / max(1, len(dets))
    return replace(batch, detections=replace(dets, scores=scores, precision=None))


def box_problem(seed):
    return dense_batch(seed, num_images=2) if seed % 4 == 3 else random_batch(seed)


def evaluated_boxes(batch, num_classes, **params):
    evaluation = coco_eval(batch, num_classes)
    any_area = [[-np.inf, np.inf]]  # also inverted boxes, as in the confusion matrix
    for name, value in {**params, "areaRng": any_area, "areaRngLbl": ["all"]}.items():
        setattr(evaluation.params, name, value)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
    return evaluation


def evaluated_masks(batch, num_classes, **params):
    return problems.evaluated(*problems.coco_of(batch, num_classes, problems.segmentations), "segm", **params)


def evaluated_key_points(batch, num_classes, **params):
    return problems.evaluated(*problems.coco_of(batch, num_classes, problems.keypoint_fields), "keypoints", **params)


GEOMETRIES = {
    "bbox": (box_problem, evaluated_boxes),
    "segm": (problems.mask_batch, evaluated_masks),
    "keypoints": (lambda seed: (problems.keypoint_batch(seed), 1), evaluated_key_points),
}


def table_and_reference(iou_type, seed, *, ties):
    """The match table of a problem, and what pycocotools counts of it."""
    make, evaluated = GEOMETRIES[iou_type]
    batch, num_classes = make(seed)
    if not ties:
        batch = with_distinct_scores(batch, seed)
    iou_thr = IOU_THRS[seed % len(IOU_THRS)]
    # Most detections are below some of the score thresholds, which must not matter.
    settings = DetectionSettings(iou_type=iou_type, iou_thr=iou_thr, score_thr=(0.0, 0.5, 0.9)[seed % 3])
    table = match_images(batch, settings, num_classes=num_classes).table
    evaluation = evaluated(batch, num_classes, iouThrs=np.array([iou_thr]), maxDets=[10_000] * 3)
    return table, *counted_detections(evaluation)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("iou_type", GEOMETRIES)
def test_olrp_equals_the_formula_of_the_authors(iou_type, ties):
    compared = lower = 0
    for seed in range(40):
        table, rows, num_gts = table_and_reference(iou_type, seed, ties=ties)
        actual, iou_thr = olrp(table), table.settings.iou_thr
        values = np.array(list(actual.per_class.values()), dtype=float)
        for label in range(table.num_classes):
            own, number = rows.get(label, []), num_gts.get(label, 0)
            expected = olrp_of_class(own, number, iou_thr, every_prefix=not ties)
            np.testing.assert_allclose(values[:, label], expected, rtol=0, atol=1e-6, err_msg=f"{seed}, {label}")
            compared += 0 < expected[0] < 1
            lower += olrp_of_class(own, number, iou_thr, every_prefix=True)[0] < expected[0] - 1e-6
        for name, per_class in zip(actual.means(), values):
            mean = np.mean(per_class[~np.isnan(per_class)]) if not np.isnan(per_class).all() else np.nan
            assert actual.means()[name] == pytest.approx(mean, abs=1e-12, nan_ok=True)
    assert compared > 20
    assert (lower > 0) == ties  # no score threshold reaches only some detections of equal score


@pytest.mark.parametrize("iou_type", GEOMETRIES)
def test_froc_equals_the_script_of_luna16(iou_type):
    between = 0
    for seed in range(40):
        table, rows, num_gts = table_and_reference(iou_type, seed, ties=True)
        actual = froc(table)
        per_class = np.array(list(actual.class_values().values()))
        for label in range(table.num_classes):
            expected = froc_of(rows.get(label, []), num_gts.get(label, 0), table.num_images)
            np.testing.assert_allclose(per_class[:, label], expected, rtol=0, atol=1e-12, err_msg=f"{seed}, {label}")
        pooled = sorted((row for own in rows.values() for row in own), key=lambda row: -row[0])
        expected = froc_of(pooled, sum(num_gts.values()), table.num_images)
        np.testing.assert_allclose(list(actual.values().values()), expected, rtol=0, atol=1e-12, err_msg=str(seed))
        between += 0 < expected[0] < 1
    assert between > 15
