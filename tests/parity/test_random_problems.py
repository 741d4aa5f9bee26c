"""Metrics and commands on random problems, compared with pycocotools and scikit-learn.

Classes have hostile names, images many objects or none, samples different dtypes, and processes uneven shares.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from mm_metrics_plugin import DetectionPRF
from tests.helpers import result_files as files
from tests.helpers.ranks import on_ranks

pytestmark = [pytest.mark.usefixtures("shown_warnings"), pytest.mark.filterwarnings("ignore")]
HOSTILE = ["50", "a/b", "low", "=1+1", "", "a", "mAP_50", "f1/high", "micro", "\x1b[31m", "中", "|", "a_0", "a\0"]
TWELVE = ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l")
TWELVE += ("AR@1", "AR@10", "AR@100", "AR_s@100", "AR_m@100", "AR_l@100")


def names_of(random, number):
    return [HOSTILE[at] for at in random.permutation(len(HOSTILE))[:number]]


def shares_of(random, samples, world_size):
    """Uneven shares, some of them empty."""
    owner = np.minimum(random.geometric(0.5, len(samples)) - 1, world_size - 1)
    return [
        [sample for sample, sample_rank in zip(samples, owner) if sample_rank == rank] for rank in range(world_size)
    ]


def evaluate(build, samples, names, random):
    """The values of a metric on one process, which must equal those of three processes with uneven shares."""
    shares = shares_of(random, samples, 3)

    def run(share, size):
        metric = build()
        metric.dataset_meta = {"classes": names}
        for start in range(0, len(share), 3):
            metric.process(None, share[start : start + 3])
        return metric.evaluate(size)

    whole = run(samples, len(samples))
    for actual in on_ranks(3, lambda rank: run(shares[rank], 0)):
        np.testing.assert_equal(actual, whole)
    return whole


# --- detectors --------------------------------------------------------------------------------------------------------


def detector(seed):
    """Annotations and results; boxes and scores are exact in float16."""
    random = np.random.default_rng(seed)
    images = random.permutation(10_000)[: random.integers(1, 13)].tolist()
    names = names_of(random, random.integers(1, 5))
    numbers = random.permutation(90)[: len(names)] + 1
    dense = seed % 4 == 3
    annotations, results = [], []
    for image_id in images:
        num_gts, num_dets = random.integers(0, 150 if dense else 9, 2)
        corner = random.integers(0, 120, (num_gts, 2))
        size = random.choice([0.5, 3, 8, 20, 40, 110], (num_gts, 2)) + random.integers(0, 3, (num_gts, 2))
        labels = random.integers(0, 1 if dense else len(names), num_gts)
        for row in range(num_gts):
            area = float(size[row].prod() * random.choice([0.5, 1.0]))
            box = [*map(float, corner[row]), *map(float, size[row])]
            own = {"id": len(annotations) + 1, "image_id": image_id, "category_id": int(numbers[labels[row]])}
            annotations.append({**own, "bbox": box, "area": area, "iscrowd": int(random.random() < 0.1)})
        near = random.integers(0, max(num_gts, 1), num_dets)
        start = (
            corner[near] + random.integers(-2, 3, (num_dets, 2)) if num_gts else random.integers(0, 50, (num_dets, 2))
        )
        extent = size[near] if num_gts else random.integers(1, 30, (num_dets, 2))
        same = random.random(num_dets) < 0.7
        decided = np.where(same, labels[near] if num_gts else 0, random.integers(0, len(names), num_dets))
        boxes = np.concatenate([start, start + extent], axis=1).astype(np.float32)
        scores = (random.integers(0, 17, num_dets) / 16).astype(np.float32)
        instances = {"bboxes": boxes, "scores": scores, "labels": decided}
        results.append({"img_id": image_id, "img_path": f"{image_id}.jpg", "pred_instances": instances})
    ground_truth = {
        "images": [{"id": number, "file_name": f"{number}.jpg", "height": 300, "width": 300} for number in images],
        "categories": [{"id": int(number), "name": name} for number, name in zip(numbers, names)],
        "annotations": annotations,
    }
    return ground_truth, results, names, random


def coco_rows(ground_truth, results):
    rows = []
    for image in results:
        instances = image["pred_instances"]
        for box, score, label in zip(instances["bboxes"].astype(float), instances["scores"], instances["labels"]):
            number = ground_truth["categories"][label]["id"]
            box = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            rows.append({"image_id": image["img_id"], "category_id": number, "bbox": box, "score": float(score)})
    return rows


def samples_of(ground_truth, results, random):
    """Samples of mmdet's dataset and model, each with its own dtypes."""
    label_of = {image["id"]: label for label, image in enumerate(ground_truth["categories"])}
    samples = []
    for image in results:
        own = [row for row in ground_truth["annotations"] if row["image_id"] == image["img_id"]]
        parts = []
        for crowd in (0, 1):
            rows = [row for row in own if row["iscrowd"] == crowd]
            boxes = np.array([row["bbox"] for row in rows]).reshape(-1, 4)
            boxes[:, 2:] += boxes[:, :2]
            labels = [label_of[row["category_id"]] for row in rows]
            parts.append({"bboxes": torch.tensor(boxes), "labels": torch.tensor(labels, dtype=torch.int64)})
        instances = image["pred_instances"]
        dtype = [torch.float16, torch.float32, torch.float64][random.integers(0, 3)]
        integer = [torch.uint8, torch.int32, torch.int64][random.integers(0, 3)]
        instances = {
            "bboxes": torch.tensor(instances["bboxes"]).to(dtype),
            "scores": torch.tensor(instances["scores"]).to([torch.bfloat16, dtype][random.integers(0, 2)]),
            "labels": torch.tensor(instances["labels"]).to(integer),
        }
        samples.append(
            {
                "img_id": image["img_id"],
                "pred_instances": instances,
                "gt_instances": parts[0],
                "ignored_instances": parts[1],
            }
        )
    return samples


