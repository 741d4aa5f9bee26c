"""Files with one mistake each that makes an mAP of 0 or an undefined one, and the cause that a diagnosis names."""

from __future__ import annotations

import copy
from typing import Any, Callable, NamedTuple

import numpy as np

from tests.helpers import result_files as files

WIDTH, HEIGHT = 640, 480
IMAGES = 40


class Files(NamedTuple):
    """Annotations and results; results are those of mmdet, or COCO results."""

    truth: Any
    results: Any


class Mistake(NamedTuple):
    """What is wrong, the cause that the report names, and what its numbers must say."""

    name: str
    make: Callable[[], Files]
    cause: str
    numbers: dict[str, Any]


def healthy(images=IMAGES, seed=0) -> Files:
    """Annotations, and results of mmdet."""
    problem = files.problem(images, seed)
    return Files(files.truth_of(problem), files.results_of(problem))


def coco_rows(results):
    """COCO results from those of mmdet."""
    rows = []
    for image in results:
        instances = image["pred_instances"]
        columns = (instances["bboxes"].astype(float), instances["scores"], instances["labels"])
        for (left, top, right, bottom), score, label in zip(*columns):
            box = [left, top, right - left, bottom - top]
            rows.append(
                {"image_id": image["img_id"], "category_id": int(label) + 1, "bbox": box, "score": float(score)}
            )
    return rows


def _xyxy(box):
    left, top, width, height = box
    return [left, top, left + width, top + height]


def _divided(box, factors):
    return [value / factor for value, factor in zip(box, factors)]


def with_rows(change, of_coco=False) -> Files:
    """Healthy files with changed detections: COCO rows, or the instances of each image."""
    truth, results = healthy()
    if of_coco:
        return Files(truth, [{**row, **change(row)} for row in coco_rows(results)])
    results = copy.deepcopy(results)
    for image in results:
        image["pred_instances"].update(change(image["pred_instances"]))
    return Files(truth, results)


def with_annotations(change) -> Files:
    """Healthy files with changed annotations."""
    truth, results = healthy()
    return Files({**truth, "annotations": [{**row, **change(row)} for row in truth["annotations"]]}, results)


def with_boxes(convert) -> Files:
    """Results of mmdet with converted boxes (left, top, right, bottom)."""
    return with_rows(lambda instances: {"bboxes": np.stack(convert(*instances["bboxes"].T), axis=1)})


def off_by_one() -> Files:
    """Labels of detections are counted from 1; the last class of the annotations has no objects."""
    truth, results = healthy()
    truth["annotations"] = [row for row in truth["annotations"] if row["category_id"] < 4]
    for image in results:
        labels = image["pred_instances"]["labels"]
        keep = labels < 3
        image["pred_instances"] = {key: value[keep] for key, value in image["pred_instances"].items()}
        image["pred_instances"]["labels"] += 1
    return Files(truth, results)


def disjoint_classes() -> Files:
    """All objects are of one class, and all detections of another."""
    truth, results = with_rows(lambda instances: {"labels": np.ones_like(instances["labels"])})
    return Files({**truth, "annotations": [{**row, "category_id": 1} for row in truth["annotations"]]}, results)


def disjoint_images() -> Files:
    """Half of the images have the annotations, and the others the detections."""
    truth, results = healthy(60)
    truth["annotations"] = [row for row in truth["annotations"] if row["image_id"] <= 30]
    return Files(truth, [row for row in coco_rows(results) if row["image_id"] > 30])


def resized(image_factor=lambda number: 1.6) -> Files:
    """Detections in the coordinates of images that were resized by a factor each."""
    truth, results = healthy()
    results = copy.deepcopy(results)
    for image in results:
        image["pred_instances"]["bboxes"] *= np.float32(image_factor(image["img_id"]))
    return Files(truth, results)


def outside() -> Files:
    """The annotations are of larger images."""
    return with_annotations(lambda row: {"bbox": [row["bbox"][0] + 5000, *row["bbox"][1:]]})


