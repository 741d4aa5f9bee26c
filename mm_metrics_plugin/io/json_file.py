"""Reading JSON somebody else wrote, and columns out of lists of JSON objects."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import suppress
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike, read_bytes
from mm_metrics_plugin.io.values import is_number_type

LONGEST_INTEGER = 4300  # digits; Python needs the square of their number in time, and newer versions have this limit
DIFFERENT_HASHES = (1 << 61) - 1  # whole numbers below this have different hashes
MOST_EQUAL_HASHES = 100


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
        return json.loads(data, parse_int=_PARSE_INT)
    except UnicodeDecodeError as error:
        raise ResultFileError(f"{path.name}: is not JSON (byte {error.start} is no text)") from None
    except RecursionError:
        raise ResultFileError(f"{path.name}: is nested too deeply to be what it should be") from None
    except ValueError as error:
        raise ResultFileError(f"{path.name}: is not JSON ({error})") from None


def _bounded_int(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


_LIMIT_OF_PYTHON = getattr(sys, "get_int_max_str_digits", lambda: 0)()
_PARSE_INT: Any = int if 0 < _LIMIT_OF_PYTHON <= LONGEST_INTEGER else _bounded_int


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
    """A value for a message. However large it is, only its beginning is looked at."""
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

    Examples:
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
