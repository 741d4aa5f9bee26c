"""Reading JSON somebody else wrote, and columns out of lists of JSON objects."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.reading import PathLike, read_bytes


def read_json(path: PathLike) -> Any:
    """Read a JSON file.

    Args:
        path (str or PathLike): The file.

    Returns:
        object: Its content.

    Raises:
        ResultFileError: It cannot be read or is not JSON.

    Examples:
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
        return json.loads(data)
    except UnicodeDecodeError as error:
        raise ResultFileError(f"{path.name}: is not JSON (byte {error.start} is no text)") from None
    except RecursionError:
        raise ResultFileError(f"{path.name}: is nested too deeply to be what it should be") from None
    except ValueError as error:
        raise ResultFileError(f"{path.name}: is not JSON ({error})") from None


def column(rows: List[Dict[str, Any]], field: str, source: str, what: str) -> List[Any]:
    """One field of every row, which must all be objects that have it.

    Args:
        rows (list): JSON objects.
        field (str): The field.
        source (str): How messages name the file.
        what (str): How messages name a row, such as ``"annotation"``.

    Examples:
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
    """A column as float64, one number a row, or ``width`` of them.

    Examples:
        >>> numbers([[1, 2.5]], "bbox", "a.json", "detection", 2)
        array([[1. , 2.5]])
        >>> numbers([0.5, None], "score", "a.json", "detection")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: a.json: 'score' of detection number 1 must be a finite number ...
    """
    if not values:
        return np.empty((0, width) if width else 0)
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        array = np.empty(0, dtype=object)
    shape = (len(values), width) if width else (len(values),)
    if array.dtype.kind in "iuf" and array.shape == shape:
        array = array.astype(np.float64)
        if np.isfinite(array).all():
            return array
    expected = f"{width} finite numbers" if width else "a finite number"
    for number, value in enumerate(values):
        parts = value if width and isinstance(value, (list, tuple)) else [value]
        good = len(parts) == max(width, 1) and all(_is_finite(part) for part in parts)
        if not good:
            raise ResultFileError(
                f"{source}: '{field}' of {what} number {number} must be {expected} (found {_short(value)})"
            )
    return np.array(values, dtype=np.float64).reshape(shape)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # also false for NaN


def _short(value: Any) -> str:
    plain = isinstance(value, (str, int, float, type(None)))
    text = ascii(value) if plain else json.dumps(value, default=lambda other: type(other).__name__)
    return text if len(text) <= 60 else text[:57] + "..."


def identities(values: List[Any], field: str, source: str, what: str) -> List[Any]:
    """A column of ids, each a whole number or text.

    Examples:
        >>> identities([7, "a"], "image_id", "a.json", "detection")
        [7, 'a']
    """
    if set(map(type, values)) <= {int, str}:
        return values
    for number, value in enumerate(values):
        if type(value) not in (int, str):
            raise ResultFileError(
                f"{source}: '{field}' of {what} number {number} must be a whole number or text (found {_short(value)})"
            )
    return values
