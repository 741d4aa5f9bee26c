"""Files written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence

import numpy as np

from mm_metrics_plugin.io.reading import PathLike


@contextmanager
def whole_file(path: PathLike) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place if the block ends well, and vanishes if not.

    Args:
        path (str or PathLike): The file to be written. Its folder is made if it is not there.

    Yields:
        Path: Where to write; it has the suffix of ``path``.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with whole_file(Path(folder, "figure.txt")) as temporary:
        ...         _ = temporary.write_text("done")
        ...     os.listdir(folder)
        ['figure.txt']
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes it readable by its owner alone
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: PathLike, content: bytes) -> None:
    """Write bytes, whole or not at all.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_bytes(Path(folder, "a.bin"), b"abc")
        ...     Path(folder, "a.bin").read_bytes()
        b'abc'
    """
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # else a crash could leave the new name on an empty file


def write_text(path: PathLike, text: str) -> None:
    """Write text as UTF-8, whole or not at all.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(Path(folder, "a.md"), "# Report")
        ...     Path(folder, "a.md").read_text()
        '# Report'
    """
    write_bytes(path, text.encode("utf-8"))


def to_json(value: Any) -> str:
    """Strict JSON, in which undefined numbers are null.

    Args:
        value (object): Dicts, lists, text, numbers, and NumPy arrays and numbers.

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
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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


def write_json(path: PathLike, value: Any) -> None:
    """Write :func:`to_json` of a value, whole or not at all.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_json(Path(folder, "a.json"), {"f1": float("nan")})
        ...     json.loads(Path(folder, "a.json").read_text())
        {'f1': None}
    """
    write_text(path, to_json(value))


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


def write_csv(path: PathLike, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    r"""Write :func:`to_csv` of a table, whole or not at all.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_csv(Path(folder, "a.csv"), ["class"], [["cat"]])
        ...     Path(folder, "a.csv").read_text()
        'class\ncat\n'
    """
    write_text(path, to_csv(header, rows))
