"""Bytes and JSON columns of a file, and the counts of the rows that were read from it."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Union

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.values import is_number_type

PathLike = Union[str, "os.PathLike[str]"]
Content = Union[bytes, mmap.mmap]
LARGE = 16 << 20  # bytes; the memory of larger files is released part by part
LONGEST_INTEGER = 4300  # digits; Python needs the square of their number in time, and newer versions have this limit
DIFFERENT_HASHES = (1 << 61) - 1  # whole numbers below this have different hashes
MOST_EQUAL_HASHES = 100
_CAN_RELEASE = all(hasattr(mmap, name) for name in ("MADV_DONTNEED", "MAP_ANONYMOUS", "MAP_PRIVATE"))


def read_bytes(path: PathLike) -> bytes:
    """Read a regular file.

    Raises:
        ResultFileError: The file is missing, unreadable, or not a regular file (a pipe or a device).

    Example:
        >>> read_bytes("nothing.pkl")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: nothing.pkl: cannot be read (no such file)
    """
    content = _read(path, whole=True)
    return content if isinstance(content, bytes) else content[:]


def read_content(path: PathLike) -> Content:
    """Like :func:`read_bytes`, but the memory of a large file can be released part by part (see :func:`release`).

    Example:
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
    """Release the memory of a part that is no longer needed.

    Args:
        content: From :func:`read_content`.
        start: Where the part begins: 0, or what the last call returned.
        end: Where it ends. Memory is released in whole pages, so the released part may be shorter.

    Returns:
        Where the remaining memory begins.

    Example:
        >>> release(b"abc", 0, 2)
        0
    """
    if isinstance(content, bytes):
        return start
    end -= end % mmap.PAGESIZE
    content.madvise(mmap.MADV_DONTNEED, start, end - start)
    return end


