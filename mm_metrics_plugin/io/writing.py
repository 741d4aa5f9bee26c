"""Files written whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import secrets
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Mapping, Sequence, Union

import numpy as np


def write_all(contents: Mapping[str, Union[str, bytes, memoryview]]) -> None:
    """Write several files, text as UTF-8: all of them, each whole, or none.

    Each is complete, beside its place, before the first takes its place; an interrupt waits until the last has.

    Args:
        contents (Mapping): By path. Folders are made if they are not there.

    Raises:
        OSError: One cannot be written. The error names it, and the others are as they were.

    Examples:
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
    """As :func:`write_all`, with what has to go well before the files take their places; else there are none.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     try:
        ...         with ready_to_write({f"{folder}/a.md": "# Report"}):
        ...             raise RuntimeError("the others have not agreed")
        ...     except RuntimeError:
        ...         os.listdir(folder)
        []
    """
    # Named before they are made, so that an interrupt at any moment finds what there is to take away.
    temporaries = {path: _beside(Path(path)) for path in contents}
    try:
        for path, content in contents.items():
            with _named(path, temporaries[path]):
                _write(
                    Path(path),
                    temporaries[path],
                    content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content,
                )
        yield
        with _uninterrupted():
            for path, temporary in temporaries.items():
                with _named(path, temporary):
                    os.replace(temporary, path)
    except BaseException:
        for temporary in temporaries.values():
            with suppress(OSError):
                temporary.unlink()
        raise


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.stem}-{secrets.token_hex(8)}{path.suffix}")


@contextmanager
def _named(path: str, temporary: Path) -> Iterator[None]:
    """An error of the temporary file is one of the file that it was to become."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, path) from error
        raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the end. Only the main thread hears of it, and only it can have it wait."""
    handler: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    heard: List[Any] = []
    signal.signal(signal.SIGINT, lambda *what: heard.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if heard:
        handler(*heard[0])


def _write(path: Path, temporary: Path, content: Union[bytes, memoryview]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():  # nothing can take its place
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # else a crash could leave the new name on an empty file


def to_json(value: Any, *, compact: bool = False) -> str:
    """Strict JSON, in which undefined numbers are null.

    Args:
        value (object): Dicts, lists, text, numbers, and NumPy arrays and numbers.
        compact (bool): Without line breaks and spaces, for programs. Default False.

    Examples:
        >>> print(to_json({"recall": np.array([0.5, np.nan]), "tp": np.int64(3)}))
        {
          "recall": [
            0.5,
            null
          ],
          "tp": 3
        }
    """
    layout: Any = dict(separators=(",", ":")) if compact else dict(indent=2)
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, **layout) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    r"""Comma-separated text, floats in full precision, undefined numbers empty.

    Examples:
        >>> to_csv(["class", "recall"], [["cat, small", 0.1], ["dog", float("nan")]])
        'class,recall\n"cat, small",0.1\ndog,\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([["" if one is None else one for one in _plain(list(row))] for row in rows])
    return text.getvalue()
