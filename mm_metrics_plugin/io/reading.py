"""Getting at the bytes of a file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Union

from mm_metrics_plugin.exceptions import ResultFileError

PathLike = Union[str, "os.PathLike[str]"]


def read_bytes(path: PathLike) -> bytes:
    """The content of an ordinary file.

    Raises:
        ResultFileError: There is none, or it may not be read. Pipes and devices, which need not end, are none.

    Examples:
        >>> read_bytes("nothing.pkl")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: nothing.pkl: cannot be read (no such file)
    """
    path = Path(path)
    if not path.is_file():
        raise ResultFileError(f"{path.name}: cannot be read ({'not a file' if path.exists() else 'no such file'})")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror})") from None


def sha256(path: PathLike) -> str:
    """What identifies the content of a file. Pickles carry no checksum, so reports name this one.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "a")
        ...     _ = path.write_bytes(b"abc")
        ...     sha256(path)[:16]
        'ba7816bf8f01cfea'
    """
    return hashlib.sha256(read_bytes(path)).hexdigest()
