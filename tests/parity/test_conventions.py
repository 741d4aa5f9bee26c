"""Average precision by each convention, against the programs whose numbers it gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mm_metrics_plugin import DetectionPRF, evaluate_detection
from mm_metrics_plugin.exceptions import MetricWarning
from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, average_precision, match_images
from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers.detection_problems import dense_batch

CLASSES = ("ant", "bee", "cat")
pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")


def samples_of(batch, *, voc=False):
    """One sample per image, as mmdet's metrics receive them."""
    for index in range(batch.num_images):
        image = batch.images(index, index + 1)
        dets, gts = image.detections, image.ground_truths
        parts = {"gt_instances": ~gts.ignored, "ignored_instances": gts.ignored}
        boxes = gts.boxes.array.astype(np.float32)
        yield dict(
            img_id=index,
            ori_shape=(1000, 1000),
            instances=[
                {"bbox": box, "bbox_label": label, "ignore_flag": int(ignored)}
                for box, label, ignored in zip(boxes.tolist(), gts.labels.tolist(), gts.ignored)
            ],
            pred_instances=dict(
                bboxes=torch.tensor(dets.boxes.array.astype(np.float32)),
                scores=torch.tensor(dets.scores.astype(np.float32)),
                labels=torch.tensor(dets.labels),
            ),
            **{
                name: dict(bboxes=torch.tensor(boxes[rows]), labels=torch.tensor(gts.labels[rows]))
                for name, rows in parts.items()
            },
        )


def evaluated(metric, batch):
    metric.dataset_meta = {"classes": CLASSES}
    metric.process({}, list(samples_of(batch)))
    return metric.evaluate(batch.num_images)


def ours(batch, **options):
    metric = DetectionPRF(ap=True, classwise=True, convention=options.pop("convention"), **options)
    return {key.split("/", 1)[1]: value for key, value in evaluated(metric, batch).items()}


# --- mmdet's CocoMetric -----------------------------------------------------------------------------------------------


def dense(seed):
    """Up to 800 detections and 320 ground truths per image, whose overlaps do not depend on the precision."""
    return dense_batch(seed, num_images=2, ties=False, crowds=False)[0]


@pytest.mark.parametrize(
    "options, theirs",
    [
        ({}, {}),
        ({"recall_max_dets": (100, 200), "max_dets": 400}, {"proposal_nums": (100, 200, 400)}),
        ({"iou_thrs": (0.3, 0.5, 0.75)}, {"iou_thrs": np.array([0.3, 0.5, 0.75])}),
    ],
    ids=["default", "proposal_nums", "iou_thrs"],
)
def test_mmdet_gives_the_printed_digits_of_coco_metric(options, theirs):
    from mmdet.evaluation import CocoMetric

    batch = dense(1)
    expected = evaluated(CocoMetric(metric="bbox", **theirs), batch)
    found = ours(batch, convention="mmdet", **options)
    for key in ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l"):
        value = -1.0 if np.isnan(found[key]) else found[key]
        assert round(value, 3) == pytest.approx(expected[f"coco/bbox_{key}"], abs=1e-9), key
    with pytest.warns(MetricWarning, match="AP uses the best 100"):
        coco = ours(batch, convention="coco", iou_thrs=options.get("iou_thrs"))
    assert coco["mAP"] == found["mAP"] and round(coco["mAP_50"], 3) != round(found["mAP_50"], 3)


def test_values_per_class_are_those_of_coco_metric():
    from mmdet.evaluation import CocoMetric

    batch = dense(1)
    expected = evaluated(CocoMetric(metric="bbox", classwise=True), batch)
    found = ours(batch, convention="mmdet")
    for name in CLASSES:
        if f"coco/{name}_precision" in expected and not np.isnan(expected[f"coco/{name}_precision"]):
            assert round(found[f"AP@1000/{name}"], 3) == expected[f"coco/{name}_precision"]
    assert found["mAP"] == pytest.approx(np.nanmean([found[f"AP/{name}"] for name in CLASSES]))
    assert found["mAP@1000"] == pytest.approx(np.nanmean([found[f"AP@1000/{name}"] for name in CLASSES]))
    assert found["mAP@1000"] != found["mAP"]


# --- mmdet's VOCMetric and eval_map -----------------------------------------------------------------------------------


