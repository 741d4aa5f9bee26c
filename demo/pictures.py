"""Draw small images of shapes, the data set of ``configs/mmpretrain_*.py``: ``python demo/pictures.py data/pictures``.

``data/pictures/train`` and ``data/pictures/val`` receive one folder per class.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

CLASSES = ("disc", "frame", "stripes", "triangle")


def draw(shape: str, generator: np.random.Generator, size: int = 32) -> np.ndarray:
    """An image (size, size, 3) with the shape at a random place, in a random color, on noise."""
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
    image = generator.integers(0, 90, (size, size, 3))
    image[mask] = generator.integers(110, 256, 3)
    return image.astype(np.uint8)


def write_pictures(folder: Path, train: int = 20, val: int = 11, seed: int = 0) -> None:
    """Write ``train`` and ``val`` images of every class."""
    import cv2

    generator = np.random.default_rng(seed)
    for split, number in (("train", train), ("val", val)):
        for shape in CLASSES:
            path = Path(folder) / split / shape
            path.mkdir(parents=True, exist_ok=True)
            for index in range(number):
                cv2.imwrite(str(path / f"{index:03d}.png"), draw(shape, generator))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the data set")
    write_pictures(parser.parse_args().folder)
