"""Draws pictures of shapes with COCO annotations: what ``configs/mmdet_prf*.py`` train on.

    python demo/shapes.py data/shapes

makes ``train/`` and ``val/`` with ``train.json`` and ``val.json`` in the folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Dict, List, Tuple

import cv2
import numpy as np

CLASSES = ("disc", "ring", "square", "frame", "triangle")
RARITY = (0.3, 0.2, 0.25, 0.1, 0.15)
SIZE = 160


def mask_of(shape: str, side: int) -> np.ndarray:
    """Which pixels of a square belong to the shape. A frame is a square with a hole, a ring a disc with one."""
    down, across = np.mgrid[:side, :side] + 0.5 - side / 2
    far = np.hypot(down, across) if shape in ("disc", "ring") else np.maximum(abs(down), abs(across))
    if shape == "triangle":
        return abs(across) <= (down + side / 2) / 2
    mask = far <= side / 2
    return mask & (far >= side / 3.2) if shape in ("ring", "frame") else mask


def draw(generator: np.random.Generator) -> Tuple[np.ndarray, List[Dict]]:
    """A picture and its annotations: shapes that may hide one another, and now and then a crowd of small ones."""
    picture = generator.integers(0, 80, (SIZE, SIZE, 3))
    annotations: List[Dict] = []

    def paint(shape: str, left: int, top: int, side: int) -> None:
        window = picture[top : top + side, left : left + side]
        window[mask_of(shape, side)[: window.shape[0], : window.shape[1]]] = generator.integers(110, 256, 3)

    for _ in range(generator.integers(0, 6)):
        label = int(generator.choice(len(CLASSES), p=RARITY))
        side = int(np.exp(generator.uniform(np.log(12), np.log(60))))
        left, top = (int(place) for place in generator.integers(0, SIZE - side, 2))
        paint(CLASSES[label], left, top, side)
        annotations.append(dict(category_id=label + 1, bbox=[left, top, side, side], area=side * side, iscrowd=0))
    if generator.random() < 0.15:
        label, width, height = int(generator.choice(len(CLASSES), p=RARITY)), 54, 36
        left, top = int(generator.integers(0, SIZE - width)), int(generator.integers(0, SIZE - height))
        for down in range(0, height, 12):
            for across in range(0, width, 12):
                paint(CLASSES[label], left + across, top + down, 10)
        annotations.append(dict(category_id=label + 1, bbox=[left, top, width, height], area=width * height, iscrowd=1))
    return picture.astype(np.uint8), annotations


def write_part(folder: Path, part: str, count: int, generator: np.random.Generator) -> None:
    """Writes pictures and their COCO annotations."""
    (folder / part).mkdir()
    images: List[Dict] = []
    annotations: List[Dict] = []
    for number in range(1, count + 1):
        picture, found = draw(generator)
        name = f"{number:04d}.png"
        cv2.imwrite(str(folder / part / name), picture)
        images.append(dict(id=number, file_name=name, width=SIZE, height=SIZE))
        annotations += [dict(id=len(annotations) + 1 + at, image_id=number, **one) for at, one in enumerate(found)]
    categories = [dict(id=at + 1, name=name) for at, name in enumerate(CLASSES)]
    content = dict(images=images, annotations=annotations, categories=categories)
    (folder / f"{part}.json").write_text(json.dumps(content, separators=(",", ":")))


def write_shapes(folder: Path, train: int = 60, val: int = 25, seed: int = 1) -> None:
    """Writes both parts of a data set."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    write_part(folder, "train", train, generator)
    write_part(folder, "val", val, generator)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data set is written")
    write_shapes(parser.parse_args().folder)
