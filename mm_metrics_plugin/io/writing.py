"""Files written whole or not at all."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import secrets
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterable, Iterator, List, Mapping, Sequence, Union

import numpy as np


def write_all(contents: Mapping[str, Union[str, bytes, memoryview]]) -> None:
    """Write several files, text as UTF-8.

    All are written under temporary names first, so no file is written in part, and none is replaced if one cannot be
    written. An interrupt waits until all are renamed. If one cannot be renamed, those before it are replaced already.

    Args:
        contents: By path. Missing folders are made.

    Raises:
        OSError: One cannot be written; the error names it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_all({f"{folder}/a.md": "# Report", f"{folder}/b.bin": b"abc"})
        ...     sorted(os.listdir(folder))
        ['a.md', 'b.bin']
    """
    with ready_to_write(contents):
        pass


@contextmanager
def ready_to_write(contents: Mapping[str, Union[str, bytes, memoryview]]) -> Iterator[None]:
    """As :func:`write_all`, but the files get their names when the block ends, and are removed if it fails.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     try:
        ...         with ready_to_write({f"{folder}/a.md": "# Report"}):
        ...             raise RuntimeError("the others have not agreed")
        ...     except RuntimeError:
        ...         os.listdir(folder)
        []
    """
    # All names are chosen before the first file is made, so an interrupt at any moment finds what to remove.
    temporary = {path: str(Path(path).with_name(f".{Path(path).name}-{secrets.token_hex(8)}")) for path in contents}
    try:
        for path, content in contents.items():
            data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
            with _errors_name(path, temporary[path]):
                _write(path, temporary[path], data)
        yield
        with _uninterrupted():
            for path in contents:
                with _errors_name(path, temporary[path]):
                    os.replace(temporary[path], path)
    finally:
        for name in temporary.values():
            with suppress(OSError):
                os.unlink(name)


def _write(path: str, temporary: str, data: Union[bytes, memoryview]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(path):  # found out before the first file is replaced
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    with open(temporary, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # else a crash could leave the new name on an empty file


@contextmanager
def _errors_name(path: str, temporary: str) -> Iterator[None]:
    """Errors of the temporary file name the file to be written."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, temporary):
            raise
        raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the end. Only the main thread gets it, and only that thread can make it wait."""
    handler: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: List[Any] = []
    signal.signal(signal.SIGINT, lambda *arguments: received.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(*received[0])


def to_json(value: Any, *, compact: bool = False) -> str:
    """Strict JSON, in which undefined numbers are null.

    Args:
        value: Dicts, lists, text, numbers, and NumPy arrays and numbers.
        compact: Without line breaks and spaces, for programs. Default False.

    Example:
        >>> print(to_json({"recall": np.array([0.5, np.nan]), "tp": np.int64(3)}))
        {
          "recall": [0.5, null],
          "tp": 3
        }
    """
    if compact:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    return "".join(_indented(_plain(value), "")) + "\n"


def _indented(value: Any, indent: str) -> Iterator[str]:
    """JSON text with one entry per line. Lists of numbers and text stay on one line, which is fast and short."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        opening = "{\n"
        for key, one in value.items():
            yield f"{opening}{inner}{json.dumps(key, ensure_ascii=False)}: "
            yield from _indented(one, inner)
            opening = ",\n"
        yield f"\n{indent}}}"
    elif isinstance(value, (list, tuple)) and not _CONTAINERS.isdisjoint(map(type, value)):
        opening = "[\n"
        for one in value:
            yield f"{opening}{inner}"
            yield from _indented(one, inner)
            opening = ",\n"
        yield f"\n{indent}]"
    else:
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)


_CONTAINERS = {dict, list, tuple}
_AS_THEY_ARE = {int, str, bool, type(None)}


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return value if _AS_THEY_ARE.issuperset(map(type, value)) else [_plain(one) for one in value]
    return value


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    r"""Comma-separated text, floats in full precision, undefined numbers empty.

    A spreadsheet runs a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, also after a tab or a line
    break. Text that begins with one of these characters (or with the full-width form of the first four) gets an
    apostrophe in front. Numbers stay numbers, negative ones too.

    Example:
        >>> to_csv(["class", "recall"], [["cat, small", 0.1], ["dog", float("nan")]])
        'class,recall\n"cat, small",0.1\ndog,\n'
        >>> to_csv(["class", "difference"], [["=1+1", -0.5]])
        "class,difference\n'=1+1,-0.5\n"
    """
    lines: List[str] = []
    # With this end of line, cells that hold either of its characters are quoted. Otherwise a carriage return in a name
    # would begin a new cell.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    writer.writerow([_csv_cell(one) for one in header])
    writer.writerows([_csv_cell(one) for one in _plain(list(row))] for row in rows)
    return "".join(f"{line[:-2]}\n" for line in lines)


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return "" if value is None else value
