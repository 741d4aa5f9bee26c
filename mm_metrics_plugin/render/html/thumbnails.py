"""Thumbnails of images for the pages. Pillow is imported only when an image is read."""

from __future__ import annotations

import base64
import io
import os
import threading
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Sequence

from mm_metrics_plugin.exceptions import pluralize

LONGEST_SIDE = 480
QUALITY = 80
MAX_BYTES = 5_000_000  # of all thumbnails of a page
MISSING = "not found; the option images names another folder"
MISSING_IN_FOLDER = "not found in the folder of the option images"
OUTSIDE = "left out: not below the image folder"
UNREADABLE = "left out: not readable"
TOO_LARGE = "left out, to keep the page small"
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail.

    Attributes:
        uri: The thumbnail as a ``data:`` URI.
        size: Width and height of the image, in pixels.
        rotated: Whether the EXIF orientation swaps width and height.
    """

    uri: str
    size: tuple[int, int]
    rotated: bool = False

    def has_size(self, height: int, width: int) -> bool:
        """Whether the image has this size, stored or rotated; True if the size is unknown."""
        if height <= 0 or width <= 0:
            return True
        return self.size == (width, height) or (self.rotated and self.size == (height, width))


class ImageFinder:
    """Find the image files of a data set inside its folders, and nowhere else.

    Neither a name nor a symbolic link that leads out of the folders is followed, so that an annotation file cannot put
    other files of the user into a page.

    Args:
        names: File names of all images in the ground truth.
        dataset_folders: Image folders of the config; names inside them are whole paths.
        folder: Look in this folder instead: for the name (for its part inside the data set's folder, if it is a whole
            path), then for the base name. The base name is used only if it is unique in the data set, because
            ``cam1/0001.jpg`` is not ``cam2/0001.jpg``.
    """

    def __init__(self, names: Sequence[str], dataset_folders: Sequence[str] = (), folder: str | None = None) -> None:
        self.dataset_folders = [os.path.abspath(path) for path in dataset_folders]
        self.folder = None if folder is None else os.path.abspath(folder)
        self._base_name_counts = Counter(map(_base_name, names))

    def find(self, name: str) -> FoundImage:
        """The path of an image."""
        if not name or "\0" in name:
            return FoundImage()
        whole = os.path.abspath(name)
        inside = [path for path in self.dataset_folders if _is_below(whole, path)]
        if self.folder is None:
            return _existing(whole, inside[0]) if inside else FoundImage(outside=True)
        found = FoundImage()
        for relative in [*(os.path.relpath(whole, path) for path in inside), name]:
            found = _existing(os.path.abspath(os.path.join(self.folder, relative)), self.folder)
            if found.path is not None or found.outside:
                return found
        if self._base_name_counts[_base_name(name)] == 1:
            found = _existing(os.path.join(self.folder, _base_name(name)), self.folder)
        return replace(found, by_base_name=True)


@dataclass(frozen=True)
class FoundImage:
    """The path of an image.

    Attributes:
        path: None if there is no such file, or if it is outside the folders.
        by_base_name: Whether only the base name matches. The image should then have the size that the ground truth
            gives.
        outside: Whether the file is outside the folders.
    """

    path: Path | None = None
    by_base_name: bool = False
    outside: bool = False


def _base_name(name: str) -> str:
    return os.path.basename(name.replace("\\", "/"))


def _is_below(path: str, folder: str) -> bool:
    try:
        return path != folder and os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False


def _existing(path: str, folder: str) -> FoundImage:
    """The file if it exists inside the folder, also after following symbolic links."""
    try:
        if not _is_below(path, folder) or not os.path.isfile(path):
            return FoundImage()
        if not _is_below(os.path.realpath(path), os.path.realpath(folder)):
            return FoundImage(outside=True)
    except OSError:  # such as a name that is too long
        return FoundImage()
    return FoundImage(Path(path))


def thumbnail(path: Path, *, longest_side: int = LONGEST_SIDE) -> Thumbnail | None:
    """Make a thumbnail, rotated by the EXIF orientation, as OpenMMLab's loaders do.

    Returns:
        None if the file is not an image, is damaged, or is larger than Pillow's limit against decompression bombs.
    """
    from PIL import Image, ImageOps

    try:
        with _LOCK, warnings.catch_warnings():  # the filters are not thread-safe
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                size = opened.size
                opened.draft("RGB", (longest_side, longest_side))  # decodes JPEGs at a fraction of their size
                rotated = opened.getexif().get(0x0112) in (5, 6, 7, 8)  # older Pillows drop it on transposing
                if rotated:
                    size = (size[1], size[0])
                image = _to_rgb(ImageOps.exif_transpose(opened))
                image.thumbnail((longest_side, longest_side))
                written = io.BytesIO()
                image.save(written, format="JPEG", quality=QUALITY)
    except Exception:  # of any kind: the image cannot be shown
        return None
    return Thumbnail("data:image/jpeg;base64," + base64.b64encode(written.getvalue()).decode("ascii"), size, rotated)


def _to_rgb(image: Any) -> Any:
    """As RGB. More than 8 bits per channel are rescaled, where Pillow would clip them."""
    if image.mode.startswith(("I", "F")):
        import numpy as np
        from PIL import Image

        values = np.asarray(image, dtype=np.float64)
        low, high = float(values.min()), float(values.max())
        image = Image.fromarray(((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8))
    return image.convert("RGB")


def collect_thumbnails(
    images: Sequence[int],
    names: Sequence[str],
    *,
    folder: str | None,
    dataset_folders: Sequence[str] = (),
    sizes: Sequence[tuple[int, int]] = (),
) -> tuple[dict[int, Thumbnail], list[str]]:
    """Thumbnails by index of the image, and remarks on images that are not shown.

    Args:
        images: Indices of the images, the most important first.
        names: File names of all images in the ground truth, empty if unknown.
        folder: The folder to look in; None: the folders of the data set.
        dataset_folders: Image folders of the config.
        sizes: Height and width of the images, 0 if unknown.
    """
    finder = ImageFinder(names, dataset_folders, folder)
    thumbnails: dict[int, Thumbnail] = {}
    missing = MISSING if folder is None else MISSING_IN_FOLDER
    skipped = dict.fromkeys((missing, OUTSIDE, UNREADABLE, TOO_LARGE), 0)
    num_bytes = 0
    for image in dict.fromkeys(images):
        if num_bytes > MAX_BYTES:
            skipped[TOO_LARGE] += 1
            continue
        found = finder.find(names[image])
        small = None if found.path is None else thumbnail(found.path)
        if found.path is None:
            skipped[OUTSIDE if found.outside else missing] += 1
        elif small is None:
            skipped[UNREADABLE] += 1
        elif found.by_base_name and len(sizes) and not small.has_size(*sizes[image]):
            skipped[missing] += 1  # another image of the same name
        else:
            thumbnails[image] = small
            num_bytes += len(small.uri)
    return thumbnails, [f"{pluralize(number, 'image')} {reason}" for reason, number in skipped.items() if number]