def trim_memory() -> None:
    """Return the memory of freed small objects to the system. Does nothing where the C library is not glibc.

    The scores of 50,000 samples are 50,000 objects. Without this call, the process keeps their memory.

    Example:
        >>> trim_memory()
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


# -- JSON -------------------------------------------------------------------------------------------------------------


def read_json(path: PathLike) -> Any:
    """Read a JSON file.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        ResultFileError: It cannot be read or is not JSON.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.json")
        ...     _ = path.write_text("[1, 2]")
        ...     read_json(path)
        [1, 2]
    """
    data = read_bytes(path)
    path = Path(path)
    if data[:1] == b"\x80":
        raise ResultFileError(f"{path.name}: is a pickle by its first byte (expected JSON; rename it to .pkl)")
    try:
        return json.loads(data, parse_int=_PARSE_INT)
    except UnicodeDecodeError as error:
        raise ResultFileError(f"{path.name}: is not JSON (byte {error.start} is no text)") from None
    except RecursionError:
        raise ResultFileError(f"{path.name}: is nested too deeply for a result or annotation file") from None
    except ValueError as error:
        raise ResultFileError(f"{path.name}: is not JSON ({error})") from None


def _bounded_int(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


_LIMIT_OF_PYTHON = getattr(sys, "get_int_max_str_digits", lambda: 0)()
_PARSE_INT: Any = int if 0 < _LIMIT_OF_PYTHON <= LONGEST_INTEGER else _bounded_int


def column(rows: List[Dict[str, Any]], field: str, source: str, what: str) -> List[Any]:
    """One field of every row. Each row must be a JSON object that has the field.

    Args:
        rows: JSON objects.
        field: The field.
        source: How messages name the file.
        what: How messages name a row, such as ``"annotation"``.

    Example:
        >>> column([{"id": 1}, {"id": 2}], "id", "a.json", "image")
        [1, 2]
        >>> column([{"id": 1}, {}], "id", "a.json", "image")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: a.json: image number 1 has no 'id'
    """
    try:
        return list(map(itemgetter(field), rows))
    except (KeyError, TypeError, IndexError):
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise ResultFileError(
                    f"{source}: {what} number {number} must be an object (found {type(row).__name__})"
                ) from None
            if field not in row:
                raise ResultFileError(f"{source}: {what} number {number} has no '{field}'") from None
        raise


def numbers(values: List[Any], field: str, source: str, what: str, width: int = 0) -> np.ndarray:
    """A column as float64: one number per row, or ``width`` of them.

    Example:
        >>> numbers([[1, 2.5]], "bbox", "a.json", "detection", 2)
        array([[1. , 2.5]])
        >>> numbers([0.5, None], "score", "a.json", "detection")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: a.json: 'score' of detection number 1 must be a finite number ...
    """
    if not values:
        return np.empty((0, width) if width else 0)
    shape = (width,) if width else ()
    if any(issubclass(kind, np.ndarray) for kind in set(map(type, values))):
        values = [one.tolist() if isinstance(one, np.ndarray) and one.shape == shape else one for one in values]
    flat = values
    if width:
        same = set(map(type, values)) <= {list, tuple} and set(map(len, values)) == {width}
        flat = list(chain.from_iterable(values)) if same else [None]
    if all(map(is_number_type, set(map(type, flat)))):  # NumPy alone would also take text
        with suppress(OverflowError):
            array = np.fromiter(flat, np.float64, len(flat))
            if np.isfinite(array).all():
                return array.reshape((-1, *shape))
    expected = f"{width} finite numbers" if width else "a finite number"
    number, value = next((at, one) for at, one in enumerate(values) if not _is_finite_row(one, width))
    raise ResultFileError(f"{source}: '{field}' of {what} number {number} must be {expected} (found {_short(value)})")


def _is_finite_row(value: Any, width: int) -> bool:
    if not width:
        return is_number_type(type(value)) and abs(value) < 1e300  # also false for NaN
    return isinstance(value, (list, tuple)) and len(value) == width and all(_is_finite_row(one, 0) for one in value)


def _short(value: Any) -> str:
    """A value for a message, cut to 60 characters. Only the beginning of a large value is read."""
    if isinstance(value, (str, bytes)):
        text = ascii(value[:60])
    elif isinstance(value, (int, float, type(None))):
        text = ascii(value)
    else:
        text = json.dumps(_beginning(value, 3), default=lambda other: type(other).__name__)
    return text if len(text) <= 60 else text[:57] + "..."


def _beginning(value: Any, levels: int) -> Any:
    """The first items of lists and dicts, and of those in them; below the given level only their types."""
    if isinstance(value, str):
        return value[:60]
    if isinstance(value, (list, tuple, dict)):
        if not levels:
            return type(value).__name__
        if isinstance(value, dict):
            return {str(key)[:60]: _beginning(one, levels - 1) for key, one in islice(value.items(), 8)}
        return [_beginning(one, levels - 1) for one in value[:8]]
    return value


def identities(values: List[Any], field: str, source: str, what: str) -> List[Any]:
    """A column of ids, each a whole number or text.

    Example:
        >>> identities([7, "a"], "image_id", "a.json", "detection")
        [7, 'a']
    """
    kinds = set(map(type, values))
    if not kinds <= {int, str}:
        number, value = next((at, one) for at, one in enumerate(values) if type(one) not in (int, str))
        pipeline = value is None and field == "img_id"
        remedy = ": add 'img_id' to meta_keys of PackDetInputs in the test pipeline and test again" if pipeline else ""
        raise ResultFileError(
            f"{source}: '{field}' of {what} number {number} must be a whole number or text "
            f"(found {_short(value)}){remedy}"
        )
    whole = values if kinds == {int} else [value for value in values if type(value) is int]
    if whole and (max(whole) >= DIFFERENT_HASHES or min(whole) <= -DIFFERENT_HASHES):
        _check_hashes(whole, field, source)
    return values


def _check_hashes(values: List[int], field: str, source: str) -> None:
    """Refuse numbers that were chosen to have the same hash: a dict of n of them takes time of the order n squared."""
    different = [value for value, _ in groupby(sorted(values))]
    if max(Counter(map(hash, different)).values()) > MOST_EQUAL_HASHES:
        raise ResultFileError(f"{source}: '{field}' holds numbers of more than 61 bits that collide (expected ids)")


# -- counts -----------------------------------------------------------------------------------------------------------

# In the order in which rows are checked, which is the order in reports.
REASONS = (
    "image not in the file",
    "marked 'ignore'",
    "empty",
    "outside the image",
    "corners swapped",
    "category not in the file",
    "class not chosen",
    "image not in the test set",
    "left out by the dataset",
    "removed by NMS",
)


@dataclass(frozen=True)
class RowCounts:
    """How many rows were read, used, and dropped for which reason. ``read`` is the sum of the others.

    Args:
        read: Rows in the file.
        used: Rows that are evaluated.
        dropped: Dropped rows by reason.

    Example:
        >>> RowCounts.count(np.array([True, True, True]), {"too small": np.array([False, True, False])}).to_dict()
        {'read': 3, 'used': 2, 'dropped': {'too small': 1}}
    """

    read: int
    used: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def count(cls, rows: np.ndarray, reasons: Mapping[str, np.ndarray]) -> RowCounts:
        """Count each dropped row under its first reason."""
        left = np.ones(len(rows), dtype=bool)
        dropped: Dict[str, int] = {}
        for reason, holds in reasons.items():
            dropped[reason] = int(np.count_nonzero(left & holds))
            left &= ~holds
        return cls(len(rows), int(np.count_nonzero(left)), {reason: n for reason, n in dropped.items() if n})

    def drop(self, reason: str, dropped: int) -> RowCounts:
        """The counts after a later step dropped more rows."""
        if not dropped:
            return self
        return RowCounts(self.read, self.used - dropped, {**self.dropped, reason: dropped})

    @classmethod
    def total(cls, counts: Iterable[RowCounts]) -> RowCounts:
        """The sum of several counts.

        Example:
            >>> parts = [RowCounts(3, 2, {"removed by NMS": 1}), RowCounts(2, 1, {"class not chosen": 1})]
            >>> RowCounts.total(parts).to_dict()
            {'read': 5, 'used': 3, 'dropped': {'class not chosen': 1, 'removed by NMS': 1}}
        """
        counts = list(counts)
        dropped: Dict[str, int] = dict.fromkeys(REASONS, 0)
        for one in counts:
            for reason, number in one.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + number
        return cls(
            sum(one.read for one in counts),
            sum(one.used for one in counts),
            {reason: number for reason, number in dropped.items() if number},
        )

    def to_dict(self) -> Dict[str, Any]:
        """As a plain dict."""
        return {"read": self.read, "used": self.used, "dropped": dict(self.dropped)}
