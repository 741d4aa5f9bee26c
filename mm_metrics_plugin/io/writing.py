"""Files written whole or not at all."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import secrets
import shutil
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import numpy as np


def write_all(contents: Mapping[str, Union[str, bytes, memoryview]]) -> None:
    """Write several files, text as UTF-8: all of them, each whole, or none.

    Each is complete, beside its place, before the first takes its place; an interrupt waits until the last has. Where
    one may not take its place, those that did before are taken back: older files return, and new ones are removed.

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
    """As :func:`write_all`, but the files take their places when the block ends, and not at all if it fails.

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
    files = [_NewFile(path) for path in contents]
    try:
        for file, content in zip(files, contents.values()):
            file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
        yield
        with _uninterrupted():
            placed: List[_NewFile] = []
            try:
                for file in files:
                    if file is not files[-1]:
                        file.keep_older()
                    file.take_place()
                    placed.append(file)
            except BaseException:
                for file in reversed(placed):
                    file.take_back()
                raise
            finally:
                for file in files:
                    file.forget_older()
    finally:
        for file in files:
            file.close()


class _NewFile:
    """A file beside its place.

    Where the system can do that it has no name until it takes its place: it is gone with its process, even if that is
    killed. Elsewhere it has a name that was chosen before it was made, so that an interrupt finds what to take away.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        place = Path(path)
        self.folder = place.parent
        self.temporary = str(place.with_name(f".{place.stem}-{secrets.token_hex(8)}{place.suffix}"))
        self.older = str(place.with_name(f".{place.stem}-{secrets.token_hex(8)}-older{place.suffix}"))
        self.content: Optional[BinaryIO] = None
        self.number: Optional[int] = None  # of the open file, if it has no name

    def write(self, content: Union[bytes, memoryview]) -> None:
        """Writes all of it, to the disk."""
        with self._errors_of_its_place():
            self.folder.mkdir(parents=True, exist_ok=True)
            if os.path.isdir(self.path):  # nothing can take its place
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
            self.content = file = self._open()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a crash could leave the new name on an empty file
            if self.number is None:
                file.close()  # Windows renames no open file

    def _open(self) -> BinaryIO:
        with suppress(OSError, AttributeError):  # not every file system has such files, nor has every system
            os.stat(_OPEN_FILES)
            self.number = os.open(self.folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
            return open(self.number, "wb")
        return open(self.temporary, "xb")

    def take_place(self) -> None:
        """Becomes the file it was made for."""
        with self._errors_of_its_place():
            if self.number is not None:
                for name in (self.path, self.temporary):  # the first, if there is no older file to be replaced
                    with suppress(OSError):
                        # The folder's number makes Python link to the file itself and not to its entry there.
                        os.link(f"{_OPEN_FILES}/{self.number}", name, src_dir_fd=self.number)
                        break
                else:  # links are not allowed
                    shutil.copyfile(f"{_OPEN_FILES}/{self.number}", self.temporary)
                if name == self.path:
                    return
            os.replace(self.temporary, self.path)

    def keep_older(self) -> None:
        """Keep the file that is replaced under another name, until all have taken their places."""
        if not os.path.lexists(self.path):
            return
        with self._errors_of_its_place():
            try:
                os.link(self.path, self.older, follow_symlinks=False)
            except (OSError, NotImplementedError):  # links are not allowed
                shutil.copy2(self.path, self.older, follow_symlinks=False)

    def take_back(self) -> None:
        """Undo :meth:`take_place`."""
        with suppress(OSError):
            if os.path.lexists(self.older):
                os.replace(self.older, self.path)
            else:
                os.unlink(self.path)

    def forget_older(self) -> None:
        """Remove what :meth:`keep_older` kept."""
        with suppress(OSError):
            os.unlink(self.older)

    def close(self) -> None:
        """Is gone, unless it has taken its place."""
        if self.content is not None:
            with suppress(OSError):  # what was left to write was told of before
                self.content.close()
        with suppress(OSError):
            os.unlink(self.temporary)

    @contextmanager
    def _errors_of_its_place(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.filename in (None, self.temporary, self.older):
                raise OSError(error.errno, error.strerror, self.path) from error
            raise


_OPEN_FILES = "/proc/self/fd"


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


def to_json(value: Any, *, compact: bool = False) -> str:
    """Strict JSON, in which undefined numbers are null.

    Args:
        value (object): Dicts, lists, text, numbers, and NumPy arrays and numbers.
        compact (bool): Without line breaks and spaces, for programs. Default False.

    Examples:
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

    Examples:
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
    writer.writerows([[_csv_cell(one) for one in _plain(list(row))] for row in rows])
    return "".join(f"{line[:-2]}\n" for line in lines)


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return "" if value is None else value
