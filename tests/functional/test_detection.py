"""Average precision beside pycocotools."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from mm_metrics_plugin.functional.coco_ap import APRecords, APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional import assignment
from tests.functional.detection_problems import coco_eval, empty_batch, random_batch


def _coco_numbers(batch, num_classes, **params):
    evaluation = coco_eval(batch, num_classes)
    for name, value in params.items():
        setattr(evaluation.params, name, value)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
        evaluation.accumulate()
        if not params:
            evaluation.summarize()
    return evaluation


def _ours(batch, settings):
    return average_precision(match_for_ap(batch.detections, batch.objects, settings), settings)


def _undefined_as_nan(values):
    return np.where(np.asarray(values) == -1, np.nan, values)


def _with_areas(batch, seed):
    """Areas as COCO's: of masks, smaller than the boxes; some on a boundary between area ranges."""
    random = np.random.default_rng(seed)
    objects = batch.objects
    sides = objects.boxes[:, 2:] - objects.boxes[:, :2]
    area = sides[:, 0] * sides[:, 1] * random.uniform(0.4, 1, len(objects))
    area[random.random(len(objects)) < 0.1] = 32.0**2
    return DetectionBatch(
        batch.detections, Objects(objects.image, objects.boxes, objects.labels, objects.crowd, area), batch.num_images
    )


@pytest.mark.parametrize("block", [None, 3])
def test_all_twelve_numbers_equal_pycocotools(block, monkeypatch):
    if block:
        monkeypatch.setattr(assignment, "PAIRS_AT_ONCE", block)
        monkeypatch.setattr(assignment, "KEPT_AT_ONCE", block)
    undefined = between = 0
    for seed in range(60) if block else range(220):
        batch, num_classes = random_batch(seed)
        if seed % 2:
            batch = _with_areas(batch, seed)
        expected = _coco_numbers(batch, num_classes)
        result = _ours(batch, APSettings(num_classes=num_classes))
        numbers = list(result.to_dict().values())
        np.testing.assert_allclose(
            numbers, _undefined_as_nan(expected.stats), rtol=0, atol=1e-10, equal_nan=True, err_msg=f"seed {seed}"
        )
        precision = _undefined_as_nan(expected.eval["precision"])[..., -1]  # (T, R, K, A)
        np.testing.assert_allclose(
            result.precision, precision.transpose(3, 0, 2, 1), rtol=0, atol=1e-12, equal_nan=True
        )
        recall = _undefined_as_nan(expected.eval["recall"])  # (T, K, A, M)
        np.testing.assert_allclose(result.recall, recall.transpose(2, 3, 0, 1), rtol=0, atol=1e-12, equal_nan=True)
        undefined += np.isnan(numbers).any()
        between += 0 < numbers[0] < 1
    assert undefined > 10 and between > 40


def test_other_settings_equal_pycocotools():
    """More than 64 combinations of area and threshold, and few detections an image."""
    thresholds = np.linspace(0.3, 1.0, 29)
    areas = {"all": (0, 1e10), "tiny": (0, 150.0), "rest": (150.0, 1e10)}
    for seed in range(60):
        batch, num_classes = random_batch(seed)
        expected = _coco_numbers(
            batch, num_classes, iouThrs=thresholds, areaRng=[list(value) for value in areas.values()], maxDets=[2, 5]
        )
        settings = APSettings(num_classes, iou_thresholds=thresholds, area_ranges=areas, max_detections=(2, 5))
        assert settings.num_words == 2
        result = _ours(batch, settings)
        precision = _undefined_as_nan(expected.eval["precision"])[..., -1]
        np.testing.assert_allclose(
            result.precision, precision.transpose(3, 0, 2, 1), rtol=0, atol=1e-12, equal_nan=True
        )
        recall = _undefined_as_nan(expected.eval["recall"])
        np.testing.assert_allclose(result.recall, recall.transpose(2, 3, 0, 1), rtol=0, atol=1e-12, equal_nan=True)


def test_detections_on_one_crowd_do_not_wait_for_each_other(monkeypatch):
    """The number of rounds does not grow with the number of detections, so the time is not quadratic."""
    random = np.random.default_rng(0)
    corners = random.uniform(0, 900, (3000, 2))
    boxes = np.concatenate([corners, corners + random.uniform(5, 50, (3000, 2))], axis=1)
    detections = Detections(np.zeros(3000), boxes, random.random(3000), np.zeros(3000))
    objects = Objects([0, 0], [[0, 0, 1000, 1000], boxes[0]], [0, 0], crowd=[True, False])
    rounds = []
    starts = assignment.group_starts
    monkeypatch.setattr(assignment, "group_starts", lambda groups: rounds.append(len(groups)) or starts(groups))
    settings = APSettings(num_classes=1)
    records = match_for_ap(detections, objects, settings)
    assert len(rounds) < 50
    expected = _coco_numbers(DetectionBatch(detections, objects, 1), 1)
    found = list(average_precision(records, settings).to_dict().values())
    np.testing.assert_allclose(found, _undefined_as_nan(expected.stats), rtol=0, atol=1e-10, equal_nan=True)


