"""Error types and dAP compared with the ``tidecv`` package."""

from __future__ import annotations

import numpy as np
import pytest
import tidecv
from tidecv.errors.main_errors import (
    BackgroundError,
    BoxError,
    ClassError,
    DuplicateError,
    FalseNegativeError,
    FalsePositiveError,
    MissedError,
    OtherError,
)

from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.tide import ERROR_TYPES, errors_at_threshold, tide_errors
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers.detection_problems import dense_batch, empty_batch, everywhere, random_batch

THEIRS = dict(zip(ERROR_TYPES, (ClassError, BoxError, OtherError, DuplicateError, BackgroundError, MissedError)))


def errors_of(batch, num_classes, *, absent="skip", **options):
    table = match_images(batch, DetectionSettings(**options), num_classes=num_classes).table
    return tide_errors(table, absent=absent)


def tide(batch, max_dets=100, **options):
    """The result of ``tidecv`` on a batch."""
    ground_truths, detections = (
        tidecv.Data("ground truth", max_dets=max_dets),
        tidecv.Data("detections", max_dets=max_dets),
    )
    for image in range(batch.num_images):
        ground_truths.add_image(image, str(image))
    dets, gts = batch.detections, batch.ground_truths
    columns = (gts.image, gts.labels, gts.crowd, gts.boxes.to_format("xywh"))
    for image, label, crowd, box in zip(*(column.tolist() for column in columns)):
        (ground_truths.add_ignore_region if crowd else ground_truths.add_ground_truth)(image, label, box=box)
    columns = (dets.image, dets.labels, dets.scores, dets.boxes.to_format("xywh"))
    for image, label, score, box in zip(*(column.tolist() for column in columns)):
        detections.add_detection(image, label, score, box=box)
    return tidecv.TIDE(**options).evaluate(ground_truths, detections, mode=tidecv.TIDE.BOX)