def voc_problem(seed):
    """Whole pixels, duplicates, difficult objects, detections of nothing, and boxes of one pixel."""
    random = np.random.default_rng(seed)
    num_images, num_gts, others = int(random.integers(2, 12)), int(random.integers(3, 60)), int(random.integers(0, 20))
    corner = random.integers(0, 60, (num_gts, 2))
    gt_boxes = np.concatenate([corner, corner + random.integers(0, 40, (num_gts, 2))], axis=1).astype(np.float32)
    gt_image, gt_labels = np.sort(random.integers(0, num_images, num_gts)), random.integers(0, 3, num_gts)
    row = np.repeat(np.arange(num_gts), random.integers(0, 4, num_gts))
    boxes = gt_boxes[row] + random.integers(-5, 6, (len(row), 4)) * (random.random((len(row), 1)) < 0.8)
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
    corner = random.integers(0, 60, (others, 2))
    boxes = np.concatenate([boxes, np.concatenate([corner, corner + random.integers(0, 40, (others, 2))], axis=1)])
    image = np.concatenate([gt_image[row], random.integers(0, num_images, others)])
    labels = np.concatenate([gt_labels[row], random.integers(0, 3, others)])
    labels = np.where(random.random(len(labels)) < 0.15, random.integers(0, 3, len(labels)), labels)
    scores = (random.permutation(len(labels)) + 1).astype(np.float32) / (len(labels) + 1)
    detections = Detections(image, boxes.astype(np.float32), scores, labels)
    gts = GroundTruths(gt_image, gt_boxes, gt_labels, ignore=random.random(num_gts) < 0.2)
    return DetectionBatch(detections, gts, num_images)


def eval_map(batch, **options):
    """The AP (ranges, classes) and number of ground truths of mmdet's ``eval_map``, in this process."""
    from mmdet.evaluation.functional import mean_ap

    class Pool:
        starmap = staticmethod(lambda function, arguments: [function(*each) for each in arguments])
        close = staticmethod(lambda: None)

    annotations, results = [], []
    for sample in samples_of(batch):
        gts, ignored, dets = sample["gt_instances"], sample["ignored_instances"], sample["pred_instances"]
        annotations.append(
            dict(
                bboxes=gts["bboxes"].numpy(),
                labels=gts["labels"].numpy(),
                bboxes_ignore=ignored["bboxes"].numpy(),
                labels_ignore=ignored["labels"].numpy(),
            )
        )
        rows = torch.cat([dets["bboxes"], dets["scores"][:, None]], dim=1).numpy()
        results.append([rows[dets["labels"].numpy() == label] for label in range(len(CLASSES))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mean_ap, "Pool", lambda number: Pool)
        mean, classes = mean_ap.eval_map(results, annotations, dataset=list(CLASSES), logger="silent", **options)
    ap = np.array([np.atleast_1d(result["ap"]) for result in classes]).T
    return ap, np.array([np.atleast_1d(result["num_gts"]) for result in classes]).T, np.atleast_1d(mean)


@pytest.mark.parametrize("convention, mode", [("voc07", "11points"), ("voc12", "area")])
def test_voc_equals_eval_map_per_class(convention, mode):
    for seed in range(40):
        batch, iou_thr = voc_problem(seed), [0.3, 0.5, 0.7][seed % 3]
        sides = None if seed % 2 else [(0, 1e5), (0, 20), (20, 1e5)]
        areas = {} if seed % 2 else {"area_ranges": {"below": (0, 400), "above": (400, 1e10)}}
        expected, num_gts, means = eval_map(
            batch, scale_ranges=sides, iou_thr=iou_thr, eval_mode=mode, use_legacy_coordinate=True
        )
        settings = DetectionSettings(convention=convention, iou_thrs=(iou_thr,), **areas)
        found = average_precision(match_images(batch, settings, num_classes=3, keep="scores").table)
        np.testing.assert_array_equal(found.num_gts, num_gts)
        np.testing.assert_allclose(found.ap[:, 0], np.where(num_gts > 0, expected, np.nan), rtol=0, atol=1e-6)
        mean = np.array([np.nanmean(row) if (row == row).any() else 0 for row in found.ap[:, 0]])
        np.testing.assert_allclose(mean, means, rtol=0, atol=1e-6)


def test_voc_in_training_equals_voc_metric():
    from mmdet.evaluation import VOCMetric

    batch = voc_problem(1)
    for convention, mode in (("voc07", "11points"), ("voc12", "area")):
        expected = evaluated(VOCMetric(iou_thrs=[0.4, 0.5], eval_mode=mode), batch)
        found = ours(batch, convention=convention, iou_thrs=(0.4, 0.5))
        assert found["mAP"] == pytest.approx(expected["pascal_voc/mAP"], abs=1e-6)
        assert round(found["mAP_50"], 3) == pytest.approx(expected["pascal_voc/AP50"], abs=1e-9)


# --- every convention -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", ["mmdet", "voc07", "voc12"])
def test_parts_merge_to_the_values_of_all_images(convention):
    batch = dense(2)
    settings = DetectionSettings(convention=convention, ci=0.9, resamples=20)
    whole = evaluate_detection(batch, classes=CLASSES, convention=convention, ci=0.9, resamples=20)
    parts = []
    for index in range(batch.num_images):
        evaluator = DetectionEvaluator(CLASSES, settings)
        evaluator.add(batch.images(index, index + 1), image_ids=[index])
        parts.append(evaluator)
    merged = parts[0].merge(*parts[1:]).compute()
    np.testing.assert_equal(merged.log_values(classwise=True), whole.log_values(classwise=True))


def test_precision_and_recall_do_not_depend_on_the_convention():
    batch = voc_problem(3)
    reports = [evaluate_detection(batch, classes=CLASSES, convention=name) for name in ("coco", "voc07", "mmdet")]
    rows = [report.matching_rules[0].columns for report in reports]
    for columns in rows[1:]:
        np.testing.assert_equal(columns, rows[0])


def test_named_thresholds_exist_only_if_they_are_averaged_over():
    found = ours(voc_problem(4), convention="coco", iou_thrs=(0.3, 0.75), recall_max_dets=(1, 300), max_dets=500)
    means = [key for key in found if key.startswith(("mAP", "AR")) and "/" not in key]
    assert means == ["mAP", "mAP_75", "AR@1", "AR@300", "AR@500"]


def test_conventions_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="convention='voc07' is defined for iou_type='bbox' \\(found 'segm'\\)"):
        DetectionPRF(ap=True, convention="voc07", iou_type="segm")
    with pytest.raises(ValueError, match="iou_thrs requires ap=True"):
        DetectionPRF(iou_thrs=(0.5,))


