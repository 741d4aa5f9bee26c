"""Bytes and JSON of a file, and the memory that its content may take."""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import isqrt
from pathlib import Path
from typing import Any, Union

from mm_metrics_plugin.exceptions import ResultFileError, pluralize

PathLike = Union[str, "os.PathLike[str]"]
Content = Union[bytes, mmap.mmap]
_BLOCK = 8 << 20  # bytes
LARGE = 16 << 20  # bytes; the memory of larger files is released part by part
LONGEST_INTEGER = 4300  # digits; Python needs the square of their number in time, and newer versions have this limit
_CAN_RELEASE = all(hasattr(mmap, name) for name in ("MADV_DONTNEED", "MAP_ANONYMOUS", "MAP_PRIVATE"))


def check_is_file(path: Path) -> None:
    """Refuse a path that is missing or is not a regular file, such as a pipe or a device."""
    try:
        reason = "" if path.is_file() else "not a file" if path.exists() else "no such file"
    except OSError as error:  # such as a name that is too long
        reason = str(error.strerror)
    if reason:
        raise ResultFileError(f"{path.name:.255}: cannot be read ({reason})")


def read_bytes(path: PathLike) -> bytes:
    """Read a regular file."""
    path = Path(path)
    check_is_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror})") from None


def read_content(path: PathLike) -> tuple[Content, str]:
    """The bytes of a regular file, and their SHA-256.

    The memory of a large file can be released part by part (see :func:`release`).
    """
    path = Path(path)
    check_is_file(path)
    size = path.stat().st_size
    if size < LARGE or not _CAN_RELEASE:
        data = read_bytes(path)
        return data, hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    try:
        # A copy instead of a view of the file: reading a view ends the process if another process truncates the file.
        content = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with open(path, "rb", buffering=0) as file, memoryview(content) as target:
            at = 0
            while at < size:
                number = file.readinto(target[at : at + _BLOCK])
                if not number:
                    raise ResultFileError(f"{path.name}: became shorter while it was read")
                digest.update(target[at : at + number])
                at += number
        return content, digest.hexdigest()
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror})") from None


def release(content: Content, start: int, end: int) -> int:
    """Release the memory of a part that is no longer needed, in whole pages, and return the start of the rest."""
    if isinstance(content, bytes):
        return start
    end -= end % mmap.PAGESIZE
    content.madvise(mmap.MADV_DONTNEED, start, end - start)
    return end


def trim_memory() -> None:
    """Return the memory of freed small objects to the system. Does nothing if the C library is not glibc.

    The scores of 50,000 samples are 50,000 objects. Without this call, the process keeps their memory.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def read_json(path: PathLike) -> tuple[Any, str]:
    """The values of a JSON file, and its SHA-256."""
    data = read_bytes(path)
    with ThreadPoolExecutor(1) as pool:  # hashed while it is parsed
        digest = pool.submit(hashlib.sha256, data)
        return parse_json(data, Path(path).name), digest.result().hexdigest()


def parse_json(data: str | bytes, name: str) -> Any:
    """The values of JSON text; ``name`` is its name in messages."""
    try:
        return json.loads(data, parse_int=_PARSE_INT)
    except UnicodeDecodeError as error:
        raise ResultFileError(f"{name}: is not JSON (byte {error.start} is not text)") from None
    except RecursionError:
        raise ResultFileError(f"{name}: is nested too deeply for a result or annotation file") from None
    except ValueError as error:
        raise ResultFileError(f"{name}: is not JSON ({error})") from None


def _bounded_int(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


_LIMIT_OF_PYTHON = getattr(sys, "get_int_max_str_digits", lambda: 0)()
_PARSE_INT: Any = int if 0 < _LIMIT_OF_PYTHON <= LONGEST_INTEGER else _bounded_int


# -- memory ------------------------------------------------------------------------------------------------------------

BASE_BYTES = 32 << 20
BYTES_PER_BYTE = 24  # small arrays take up to 17 times their bytes in the file; 80 empty ones per image are usual
MATRIX_BASE_BYTES = 4 << 30  # for classes that have names or scores


def memory_limit(file_size: int, base: int = BASE_BYTES) -> int:
    """How many bytes the content of a file may take."""
    return base + BYTES_PER_BYTE * file_size


def check_num_classes(num_classes: int, source: str, file_size: int | None, *, labels_only: bool) -> None:
    """Refuse a number of classes whose confusion matrix would take far more memory than the file explains.

    Any file may have 2,047 classes, or 23,169 if their number is not just the largest label plus one (``labels_only``).
    """
    if file_size is None:
        return
    most = isqrt(memory_limit(file_size, BASE_BYTES if labels_only else MATRIX_BASE_BYTES) // 8) - 1
    if num_classes <= most:
        return
    if labels_only:
        raise ResultFileError(
            f"{source}: the largest label is {num_classes - 1}, and class names are not given. Without names, a file "
            f"of this size may have at most {most} classes (give the names with classes=[...])"
        )
    raise ResultFileError(f"{source}: {num_classes} classes are more than a file of this size may have ({most})")


def check_num_boxes(count: int, source: str, file_size: int | None) -> None:
    """Refuse more boxes than a file of this size can hold, before they are copied."""
    if file_size is not None and count > file_size // 8:  # four numbers of half precision
        raise ResultFileError(f"{source}: {pluralize(count, 'box')} are more than a file of this size can hold")
