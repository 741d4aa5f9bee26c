"""Kinds of error beside the ``tidecv`` package."""

from __future__ import annotations

import numpy as np
import pytest
import tidecv
from mm_metrics_plugin.functional.boxes import xyxy_to_xywh
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.error_types import ERROR_TYPES, error_types
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

from tests.functional.detection_problems import dense_batch, everywhere, random_batch

THEIRS = dict(zip(ERROR_TYPES, (ClassError, BoxError, OtherError, DuplicateError, BackgroundError, MissedError)))


def tide(batch, max_dets=100, **options):
    """The package's run on a batch."""
    truth, found = tidecv.Data("truth", max_dets=max_dets), tidecv.Data("found", max_dets=max_dets)
    for image in range(batch.num_images):
        truth.add_image(image, str(image))
    boxes = xyxy_to_xywh(batch.objects.boxes)
    for image, box, label, crowd in zip(batch.objects.image, boxes, batch.objects.labels, batch.objects.crowd):
        (truth.add_ignore_region if crowd else truth.add_ground_truth)(int(image), int(label), box=box.tolist())
    boxes = xyxy_to_xywh(batch.detections.boxes)
    for image, box, label, score in zip(
        batch.detections.image, boxes, batch.detections.labels, batch.detections.scores
    ):
        found.add_detection(int(image), int(label), float(score), box=box.tolist())
    return tidecv.TIDE(**options).evaluate(truth, found, mode=tidecv.TIDE.BOX)


def check(ours, theirs):
    assert ours.average_precision == pytest.approx(theirs.ap / 100, abs=1e-9)
    counts, gains, special = theirs.count_errors(), theirs.fix_main_errors(), theirs.fix_special_errors()
    for name, error in THEIRS.items():
        assert ours.totals[name] == counts[error], name
        assert ours.gains[name] == pytest.approx(gains[error] / 100, abs=1e-9), name
    assert ours.gain_false_positives == pytest.approx(special[FalsePositiveError] / 100, abs=1e-9)
    assert ours.gain_false_negatives == pytest.approx(special[FalseNegativeError] / 100, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_the_numbers_are_those_of_tidecv(seed):
    batch = everywhere(seed)
    options = [(0.5, 0.1), (0.75, 0.1), (0.6, 0.3)][seed % 3]
    theirs = tide(batch, pos_threshold=options[0], background_threshold=options[1])
    ours = error_types(batch, num_classes=3, iou_threshold=options[0], background_threshold=options[1])
    assert sum(ours.totals.values()) > 50
    check(ours, theirs)


@pytest.mark.parametrize("seed", range(60))
def test_ties_crowds_and_absent_classes_fall_as_in_tidecv(seed):
    batch, num_classes = random_batch(seed, odd_boxes=False)
    keep = (batch.detections.boxes[:, 2:] > batch.detections.boxes[:, :2]).all(axis=1)
    # The package reads scores as Python floats and boxes as given.
    batch = DetectionBatch(batch.detections.take(keep), batch.objects, batch.num_images)
    ours = error_types(batch, num_classes=num_classes, absent="zero")
    if len(batch.detections):
        check(ours, tide(batch))
    else:  # the package divides by the number of classes it has seen detections of
        missed = int((~batch.objects.crowd).sum())
        assert ours.totals == {**dict.fromkeys(ERROR_TYPES, 0), "missed": missed}


@pytest.mark.parametrize("max_dets", [None, 100])
def test_all_detections_are_used_unless_tidecvs_limit_is_asked_for(max_dets):
    """Hundreds of detections per image; the limit of tidecv is of all classes together."""
    batch, num_classes = dense_batch(1, ties=False)
    assert np.bincount(batch.detections.image).min() > 250
    ours = error_types(batch, num_classes=num_classes, max_dets=max_dets)
    check(ours, tide(batch, max_dets=max_dets or 10**6))
    used = len(batch.detections) if max_dets is None else max_dets * batch.num_images
    assert (ours.detections, ours.max_dets) == (used, max_dets)


def test_gains_per_class_add_up_to_the_mean():
    ours = error_types(everywhere(1), num_classes=3)
    for name in ("class", "localisation", "duplicate", "background", "both"):
        assert ours.gains[name] == pytest.approx(ours.gains_per_class[name].mean(), abs=1e-12)
    assert ours.gains["localisation"] > 0
    assert all(len(count) == 3 for count in ours.counts.values())
    assert set(ours.to_dict()["gains"]) == set(ERROR_TYPES)


def test_every_wrong_detection_has_one_kind():
    batch = everywhere(2)
    ours = error_types(batch, num_classes=3)
    wrong = sum(int(ours.counts[name].sum()) for name in ERROR_TYPES if name != "missed")
    taken = int((~batch.objects.crowd).sum()) - _not_taken(batch)
    assert wrong == len(batch.detections) - taken
    assert sum(int(part.sum()) for part in ours.ignored.values()) > 0


def _not_taken(batch):
    return sum(len(items) for items in tide(batch).false_negatives.values())


def test_nothing_found_and_nothing_there():
    empty = DetectionBatch(Detections.empty(), Objects.empty(), 1)
    result = error_types(empty, num_classes=2)
    assert np.isnan(result.average_precision) and sum(result.totals.values()) == 0
    lonely = DetectionBatch(Detections([0], [[0, 0, 5, 5]], [0.5], [1]), Objects.empty(), 1)
    assert error_types(lonely, num_classes=2).totals["background"] == 1
    with pytest.raises(ValueError, match="background_threshold"):
        error_types(empty, num_classes=2, background_threshold=0.6)
    with pytest.raises(ValueError, match="absent"):
        error_types(empty, num_classes=2, absent="drop")