def test_more_than_a_hundred_detections_of_a_class_in_an_image():
    random = np.random.default_rng(0)
    objects = np.array([[x, y, x + 20, y + 20] for x in range(0, 300, 25) for y in range(0, 300, 25)], dtype=float)
    boxes = (objects[random.integers(0, len(objects), 900)] + random.normal(0, 2, (900, 4))).astype(np.float32)
    batch = DetectionBatch(
        Detections(
            np.zeros(900), boxes, np.round(random.random(900), 2).astype(np.float32), random.integers(0, 2, 900)
        ),
        Objects(np.zeros(len(objects)), objects, random.integers(0, 2, len(objects))),
        1,
    )
    expected = _coco_numbers(batch, 2).stats
    result = _ours(batch, APSettings(num_classes=2))
    np.testing.assert_allclose(list(result.to_dict().values()), _undefined_as_nan(expected), rtol=0, atol=1e-10)
    records = match_for_ap(batch.detections, batch.objects, APSettings(num_classes=2))
    assert len(records.score) == 900 and len(records.best(100).score) == 200
    assert records.most_detections == np.bincount(batch.detections.labels).max() > 400


def test_records_of_batches_in_any_order_give_the_same():
    for seed in range(60):
        batch, num_classes = random_batch(seed)
        settings = APSettings(num_classes=num_classes)
        records = []
        for index in np.random.default_rng(seed).permutation(batch.num_images):
            part = batch.images(index, index + 1)
            record = match_for_ap(part.detections, part.objects, settings)
            records.append({**vars(record), "image": record.image + index})
        joined = {name: np.concatenate([r[name] for r in records]) for name in records[0] if name != "objects"}
        joined["objects"] = sum(r["objects"] for r in records)
        whole = _ours(batch, settings)
        np.testing.assert_array_equal(average_precision(APRecords(**joined), settings).precision, whole.precision)


def test_boxes_by_width_decide_as_the_annotation_file_does():
    """COCO files hold widths with decimals; left + width rounds, and a rounded width must not move a tie."""
    random = np.random.default_rng(0)
    moved = 0
    for _ in range(60):
        xywh = np.round(random.random((6, 4)) * 50 + 1, 1)
        edges = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
        half = xywh.copy()
        half[:, 2] /= 2  # an IoU of exactly a half, but for rounding
        half = np.concatenate([half[:, :2], half[:, :2] + half[:, 2:]], axis=1)
        zeros = np.zeros(6, dtype=int)
        found = Detections(np.arange(6), half, np.linspace(0.9, 0.4, 6), zeros)
        settings = APSettings(num_classes=1, iou_thresholds=[0.5])
        given = Objects(np.arange(6), xywh, zeros, box_format="xywh")
        truth = coco_eval(DetectionBatch(found, Objects(np.arange(6), edges, zeros), 6), 1)
        for annotation, box in zip(truth.cocoGt.dataset["annotations"], xywh.tolist()):
            annotation["bbox"], annotation["area"] = box, box[2] * box[3]
        truth.params.iouThrs = np.array([0.5])
        with contextlib.redirect_stdout(io.StringIO()):
            truth.evaluate()
            truth.accumulate()
        result = average_precision(match_for_ap(found, given, settings), settings)
        np.testing.assert_allclose(
            result.precision[0, 0, 0], truth.eval["precision"][0, :, 0, 0, -1], rtol=0, atol=1e-12
        )
        rounded = Objects(np.arange(6), edges, zeros)
        moved += not np.array_equal(
            match_for_ap(found, rounded, settings).matched, match_for_ap(found, given, settings).matched
        )
    assert moved  # so the format does matter


def test_nothing_at_all_is_undefined_and_no_detections_are_zero():
    settings = APSettings(num_classes=2)
    batch = empty_batch()
    assert np.isnan(list(_ours(batch, settings).to_dict().values())).all()
    there = Objects([0], [[0, 0, 50, 50]], [1])
    result = average_precision(match_for_ap(batch.detections, there, settings), settings)
    assert result.to_dict()["mAP"] == 0
    np.testing.assert_array_equal(result.per_class, [np.nan, 0])
    np.testing.assert_array_equal(result.at_iou(0.42), [np.nan, np.nan])


def test_text_names_the_numbers():
    batch, num_classes = random_batch(2)
    text = str(_ours(batch, APSettings(num_classes=num_classes)))
    assert text.startswith("mAP ") and "AR_l@100" in text


def test_bad_input_is_named():
    with pytest.raises(MetricInputError, match="'scores' of image 'x' must be finite"):
        match_for_ap(
            Detections([0], [[0, 0, 1, 1]], [np.nan], [0]), Objects.empty(), APSettings(num_classes=1), names=["x"]
        )
    with pytest.raises(ValueError, match="'iou_thresholds' must be positive and ascending"):
        APSettings(num_classes=1, iou_thresholds=[0.7, 0.5])