def test_reports_say_which_numbers_are_comparable():
    batch = voc_problem(5)
    provenance = evaluate_detection(batch, classes=CLASSES).to_dict()["provenance"]
    assert provenance["mAP"] == "the COCO leaderboard and pycocotools"
    assert provenance["precision"] == provenance["intervals"] == "this package only"
    provenance = evaluate_detection(batch, classes=CLASSES, convention="mmdet", matching="mmdet").to_dict()[
        "provenance"
    ]
    assert provenance["mAP_50"] == "the log of mmdet's CocoMetric"
    assert provenance["recall"] == "mmdet's confusion_matrix.py"
    for own in ({"iou_thrs": (0.5,)}, {"max_dets": 300}, {"nms_iou_thr": 0.5}):
        provenance = evaluate_detection(batch, classes=CLASSES, **own).to_dict()["provenance"]
        assert provenance["mAP"] == "this package only"


def test_area_ranges_cannot_have_the_names_of_other_keys():
    for name in ("low", "high", "r", "all"):
        with pytest.raises(ValueError, match=f"area_ranges cannot have the name '{name}'"):
            DetectionSettings(area_ranges={name: (0, 400)})


def test_recall_of_more_detections_than_max_dets_is_refused():
    for options in ({"recall_max_dets": (1, 200)}, {"recall_max_dets": (5,), "max_dets": 3}):
        with pytest.raises(ValueError, match="recall_max_dets must be at most max_dets"):
            DetectionPRF(ap=True, **options)
        with pytest.raises(ValueError, match="recall_max_dets must be at most max_dets"):
            evaluate_detection(voc_problem(5), classes=CLASSES, **options)
    assert evaluate_detection(voc_problem(5), classes=CLASSES, convention="mmdet", max_dets=50)


def test_numbers_with_dropped_annotations_are_comparable_with_no_other_program():
    image = {"id": 1, "file_name": "a.jpg", "height": 90, "width": 90}
    rows = [
        {"id": number, "image_id": 1, "category_id": 1, "bbox": [9 * number, 0, 8, 8], "area": 64, "ignore": ignore}
        for number, ignore in enumerate((0, 0, 1), 1)
    ]
    truth = {"images": [image], "annotations": rows, "categories": [{"id": 1, "name": "cat"}]}
    results = [{"image_id": 1, "category_id": 1, "bbox": row["bbox"], "score": 0.9} for row in rows]
    assert evaluate_detection(truth, results).to_dict()["provenance"]["mAP"] == "this package only"
    truth["annotations"][2]["ignore"] = 0
    assert evaluate_detection(truth, results).to_dict()["provenance"]["mAP"] == "the COCO leaderboard and pycocotools"
    rows[2]["is_group_of"] = 1
    with pytest.warns(MetricWarning, match="boxes of a group"):
        report = evaluate_detection(truth, results)
    assert report.matching_rules[0].columns["tp"].sum() == 2 and report.matching_rules[0].columns["fp"].sum() == 0
