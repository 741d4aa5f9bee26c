"""Pictures, made small enough to go into a page. Pillow is imported only when one is read."""

from __future__ import annotations

import base64
import io
import os
import threading
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional, Sequence, Tuple

LONGEST_SIDE = 480
QUALITY = 80
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Thumbnail:
    """A small picture, and how large the real one is.

    Args:
        uri (str): The picture as a ``data:`` address.
        size (Tuple[int, int]): Width and height of the real one, in pixels.
        turned (bool): Whether its EXIF data swapped width and height.
    """

    uri: str
    size: Tuple[int, int]
    turned: bool = False

    def has_size(self, height: int, width: int) -> bool:
        """Whether the real one has this size, as stored or as shown; True where the size is not known.

        Examples:
            >>> Thumbnail("", (640, 480)).has_size(480, 640), Thumbnail("", (640, 480)).has_size(0, 0)
            (True, True)
        """
        if height <= 0 or width <= 0:
            return True
        return self.size == (width, height) or (self.turned and self.size == (height, width))


class ImageFinder:
    """Finds the image files of a dataset below the folders they belong in, and nowhere else.

    A name that leads out of the folders is not followed, and neither is a link that does: an annotation file cannot put
    other files of the user into a page.

    Args:
        names (Sequence[str]): Of all images of the dataset, as the ground truth gives them.
        dataset_folders (Sequence[str]): The folders of a config's dataset. Names below them are whole paths.
        folder (str, optional): Look in this folder instead: for the name (for its part below the dataset's folder, if
            it is a whole path), and then for its last part. The last part is used only if no other image of the dataset
            has the same, because ``cam1/0001.jpg`` is not ``cam2/0001.jpg``.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     _ = Path(place, "a.jpg").write_bytes(b"")
        ...     finder = ImageFinder(["val/a.jpg", "../b.jpg"], folder=place)
        ...     finder.find("val/a.jpg").path.name, finder.find("val/a.jpg").by_last_part, finder.find("../b.jpg").path
        ('a.jpg', True, None)
    """

    def __init__(self, names: Sequence[str], dataset_folders: Sequence[str] = (), folder: Optional[str] = None) -> None:
        self.dataset_folders = [os.path.abspath(one) for one in dataset_folders]
        self.folder = None if folder is None else os.path.abspath(folder)
        self._same_last_part = Counter(map(_last_part, names))

    def find(self, name: str) -> FoundImage:
        """Where an image is."""
        if not name or "\0" in name:
            return FoundImage()
        whole = os.path.abspath(name)
        inside = [one for one in self.dataset_folders if _is_below(whole, one)]
        if self.folder is None:
            return _existing(whole, inside[0]) if inside else FoundImage(outside=True)
        found = FoundImage()
        for relative in [*(os.path.relpath(whole, one) for one in inside), name]:
            found = _existing(os.path.abspath(os.path.join(self.folder, relative)), self.folder)
            if found.path is not None or found.outside:
                return found
        if self._same_last_part[_last_part(name)] == 1:
            found = _existing(os.path.join(self.folder, _last_part(name)), self.folder)
        return replace(found, by_last_part=True)


@dataclass(frozen=True)
class FoundImage:
    """Where an image is.

    Args:
        path (Path, optional): None if there is no such file, or none that may be shown.
        by_last_part (bool): Whether only the last part of the name was looked for. The image should then have the size
            that the ground truth gives.
        outside (bool): Whether there is no path because the file is outside the folder.
    """

    path: Optional[Path] = None
    by_last_part: bool = False
    outside: bool = False


def _last_part(name: str) -> str:
    return os.path.basename(name.replace("\\", "/"))


def _is_below(path: str, folder: str) -> bool:
    try:
        return path != folder and os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False


def _existing(path: str, folder: str) -> FoundImage:
    """The file if it is there and below the folder, by its name and after following links."""
    try:
        if not _is_below(path, folder) or not os.path.isfile(path):
            return FoundImage()
        if not _is_below(os.path.realpath(path), os.path.realpath(folder)):
            return FoundImage(outside=True)
    except OSError:  # such as a name that is too long
        return FoundImage()
    return FoundImage(Path(path))


def thumbnail(path: Path, *, longest_side: int = LONGEST_SIDE) -> Optional[Thumbnail]:
    """Read a picture and make it small.

    Turned as its EXIF data says, as OpenMMLab's loaders do. Pictures so large that they may be an attack are refused
    at Pillow's own limit.

    Returns:
        Thumbnail: None if the file is no picture, is damaged or too large.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (960, 100)).save(Path(folder, "a.png"))
        ...     small = thumbnail(Path(folder, "a.png"))
        >>> small.size, small.uri[:23]
        ((960, 100), 'data:image/jpeg;base64,')
    """
    from PIL import Image, ImageOps

    try:
        with _LOCK, warnings.catch_warnings():  # of two threads one could leave its filter behind
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                # JPEGs are then read at a fraction of their size, which is several times as quick.
                size = opened.size
                opened.draft("RGB", (longest_side, longest_side))
                turned = opened.getexif().get(0x0112) in (5, 6, 7, 8)  # older Pillows forget it on turning
                if turned:
                    size = (size[1], size[0])
                picture = _eight_bits(ImageOps.exif_transpose(opened))
                picture.thumbnail((longest_side, longest_side))
                written = io.BytesIO()
                picture.save(written, format="JPEG", quality=QUALITY)
    except Exception:  # whatever is wrong with a file of somebody else's: there is no picture
        return None
    return Thumbnail("data:image/jpeg;base64," + base64.b64encode(written.getvalue()).decode("ascii"), size, turned)


def _eight_bits(picture):  # type: ignore[no-untyped-def]
    """As RGB; what has more than 8 bits a pixel is spread over them, as Pillow would only cut it off."""
    if picture.mode.startswith(("I", "F")):
        import numpy as np
        from PIL import Image

        values = np.asarray(picture, dtype=np.float64)
        low, high = float(values.min()), float(values.max())
        picture = Image.fromarray(((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8))
    return picture.convert("RGB")
