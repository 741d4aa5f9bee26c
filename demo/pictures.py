"""Draws small pictures of shapes in the folders a classifier is trained from.

    python demo/pictures.py data/pictures

makes ``data/pictures/train`` and ``data/pictures/val``, each with a folder a class: what ``configs/mmpretrain_*.py``
train on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

CLASSES = ("disc", "frame", "stripes", "triangle")


def draw(shape: str, generator: np.random.Generator, size: int = 32) -> np.ndarray:
    """One picture (size, size, 3) of the shape, somewhere, in some color, in noise."""
    rows, columns = np.mgrid[:size, :size]
    top, left = generator.integers(4, 12, 2)
    side = int(generator.integers(12, 17))
    down, across = rows - top, columns - left
    inside = (down >= 0) & (down < side) & (across >= 0) & (across < side)
    mask = {
        "disc": (down - side / 2) ** 2 + (across - side / 2) ** 2 <= (side / 2) ** 2,
        "frame": inside & ~((down >= 3) & (down < side - 3) & (across >= 3) & (across < side - 3)),
        "stripes": inside & (down % 4 < 2),
        "triangle": inside & (across <= down),
    }[shape]
    picture = generator.integers(0, 90, (size, size, 3))
    picture[mask] = generator.integers(110, 256, 3)
    return picture.astype(np.uint8)


def write_pictures(folder: Path, train: int = 20, val: int = 11, seed: int = 0) -> None:
    """Writes ``train`` and ``val`` pictures of every class below the folder."""
    import cv2

    generator = np.random.default_rng(seed)
    for part, count in (("train", train), ("val", val)):
        for shape in CLASSES:
            place = Path(folder) / part / shape
            place.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                cv2.imwrite(str(place / f"{index:03d}.png"), draw(shape, generator))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data set is written")
    write_pictures(parser.parse_args().folder)
