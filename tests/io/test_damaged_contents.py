"""Valid pickles and JSON files with unexpected contents are read or raise one type of error."""

import json
import pickle
import random
from collections import Counter

import numpy as np
import pytest
import torch

from mm_metrics_plugin.evaluation.joining import join
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.readers import read_classification, read_detections, read_ground_truth

JUNK = [None, 1, -1, 2**70, 1.5, float("nan"), "x", True, [], {}, [1], {"a": 1}]
ARRAYS = [(), b"y", np.ones(3), np.ones((2, 4)), np.array(3.0), np.array(["a"]), np.float32(2), np.ones((3, 0))]
ARRAYS += [np.ones((0, 3)), np.zeros((3, 4), bool), np.ones((3, 4), complex), np.array([1, 2**63], "u8")]


def damaged(value, rng, junk):
    """The value with something in it replaced or removed."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
        value = value.copy()
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if rng.random() < 0.1:
            del value[key]
        else:
            value[key] = damaged(value[key], rng, junk)
        return value
    return rng.choice(junk)


def instances(count=3):
    return {"bboxes": torch.ones(count, 4), "scores": torch.ones(count), "labels": torch.arange(count)}


def images(**more):
    return [
        {"img_id": n, "img_path": "a", "ori_shape": (4, 5), "pred_instances": instances(), **more} for n in range(3)
    ]


TRUTH = {
    "images": [{"id": n, "file_name": "a.jpg", "height": 9, "width": 9} for n in range(3)],
    "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    "annotations": [
        {"id": n, "image_id": n % 3, "category_id": n % 2 + 1, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}
        for n in range(6)
    ],
}
FOUND = [{"image_id": n % 3, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5} for n in range(6)]
LABELED = [{"bbox": [1.0, 2.0, 3.0, 4.0], "bbox_label": 1, "ignore_flag": 0}]
PICKLES = {
    "mmdet": images(),
    "mmyolo": images(gt_instances=instances(), ignored_instances=instances(1)),
    "openimages": images(instances=LABELED),
    "mmdet 2": [[np.ones((2, 5), np.float32)] * 3] * 3,
    "mmpretrain": [{"pred_score": torch.ones(4), "pred_label": torch.ones(1).long(), "gt_label": torch.ones(1).long()}]
    * 3,
}


def read_pickled(kind, content, path):
    path.write_bytes(pickle.dumps(content, 2))
    if kind == "mmpretrain":
        return read_classification(path)
    results = read_detections(path)
    return join(results.ground_truth, results) if results.ground_truth is not None else results


@pytest.mark.parametrize("kind", PICKLES)
def test_damaged_contents_of_pickles(kind, tmp_path):
    rng, outcomes = random.Random(kind), Counter()
    read_pickled(kind, PICKLES[kind], tmp_path / "results.pkl")
    for _ in range(400):
        try:
            read_pickled(kind, damaged(PICKLES[kind], rng, JUNK + ARRAYS), tmp_path / "results.pkl")
            outcomes["read"] += 1
        except ResultFileError as error:
            assert str(error).startswith("results.pkl: ")
            outcomes["refused"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 10


@pytest.mark.parametrize("kind", ["truth", "found"])
def test_damaged_contents_of_json(kind, tmp_path):
    rng, outcomes = random.Random(kind), Counter()
    good = {"truth": TRUTH, "found": FOUND}
    for trial in range(400):
        for name, content in good.items():
            changed = damaged(content, rng, JUNK) if trial and name == kind else content
            (tmp_path / f"{name}.json").write_text(json.dumps(changed))
        try:
            join(read_ground_truth(tmp_path / "truth.json"), read_detections(tmp_path / "found.json"))
            outcomes["read"] += 1
        except ResultFileError as error:
            assert trial and str(error).split(":")[0] in ("truth.json", "found.json")
            outcomes["refused"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 10
