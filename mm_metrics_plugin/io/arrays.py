"""Arrays from the values of result files: NumPy arrays, tensors, lists, and columns of JSON objects."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError, listing, shortened
from mm_metrics_plugin.functional._inputs import BFloat16Array, is_tensor, tensor_to_array

DIFFERENT_HASHES = (1 << 61) - 1  # integers below this have different hashes
MOST_EQUAL_HASHES = 100


def to_array(value: Any) -> np.ndarray:
    """A NumPy array in native byte order.

    Raises:
        TypeError: The value cannot be an array. ValueError, RuntimeError and OverflowError likewise.
    """
    value = getattr(value, "tensor", value)  # of mmdet's HorizontalBoxes and mmrotate's RotatedBoxes
    if is_tensor(value):
        value = tensor_to_array(value)
    if isinstance(value, (list, tuple)):
        return _array_of_numbers(value)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _is_number_type(kind: type) -> bool:
    """Whether values of a type are numbers. Booleans are not."""
    return issubclass(kind, (int, float, np.integer, np.floating)) and kind is not bool


def _array_of_numbers(values: Sequence[Any]) -> np.ndarray:
    """A list of numbers, or of lists of numbers, as an array of int64 or float64.

    NumPy alone also accepts text, and pads all strings to the length of the longest: a list of one long string and many
    short ones then takes far more memory than the file.
    """
    array = np.array(values, dtype=object)
    kinds = set(map(type, array.ravel().tolist()))
    for kind in kinds:
        if not _is_number_type(kind):
            raise TypeError(f"must be numbers (found {kind.__name__})")
    whole = bool(kinds) and all(issubclass(kind, (int, np.integer)) for kind in kinds)
    return array.astype(np.int64 if whole else np.float64)


def written_bytes(array: np.ndarray) -> int:
    """How many bytes the values of an array take in a file."""
    return array.nbytes // 2 if isinstance(array, BFloat16Array) else array.nbytes


# -- JSON --------------------------------------------------------------------------------------------------------------


class JsonRows:
    """A list of JSON objects, whose fields are read as columns. Messages name the row and the field.

    Args:
        rows: The objects.
        source: Name of the file in messages.
        noun: Name of a row in messages, such as ``"annotation"``.
        positions: The number of each row in messages, its index by default.
    """

    def __init__(self, rows: list[Any], source: str, noun: str, positions: Sequence[int] | None = None) -> None:
        self.rows = rows
        self.source = source
        self.noun = noun
        self.positions = range(len(rows)) if positions is None else positions

    def take(self, indices: Sequence[int]) -> JsonRows:
        """The selected rows, which keep their numbers."""
        positions = [self.positions[index] for index in indices]
        return JsonRows([self.rows[index] for index in indices], self.source, self.noun, positions)

    def without(self, field: str) -> np.ndarray:
        """Which rows have no value, or None, in a field."""
        return np.array([row.get(field) is None for row in self.rows], dtype=bool)

    def column(self, field: str) -> list[Any]:
        """One field of every row, which each row must have."""
        try:
            return list(map(itemgetter(field), self.rows))
        except (KeyError, TypeError, IndexError, ValueError, AttributeError):
            for number, row in zip(self.positions, self.rows):
                name = f"{self.source}: {self.noun} number {number}"
                if not isinstance(row, dict):
                    raise ResultFileError(f"{name} must be an object (found {type(row).__name__})") from None
                if field not in row:
                    raise ResultFileError(f"{name} has no '{field}'") from None
            raise

    def numbers(self, field: str, width: int = 0, values: list[Any] | None = None) -> np.ndarray:
        """A column (or ``values`` in its place) as float64: one number per row, or ``width`` numbers."""
        values = self.column(field) if values is None else values
        if not values:
            return np.empty((0, width) if width else 0)
        shape = (width,) if width else ()
        if any(issubclass(kind, np.ndarray) for kind in set(map(type, values))):
            values = [v.tolist() if isinstance(v, np.ndarray) and v.shape == shape else v for v in values]
        flat = values
        if width:
            same = set(map(type, values)) <= {list, tuple} and set(map(len, values)) == {width}
            flat = list(chain.from_iterable(values)) if same else [None]
        if all(map(_is_number_type, set(map(type, flat)))):  # NumPy alone would also accept text
            with suppress(OverflowError):
                array = np.fromiter(flat, np.float64, len(flat))
                if np.isfinite(array).all():
                    return array.reshape((-1, *shape))
        expected = f"be {width} finite numbers" if width else "be a finite number"
        wrong = next(number for number, value in enumerate(values) if not _is_finite_row(value, width))
        raise self.error(field, wrong, expected, values[wrong])

    def flags(self, field: str) -> np.ndarray:
        """A column of 0 and 1, or of booleans; rows without the field have False."""
        values = [row.get(field) for row in self.rows]
        if not set(map(type, values)) <= {int, bool, type(None)} or not set(values) <= {0, 1, None}:
            values = [
                value.item() if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 else value
                for value in map(_plain_array, values)
            ]
            for number, value in enumerate(values):
                if not isinstance(value, (int, float, type(None))) or value not in (0, 1, None):
                    raise self.error(field, number, "be 0 or 1", value)
        return np.array(list(map(bool, values)), dtype=bool)

    def ids(self, field: str, values: list[Any] | None = None) -> list[Any]:
        """A column (or ``values`` in its place) of ids, each an integer or text."""
        values = self.column(field) if values is None else values
        kinds = set(map(type, values))
        if not kinds <= {int, str}:
            wrong = next(number for number, value in enumerate(values) if type(value) not in (int, str))
            error = self.error(field, wrong, "be a whole number or text", values[wrong])
            if field == "img_id" and values[wrong] is None:
                hint = "add 'img_id' to meta_keys of PackDetInputs in the test pipeline and test again"
                error = ResultFileError(f"{error}: {hint}")
            raise error
        integers = values if kinds == {int} else [value for value in values if type(value) is int]
        if integers and (max(integers) >= DIFFERENT_HASHES or min(integers) <= -DIFFERENT_HASHES):
            # A dict of n integers with the same hash takes time of the order n squared.
            different = [value for value, _ in groupby(sorted(integers))]
            if max(Counter(map(hash, different)).values()) > MOST_EQUAL_HASHES:
                raise ResultFileError(
                    f"{self.source}: '{field}' holds numbers of more than 61 bits that collide (expected ids)"
                )
        return values

    def error(self, field: str, index: int, expected: str, value: Any) -> ResultFileError:
        """The error of a value, with the image of the row if it names one."""
        row = f"'{field}' of {self.noun} number {self.positions[index]}"
        image = self.rows[index].get("image_id")
        place = f" in image {shortened(image)}" if isinstance(image, (int, str)) else ""
        return ResultFileError(f"{self.source}: {row} must {expected} (found {shortened(value)}{place})")


def _plain_array(value: Any) -> Any:
    """Tensors as arrays; other values unchanged."""
    if is_tensor(value):
        with suppress(TypeError, RuntimeError):  # such as sparse tensors
            return tensor_to_array(value)
    return value


def _is_finite_row(value: Any, width: int) -> bool:
    if not width:
        return _is_number_type(type(value)) and abs(value) < 1e300  # also false for NaN
    return isinstance(value, (list, tuple)) and len(value) == width and all(_is_finite_row(v, 0) for v in value)


def check_unique(values: Sequence[Any], noun: str, source: str) -> None:
    """Refuse repeated ids."""
    if len(set(values)) < len(values):
        repeated = [value for value, number in Counter(values).items() if number > 1]
        raise ResultFileError(f"{source}: has {listing(noun, repeated)} more than once")
