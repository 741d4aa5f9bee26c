"""DetectionPRF's options, files, warnings and refusals."""

from __future__ import annotations

import csv
import json
import warnings

import numpy as np
import pytest
import torch
from mmdet.structures.bbox import HorizontalBoxes
from mmengine.structures import InstanceData

from mm_metrics_plugin import DetectionPRF, MetricWarning, UndefinedMetricWarning
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases_detection import CLASSES, detections
from tests.helpers.detection_problems import crowded_images

SAMPLES = detections(np.random.default_rng(3), 40)


def metric(**options):
    made = DetectionPRF(**options)
    made.dataset_meta = {"classes": CLASSES}
    return made


def values(samples=SAMPLES, **options):
    return {key.split("/", 1)[1]: value for key, value in evaluate(metric(**options), samples).items()}


def test_keys_in_order():
    keys = ["f1", "precision", "recall", "f1_of_means", "f1_micro", "precision_micro", "recall_micro", "tp", "fp", "fn"]
    keys.append("classes_averaged")
    assert list(values()) == keys
    assert list(values(ap=True)) == [*keys, "mAP", "mAP_50", "mAP_75"]
    per_class = [f"{key}/{name}" for key in ("f1", "precision", "recall", "tp", "fp", "fn") for name in CLASSES]
    assert list(values(classwise=True)) == keys + per_class


def test_averages():
    macro, micro, weighted = (values(average=average, classwise=True) for average in ("macro", "micro", "weighted"))
    objects = np.array([macro[f"tp/{name}"] + macro[f"fn/{name}"] for name in CLASSES])
    per_class = np.array([macro[f"recall/{name}"] for name in CLASSES])
    assert macro["recall"] == pytest.approx(per_class.mean(), abs=1e-15)
    assert weighted["recall"] == pytest.approx((per_class * objects).sum() / objects.sum(), abs=1e-15)
    assert micro["f1"] == micro["f1_micro"] == macro["f1_micro"]


def test_box_objects_arrays_and_instance_data_are_read():
    expected = values()
    boxed = [
        dict(
            sample,
            gt_instances=InstanceData(
                bboxes=HorizontalBoxes(sample["gt_instances"]["bboxes"]), labels=sample["gt_instances"]["labels"]
            ),
            pred_instances={key: value.numpy() for key, value in sample["pred_instances"].items()},
        )
        for sample in SAMPLES
    ]
    assert values(boxed) == expected
    without = [{k: v for k, v in sample.items() if k != "ignored_instances"} for sample in SAMPLES]
    empty = [dict(sample, ignored_instances={}) for sample in without]
    assert values(without) == values(empty)


def test_files_have_the_values_of_the_log(tmp_path):
    prefix = tmp_path / "latest"
    found = values(outfile_prefix=str(prefix), classwise=True)
    written = json.loads((tmp_path / "latest.json").read_text())
    matrix = np.array(written["confusion_matrix"])
    assert matrix.shape == (4, 4)
    assert matrix.diagonal()[:3].sum() == found["tp"]
    assert [row["name"] for row in written["per_class"]] == list(CLASSES)
    assert [row["precision"] for row in written["per_class"]] == [found[f"precision/{name}"] for name in CLASSES]
    assert written["counts"]["images"] == len(SAMPLES)
    rows = list(csv.reader((tmp_path / "latest.confusion_matrix.csv").read_text().splitlines()))
    assert rows[0][1:] == [*CLASSES, "background"]
    assert np.array_equal(np.array([row[1:] for row in rows[1:]], dtype=int), matrix)
    table = list(csv.DictReader((tmp_path / "latest.per_class.csv").read_text().splitlines()))
    assert [float(row["recall"]) for row in table] == [found[f"recall/{name}"] for name in CLASSES]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "latest.confusion_matrix.csv",
        "latest.json",
        "latest.per_class.csv",
    ]


# --- many detections per image ---


def crowded_samples():
    """240 objects of one class per image, all of them detected."""
    batch = crowded_images()
    samples = []
    for image in range(batch.num_images):
        found = batch.detections.images(image, image + 1)
        boxes, labels = torch.tensor(found.boxes.array), torch.tensor(found.labels)
        instances = [{"bbox": box, "bbox_label": 0, "ignore_flag": 0} for box in found.boxes.array.tolist()]
        samples.append(
            dict(
                img_id=image,
                ori_shape=(480, 640),
                instances=instances,
                gt_instances=dict(bboxes=boxes, labels=labels),
                pred_instances=dict(bboxes=boxes, labels=labels, scores=torch.tensor(found.scores)),
            )
        )
    return samples


