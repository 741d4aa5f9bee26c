"""From data samples to arrays: one stack a field, one copy from the device a batch."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.score_precision import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, precision_of
from mm_metrics_plugin.functional.summation import split_values

SampleName = Callable[[int], str]
_PRECISIONS = {torch.bfloat16: BFLOAT16, torch.float16: FLOAT16, torch.float32: FLOAT32}


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

    Values of different dtypes are converted one by one, without rounding, so that none depends on its neighbors.

    Raises:
        MetricInputError: The shape differs between samples, a value holds something else than real numbers, or no
            dtype holds the numbers of all samples.
    """
    values = real_values(values, field, name)
    shape = tuple(values[0].shape)
    odd = next((index for index, value in enumerate(values) if tuple(value.shape) != shape), None)
    if odd is not None:
        raise MetricInputError(
            f"'{field}' of {name(odd)} must have the shape of the samples before it, {shape} "
            f"(found {tuple(values[odd].shape)})"
        )
    if same_kind(values):
        return torch.stack(values).detach() if isinstance(values[0], torch.Tensor) else np.stack(values)
    return np.stack(exact_arrays(to_host(values), field, name))


def real_values(values: Sequence[Any], field: str, name: SampleName) -> List[Any]:
    """The values as tensors where they are, else as arrays.

    Raises:
        MetricInputError: A value holds something else than real numbers.
    """
    return [real_value(value, field, name, index) for index, value in enumerate(values)]


def real_value(value: Any, field: str, name: SampleName, index: int) -> Any:
    """The value of one sample as a tensor or an array of real numbers; see :func:`real_values`."""
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise MetricInputError(f"'{field}' of {name(index)} must hold real numbers (found {value.dtype})")
        return value
    value = np.asarray(value)
    if value.dtype.kind not in "biuf":
        raise not_numbers(value, field, name(index))
    return value


def same_kind(values: Sequence[Any]) -> bool:
    """Whether all values are tensors of one dtype and device, or all are arrays of one dtype."""
    first = values[0]
    if not isinstance(first, torch.Tensor):
        return all(isinstance(value, np.ndarray) and value.dtype == first.dtype for value in values)
    device = first.device
    return all(
        isinstance(value, torch.Tensor) and value.dtype is first.dtype and value.device == device for value in values
    )


def exact_arrays(arrays: Sequence[np.ndarray], field: str, name: SampleName) -> List[np.ndarray]:
    """The arrays, one per sample, in the one dtype that holds them all; arrays without values have no say in it.

    Raises:
        MetricInputError: A whole number would have to be rounded because other samples hold floats.
    """
    dtypes = {array.dtype for array in arrays if array.size} or {array.dtype for array in arrays}
    dtype = np.result_type(*dtypes)
    for index, array in enumerate(arrays):
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and dtype.kind == "f":
            rest = split_values(array)[1]
            if rest.any():
                raise MetricInputError(
                    f"'{field}' of {name(index)} must hold numbers that {dtype} holds exactly, because other samples "
                    f"of the batch are of another dtype (found {array[rest != 0][0]}); use one dtype for all samples"
                )
    return [array.astype(dtype, copy=False) for array in arrays]


def score_precision(value: Any) -> int:
    """The code of the precision in which scores are given."""
    if isinstance(value, torch.Tensor):
        return _PRECISIONS.get(value.dtype, FLOAT64)
    return precision_of(np.asarray(value).dtype)


def not_numbers(value: np.ndarray, field: str, name: str) -> MetricInputError:
    """What to raise for a value of objects or text. Whole numbers that fit no dtype are objects too."""
    return MetricInputError(f"'{field}' of {name} must hold numbers of at most 64 bits (found {value.tolist()!r:.60})")


def to_host(values: Sequence[Any]) -> List[np.ndarray]:
    """NumPy arrays of the values in the machine's byte order, tensors on a device fetched in a single copy.

    bfloat16, which NumPy does not have, becomes float32.
    """
    values = [_plain(value) for value in values]
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


def _plain(value: Any) -> Any:
    """A tensor that NumPy can take, or an array in the machine's byte order."""
    if not isinstance(value, torch.Tensor):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    value = value.detach()
    if value.is_neg() or value.is_conj():  # the memory holds other numbers than the tensor
        value = value.resolve_conj().resolve_neg()
    return value.float() if value.dtype is torch.bfloat16 else value


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
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    good = (labels >= 0) & (labels < num_classes)
    if labels.dtype.kind == "f":
        good &= labels == np.floor(labels)
    if not good.all():
        row = first_bad(good)
        raise MetricInputError(
            f"'{field}' of {name(row)} must be a class index from 0 to {num_classes - 1} (found {labels[row]})"
        )
    return labels.astype(np.int64)
