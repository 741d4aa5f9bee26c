"""The instances of images as columns: one row per instance, and the image of each row."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import shortened
from mm_metrics_plugin.functional._inputs import InvalidValue, as_array, exact_arrays, score_precision

ToArray = Callable[[Any], np.ndarray]
_FLAGS = ("crowd", "ignore")


class Instances(NamedTuple):
    """The instances of several images."""

    image: np.ndarray  # (N,) index of the image
    geometry: Any
    columns: dict[str, np.ndarray]  # by field; with scores also their precision codes


def flatten_instances(
    images: Sequence[Mapping[str, Any]],
    shapes: str,
    fields: Sequence[str],
    geometry: Callable[[Sequence[Any], ToArray], tuple[Any, list[int]]],
    *,
    name: Callable[[int], str] = "image {}".format,
    prefix: str = "",
    instead: Mapping[str, str] = MappingProxyType({}),
    to_array: ToArray = lambda value: as_array(value, "instances"),
) -> Instances:
    """The instances of all images.

    Args:
        images: The fields of each image.
        shapes: The field with the shapes, which tells the number of instances.
        fields: The fields with one number per instance.
        geometry: The ``from_images`` of the geometry.
        name: The name of an image in messages.
        prefix: What precedes the fields in messages.
        instead: Other fields that replace some of ``fields`` in the images that have them.
        to_array: Converts a value of a field; its exceptions mean that the value is no array of numbers.

    Raises:
        MetricInputError: A field is missing, or is not an array of numbers with one row per instance.

    Example:
        >>> from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
        >>> images = [{"boxes": [[0, 0, 2, 2]], "labels": [3]}, {"boxes": [], "labels": []}]
        >>> instances = flatten_instances(images, "boxes", ["labels"], Boxes.from_images)
        >>> instances.image.tolist(), instances.columns["labels"].tolist()
        ([0], [3])
    """
    columns: dict[str, np.ndarray] = {}
    field = shapes
    try:
        made, lengths = geometry(_values(images, field), to_array)
        counts = np.array(lengths, dtype=np.int64)
        for field in fields:
            values = _values(images, field, instead.get(field, field))
            arrays = rows_of_images(values, (), to_array, lengths, "biuf" if field in _FLAGS else "iuf")
            if field == "scores":
                codes = np.array([score_precision(array) for array in arrays], dtype=np.uint8)
                columns["precision"] = np.repeat(codes, counts)
            columns[field] = joined_rows(arrays)
    except InvalidValue as error:
        other = instead.get(field, field)
        raise error.named(f"{prefix}{other if other in images[error.index] else field}", name) from None
    return Instances(np.repeat(np.arange(len(images)), counts), made, columns)


def _values(images: Sequence[Mapping[str, Any]], field: str, instead: str = "") -> list[Any]:
    """A field of every image, or the one that replaces it."""
    values = [image.get(instead, image.get(field)) for image in images]
    for index, value in enumerate(values):
        if value is None:
            raise InvalidValue(index, "be an array", "nothing")
    return values


def rows_of_images(
    values: Sequence[Any],
    shape: tuple[int, ...],
    to_array: ToArray,
    lengths: Sequence[int] | None = None,
    kinds: str = "iuf",
) -> list[np.ndarray]:
    """The values of each image as an array with one row of ``shape`` per instance.

    Args:
        values: One per image.
        shape: That of the value of one instance.
        to_array: Converts a value.
        lengths: Number of instances of each image; by default that of the value itself.
        kinds: The kinds of dtypes that are allowed. Arrays without rows may have any dtype and shape.
    """
    arrays = []
    for index, value in enumerate(values):
        array = value
        if type(value) is not np.ndarray or not value.dtype.isnative:  # the usual case needs no conversion
            try:
                array = to_array(value)
            except (TypeError, ValueError, RuntimeError, OverflowError):
                raise InvalidValue(index, "be an array of numbers", shortened(value)) from None
        rows = lengths[index] if lengths is not None else array.shape[0] if array.ndim else 1
        if not rows and not array.size:
            arrays.append(array.reshape(0, *shape))
            continue
        if array.shape != (rows, *shape):
            raise InvalidValue(index, f"have shape {(rows, *shape)}", array.shape)
        if array.dtype.kind not in kinds:
            raise InvalidValue(index, "be numbers", array.dtype)
        arrays.append(array)
    return arrays


def joined_rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all images; different dtypes are converted without rounding."""
    filled = [index for index, array in enumerate(arrays) if len(array)]
    parts = [np.asarray(arrays[index]) for index in filled] or [np.asarray(array) for array in arrays[:1]]
    if len({part.dtype for part in parts}) > 1:
        try:
            parts = _as_int64(parts) or exact_arrays(parts)
        except InvalidValue as error:
            raise InvalidValue(filled[error.index], error.expected, error.found) from None
    return np.concatenate(parts) if parts else np.empty(0)


def _as_int64(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Whole numbers as int64, at most its largest; no arrays if some hold other numbers."""
    if any(array.dtype.kind not in "iu" for array in arrays):
        return []
    return [np.minimum(array, np.iinfo(np.int64).max).astype(np.int64) for array in arrays]
