"""State files of ``save_state``: arrays and a JSON header in one ``.npz`` file, read without pickle."""

from __future__ import annotations

import json
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, Mapping

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike, check_is_file
from mm_metrics_plugin.io.writing import write_all

SCHEMA_VERSION = 5
_HEADER = "header"
# What a damaged zip file, header or JSON can raise; a RuntimeError is a feature of zip files that is not supported.
_DAMAGED: Any = (ValueError, KeyError, TypeError, EOFError, MemoryError, RuntimeError, SyntaxError)


def write_state(path: PathLike, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray | None]) -> None:
    """Write a header and arrays, whole or not at all. Arrays that are None are left out."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **header}, ensure_ascii=True, allow_nan=False)
    content = {name: np.ascontiguousarray(value) for name, value in arrays.items() if value is not None}
    archive = BytesIO()
    header_bytes = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    np.savez(archive, **{_HEADER: header_bytes, **content})  # type: ignore[arg-type]
    write_all({str(path): archive.getvalue()})


def read_state(path: PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what :func:`write_state` wrote. Nothing in the file is run, and its arrays take no more than its size.

    Raises:
        ResultFileError: The file is damaged or is not a state file.
    """
    path = Path(path)
    check_is_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _entries(archive, path.stat().st_size)
            arrays = {entry.filename[: -len(".npy")]: _array(archive, entry) for entry in entries}
        header = json.loads(arrays.pop(_HEADER).tobytes())
        version = header["schema_version"]
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror or error})") from None
    except (*_DAMAGED, zipfile.BadZipFile, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ResultFileError(f"{path.name}: is not a state file, which save_state=... writes ({reason})") from None
    if version != SCHEMA_VERSION:
        raise ResultFileError(
            f"{path.name}: is a state of format version {version!a}, and this version of the package reads version "
            f"{SCHEMA_VERSION}; save it again with save_state=..."
        )
    return header, arrays


def _entries(archive: zipfile.ZipFile, file_size: int) -> list[zipfile.ZipInfo]:
    """The entries of a file, after checking that they are not compressed or repeated and do not overlap."""
    entries = archive.infolist()
    for entry in entries:
        stored = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
        if not entry.filename.endswith(".npy") or not stored:
            raise ValueError(f"{entry.filename!a} is not a plain array")
    if len({entry.filename for entry in entries}) < len(entries):
        raise ValueError("an array is repeated")
    total = sum(entry.file_size for entry in entries)
    if total > file_size:
        raise ValueError(f"its arrays take {total} bytes in total, and the file has {file_size}")
    return entries


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array, whose size is checked before memory is allocated for it."""
    name = entry.filename
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"{name!a} has a header of version {version}")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject or dtype.kind not in "biufSU" or fortran:
            raise ValueError(f"{name!a} is not an array of numbers or texts")
        size = dtype.itemsize
        for side in shape:
            size *= side
        data = file.read()
        if len(data) != size or min(shape, default=0) < 0:
            raise ValueError(f"{name!a} must have {size} bytes (found {len(data)})")
    array: np.ndarray = np.frombuffer(data, dtype=dtype).reshape(shape)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
