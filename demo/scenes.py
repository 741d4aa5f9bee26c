"""Draw images of several shapes with multi-label, multi-task and pixel labels: ``python -m demo.scenes data/scenes``.

The folder receives the images ``train/`` and ``val/`` and the labels of three configs:

- ``multi_label_*.json``, the shapes of an image, of ``configs/mmpretrain_multi_label.py``;
- ``multi_task_*.json``, the largest shape and the number of shapes, of ``configs/mmpretrain_multi_task.py``;
- ``masks/``, the shape of each pixel, of ``configs/mmseg_overlap.py``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cv2
import numpy as np

from demo.shapes import mask_of

CLASSES = ("disc", "frame", "triangle")
COUNTS = ("one", "two", "three")
SIZE = 48


def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """An image, the label of each pixel (0: background), and its shapes, the largest first."""
    image = generator.integers(0, 80, (SIZE, SIZE, 3))
    labels = np.zeros((SIZE, SIZE), dtype=np.uint8)
    shapes = generator.permutation(len(CLASSES))[: generator.integers(1, len(COUNTS) + 1)].tolist()
    for side, shape in zip((26, 18, 12), shapes):
        top, left = generator.integers(0, SIZE - side, 2)
        mask = mask_of(CLASSES[shape], side)
        image[top : top + side, left : left + side][mask] = generator.integers(110, 256, 3)
        labels[top : top + side, left : left + side][mask] = shape + 1
    return image.astype(np.uint8), labels, shapes


def write_scenes(folder: Path, train: int = 64, val: int = 21, seed: int = 0) -> None:
    """Write the training and the validation set."""
    generator = np.random.default_rng(seed)
    tasks = {"largest": CLASSES, "count": COUNTS}
    for split, number in (("train", train), ("val", val)):
        for path in (folder / split, folder / "masks" / split):
            path.mkdir(parents=True, exist_ok=True)
        multi_label, multi_task = [], []
        for index in range(number):
            image, labels, shapes = draw(generator)
            name = f"{index:03d}.png"
            cv2.imwrite(str(folder / split / name), image)
            cv2.imwrite(str(folder / "masks" / split / name), labels)
            multi_label.append(dict(img_path=f"{split}/{name}", gt_label=sorted(shapes)))
            task_labels = dict(largest=shapes[0], count=len(shapes) - 1)
            multi_task.append(dict(img_path=f"{split}/{name}", gt_label=task_labels))
        for kind, meta, rows in (
            ("multi_label", dict(classes=CLASSES), multi_label),
            ("multi_task", dict(tasks=list(tasks)), multi_task),
        ):
            (folder / f"{kind}_{split}.json").write_text(json.dumps(dict(metainfo=meta, data_list=rows)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the data set")
    write_scenes(parser.parse_args().folder)
