"""Draw images of stick figures with COCO key points: ``python demo/skeletons.py data/skeletons``.

The folder receives ``train/`` and ``val/``, ``train.json`` and ``val.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

JOINTS = ("head", "left_hand", "right_hand", "left_foot", "right_foot")
COLORS = ((255, 255, 255), (0, 0, 255), (0, 255, 0), (255, 0, 0), (0, 255, 255))  # of the joints
PLACES = ((0.5, 0.1), (0.9, 0.4), (0.1, 0.4), (0.8, 0.9), (0.2, 0.9))  # in the box, as x and y
SIZE = 128


def draw(generator: np.random.Generator) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """An image and its annotations: figures that may overlap, with joints that are hidden or not labeled."""
    image = generator.integers(0, 80, (SIZE, SIZE, 3)).astype(np.uint8)
    annotations = []
    for _ in range(generator.integers(1, 4)):
        side = generator.uniform(30, 80, 2)
        corner = generator.random(2) * (SIZE - side)
        points = corner + (np.array(PLACES) + generator.uniform(-0.1, 0.1, (len(JOINTS), 2))) * side
        visibility = generator.choice([0, 1, 2], len(JOINTS), p=[0.05, 0.1, 0.85])
        neck = tuple(np.round(corner + side * (0.5, 0.4)).astype(int).tolist())
        places = np.round(points).astype(int).tolist()
        for place in places:
            cv2.line(image, neck, tuple(place), (160, 160, 160), 2)
        for place, color, visible in zip(places, COLORS, visibility):
            if visible != 1:
                cv2.circle(image, tuple(place), 4, color, -1)
        keypoints = np.where(visibility[:, None] > 0, np.column_stack([points, visibility]), 0)
        annotations.append(
            dict(
                keypoints=np.round(keypoints, 2).ravel().tolist(),
                num_keypoints=int((visibility > 0).sum()),
                bbox=np.round([*corner, *side], 2).tolist(),
                area=round(float(side.prod()) * 0.6, 2),
                iscrowd=0,
                category_id=1,
            )
        )
    return image, annotations


def write_split(folder: Path, split: str, number: int, generator: np.random.Generator) -> None:
    """Write images and their COCO annotations."""
    (folder / split).mkdir()
    images, annotations = [], []
    for image_id in range(1, number + 1):
        image, rows = draw(generator)
        name = f"{image_id:04d}.png"
        cv2.imwrite(str(folder / split / name), image)
        images.append(dict(id=image_id, file_name=name, width=SIZE, height=SIZE))
        annotations += [dict(id=id_, image_id=image_id, **row) for id_, row in enumerate(rows, len(annotations) + 1)]
    category = dict(id=1, name="figure", keypoints=list(JOINTS), skeleton=[[1, 2], [1, 3], [1, 4], [1, 5]])
    content = dict(images=images, annotations=annotations, categories=[category])
    (folder / f"{split}.json").write_text(json.dumps(content, separators=(",", ":")))


def write_skeletons(folder: Path, train: int = 80, val: int = 25, seed: int = 1) -> None:
    """Write the training and the validation set."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    write_split(folder, "train", train, generator)
    write_split(folder, "val", val, generator)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the data set")
    write_skeletons(parser.parse_args().folder)
