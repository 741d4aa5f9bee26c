"""Draws pictures with several shapes on each, labeled in three ways: for classes, for tasks and for pixels.

    python -m demo.scenes data/scenes

makes ``train/`` and ``val/`` in the folder, and beside them what ``configs/mmpretrain_multi_label.py``,
``configs/mmpretrain_multi_task.py`` and ``configs/mmseg_overlap.py`` train on: ``multi_label_*.json`` (which shapes
are on a picture), ``multi_task_*.json`` (which shape is the largest, and how many there are) and ``masks/`` (which
shape each pixel belongs to).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import List, Tuple

import cv2
import numpy as np

from demo.shapes import mask_of

CLASSES = ("disc", "frame", "triangle")
COUNTS = ("one", "two", "three")
SIZE = 48


def draw(generator: np.random.Generator) -> Tuple[np.ndarray, np.ndarray, List[int]]:
    """A picture, the label of each of its pixels (0 where there is no shape), and its shapes, the largest first."""
    picture = generator.integers(0, 80, (SIZE, SIZE, 3))
    labels = np.zeros((SIZE, SIZE), dtype=np.uint8)
    shapes = generator.permutation(len(CLASSES))[: generator.integers(1, len(COUNTS) + 1)].tolist()
    for side, shape in zip((26, 18, 12), shapes):
        top, left = generator.integers(0, SIZE - side, 2)
        mask = mask_of(CLASSES[shape], side)
        picture[top : top + side, left : left + side][mask] = generator.integers(110, 256, 3)
        labels[top : top + side, left : left + side][mask] = shape + 1
    return picture.astype(np.uint8), labels, shapes


def write_scenes(folder: Path, train: int = 64, val: int = 21, seed: int = 0) -> None:
    """Writes both parts of the data set."""
    generator = np.random.default_rng(seed)
    tasks = {"largest": CLASSES, "count": COUNTS}
    for part, number in (("train", train), ("val", val)):
        for place in (folder / part, folder / "masks" / part):
            place.mkdir(parents=True, exist_ok=True)
        several, named = [], []
        for index in range(number):
            picture, labels, shapes = draw(generator)
            name = f"{index:03d}.png"
            cv2.imwrite(str(folder / part / name), picture)
            cv2.imwrite(str(folder / "masks" / part / name), labels)
            several.append(dict(img_path=f"{part}/{name}", gt_label=sorted(shapes)))
            named.append(dict(img_path=f"{part}/{name}", gt_label=dict(largest=shapes[0], count=len(shapes) - 1)))
        for kind, meta, rows in (
            ("multi_label", dict(classes=CLASSES), several),
            ("multi_task", dict(tasks=list(tasks)), named),
        ):
            (folder / f"{kind}_{part}.json").write_text(json.dumps(dict(metainfo=meta, data_list=rows)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data set is written")
    write_scenes(parser.parse_args().folder)
