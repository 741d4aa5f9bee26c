"""``DetectionPRF`` with the conventions of LVIS, whose ground truth is that of the annotation file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mm_metrics_plugin import DetectionPRF, evaluate_detection
from mm_metrics_plugin.exceptions import MetricInputError
from tests.helpers.lvis_problems import lvis_problem, packed_results

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")


@pytest.fixture
def written(tmp_path):
    """Writes an annotation file; returns its path."""

    def write(content):
        file = tmp_path / "lvis.json"
        file.write_text(json.dumps(content))
        return str(file)

    return write


def test_annotation_file_or_metainfo_is_required():
    metric = DetectionPRF(ap=True, convention="lvis")
    with pytest.raises(
        MetricInputError, match=r"convention='lvis' needs ann_file=.*or 'neg_category_ids' in the metainfo"
    ):
        metric.dataset_meta = {"classes": ("cat",)}


def metainfo_of(content):
    """The metainfo that says the same as an annotation file."""
    label_of = {row["id"]: label for label, row in enumerate(content["categories"])}
    fields = ("neg_category_ids", "not_exhaustive_category_ids")
    judged = {
        field: {image["id"]: [label_of[key] for key in image[field]] for image in content["images"]} for field in fields
    }
    rows = content["categories"]
    return {"classes": [row["name"] for row in rows], "frequency": tuple(row["frequency"] for row in rows), **judged}


def test_metainfo_gives_the_values_of_the_annotation_file(written):
    content, results = lvis_problem(6)
    file, packed = written(content), packed_results(content, results)
    label_of = {row["id"]: label for label, row in enumerate(content["categories"])}
    metric = DetectionPRF(ap=True, convention="lvis")
    metric.dataset_meta = metainfo_of(content)
    for sample in packed:
        rows = [row for row in content["annotations"] if row["image_id"] == sample["img_id"]]
        boxes = np.array([row["bbox"] for row in rows], dtype=float).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        targets = {"bboxes": boxes, "labels": np.array([label_of[row["category_id"]] for row in rows], dtype=int)}
        metric.process(None, [{**sample, "gt_instances": targets}])
    values = metric.evaluate(len(packed))
    expected = evaluate_detection(file, packed, convention="lvis").log_values()
    keys = ["mAP", "mAP_50", "mAP_75", "mAP_r", "mAP_c", "mAP_f"]  # areas are those of boxes
    assert [values[f"det/{key}"] for key in keys] == pytest.approx([expected[key] for key in keys], nan_ok=True)
    metric.dataset_meta = {**metainfo_of(content), "neg_category_ids": {packed[0]["img_id"]: [99]}}
    with pytest.raises(MetricInputError, match=r"'neg_category_ids' of .* in the metainfo must be labels from 0 to"):
        metric.process(None, [{**packed[0], "gt_instances": {"bboxes": np.zeros((0, 4)), "labels": np.zeros(0, int)}}])


@pytest.mark.parametrize("image_id", [99, "a", None, [1]])
def test_samples_must_be_images_of_the_file(written, image_id):
    content, results = lvis_problem(6)
    sample = packed_results(content, results)[0]
    metric = DetectionPRF(ap=True, convention="lvis", ann_file=written(content))
    metric.dataset_meta = {}
    with pytest.raises(MetricInputError, match=r"'img_id' of .* must be the id of an image in lvis\.json"):
        metric.process(None, [{**sample, "img_id": image_id}])


def test_samples_need_no_ground_truth_and_log_values_are_those_of_the_report(written):
    """Labels follow the order of the file, for class names in the same order; ids of images may be tensors."""
    content, results = lvis_problem(6)
    file, packed = written(content), packed_results(content, results)
    names = tuple(row["name"] for row in content["categories"])
    metric = DetectionPRF(ap=True, convention="lvis", ann_file=file, classwise=True)
    metric.dataset_meta = {"classes": names}
    for sample in packed:
        metric.process(None, [{**sample, "img_id": torch.tensor(sample["img_id"])}])
    values = metric.evaluate(len(packed))
    report = evaluate_detection(file, packed, convention="lvis")
    expected = report.analysis.average_precision
    for key in ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l", "mAP_r", "mAP_c", "mAP_f"):
        assert values[f"det/{key}"] == pytest.approx(expected.to_dict()[key], abs=1e-12, nan_ok=True), key
    for name, value in zip(names, expected.per_class):
        assert values[f"det/AP/{name}"] == pytest.approx(value, abs=1e-12, nan_ok=True)
    assert values["det/f1"] == pytest.approx(report.log_values()["f1"])
    assert report.to_dict()["provenance"]["mAP"].startswith("lvis-api")


def test_masks_equal_those_of_files(written):
    content, results = lvis_problem(6, masks=True)
    file, label_of = written(content), {row["id"]: label for label, row in enumerate(content["categories"])}
    metric = DetectionPRF(ap=True, convention="lvis", ann_file=file, iou_type="segm")
    metric.dataset_meta = {}
    for image in content["images"]:
        rows = [row for row in results if row["image_id"] == image["id"]]
        instances = {
            "masks": [row["segmentation"] for row in rows],
            "scores": np.array([row["score"] for row in rows]),
            "labels": np.array([label_of[row["category_id"]] for row in rows], dtype=int),
        }
        size = (image["height"], image["width"])
        metric.process(None, [{"img_id": image["id"], "ori_shape": size, "pred_instances": instances}])
    values = metric.evaluate(len(content["images"]))
    expected = evaluate_detection(file, results, convention="lvis", iou_type="segm").log_values()
    keys = [key for key in expected if key.startswith("mAP")]
    assert {"mAP_s", "mAP_r"} < set(keys) and expected["mAP"] > 0
    assert [values[f"det-segm/{key}"] for key in keys] == pytest.approx([expected[key] for key in keys], nan_ok=True)
