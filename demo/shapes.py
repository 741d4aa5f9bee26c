"""Draw images of shapes with COCO annotations, for the configs of mmdet: ``python demo/shapes.py data/shapes``.

The folder receives ``train/`` and ``val/``, ``train.json`` and ``val.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

CLASSES = ("disc", "ring", "square", "frame", "triangle")
FREQUENCIES = (0.3, 0.2, 0.25, 0.1, 0.15)
SIZE = 160


def mask_of(shape: str, side: int) -> np.ndarray:
    """The pixels of the shape in a square. A frame is a square with a hole, a ring is a disc with a hole."""
    down, across = np.mgrid[:side, :side] + 0.5 - side / 2
    distance = np.hypot(down, across) if shape in ("disc", "ring") else np.maximum(abs(down), abs(across))
    if shape == "triangle":
        return abs(across) <= (down + side / 2) / 2
    mask = distance <= side / 2
    return mask & (distance >= side / 3.2) if shape in ("ring", "frame") else mask


def rle_of(mask: np.ndarray, left: int, top: int) -> dict[str, Any]:
    """COCO's run lengths of a mask at a corner of the image: background and foreground in turn, column by column."""
    image = np.zeros((SIZE, SIZE), dtype=bool)
    image[top : top + len(mask), left : left + mask.shape[1]] = mask
    edges = np.flatnonzero(np.diff(image.ravel(order="F"), prepend=False))
    return dict(size=[SIZE, SIZE], counts=np.diff([0, *edges.tolist(), SIZE * SIZE]).tolist())


def draw(generator: np.random.Generator) -> tuple[np.ndarray, list[dict]]:
    """An image and its annotations: shapes that may overlap, and sometimes a crowd of small shapes."""
    image = generator.integers(0, 80, (SIZE, SIZE, 3))
    annotations: list[dict] = []

    def paint(shape: str, left: int, top: int, side: int) -> None:
        window = image[top : top + side, left : left + side]
        window[mask_of(shape, side)[: window.shape[0], : window.shape[1]]] = generator.integers(110, 256, 3)

    for _ in range(generator.integers(0, 6)):
        label = int(generator.choice(len(CLASSES), p=FREQUENCIES))
        side = int(np.exp(generator.uniform(np.log(12), np.log(60))))
        left, top = (int(corner) for corner in generator.integers(0, SIZE - side, 2))
        paint(CLASSES[label], left, top, side)
        mask = rle_of(mask_of(CLASSES[label], side), left, top)
        row = dict(category_id=label + 1, bbox=[left, top, side, side], area=side * side, iscrowd=0, segmentation=mask)
        annotations.append(row)
    if generator.random() < 0.15:
        label, width, height = int(generator.choice(len(CLASSES), p=FREQUENCIES)), 54, 36
        left, top = int(generator.integers(0, SIZE - width)), int(generator.integers(0, SIZE - height))
        for down in range(0, height, 12):
            for across in range(0, width, 12):
                paint(CLASSES[label], left + across, top + down, 10)
        row = dict(category_id=label + 1, bbox=[left, top, width, height], area=width * height, iscrowd=1)
        annotations.append({**row, "segmentation": rle_of(np.ones((height, width), dtype=bool), left, top)})
    return image.astype(np.uint8), annotations


def write_split(folder: Path, split: str, number: int, generator: np.random.Generator, masks: bool) -> None:
    """Write images and their COCO annotations."""
    (folder / split).mkdir()
    images: list[dict] = []
    annotations: list[dict] = []
    for image_id in range(1, number + 1):
        image, rows = draw(generator)
        for row in [] if masks else rows:
            del row["segmentation"]
        name = f"{image_id:04d}.png"
        cv2.imwrite(str(folder / split / name), image)
        images.append(dict(id=image_id, file_name=name, width=SIZE, height=SIZE))
        annotations += [dict(id=id_, image_id=image_id, **row) for id_, row in enumerate(rows, len(annotations) + 1)]
    categories = [dict(id=id_, name=name) for id_, name in enumerate(CLASSES, 1)]
    content = dict(images=images, annotations=annotations, categories=categories)
    (folder / f"{split}.json").write_text(json.dumps(content, separators=(",", ":")))


def write_shapes(folder: Path, train: int = 60, val: int = 25, seed: int = 1, masks: bool = True) -> None:
    """Write the training and the validation set, with or without masks."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    write_split(folder, "train", train, generator, masks)
    write_split(folder, "val", val, generator, masks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the data set")
    write_shapes(parser.parse_args().folder)
