"""Arrays and what they mean, in one ``.npz`` file that is read without pickle."""

from __future__ import annotations

import json
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike
from mm_metrics_plugin.io.writing import write_all

SCHEMA_VERSION = 4
_HEADER = "header"


def write_state(path: PathLike, header: Mapping[str, Any], arrays: Mapping[str, Optional[np.ndarray]]) -> None:
    """Write a header and arrays, whole or not at all. Arrays that are None are left out.

    Args:
        path: The file, whose name ends in ``.npz``.
        header: What JSON can say.
        arrays: By name.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_state(Path(folder, "a.npz"), {"kind": "counts"}, {"tp": np.array([3, 4]), "fp": None})
        ...     read_state(Path(folder, "a.npz"))
        ({'schema_version': 4, 'kind': 'counts'}, {'tp': array([3, 4])})
    """
    text = json.dumps({"schema_version": SCHEMA_VERSION, **header}, ensure_ascii=True, allow_nan=False)
    content = {name: np.ascontiguousarray(value) for name, value in arrays.items() if value is not None}
    archive = BytesIO()
    header_bytes = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    np.savez(archive, **{_HEADER: header_bytes, **content})  # type: ignore[arg-type]
    write_all({str(path): archive.getvalue()})


def read_state(path: PathLike) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
    """Read what :func:`write_state` wrote. Nothing in the file is run, and its arrays take no more than its size.

    Raises:
        ResultFileError: The file is damaged, or is none of ours.
    """
    path = Path(path)
    if not path.is_file():
        raise ResultFileError(f"{path.name}: cannot be read ({'not a file' if path.exists() else 'no such file'})")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _entries(archive, path.stat().st_size)
            arrays = {entry.filename[: -len(".npy")]: _array(archive, entry) for entry in entries}
        header = json.loads(arrays.pop(_HEADER).tobytes())
        version = header["schema_version"]
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror or error})") from None
    except (
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        MemoryError,
        RecursionError,
        zipfile.BadZipFile,
        zlib.error,
    ) as e:
        raise ResultFileError(f"{path.name}: is no state that --save-state wrote ({type(e).__name__}: {e})") from None
    except (NotImplementedError, RuntimeError, SyntaxError) as error:  # other zip features; a header of no array
        raise ResultFileError(f"{path.name}: is no state that --save-state wrote ({error})") from None
    if version != SCHEMA_VERSION:
        raise ResultFileError(
            f"{path.name}: is a state of format version {version!a}, and this version of the package reads version "
            f"{SCHEMA_VERSION}; save it again with --save-state"
        )
    return header, arrays


def _entries(archive: zipfile.ZipFile, file_size: int) -> List[zipfile.ZipInfo]:
    """The entries of a file, none of which are compressed or repeated, and which do not overlap."""
    entries = archive.infolist()
    for entry in entries:
        stored = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
        if not entry.filename.endswith(".npy") or not stored:
            raise ValueError(f"{entry.filename!a} is no plain array")
    if len({entry.filename for entry in entries}) < len(entries):
        raise ValueError("an array comes twice")
    total = sum(entry.file_size for entry in entries)
    if total > file_size:
        raise ValueError(f"its arrays take {total} bytes together, and the file has {file_size}")
    return entries


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array. Its size is known before memory is allocated for it."""
    name = entry.filename
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"{name!a} has a header of version {version}")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject or dtype.kind not in "biuf" or fortran:
            raise ValueError(f"{name!a} is no array of numbers")
        size = dtype.itemsize
        for side in shape:
            size *= side
        data = file.read()
        if len(data) != size or min(shape, default=0) < 0:
            raise ValueError(f"{name!a} must have {size} bytes (found {len(data)})")
    array: np.ndarray = np.frombuffer(data, dtype=dtype).reshape(shape)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