MISTAKES = [
    Mistake(
        "no annotations",
        lambda: Files({**healthy().truth, "annotations": []}, healthy().results),
        *("no_ground_truth", {"read": 0}),
    ),
    Mistake("annotations outside", outside, "no_ground_truth", {"dropped": {"outside the image": 190}}),
    Mistake(
        "annotations of other images",
        lambda: with_annotations(lambda row: {"image_id": row["image_id"] + 100}),
        *("no_ground_truth", {"dropped": {"image not in the file": 190}}),
    ),
    Mistake(
        "all crowds",
        lambda: with_annotations(lambda row: {"iscrowd": 1}),
        *("all_ignored", {"ground_truths": 190, "ignored": 190}),
    ),
    Mistake("no detections", lambda: Files(healthy().truth, []), "no_detections", {"read": 0}),
    Mistake(
        "disjoint images",
        disjoint_images,
        *("image_ids", {"images_with_detections": 30, "images_with_both": 0}),
    ),
    Mistake(
        "image ids off by one",
        lambda: with_rows(lambda row: {"image_id": row["image_id"] % IMAGES + 1}, of_coco=True),
        *("image_ids", {"step": -1}),
    ),
    Mistake(
        "xyxy in COCO results",
        lambda: with_rows(lambda row: {"bbox": _xyxy(row["bbox"])}, of_coco=True),
        *("box_format", {"side": "detections", "format": "xyxy", "read_as": "xywh"}),
    ),
    Mistake(
        "xyxy in annotations",
        lambda: with_annotations(lambda row: {"bbox": _xyxy(row["bbox"])}),
        *("box_format", {"side": "ground truths", "format": "xyxy", "read_as": "xywh"}),
    ),
    Mistake(
        "xywh in results.pkl",
        lambda: with_boxes(lambda x, y, x2, y2: (x, y, x2 - x, y2 - y)),
        *("box_format", {"side": "detections", "format": "xywh", "read_as": "xyxy"}),
    ),
    Mistake(
        "centers in results.pkl",
        lambda: with_boxes(lambda x, y, x2, y2: ((x + x2) / 2, (y + y2) / 2, x2 - x, y2 - y)),
        *("box_format", {"side": "detections", "format": "cxcywh", "read_as": "xyxy"}),
    ),
    Mistake(
        "centers in annotations",
        lambda: with_annotations(
            lambda row: {
                "bbox": [row["bbox"][0] + row["bbox"][2] / 2, row["bbox"][1] + row["bbox"][3] / 2, *row["bbox"][2:]]
            }
        ),
        *("box_format", {"format": "cxcywh", "read_as": "xywh"}),
    ),
    Mistake(
        "y before x",
        lambda: with_boxes(lambda x, y, x2, y2: (y, x, y2, x2)),
        *("box_format", {"format": "yxyx"}),
    ),
    Mistake(
        "normalized detections",
        lambda: with_boxes(lambda x, y, x2, y2: (x / WIDTH, y / HEIGHT, x2 / WIDTH, y2 / HEIGHT)),
        *("box_scale", {"side": "detections"}),
    ),
    Mistake(
        "normalized annotations",
        lambda: with_annotations(lambda row: {"bbox": _divided(row["bbox"], (WIDTH, HEIGHT) * 2)}),
        *("box_scale", {"side": "ground truths"}),
    ),
    Mistake("detections of resized images", resized, "box_scale", {"images": 32}),
    Mistake(
        "detections of images resized differently",
        lambda: resized(lambda number: 0.3 + 0.05 * (number % 7)),
        *("box_scale", {"images": 32}),
    ),
    Mistake(
        "detections of stretched images",
        lambda: with_boxes(lambda x, y, x2, y2: (x * 0.5, y * 0.8, x2 * 0.5, y2 * 0.8)),
        *("box_scale", {"images": 32}),
    ),
    Mistake("labels off by one", off_by_one, "labels_off_by_one", {"step": 1}),
    Mistake(
        "other order of classes",
        lambda: with_rows(lambda instances: {"labels": np.array([2, 3, 1, 0])[instances["labels"]]}),
        *("class_order", {"detected_as": dict(zip(files.CLASSES, ("traffic light", "a|b", "dog", "cat")))}),
    ),
    Mistake(
        "category ids in another order",
        lambda: with_rows(lambda row: {"category_id": [3, 4, 2, 1][row["category_id"] - 1]}, of_coco=True),
        *("class_order", {}),
    ),
    Mistake("disjoint classes", disjoint_classes, "class_names", {"classes": ["cat"], "detected": ["dog"]}),
    Mistake(
        "logits",
        lambda: with_rows(lambda instances: {"scores": np.log(instances["scores"])}),
        *("scores_outside", {"outside": 800}),
    ),
    Mistake(
        "percentages",
        lambda: with_rows(lambda instances: {"scores": instances["scores"] * 100}),
        *("scores_outside", {"detections": 800}),
    ),
    Mistake(
        "equal scores",
        lambda: with_rows(lambda instances: {"scores": np.full_like(instances["scores"], 0.5)}),
        *("scores_equal", {"lowest": 0.5, "highest": 0.5}),
    ),
]


def samples_of(made: Files) -> list[dict[str, Any]]:
    """The samples of a metric, from results of mmdet and COCO annotations."""
    samples = []
    for image in made.results:
        rows = [row for row in made.truth["annotations"] if row["image_id"] == image["img_id"]]
        instances = {
            "bboxes": np.array([_xyxy(row["bbox"]) for row in rows]).reshape(-1, 4),
            "labels": np.array([row["category_id"] - 1 for row in rows], dtype=np.int64),
        }
        ignored = np.array([bool(row["iscrowd"]) for row in rows], dtype=bool)
        samples.append(
            {
                **image,
                "gt_instances": {key: value[~ignored] for key, value in instances.items()},
                "ignored_instances": {key: value[ignored] for key, value in instances.items()},
            }
        )
    return samples
