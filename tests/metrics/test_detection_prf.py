"""Options, files, warnings and confidence intervals of DetectionPRF."""

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
from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases_detection import CLASSES, detections
from tests.helpers.detection_problems import crowded_images

SAMPLES = detections(np.random.default_rng(3), 40)


def metric(**options):
    result = DetectionPRF(**options)
    result.dataset_meta = {"classes": CLASSES}
    return result


def values(samples=SAMPLES, **options):
    return {key.split("/", 1)[1]: value for key, value in evaluate(metric(**options), samples).items()}


def test_keys_in_order():
    keys = ["f1", "precision", "recall", "f1_of_means", "f1_micro", "precision_micro", "recall_micro", "tp", "fp", "fn"]
    keys.append("classes_averaged")
    assert list(values()) == keys
    assert list(values(ap=True)) == [*keys, "mAP", "mAP_50", "mAP_75"]
    per_class = [f"{key}/{name}" for key in ("f1", "precision", "recall", "tp", "fp", "fn") for name in CLASSES]
    assert list(values(classwise=True)) == keys + per_class


def test_keys_of_olrp_and_froc():
    plain = list(values())
    olrp = ["oLRP", "oLRP_Loc", "oLRP_FP", "oLRP_FN"]
    froc = ["FROC", *(f"sensitivity@{fps}" for fps in ("0.125", "0.25", "0.5", "1", "2", "4", "8"))]
    assert list(values(olrp=True)) == [*plain, *olrp] and list(values(froc=True)) == [*plain, *froc]
    per_class = [key for key in values(olrp=True, froc=True, classwise=True) if key not in values(classwise=True)]
    of_class = [f"{key}/{name}" for key in ("oLRP", "oLRP_threshold") for name in CLASSES]
    assert per_class == [*olrp, *of_class, *froc, *(f"FROC/{name}" for name in CLASSES)]


def test_olrp_and_froc_depend_neither_on_the_score_threshold_nor_on_the_matching_rule():
    options = dict(olrp=True, froc=True, classwise=True)
    expected = values(**options)
    for others in (dict(score_thr=0.9), dict(matching="mmdet"), dict(max_dets=1), dict(ap=True), dict(ci=0.9)):
        result = values(**options, **others)
        for key in expected:
            if key.startswith(("oLRP", "FROC", "sensitivity")):
                assert result[key] == expected[key], (others, key)


def test_undefined_olrp_and_froc_give_one_warning_each():
    nothing = dict(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=int))
    sample = dict(SAMPLES[1], pred_instances=dict(nothing, scores=torch.zeros(0)))
    detector = DetectionPRF(olrp=True, froc=True, num_classes=30)
    detector.process(None, [sample])
    with pytest.warns(UndefinedMetricWarning) as caught:
        result = detector.evaluate(1)
    assert result["det/oLRP"] == result["det/oLRP_FN"] == 1 and result["det/FROC"] == 0
    assert np.isnan([result["det/oLRP_Loc"], result["det/oLRP_FP"]]).all()
    messages = [str(item.message) for item in caught]
    for key, reason in (
        ("oLRP", "no ground truths"),
        ("oLRP_Loc", "no true positives"),
        ("oLRP_FP", "no true positives"),
        ("FROC", "no ground truths"),
    ):
        assert len([text for text in messages if f"{key} is undefined" in text and reason in text]) == 1, key


def test_averages():
    macro, micro, weighted = (values(average=average, classwise=True) for average in ("macro", "micro", "weighted"))
    support = [macro[f"tp/{name}"] + macro[f"fn/{name}"] for name in CLASSES]
    per_class = [macro[f"recall/{name}"] for name in CLASSES]
    assert macro["recall"] == pytest.approx(np.mean(per_class), abs=1e-15)
    assert weighted["recall"] == pytest.approx(np.average(per_class, weights=support), abs=1e-15)
    assert micro["f1"] == micro["f1_micro"] == macro["f1_micro"]


def test_box_objects_arrays_and_instance_data_are_read():
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
    assert values(boxed) == values()
    without = [{key: value for key, value in sample.items() if key != "ignored_instances"} for sample in SAMPLES]
    assert values(without) == values([dict(sample, ignored_instances={}) for sample in without])


@pytest.mark.parametrize("matching", MATCHING_RULES)
def test_files_count_every_ground_truth_and_detection_once(matching, tmp_path):
    log = values(outfile_prefix=str(tmp_path / "latest"), matching=matching)
    report = json.loads((tmp_path / "latest.json").read_text())
    for key in ("ground_truths", "detections"):
        assert sum(row[key] for row in report["per_class"]) == report["counts"][key]
    counted_again = report["counts"]["ground_truths_counted_again"]
    assert log["tp"] + log["fn"] - counted_again == report["counts"]["ground_truths"]
    assert (counted_again > 0) == (matching == "mmdet")


