"""Classes have the names that their labels have in mmdet's CocoDataset, if the annotation file is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.exceptions import MetricInputError

CATEGORIES = ("dog", "cat", "emu")


@pytest.fixture
def ann_file(tmp_path):
    rows = [(image, at) for image in range(6) for at in range(3)]
    content = {
        "images": [{"id": one, "file_name": f"{one}.jpg", "height": 100, "width": 200} for one in range(6)],
        "categories": [{"id": 5 * at + 2, "name": name} for at, name in enumerate(CATEGORIES)],
        "annotations": [
            {
                "id": number + 1,
                "image_id": image,
                "category_id": 5 * at + 2,
                "bbox": [10.0 + 50 * at, 10.0, 20.0, 20.0],
                "area": 400,
                "iscrowd": 0,
            }
            for number, (image, at) in enumerate(rows)
        ],
    }
    path = tmp_path / "val.json"
    path.write_text(json.dumps(content))
    return path


def samples(dataset):
    """As mmdet evaluates: objects by the labels of the dataset, and a detector that finds some of each class."""
    for number in range(len(dataset)):
        info = dataset.get_data_info(number)
        boxes = torch.tensor([one["bbox"] for one in info["instances"]])
        labels = torch.tensor([one["bbox_label"] for one in info["instances"]])
        found = number >= 2 * labels  # all dogs, cats from image 2 on, emus from image 4 on, by label
        yield {
            "img_id": info["img_id"],
            "ori_shape": (100, 200),
            "pred_instances": {
                "bboxes": boxes[found],
                "scores": torch.full((int(found.sum()),), 0.9),
                "labels": labels[found],
            },
            "gt_instances": {"bboxes": boxes, "labels": labels},
        }


@pytest.mark.parametrize("classes", [("emu", "dog", "cat"), ("emu", "dog"), CATEGORIES])
def test_names_are_those_of_coco_metric(ann_file, classes, recwarn):
    from mmdet.datasets import CocoDataset
    from mmdet.evaluation import CocoMetric

    dataset = CocoDataset(
        ann_file=str(ann_file),
        metainfo={"classes": classes},
        data_prefix={"img": ""},
        test_mode=True,
        pipeline=[],
    )
    ours = DetectionPRF(ap=True, classwise=True, ann_file=str(ann_file))
    theirs = CocoMetric(ann_file=str(ann_file), metric="bbox", classwise=True)
    for metric in (ours, theirs):
        metric.dataset_meta = dataset.metainfo
        for sample in samples(dataset):
            metric.process({}, [sample])
    said = [str(one.message) for one in recwarn if "metainfo['classes'] lists" in str(one.message)]
    log, reference = ours.evaluate(6), theirs.evaluate(6)
    assert len(said) == int(classes != CATEGORIES)
    assert all("'emu', 'dog'" in one for one in said)
    for name in classes:
        assert log[f"det/AP/{name}"] == pytest.approx(reference[f"coco/{name}_precision"], abs=5e-4)
    assert len({round(log[f"det/AP/{name}"], 3) for name in classes}) == len(classes)
    assert dataset.metainfo["classes"] == classes  # the dataset is left alone


def test_labels_that_mmdet_shifts_are_an_error(ann_file):
    metric = DetectionPRF(ann_file=str(ann_file))
    with pytest.raises(MetricInputError, match="label 0 is 'dog' or 'ant'"):
        metric.dataset_meta = {"classes": ("ant", "dog", "cat", "emu")}
    metric.dataset_meta = {"classes": (*CATEGORIES, "yak")}  # nothing is annotated with the last one
    assert metric.dataset_meta["classes"] == (*CATEGORIES, "yak")
    metric.dataset_meta = {}
    assert metric.dataset_meta["classes"] == CATEGORIES


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.UndefinedMetricWarning")
def test_without_ann_file_names_are_those_of_the_dataset():
    metric = DetectionPRF(classwise=True)
    metric.dataset_meta = {"classes": ("emu", "dog", "cat")}
    box = np.array([[0, 0, 9, 9]], np.float32)
    found = {"bboxes": box, "scores": np.array([0.9]), "labels": np.array([1])}
    metric.process(None, [{"pred_instances": found, "gt_instances": {"bboxes": box, "labels": np.array([1])}}])
    assert metric.evaluate(1)["det/tp/dog"] == 1
