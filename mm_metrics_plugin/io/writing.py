"""Files written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import secrets
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence, Union

import numpy as np

from mm_metrics_plugin.io.reading import PathLike


@contextmanager
def whole_file(path: PathLike) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place if the block ends well, and vanishes if not.

    Args:
        path (str or PathLike): The file to be written. Its folder is made if it is not there.

    Yields:
        Path: Where to write; it has the suffix of ``path``.

    Raises:
        OSError: The file cannot be written; the error names ``path``.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with whole_file(Path(folder, "figure.txt")) as temporary:
        ...         _ = temporary.write_text("done")
        ...     os.listdir(folder)
        ['figure.txt']
    """
    path = Path(path)
    # Named before it is made, so that an interrupt at any moment finds what there is to take away.
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(8)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())  # else a crash could leave the new name on an empty file
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def write_all(contents: Mapping[str, Union[str, bytes]]) -> None:
    """Write several files, text as UTF-8. Each is complete before the first of them takes its place.

    Args:
        contents (Mapping): By path.

    Raises:
        OSError: One cannot be written. The others are then as they were.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_all({f"{folder}/a.md": "# Report", f"{folder}/b.bin": b"abc"})
        ...     sorted(os.listdir(folder))
        ['a.md', 'b.bin']
    """
    with ExitStack() as files:
        for path, content in contents.items():
            temporary = files.enter_context(whole_file(path))
            temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


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