def check(actual, expected):
    assert actual.average_precision == pytest.approx(expected.ap / 100, abs=1e-9)
    counts, dap, special = expected.count_errors(), expected.fix_main_errors(), expected.fix_special_errors()
    for name, error in THEIRS.items():
        assert actual.totals[name] == counts[error], name
        assert actual.dap[name] == pytest.approx(dap[error] / 100, abs=1e-9), name
    assert actual.dap_false_positives == pytest.approx(special[FalsePositiveError] / 100, abs=1e-9)
    assert actual.dap_false_negatives == pytest.approx(special[FalseNegativeError] / 100, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_counts_and_dap_equal_tidecv(seed):
    batch = everywhere(seed)
    iou_thr, background = [(0.5, 0.1), (0.75, 0.1), (0.6, 0.3)][seed % 3]
    expected = tide(batch, pos_threshold=iou_thr, background_threshold=background)
    actual = errors_of(batch, 3, iou_thr=iou_thr, background_iou_thr=background)
    assert sum(actual.totals.values()) > 50
    check(actual, expected)


@pytest.mark.parametrize("seed", range(60))
def test_ties_crowds_and_absent_classes_equal_tidecv(seed):
    batch, num_classes = random_batch(seed, odd_boxes=False)
    batch = DetectionBatch(
        batch.detections.take(~batch.detections.boxes.is_empty()), batch.ground_truths, batch.num_images
    )
    actual = errors_of(batch, num_classes, absent="zero")
    if len(batch.detections):
        check(actual, tide(batch))
    else:  # the package divides by the number of classes it has seen detections of
        missed = int((~batch.ground_truths.crowd).sum())
        assert actual.totals == {**dict.fromkeys(ERROR_TYPES, 0), "missed": missed}


@pytest.mark.parametrize("max_dets", [None, 100])
def test_hundreds_of_detections_per_image_equal_tidecv(max_dets):
    """All detections count. tidecv has a limit per image, of all classes together, which is applied beforehand here."""
    batch, num_classes = dense_batch(1, ties=False)
    dets = batch.detections
    assert np.bincount(dets.image).min() > 250
    rank = np.empty(len(dets), dtype=int)
    order = np.lexsort((-dets.scores, dets.image))
    rank[order] = np.arange(len(order)) - np.searchsorted(dets.image, dets.image[order])
    best = DetectionBatch(dets.take(rank < (max_dets or 10**6)), batch.ground_truths, batch.num_images)
    actual = errors_of(best, num_classes)
    check(actual, tide(batch, max_dets=max_dets or 10**6))
    assert actual.detections == (len(dets) if max_dets is None else max_dets * batch.num_images)


@pytest.mark.parametrize("seed", range(40))
def test_dap_is_the_mean_of_dap_per_class(seed):
    """Also if classes have no ground truths, or if all of them are missed."""
    batch, num_classes = random_batch(seed) if seed else (everywhere(1), 3)
    actual = errors_of(batch, num_classes)
    gts = batch.ground_truths
    with_gts = np.bincount(gts.labels[~gts.crowd], minlength=num_classes) > 0
    for name in ERROR_TYPES:
        per_class = actual.dap_per_class[name]
        np.testing.assert_array_equal(~np.isnan(per_class), with_gts)
        expected = per_class[with_gts].mean() if with_gts.any() else np.nan
        assert actual.dap[name] == pytest.approx(expected, abs=1e-12, nan_ok=True)
        assert (per_class[with_gts] >= 0).all() and (per_class[with_gts] <= 1).all()
    assert set(actual.to_dict()["dap"]) == set(ERROR_TYPES)


def test_a_class_whose_ground_truths_are_all_missed_stays_in_the_mean():
    """Fixing them gains 1 without false positives, and nothing with one; tidecv drops or keeps the class."""
    box, far = [0, 0, 10, 10], [50, 50, 60, 60]
    gts = GroundTruths([0, 0], [box, far], [0, 1])
    for boxes, labels, gained in (([box], [0], 0.5), ([box, [200, 0, 210, 10]], [0, 1], 0.0)):
        scores = [0.9, 0.8][: len(labels)]
        batch = DetectionBatch(Detections([0] * len(labels), boxes, scores, labels), gts, 1)
        actual = errors_of(batch, 2)
        assert actual.average_precision == 0.5 and actual.dap["missed"] == actual.dap_false_negatives == gained
        check(errors_of(batch, 2, absent="zero"), tide(batch))
    # A class with detections and without ground truths is in no mean, before and after.
    batch = DetectionBatch(Detections([0, 0], [box, far], [0.9, 0.8], [0, 1]), gts.take([0]), 1)
    actual = errors_of(batch, 2)
    assert actual.average_precision == 1 and set(actual.dap.values()) == {0.0}
    check(errors_of(batch, 2, absent="zero"), tide(batch))


@pytest.mark.parametrize("seed", range(4))
def test_without_ties_and_crowds_tide_counts_the_false_positives_of_the_matrix(seed):
    batch, num_classes = dense_batch(seed, ties=False, crowds=False)
    actual = match_images(batch, DetectionSettings(score_thr=-1), num_classes=num_classes)
    matrix, errors = actual.rules["coco"].matrix, tide_errors(actual.table)
    fp = matrix[:, :-1].sum(axis=0) - matrix.diagonal()[:-1]
    np.testing.assert_array_equal(sum(errors.counts[name] for name in ERROR_TYPES if name != "missed"), fp)


def test_no_detections_and_no_ground_truths():
    nothing = errors_of(empty_batch(), 2)
    assert np.isnan(nothing.average_precision) and sum(nothing.totals.values()) == 0
    alone = DetectionBatch(Detections([0], [[0, 0, 5, 5]], [0.5], [1]), GroundTruths.empty(), 1)
    assert errors_of(alone, 2).totals["background"] == 1
    without_details = match_images(alone, DetectionSettings(), num_classes=2, keep="scores").table
    for function in (tide_errors, errors_at_threshold):
        with pytest.raises(ValueError, match="details"):
            function(without_details)
    with pytest.raises(ValueError, match="absent must be 'skip' or 'zero'"):
        errors_of(alone, 2, absent="drop")
