"""Draw images of rotated rectangles and the results of a simulated detector: ``python demo/rectangles.py FOLDER``.

Annotations and results have masks, rotated boxes and key points (the corners and the center), so that one small data
set shows every IoU type; ``configs/mmrotate_prf.py`` trains on it. ``train/`` and ``val/`` in the folder receive

- ``images/``, ``annotations.json`` (COCO, with masks and key points) and ``labelTxt/`` (DOTA);
- in ``val/`` also ``masks.json`` and ``keypoints.json`` (COCO results) and ``rotated.pkl`` (results of mmrotate).
"""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CLASSES = ("plate", "beam")
JOINTS = ("a", "b", "c", "d", "center")
SKELETON = ((1, 2), (2, 3), (3, 4), (4, 1))
SIZE = 160
SIGNS = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (0, 0)]) / 2


class Objects(NamedTuple):
    """The rectangles of an image."""

    boxes: np.ndarray  # (N, 5) center x and y, width, height, angle
    labels: np.ndarray  # (N,)


def joints_of(box: np.ndarray) -> np.ndarray:
    """(5, 2) the corners and the center of a box."""
    cosine, sine = np.cos(box[4]), np.sin(box[4])
    return np.asarray(box[:2] + (SIGNS * box[2:4]) @ np.array([[cosine, sine], [-sine, cosine]]))


def mask_of(box: np.ndarray) -> np.ndarray:
    """(SIZE, SIZE) the pixels whose center is inside a box."""
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    x, y = x - box[0], y - box[1]
    along, across = x * np.cos(box[4]) + y * np.sin(box[4]), y * np.cos(box[4]) - x * np.sin(box[4])
    return (2 * np.abs(along) <= box[2]) & (2 * np.abs(across) <= box[3])


def rle_of(mask: np.ndarray) -> dict[str, Any]:
    """COCO's run lengths of background and foreground in turn, column by column."""
    edges = np.flatnonzero(np.diff(mask.ravel(order="F"), prepend=False))
    return dict(size=[SIZE, SIZE], counts=np.diff([0, *edges.tolist(), mask.size]).tolist())


def row_of(box: np.ndarray, label: int, image_id: int) -> dict[str, Any]:
    """What annotations and results have in common in COCO's format."""
    joints = joints_of(box)
    low, high = joints.min(axis=0), joints.max(axis=0)
    keypoints = np.concatenate([joints, np.full((len(joints), 1), 2)], axis=1).round(2).ravel().tolist()
    bbox = np.concatenate([low, high - low]).round(2).tolist()
    return dict(image_id=image_id, category_id=label + 1, bbox=bbox, keypoints=keypoints)


def draw(random: np.random.Generator) -> Objects:
    """The objects of an image."""
    number = int(random.integers(2, 6))
    columns = [random.uniform(30, SIZE - 30, (number, 2)), random.uniform((30, 10, -1.5), (60, 30, 1.5), (number, 3))]
    boxes = np.concatenate(columns, axis=1)
    return Objects(boxes, (boxes[:, 3] < 18).astype(int))


def detected(objects: Objects, random: np.random.Generator) -> Objects:
    """A detector's objects: some are missed, found twice, moved and turned, or of another class."""
    found = random.integers(0, len(objects.boxes), int(1.3 * len(objects.boxes)))
    noise = random.normal(0, (1.5, 1.5, 2, 1.5, 0.06), (len(found), 5))
    boxes = objects.boxes[found] + noise * random.choice([1, 4], (len(found), 1), p=[0.8, 0.2])
    boxes[:, 2:4] = np.maximum(boxes[:, 2:4], 4)
    labels = objects.labels[found]
    return Objects(boxes, np.where(random.random(len(found)) < 0.1, 1 - labels, labels))


def write_images(folder: Path, images: list[Objects], random: np.random.Generator) -> None:
    """Write the images and their annotations."""
    from PIL import Image

    for name in ("images", "labelTxt"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    annotations: list[dict[str, Any]] = []
    for image_id, objects in enumerate(images, start=1):
        picture, lines = random.integers(0, 80, (SIZE, SIZE, 3)), []
        for box, label in zip(objects.boxes, objects.labels.tolist()):
            mask, corners = mask_of(box), joints_of(box)[:4].round(2).ravel().tolist()
            picture[mask] = random.integers(110, 256, 3)
            own = dict(id=len(annotations) + 1, area=int(mask.sum()), iscrowd=0, num_keypoints=len(JOINTS))
            annotations.append({**row_of(box, label, image_id), **own, "segmentation": [corners]})
            lines.append(" ".join([*map(str, corners), CLASSES[label], "0"]))
        Image.fromarray(picture.astype(np.uint8)).save(folder / "images" / f"{image_id:04d}.png")
        (folder / "labelTxt" / f"{image_id:04d}.txt").write_text("\n".join(lines) + "\n")
    ids = range(1, len(images) + 1)
    content = dict(
        images=[dict(id=image_id, file_name=f"{image_id:04d}.png", width=SIZE, height=SIZE) for image_id in ids],
        categories=[
            dict(id=label + 1, name=name, keypoints=JOINTS, skeleton=SKELETON) for label, name in enumerate(CLASSES)
        ],
        annotations=annotations,
    )
    (folder / "annotations.json").write_text(json.dumps(content, separators=(",", ":")))


def write_results(folder: Path, images: list[Objects], random: np.random.Generator) -> None:
    """Write the results of each kind."""
    masks: list[dict[str, Any]] = []
    keypoints: list[dict[str, Any]] = []
    rotated: list[dict[str, Any]] = []
    for image_id, objects in enumerate(images, start=1):
        scores = random.uniform(0.2, 1, len(objects.boxes)).astype(np.float32)
        for box, label, score in zip(objects.boxes, objects.labels.tolist(), scores.tolist()):
            row = {**row_of(box, label, image_id), "score": score}
            keypoints.append(row)
            masks.append({key: row[key] for key in row if key != "keypoints"})
            masks[-1]["segmentation"] = rle_of(mask_of(box))
        instances = dict(bboxes=objects.boxes.astype(np.float32), scores=scores, labels=objects.labels)
        rotated.append(dict(img_id=f"{image_id:04d}", ori_shape=(SIZE, SIZE), pred_instances=instances))
    for name, rows in {"masks": masks, "keypoints": keypoints}.items():
        (folder / f"{name}.json").write_text(json.dumps(rows, separators=(",", ":")))
    with open(folder / "rotated.pkl", "wb") as file:
        pickle.dump(rotated, file)


def write_rectangles(folder: Path, train: int = 60, val: int = 40, seed: int = 0) -> None:
    """Write the training and the validation set."""
    random = np.random.default_rng(seed)
    for split, number in (("train", train), ("val", val)):
        images = [draw(random) for _ in range(number)]
        write_images(folder / split, images, random)
        if split == "val":
            write_results(folder / split, [detected(objects, random) for objects in images], random)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the data set")
    write_rectangles(parser.parse_args().folder)
