"""From data samples to arrays: one stack a field, one copy from the device a batch."""

from __future__ import annotations

from functools import reduce
from typing import Any, Callable, List, Mapping, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError

SampleName = Callable[[int], str]


def field_values(samples: Sequence[Mapping], field: str, name: SampleName) -> List[Any]:
    """The value of a field in every sample; ``'a.b'`` looks for ``b`` inside ``a``.

    Raises:
        MetricInputError: A sample has no such field.
    """
    values: List[Any] = list(samples)
    for part in field.split("."):
        for index, value in enumerate(values):
            try:
                values[index] = value[part] if isinstance(value, dict) else getattr(value, part)
            except (KeyError, AttributeError):
                found = ", ".join(sorted(str(key) for key in value)) if isinstance(value, Mapping) else type(value)
                raise MetricInputError(f"{name(index)} must have a field '{field}' (found {found})") from None
    return values


def stack_fields(samples: Sequence[Mapping], fields: Sequence[str], name: SampleName) -> List[np.ndarray]:
    """One array a field, its first axis the samples.

    Args:
        samples: The samples of one batch, at least one.
        fields: The fields to read. Values may be tensors on any device, arrays or numbers.
        name: Tells how to speak of a sample.

    Raises:
        MetricInputError: A field is missing, or its shape differs between samples.
    """
    return to_host([stack_values(field_values(samples, field, name), field, name) for field in fields])


def stack_values(values: List[Any], field: str, name: SampleName) -> Any:
    """One tensor or array of the field's values, where they are; :func:`to_host` fetches it with others.

    Raises:
        MetricInputError: The shape differs between samples, or a value holds something else than numbers.
    """
    values = [value if isinstance(value, torch.Tensor) else np.asarray(value) for value in values]
    for index, value in enumerate(values):
        if isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":
            raise not_numbers(value, field, name(index))
    if any(isinstance(value, torch.Tensor) for value in values):
        values = [torch.as_tensor(value) for value in values]
    shape = values[0].shape
    odd = next((index for index, value in enumerate(values) if value.shape != shape), None)
    if odd is not None:
        raise MetricInputError(
            f"'{field}' of {name(odd)} must have the shape of the samples before it, {tuple(shape)} "
            f"(found {tuple(values[odd].shape)})"
        )
    if isinstance(values[0], np.ndarray):
        return np.stack(values)
    dtypes = {value.dtype for value in values}
    if len(dtypes) > 1:  # the widest holds them all
        widest = reduce(torch.promote_types, dtypes)
        values = [value.to(widest) for value in values]
    return torch.stack(values).detach()


def not_numbers(value: np.ndarray, field: str, name: str) -> MetricInputError:
    """What to raise for a value of objects or text. Whole numbers that fit no dtype are objects too."""
    return MetricInputError(f"'{field}' of {name} must hold numbers of at most 64 bits (found {value.tolist()!r:.60})")


def to_host(values: Sequence[Any]) -> List[np.ndarray]:
    """NumPy arrays of the values, tensors that lie on a device fetched in a single copy.

    bfloat16, which NumPy does not have, becomes float32.
    """
    values = [value.float() if getattr(value, "dtype", None) is torch.bfloat16 else value for value in values]
    away = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor) and value.device.type != "cpu"]
    if len(away) > 1:
        # Wide elements first, so that every array stays aligned in the bytes that are fetched together.
        away.sort(key=lambda i: -values[i].element_size())
        packed = torch.cat([values[i].contiguous().view(-1).view(torch.uint8) for i in away]).cpu()
        start = 0
        for i in away:
            stop = start + values[i].numel() * values[i].element_size()
            values[i] = packed[start:stop].view(values[i].dtype).view(values[i].shape)
            start = stop
    return [value.cpu().numpy() if isinstance(value, torch.Tensor) else value for value in values]


def first_bad(good: np.ndarray) -> int:
    """The row of the first value that is not good."""
    return int(np.flatnonzero(~good.reshape(len(good), -1).all(axis=1))[0])


def check_finite(values: np.ndarray, field: str, name: SampleName) -> None:
    """Raises MetricInputError for the first sample with a NaN or an infinity."""
    finite = np.isfinite(values)
    if not finite.all():
        row = first_bad(finite)
        flat = values[row].reshape(-1)
        index = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise MetricInputError(f"'{field}' of {name(row)} must be finite (found {flat[index]} at index {index})")


def read_labels(values: np.ndarray, field: str, num_classes: int, name: SampleName) -> np.ndarray:
    """One class index a sample, as int64.

    Raises:
        MetricInputError: A sample has several labels, one that is no whole number or one outside the classes.
    """
    flat = values.reshape(len(values), -1)
    if flat.shape[1] != 1:
        raise MetricInputError(f"'{field}' of {name(0)} must be one label (found {flat.shape[1]} values)")
    labels = flat[:, 0]
    good = (labels >= 0) & (labels < num_classes)
    if labels.dtype.kind == "f":
        good &= labels == np.floor(labels)
    if not good.all():
        row = first_bad(good)
        raise MetricInputError(
            f"'{field}' of {name(row)} must be a class index from 0 to {num_classes - 1} (found {labels[row]})"
        )
    return labels.astype(np.int64)
