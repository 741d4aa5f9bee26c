"""With ``ann_file``, classes have the names of their labels in mmdet's CocoDataset."""

from __future__ import annotations

import json

import pytest
import torch

from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.exceptions import MetricInputError

CATEGORIES = ("dog", "cat", "emu")


@pytest.fixture
def ann_file(tmp_path):
    objects = [(image, category) for image in range(6) for category in range(3)]
    content = {
        "images": [{"id": image, "file_name": f"{image}.jpg", "height": 100, "width": 200} for image in range(6)],
        "categories": [{"id": 5 * index + 2, "name": name} for index, name in enumerate(CATEGORIES)],
        "annotations": [
            dict(
                id=number,
                image_id=image,
                category_id=5 * category + 2,
                bbox=[10.0 + 50 * category, 10.0, 20.0, 20.0],
                area=400,
                iscrowd=0,
            )
            for number, (image, category) in enumerate(objects, 1)
        ],
    }
    path = tmp_path / "val.json"
    path.write_text(json.dumps(content))
    return str(path)


def samples(dataset):
    """Ground truths with the labels of the dataset, of which some of each class are detected."""
    for number in range(len(dataset)):
        info = dataset.get_data_info(number)
        boxes = torch.tensor([instance["bbox"] for instance in info["instances"]])
        labels = torch.tensor([instance["bbox_label"] for instance in info["instances"]])
        detected = number >= 2 * labels
        scores = torch.full((int(detected.sum()),), 0.9)
        yield {
            "img_id": info["img_id"],
            "ori_shape": (100, 200),
            "pred_instances": {"bboxes": boxes[detected], "scores": scores, "labels": labels[detected]},
            "gt_instances": {"bboxes": boxes, "labels": labels},
        }


@pytest.mark.parametrize("classes", [("emu", "dog", "cat"), ("emu", "dog"), CATEGORIES])
def test_names_equal_those_of_coco_metric(ann_file, classes, recwarn):
    from mmdet.datasets import CocoDataset
    from mmdet.evaluation import CocoMetric

    metainfo = {"classes": classes}
    dataset = CocoDataset(ann_file=ann_file, metainfo=metainfo, data_prefix={"img": ""}, test_mode=True, pipeline=[])
    ours = DetectionPRF(ap=True, classwise=True, ann_file=ann_file)
    theirs = CocoMetric(ann_file=ann_file, metric="bbox", classwise=True)
    for metric in (ours, theirs):
        metric.dataset_meta = dataset.metainfo
        for sample in samples(dataset):
            metric.process({}, [sample])
    messages = [str(warning.message) for warning in recwarn]
    messages = [message for message in messages if "metainfo['classes'] lists" in message]
    assert len(messages) == int(classes != CATEGORIES) and all("'emu', 'dog'" in message for message in messages)
    log, reference = ours.evaluate(6), theirs.evaluate(6)
    for name in classes:
        assert log[f"det/AP/{name}"] == pytest.approx(reference[f"coco/{name}_precision"], abs=5e-4)
    assert len({round(log[f"det/AP/{name}"], 3) for name in classes}) == len(classes)
    assert dataset.metainfo["classes"] == classes  # unchanged


def test_labels_that_mmdet_shifts_are_an_error(ann_file):
    metric = DetectionPRF(ann_file=ann_file)
    with pytest.raises(MetricInputError, match="label 0 is 'dog' or 'ant'"):
        metric.dataset_meta = {"classes": ("ant", "dog", "cat", "emu")}
    metric.dataset_meta = {"classes": (*CATEGORIES, "yak")}  # a last class without annotations
    assert metric.dataset_meta["classes"] == (*CATEGORIES, "yak")
    metric.dataset_meta = {}
    assert metric.dataset_meta["classes"] == CATEGORIES


def test_only_the_dataset_of_the_metric_is_read(ann_file):
    """After mmdet's MultiDatasetsEvaluator has set the metainfo of all datasets and then that of the metric."""
    metas = [dict(classes=names, cumulative_sizes=[1, 2]) for names in (CATEGORIES, tuple("abcdefgh"))]
    box = torch.tensor([[0.0, 0, 9, 9]])
    images = [
        dict(
            pred_instances=dict(bboxes=box, scores=torch.tensor([0.9]), labels=torch.tensor([label])),
            gt_instances=dict(bboxes=box, labels=torch.tensor([label])),
        )
        for label in (2, 7)
    ]
    metric = DetectionPRF(ann_file=ann_file)
    for meta in (metas, metas[0]):
        metric.dataset_meta = meta
    metric.process(None, images)
    assert metric.dataset_meta["classes"] == CATEGORIES