def crowded_values(**options):
    made = DetectionPRF(num_classes=1, **options)
    made.dataset_meta = {"classes": ["nut"]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        for _ in range(2):
            made.process(None, crowded_samples())
            found = made.evaluate(5)
    said = [str(item.message) for item in caught if "detections per class and image" in str(item.message)]
    return {key.split("/", 1)[1]: value for key, value in found.items()}, said


def test_max_dets_limits_only_ap_and_gives_one_warning():
    options = dict(ap=True, ci=0.9, operating_point="f1", resamples=5, classwise=True)
    found, said = crowded_values(**options)
    assert said == [
        "DetectionPRF: AP uses the best 100 of up to 240 detections per class and image, as COCO does; change it with "
        "max_dets"
    ]
    assert (found["recall"], found["tp"], found["fn"], found["operating_recall"]) == (1, 1200, 0, 1)
    assert [found["mAP_50"], found["mAP"]] == pytest.approx([42 / 101] * 2, abs=1e-12)
    assert np.isnan([found["mAP_50_low"], found["mAP_50_high"]]).all()  # five images are too few for an interval
    found, said = crowded_values(**options, max_dets=240)
    assert said == [] and found["mAP"] == found["mAP_50"] == 1
    assert crowded_values(max_dets=1)[1] == []  # no AP, no limit
    with pytest.raises(ValueError, match="max_dets"):
        DetectionPRF(max_dets=0)


def test_max_dets_gives_the_numbers_of_mmdets_coco_metric():
    """Which uses 100 for bbox_mAP and 1000 for bbox_mAP_50."""
    from mmdet.evaluation import CocoMetric

    theirs = CocoMetric(metric="bbox")
    theirs.dataset_meta = {"classes": ["nut"]}
    theirs.process({}, crowded_samples())
    expected = theirs.evaluate(5)
    assert expected["coco/bbox_mAP_50"] == 1
    assert crowded_values(ap=True, max_dets=1000)[0]["mAP_50"] == expected["coco/bbox_mAP_50"]
    assert round(crowded_values(ap=True)[0]["mAP"], 3) == expected["coco/bbox_mAP"] < 0.5


def test_images_with_the_same_id_are_different_images():
    """In intervals, operating points and the order of equal scores: images are told apart by position."""
    options = dict(ap=True, ci=0.9, resamples=50, operating_point="f1", classwise=True)
    samples = SAMPLES * (60 // len(SAMPLES) + 1)  # enough for intervals
    distinct = [dict(sample, img_id=number) for number, sample in enumerate(samples)]
    expected = values(distinct, **options)
    assert expected["mAP_50_low"] < expected["mAP_50_high"]
    for ids in (np.zeros(len(samples), dtype=int), np.arange(len(samples)) // 2):
        repeated = [dict(sample, img_id=int(number)) for sample, number in zip(samples, ids)]
        np.testing.assert_equal(values(repeated, **options), expected)


def test_matrix_is_printed(monkeypatch):
    lines = []
    monkeypatch.setattr("mm_metrics_plugin.metrics.detection.print_log", lambda text, **_: lines.append(text))
    values(confusion_matrix=True)
    assert "background" in lines[0]
    assert lines[0].splitlines()[2].startswith("car")


# --- objects in the wrong pixels ---


def scaled(factor, *, truth):
    """The samples as a pipeline that resizes by the factor leaves them; ``truth``: whether objects are resized too."""
    samples = []
    for sample in SAMPLES:
        there = dict(sample["gt_instances"])
        if truth:
            there["bboxes"] = there["bboxes"] * factor
        samples.append(dict(sample, gt_instances=there, scale_factor=(factor, factor), ori_shape=(90, 90)))
    return samples


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_ground_truths_in_resized_coordinates_give_one_warning(factor):
    with pytest.warns(UserWarning, match="put LoadAnnotations after Resize") as caught:
        made = metric()
        evaluate(made, scaled(factor, truth=True))
        evaluate(made, scaled(factor, truth=True))
    assert len([item for item in caught if "LoadAnnotations" in str(item.message)]) == 1


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.0])
def test_ground_truths_in_original_coordinates_give_no_warning(factor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(metric(), scaled(factor, truth=False))


# --- odd boxes, absent classes, refusals ---


def test_boxes_without_area_match_nothing_and_are_counted():
    flat, inverted = [5.0, 5, 5, 9], [9.0, 9, 2, 2]
    boxes = torch.tensor([flat, inverted])
    sample = dict(
        pred_instances=dict(bboxes=boxes, scores=torch.ones(2), labels=torch.zeros(2, dtype=torch.int64)),
        gt_instances=dict(bboxes=boxes, labels=torch.zeros(2, dtype=torch.int64)),
    )
    made = DetectionPRF(num_classes=1)
    made.process(None, [sample])
    made._flush()
    counts = made.results[0].counts_by_name
    assert counts["detections_without_area"] == counts["ground_truths_without_area"] == 2
    found = made.evaluate(1)
    assert (found["det/tp"], found["det/fp"], found["det/fn"]) == (0, 2, 2)


def test_operating_point_by_a_floor():
    found = values(operating_point="recall=0.5", classwise=True)
    assert found["operating_recall"] >= 0.5
    at_it = values(score_thr=found["operating_threshold"])
    assert at_it["precision_micro"] == found["operating_precision"]
    assert at_it["recall_micro"] == found["operating_recall"]
    assert 0 < found["cross_fitted_f_score"] < 1
    made = metric(operating_point="precision=0.99")
    with pytest.warns(UndefinedMetricWarning, match="operating_threshold is undefined"):
        made.process(None, SAMPLES)
        assert np.isnan(made.evaluate(len(SAMPLES))["det/operating_threshold"])
    with pytest.raises(ValueError, match="matching"):
        DetectionPRF(operating_point="f1", matching="mmdet")
    with pytest.raises(ValueError, match="best"):
        DetectionPRF(operating_point="best")
