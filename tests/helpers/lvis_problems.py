"""Random federated problems as the content of LVIS files, and what lvis-api says about them."""

from __future__ import annotations

import copy
import logging
from collections import defaultdict

import numpy as np
import pytest
from pycocotools import mask

SIZE = 160  # pixels, of every side of an image


def lvis_problem(seed, *, masks=False, most=40, ties=True):
    """An annotation file and results. Most classes are judged in few images, and some are not annotated exhaustively.

    Some images have more than ``most`` detections, if it is small, many with the same score as the last that counts.
    """
    random = np.random.default_rng(seed)
    num_classes, num_images = int(random.choice([1, 3, 8, 30])), int(random.integers(1, 7))
    category_ids = (random.permutation(num_classes) * 3 + 5).tolist()  # neither ascending nor gapless
    image_ids = (random.permutation(num_images) + 1).tolist()
    content = {
        "images": [],
        "annotations": [],
        "categories": [
            {"id": key, "name": f"class {key}", "frequency": str(random.choice(["r", "c", "f"]))}
            for key in category_ids
        ],
    }
    results = []
    for image_id in image_ids:
        objects = _boxes(random, 0 if random.random() < 0.1 else int(random.integers(1, 12)))
        annotated = random.choice(category_ids, len(objects))
        others = [key for key in category_ids if key not in annotated]
        negative = [key for key in others if random.random() < 0.4]
        partial = [key for key in category_ids if key not in negative and random.random() < 0.3]
        content["images"].append(
            {
                "id": image_id,
                "height": SIZE,
                "width": SIZE,
                "neg_category_ids": negative,
                "not_exhaustive_category_ids": partial,
            }
        )
        for box, category_id in zip(objects, annotated):
            area = float(box[2] * box[3] * random.uniform(0.6, 1)) if random.random() < 0.9 else 32.0**2
            row = {"id": len(content["annotations"]) + 1, "image_id": image_id, "category_id": int(category_id)}
            content["annotations"].append({**row, "bbox": box.tolist(), "area": area, **_mask(masks, box)})
        number = int(random.integers(0, 2 * most))
        boxes, labels = _boxes(random, number), random.choice(category_ids, number)
        if len(objects):
            chosen = random.integers(0, len(objects), number)
            near = random.random(number) < 0.7
            moved = objects[chosen] + np.round(random.normal(0, 1.5, (number, 4)))
            moved[:, 2:] = np.maximum(moved[:, 2:], 1)
            moved[:, :2] = np.clip(moved[:, :2], 0, SIZE - 1)
            boxes = np.where(near[:, None], moved, boxes)
            labels = np.where(near & (random.random(number) < 0.7), annotated[chosen], labels)
        scores = np.round(random.random(number), int(random.choice([1, 2])) if ties else 9)
        for box, category_id, score in zip(boxes, labels, scores):
            shape = _mask(True, box) if masks else {"bbox": box.tolist()}
            results.append({"image_id": image_id, "category_id": int(category_id), "score": float(score), **shape})
    if not ties:
        random.shuffle(results)
    return content, results


def _boxes(random, number):
    """(number, 4) boxes in xywh of whole pixels, of all area ranges."""
    corner = random.integers(0, SIZE - 30, (number, 2))
    sides = np.exp(random.uniform(np.log(4), np.log(150), (number, 2))).astype(int)
    return np.concatenate([corner, np.minimum(sides, SIZE - corner)], axis=1).astype(float)


def _mask(wanted, box):
    """The ellipse in a box as a compressed RLE."""
    if not wanted:
        return {}
    x, y, width, height = box
    row, column = np.mgrid[:SIZE, :SIZE] + 0.5
    inside = ((column - x - width / 2) / width) ** 2 + ((row - y - height / 2) / height) ** 2 <= 0.25
    rle = mask.encode(np.asfortranarray(inside.astype(np.uint8)))
    return {"segmentation": {"size": rle["size"], "counts": rle["counts"].decode()}}


def packed_results(content, results):
    """The results of boxes, one dict per image as mmdet writes them."""
    label_of = {row["id"]: label for label, row in enumerate(content["categories"])}
    packed = []
    for image in content["images"]:
        rows = [row for row in results if row["image_id"] == image["id"]]
        boxes = np.array([row["bbox"] for row in rows]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        instances = {
            "bboxes": boxes,
            "scores": np.array([row["score"] for row in rows]),
            "labels": np.array([label_of[row["category_id"]] for row in rows], dtype=int),
        }
        packed.append(
            {
                "img_id": image["id"],
                "img_path": f"val2017/{image['id']}.jpg",
                "ori_shape": (image["height"], image["width"]),
                "pred_instances": instances,
            }
        )
    return packed


def best_of_each_class(results, number):
    """The best detections of each category over all images, in the order of the file at equal scores."""
    of_class = defaultdict(list)
    for row in results:
        of_class[row["category_id"]].append(row)
    return [row for rows in of_class.values() for row in sorted(rows, key=lambda row: -row["score"])[:number]]


def lvis_results(content, results, iou_type, *, max_dets=300):
    """The evaluation of lvis-api, which must have a detection."""
    import lvis  # slow

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "float", float, raising=False)  # lvis 0.5.3 uses the name that NumPy 1.24 removed
        logging.getLogger("lvis").setLevel(logging.ERROR)
        ground_truth = lvis.LVIS.__new__(lvis.LVIS)
        ground_truth.logger = logging.getLogger("lvis")
        ground_truth.dataset = copy.deepcopy(content)
        ground_truth._create_index()
        found = lvis.LVISResults(ground_truth, copy.deepcopy(results), max_dets=max_dets)
        evaluation = lvis.LVISEval(ground_truth, found, iou_type)
        evaluation.run()
    return evaluation