def test_files_have_the_values_of_the_log(tmp_path):
    log = values(outfile_prefix=str(tmp_path / "latest"), classwise=True)
    names = ["latest.confusion_matrix.csv", "latest.json", "latest.per_class.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    report = json.loads((tmp_path / "latest.json").read_text())
    matrix = np.array(report["confusion_matrix"])
    assert matrix.shape == (4, 4) and matrix.diagonal()[:3].sum() == log["tp"]
    assert [row["name"] for row in report["per_class"]] == list(CLASSES)
    assert [row["precision"] for row in report["per_class"]] == [log[f"precision/{name}"] for name in CLASSES]
    assert report["counts"]["images"] == len(SAMPLES)
    rows = list(csv.reader((tmp_path / "latest.confusion_matrix.csv").read_text().splitlines()))
    assert rows[0][1:] == [*CLASSES, "background"]
    assert np.array_equal(np.array([row[1:] for row in rows[1:]], dtype=int), matrix)
    table = csv.DictReader((tmp_path / "latest.per_class.csv").read_text().splitlines())
    assert [float(row["recall"]) for row in table] == [log[f"recall/{name}"] for name in CLASSES]


def test_confusion_matrix_in_the_log(monkeypatch):
    lines = []
    monkeypatch.setattr("mm_metrics_plugin.metrics.detection.print_log", lambda text, **_: lines.append(text))
    values(confusion_matrix=True)
    assert "background" in lines[0] and lines[0].splitlines()[2].startswith("car")


# --- many detections per image ----------------------------------------------------------------------------------------


def crowded_samples():
    """240 ground truths of one class per image, all of them detected."""
    batch = crowded_images()
    for image in range(batch.num_images):
        detected = batch.detections.images(image, image + 1)
        boxes, labels = torch.tensor(detected.boxes.array), torch.tensor(detected.labels)
        yield dict(
            img_id=image,
            ori_shape=(480, 640),
            instances=[{"bbox": box, "bbox_label": 0, "ignore_flag": 0} for box in detected.boxes.array.tolist()],
            gt_instances=dict(bboxes=boxes, labels=labels),
            pred_instances=dict(bboxes=boxes, labels=labels, scores=torch.tensor(detected.scores)),
        )


def crowded_values(**options):
    """The values of the second of two evaluations, and the warnings about max_dets in both."""
    detector = DetectionPRF(num_classes=1, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        for _ in range(2):
            detector.process(None, list(crowded_samples()))
            result = detector.evaluate(5)
    messages = [str(item.message) for item in caught if "detections per class and image" in str(item.message)]
    return {key.split("/", 1)[1]: value for key, value in result.items()}, messages


def test_max_dets_limits_only_ap_and_gives_one_warning():
    options = dict(ap=True, operating_point="f1", classwise=True)
    result, messages = crowded_values(**options)
    assert messages == [
        "DetectionPRF: AP uses the best 100 of up to 240 detections per class and image (max_dets=100), as COCO does"
    ]
    assert (result["recall"], result["tp"], result["fn"], result["operating_recall"]) == (1, 1200, 0, 1)
    assert [result["mAP_50"], result["mAP"]] == pytest.approx([42 / 101] * 2, abs=1e-12)
    result, messages = crowded_values(**options, max_dets=240)
    assert messages == [] and result["mAP"] == result["mAP_50"] == 1
    assert crowded_values(max_dets=1)[1] == []  # without AP there is no limit


def test_max_dets_gives_the_values_of_mmdets_coco_metric():
    """CocoMetric uses 100 for bbox_mAP and 1000 for bbox_mAP_50."""
    from mmdet.evaluation import CocoMetric

    theirs = CocoMetric(metric="bbox")
    theirs.dataset_meta = {"classes": ["nut"]}
    theirs.process({}, list(crowded_samples()))
    expected = theirs.evaluate(5)
    assert crowded_values(ap=True, max_dets=1000)[0]["mAP_50"] == expected["coco/bbox_mAP_50"] == 1
    assert round(crowded_values(ap=True)[0]["mAP"], 3) == expected["coco/bbox_mAP"] < 0.5


def test_images_with_the_same_id_are_different_images():
    options = dict(ap=True, ci=0.9, resamples=50, operating_point="f1", classwise=True)
    samples = SAMPLES * 2  # enough for intervals
    expected = values([dict(sample, img_id=number) for number, sample in enumerate(samples)], **options)
    assert expected["mAP_50_low"] < expected["mAP_50_high"]
    for repeats in (len(samples), 2):
        repeated = [dict(sample, img_id=number // repeats) for number, sample in enumerate(samples)]
        np.testing.assert_equal(values(repeated, **options), expected)


# --- ground truths in the coordinates of resized images ---------------------------------------------------------------


def resized(factor, *, targets):
    """The samples after a pipeline that resizes images by the factor, and ground truths too if ``targets``."""
    for sample in SAMPLES:
        boxes = sample["gt_instances"]["bboxes"] * (factor if targets else 1)
        instances = dict(sample["gt_instances"], bboxes=boxes)
        yield dict(sample, gt_instances=instances, scale_factor=(factor, factor), ori_shape=(90, 90))


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_ground_truths_in_resized_coordinates_give_one_warning(factor):
    detector = metric()
    with pytest.warns(UserWarning, match="put LoadAnnotations after Resize") as caught:
        for _ in range(2):
            evaluate(detector, list(resized(factor, targets=True)))
    assert len([item for item in caught if "LoadAnnotations" in str(item.message)]) == 1


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.0])
def test_ground_truths_in_original_coordinates_give_no_warning(factor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(metric(), list(resized(factor, targets=False)))


# --- operating points and confidence intervals ------------------------------------------------------------------------


def test_operating_point_with_a_minimum_recall():
    chosen = values(operating_point="recall=0.5", classwise=True)
    assert chosen["operating_recall"] >= 0.5
    at_threshold = values(score_thr=chosen["operating_threshold"])
    assert at_threshold["precision_micro"] == chosen["operating_precision"]
    assert at_threshold["recall_micro"] == chosen["operating_recall"]
    assert 0 < chosen["cross_fitted_f_score"] < 1
    detector = metric(operating_point="precision=0.99")
    detector.process(None, SAMPLES)
    with pytest.warns(UndefinedMetricWarning, match="operating_threshold is undefined"):
        assert np.isnan(detector.evaluate(len(SAMPLES))["det/operating_threshold"])


@pytest.mark.parametrize("options", [{}, {"average": "micro"}, {"ap": True, "iou_thr": 0.42}, {"nms_iou_thr": 0.6}])
def test_ci_adds_intervals_that_contain_the_values(options):
    samples = detections(np.random.default_rng(0), 80)
    plain = values(samples, classwise=True, **options)
    result = values(samples, classwise=True, ci=0.95, resamples=200, **options)
    assert {key: result[key] for key in plain} == plain
    rates = [key for key in plain if not key.startswith(("tp", "fp", "fn", "classes"))]
    assert len(result) == len(plain) + 2 * len(rates)
    for key in rates:
        name, slash, class_name = key.partition("/")
        low, high = (result[f"{name}_{end}{slash}{class_name}"] for end in ("low", "high"))
        assert 0 <= low < high <= 1 and low <= result[key] <= high


def test_too_few_images_give_nan_and_one_warning():
    detector = metric(ap=True, classwise=True, ci=0.95, resamples=20)
    detector.process(None, SAMPLES[:20])
    with pytest.warns(UndefinedMetricWarning, match="confidence interval is undefined for f1, precision"):
        result = detector.evaluate(20)
    for key in ("f1", "precision", "mAP", "mAP_50"):
        assert np.isnan([result[f"det/{key}_low"], result[f"det/{key}_high"]]).all() and result[f"det/{key}"] > 0
    assert result["det/recall_micro_low"] < result["det/recall_micro"] < result["det/recall_micro_high"]


def test_boxes_of_a_group_are_crowd_regions_with_a_warning():
    """OpenImages: two detections of a group are neither TP nor FP, and a group without detections is no FN."""
    boxes = torch.tensor([[0.0, 0, 40, 40], [50, 50, 60, 60], [80, 80, 99, 99]])
    found = torch.tensor([[0.0, 0, 20, 20], [20, 20, 40, 40], [50, 50, 60, 60]])
    sample = dict(
        instances=[{"is_group_of": group} for group in (True, False, True)],
        gt_instances=dict(bboxes=boxes, labels=torch.zeros(3, dtype=int)),
        pred_instances=dict(bboxes=found, labels=torch.zeros(3, dtype=int), scores=torch.tensor([0.9, 0.8, 0.7])),
    )
    detector = DetectionPRF(num_classes=1)
    with pytest.warns(MetricWarning, match="boxes of a group .* are evaluated as crowd regions"):
        detector.process(None, [sample])
    result = detector.evaluate(1)
    assert (result["det/tp"], result["det/fp"], result["det/fn"]) == (1, 0, 0)