@pytest.mark.parametrize("seed", range(12))
def test_detectors(tmp_path, seed):
    ground_truth, results, names, random = detector(seed)
    rows = coco_rows(ground_truth, results)
    assert rows, "pycocotools reads no empty results"
    path = files.write_json(tmp_path / "truth.json", ground_truth)
    expected = files.coco_evaluation(path, rows).stats
    pickled, listed = files.write_pickle(tmp_path / "a.pkl", results), files.write_json(tmp_path / "b.json", rows)
    for given in (pickled, listed):
        report = json.loads(files.printed("detection", path, given, "--format", "json"))
        actual = [report["average_precision"][key] for key in TWELVE]
        np.testing.assert_allclose(np.array(actual, dtype=float), expected, rtol=0, atol=1e-10)
        assert report["classes"] == [row["name"] for row in report["average_precision"]["per_class"]] == names
        assert [row["name"] for row in report["protocols"]["coco"]["per_class"]] == names
    compared = json.loads(files.printed("compare", path, pickled, listed, "--permutations", "20", "--format", "json"))
    compared = {row["metric"]: row for row in compared["comparisons"][0]["overall"]}
    for key, value in zip(TWELVE[:3], expected):
        given = [compared[key][run] for run in ("first", "second")]
        np.testing.assert_allclose(np.array(given, dtype=float), value, rtol=0, atol=1e-10)
    actual = evaluate(
        lambda: DetectionPRF(ap=True, classwise=True), samples_of(ground_truth, results, random), tuple(names), random
    )
    np.testing.assert_allclose([actual[f"det/{key}"] for key in TWELVE[:3]], expected[:3], rtol=0, atol=1e-10)
    per_class = report["protocols"]["coco"]["per_class"]
    for row, name in zip(per_class, names):
        for key in ("tp", "fp", "fn"):
            assert actual[f"det/{key}/{name}"] == row[key]


# --- classifiers ------------------------------------------------------------------------------------------------------


def classifier(seed, several):
    """Scores in one of three dtypes with one digit, so that many are tied or equal to the threshold."""
    random = np.random.default_rng(seed)
    number, classes = random.integers(2, 60), random.integers(2, 6)
    dtypes = [(np.float16, np.float32, np.float64)[at] for at in random.integers(0, 3, number)]
    runs = [[np.round(random.random(classes), 1).astype(dtype) for dtype in dtypes] for _ in range(2)]
    true = np.zeros((number, classes), dtype=np.int64)
    true[np.arange(number), random.integers(0, classes, number)] = 1
    if several:
        true |= random.random(true.shape) < 0.3
    contents = []
    for scores in runs:
        contents.append(
            [
                {
                    "pred_score": score,
                    "pred_label": np.flatnonzero(score >= score.dtype.type(0.5)) if several else score.argmax()[None],
                    "gt_label": np.flatnonzero(row),
                    "img_path": f"{at}.jpg",
                }
                for at, (score, row) in enumerate(zip(scores, true))
            ]
        )
    return contents, true, random


def decisions_of(content, several):
    if several:
        return np.stack([sample["pred_score"] >= sample["pred_score"].dtype.type(0.5) for sample in content]).astype(
            int
        )
    return np.eye(len(content[0]["pred_score"]), dtype=int)[[sample["pred_score"].argmax() for sample in content]]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_classifiers(tmp_path, seed, several):
    contents, true, random = classifier(seed, several)
    order = random.permutation(len(true))
    paths = [
        files.write_pickle(tmp_path / "a.pkl", contents[0]),
        files.write_pickle(tmp_path / "b.pkl", [contents[1][at] for at in order]),
    ]
    options = ("--task", "multi-label" if several else "single-label")
    compared = json.loads(files.printed("compare", "-", *paths, "--permutations", "20", "--format", "json", *options))[
        "comparisons"
    ][0]
    compared = {row["metric"]: row for row in compared["overall"]}
    for content, path, run in zip(contents, paths, ("first", "second")):
        decided = decisions_of(content, several)
        scores = np.stack([sample["pred_score"].astype(np.float64) for sample in content])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rates = precision_recall_fscore_support(true, decided, average=None, zero_division=np.nan)[:3]
            means = [np.nanmean(rate) for rate in rates]
            areas = [
                roc_auc_score(true[:, at], scores[:, at]) if 0 < true[:, at].sum() < len(true) else np.nan
                for at in range(true.shape[1])
            ]
            expected = np.array([*means, np.nanmean(areas)])
        report = json.loads(files.printed("classification", path, "--format", "json", *options))
        keys = ("precision", "recall", "f1", "auc")
        for actual in ([report[key] for key in keys], [compared[key][run] for key in keys]):
            np.testing.assert_allclose(np.array(actual, dtype=float), expected, rtol=0, atol=1e-12)
        given = {"precision": rates[0], "recall": rates[1], "f1": rates[2], "auc": areas}
        for key, values in given.items():
            table = np.array([row[key] for row in report["per_class"]], dtype=float)
            np.testing.assert_allclose(table, values, rtol=0, atol=1e-12)
