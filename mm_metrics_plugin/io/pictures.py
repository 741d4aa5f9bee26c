"""Pictures, made small enough to go into a page. Pillow is imported only when one is read."""

from __future__ import annotations

import base64
import io
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

LONGEST_SIDE = 480
QUALITY = 80


@dataclass(frozen=True)
class Thumbnail:
    """A small picture, and how large the real one is.

    Args:
        uri (str): The picture as a ``data:`` address.
        size (Tuple[int, int]): Width and height of the real one, in pixels.
    """

    uri: str
    size: Tuple[int, int]


def find_picture(name: str, folder: Optional[str]) -> Optional[Path]:
    """Where a picture is.

    Args:
        name (str): As the ground truth names it.
        folder (str, optional): Where to look, by the name and by its last part. A name never leads out of the folder:
            an annotation file cannot fetch other files of ours into a page. None: the name is the whole path.

    Returns:
        Path: None if there is no such file.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     _ = Path(place, "a.jpg").write_bytes(b"")
        ...     find_picture("val/a.jpg", place).name, find_picture("/etc/passwd", place)
        ('a.jpg', None)
    """
    if not name or "\0" in name:
        return None
    if folder is None:
        places = [Path(name)]
    else:
        inside = os.path.normpath(name)
        leaves = os.path.isabs(inside) or os.path.splitdrive(inside)[0] or inside.split(os.sep)[0] == os.pardir
        places = [] if leaves else [Path(folder, inside)]
        places.append(Path(folder, os.path.basename(name.replace("\\", "/"))))
    try:
        return next((place for place in places if place.is_file()), None)
    except OSError:  # such as a name that is too long
        return None


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
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                # JPEGs are then read at a fraction of their size, which is several times as quick.
                size = opened.size
                opened.draft("RGB", (longest_side, longest_side))
                if opened.getexif().get(0x0112) in (5, 6, 7, 8):  # lies on its side; older Pillows forget it on turning
                    size = (size[1], size[0])
                picture = _eight_bits(ImageOps.exif_transpose(opened))
                picture.thumbnail((longest_side, longest_side))
                written = io.BytesIO()
                picture.save(written, format="JPEG", quality=QUALITY)
    except Exception:  # whatever is wrong with a file of somebody else's: there is no picture
        return None
    return Thumbnail("data:image/jpeg;base64," + base64.b64encode(written.getvalue()).decode("ascii"), size)


def _eight_bits(picture):  # type: ignore[no-untyped-def]
    """As RGB; what has more than 8 bits a pixel is spread over them, as Pillow would only cut it off."""
    if picture.mode.startswith(("I", "F")):
        import numpy as np
        from PIL import Image

        values = np.asarray(picture, dtype=np.float64)
        low, high = float(values.min()), float(values.max())
        picture = Image.fromarray(((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8))
    return picture.convert("RGB")
