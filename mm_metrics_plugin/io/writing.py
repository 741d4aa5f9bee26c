"""Writes files completely or not at all; JSON and CSV text."""

from __future__ import annotations

import csv
import errno
import json
import os
import secrets
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterable, Iterator, Mapping, Sequence

from mm_metrics_plugin.functional._arrays import json_values


def write_all(contents: Mapping[str, str | bytes | memoryview]) -> None:
    """Write several files, given by path, with text as UTF-8. Missing folders are created.

    All are written under temporary names first, so no file is written partially, and none is replaced if one cannot be
    written. An interrupt waits until all are renamed. If one cannot be renamed, the files before it are replaced.

    Raises:
        OSError: A file cannot be written; the error names it.
    """
    with ready_to_write(contents):
        pass


@contextmanager
def ready_to_write(contents: Mapping[str, str | bytes | memoryview]) -> Iterator[None]:
    """Like :func:`write_all`, but the files are renamed when the block ends, and removed if it raises an error."""
    # All names are chosen before the first file is created, so an interrupt at any time can remove them.
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


def _write(path: str, temporary: str, data: bytes | memoryview) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(path):  # checked before any file is replaced
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    with open(temporary, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # otherwise a crash could leave an empty file under the new name


@contextmanager
def _errors_name(path: str, temporary: str) -> Iterator[None]:
    """Put the path of the file in place of the temporary one in errors."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, temporary):
            raise
        raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end. Only the main thread receives it, and only that thread can delay it."""
    handler: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[Any] = []
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
        compact: Without line breaks and spaces, for programs.

    Example:
        >>> import numpy as np
        >>> print(to_json({"recall": np.array([0.5, np.nan]), "tp": np.int64(3)}))
        {
          "recall": [0.5, null],
          "tp": 3
        }
    """
    if compact:
        return json.dumps(json_values(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    return "".join(_indented(json_values(value), "")) + "\n"


def _indented(value: Any, indent: str) -> Iterator[str]:
    """JSON text with one entry per line, but lists of numbers and text on one line."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        opening = "{\n"
        for key, item in value.items():
            yield f"{opening}{inner}{json.dumps(key, ensure_ascii=False)}: "
            yield from _indented(item, inner)
            opening = ",\n"
        yield f"\n{indent}}}"
    elif isinstance(value, (list, tuple)) and not _CONTAINERS.isdisjoint(map(type, value)):
        opening = "[\n"
        for item in value:
            yield f"{opening}{inner}"
            yield from _indented(item, inner)
            opening = ",\n"
        yield f"\n{indent}]"
    else:
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)


_CONTAINERS = {dict, list, tuple}


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated text, floats in full precision, undefined numbers empty.

    A spreadsheet runs a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, also after a tab or a line
    break. Text that begins with one of these characters (or with the full-width form of the first four) gets an
    apostrophe in front. Negative numbers are unchanged.
    """
    lines: list[str] = []
    # With this line end, cells that contain a carriage return are quoted. Otherwise they would be split.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    writer.writerow([_csv_cell(cell) for cell in header])
    writer.writerows([_csv_cell(cell) for cell in json_values(list(row))] for row in rows)
    return "".join(f"{line[:-2]}\n" for line in lines)


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return "" if value is None else value
