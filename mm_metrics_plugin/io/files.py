"""Getting at the bytes of a file."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Union

from mm_metrics_plugin.exceptions import ResultFileError

PathLike = Union[str, "os.PathLike[str]"]
Content = Union[bytes, mmap.mmap]
LARGE = 16 << 20  # bytes from which on it is worth while to give memory back part by part
_CAN_RELEASE = all(hasattr(mmap, name) for name in ("MADV_DONTNEED", "MAP_ANONYMOUS", "MAP_PRIVATE"))


def read_bytes(path: PathLike) -> bytes:
    """The content of an ordinary file.

    Raises:
        ResultFileError: There is none, or it may not be read. Pipes and devices, which need not end, are none.

    Examples:
        >>> read_bytes("nothing.pkl")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: nothing.pkl: cannot be read (no such file)
    """
    content = _read(path, whole=True)
    return content if isinstance(content, bytes) else content[:]


def read_content(path: PathLike) -> Content:
    """Like :func:`read_bytes`, but a large file comes in memory that can be given back part by part.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "a")
        ...     _ = path.write_bytes(b"abc")
        ...     read_content(path)[:2]
        b'ab'
    """
    return _read(path, whole=False)


def _read(path: PathLike, *, whole: bool) -> Content:
    path = Path(path)
    if not path.is_file():
        raise ResultFileError(f"{path.name}: cannot be read ({'not a file' if path.exists() else 'no such file'})")
    try:
        size = path.stat().st_size
        if whole or size < LARGE or not _CAN_RELEASE:
            return path.read_bytes()
        # A copy, not a view of the file: a file that another process cuts off would end this process.
        content = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with open(path, "rb", buffering=0) as file, memoryview(content) as target:
            at = 0
            while at < size:
                number = file.readinto(target[at:])
                if not number:
                    raise ResultFileError(f"{path.name}: became shorter while it was read")
                at += number
        return content
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror})") from None


def release(content: Content, start: int, end: int) -> int:
    """Give back the memory of a part that is not needed any more.

    Args:
        content: From :func:`read_content`.
        start: Where the part begins: 0, or what the last call returned.
        end: Where it ends. The part may be shorter, because memory is given back in pages.

    Returns:
        int: Where the memory that is left begins.

    Examples:
        >>> release(b"abc", 0, 2)
        0
    """
    if isinstance(content, bytes):
        return start
    end -= end % mmap.PAGESIZE
    content.madvise(mmap.MADV_DONTNEED, start, end - start)
    return end


def trim_memory() -> None:
    """Give the memory of small objects that are gone back to the system, where the C library can (glibc).

    The scores of 50,000 samples are 50,000 objects; without this, their memory stays taken after they were stacked.

    Examples:
        >>> trim_memory()
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
