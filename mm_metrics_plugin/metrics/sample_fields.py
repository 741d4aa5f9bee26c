"""Convert the fields of data samples to arrays, with one copy from the device per batch."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._exact_sum import MAX_SUMMAND, split_values
from mm_metrics_plugin.functional._inputs import InvalidValue, exact_arrays
from mm_metrics_plugin.functional.thresholding import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, precision_of
from mm_metrics_plugin.states.base import FlatBatch

Sample = Mapping[str, Any]
Samples = Sequence[Sample]
SampleName = Callable[[int], str]  # from the index of a sample of the batch to its name in messages
_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)  # have their own message
_PRECISIONS = {torch.bfloat16: BFLOAT16, torch.float16: FLOAT16, torch.float32: FLOAT32}
# How a dataset gets its ground truth.
_REMEDIES = {
    "gt_instances": ": add dict(type='LoadAnnotations', with_bbox=True) after Resize in the test pipeline",
    "gt_sem_seg": ": add dict(type='LoadAnnotations') after Resize in the test pipeline (in mmdet, with_seg=True)",
    "gt_label": ": the test dataset must have labels",
}


def check_samples(samples: Any, name: Callable[[Any, int], str]) -> None:
    """Raises MetricInputError unless samples are a list of dicts (or data elements), one per sample."""
    remedy = "give a list with one dict per sample"
    if isinstance(samples, Mapping):
        keys = ", ".join(repr(str(key)) for key in list(samples)[:5])
        raise MetricInputError(f"data_samples must be a list (found one dict of a whole batch with {keys}): {remedy}")
    if not isinstance(samples, (Sequence, torch.Tensor, np.ndarray)) or isinstance(samples, str):
        raise MetricInputError(f"data_samples must be a list (found a {type(samples).__name__}): {remedy}")
    for index, sample in enumerate(samples):
        if not isinstance(sample, Mapping) and not hasattr(sample, "get"):
            value = f"the text {sample!r:.40}" if isinstance(sample, str) else f"a {type(sample).__name__}"
            # mmengine's Evaluator takes the keys of a dict for samples.
            cause = " (a dict of a whole batch gives its keys)" if isinstance(sample, str) else ""
            raise MetricInputError(f"{name({}, index)} must be a dict with fields (found {value}): {remedy}{cause}")


def field_values(samples: Samples, field: str, name: SampleName) -> list[Any]:
    """The value of a field in every sample, checked to exist; ``'a.b'`` is ``b`` inside ``a``."""
    values: list[Any] = list(samples)
    for key in field.split("."):
        for index, value in enumerate(values):
            try:
                values[index] = value[key] if isinstance(value, dict) else getattr(value, key)
            except (KeyError, AttributeError):
                keys = ", ".join(sorted(map(str, value))) if isinstance(value, Mapping) else f"a {type(value).__name__}"
                raise MetricInputError(
                    f"{name(index)} must have a field '{field}' (found {keys or 'nothing'})"
                    f"{_REMEDIES.get(field.split('.')[0], '')}"
                ) from None
    return values


def stack_fields(samples: Samples, fields: Sequence[str], name: SampleName) -> list[np.ndarray]:
    """One array per field, its first axis the samples.

    Args:
        samples: The samples of one batch, at least one.
        fields: Their values may be tensors on any device, arrays or numbers.
        name: The names of the samples in messages.

    Raises:
        MetricInputError: A field is missing, or its shape differs between samples.
    """
    return to_host([stack_values(field_values(samples, field, name), field, name) for field in fields])


def stack_values(values: list[Any], field: str, name: SampleName) -> Any:
    """One tensor or array of the field's values, on their device; different dtypes are converted without rounding."""
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
    return np.stack(same_dtype(to_host(values), field, name))


def real_values(values: Sequence[Any], field: str, name: SampleName) -> list[Any]:
    """The values as tensors or arrays of real numbers, checked."""
    return [real_value(value, field, name, index) for index, value in enumerate(values)]


def real_value(value: Any, field: str, name: SampleName, index: int) -> Any:
    """The value of one sample as a tensor or an array of real numbers, checked."""
    value = plain_value(value, field, name, index)
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise MetricInputError(f"'{field}' of {name(index)} must hold real numbers (found {value.dtype})")
    elif value.dtype.kind not in "biuf":  # objects or text; whole numbers that fit no dtype are objects too
        raise MetricInputError(
            f"'{field}' of {name(index)} must hold numbers of at most 64 bits (found {value.tolist()!r:.60})"
        )
    return value


def plain_value(value: Any, field: str, name: SampleName, index: int) -> Any:
    """The value of one sample as a dense tensor of plain numbers or as an array, checked."""
    if isinstance(value, torch.Tensor):
        is_dense = not value.is_nested and value.layout is torch.strided and not value.is_meta and not value.is_neg()
        if not is_dense or value.dtype not in (*_INTEGERS, *_FLOATS, *_COMPLEX):
            raise MetricInputError(
                f"'{field}' of {name(index)} must be a dense tensor of plain numbers (found {value.dtype}, "
                f"{value.layout}, on {value.device}): convert it, for example to dense float32 or int64"
            )
        return value
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise MetricInputError(
            f"'{field}' of {name(index)} must be an array without a mask (found {int(value.mask.sum())} masked values)"
        )
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, and lists of tensors on a device
        raise MetricInputError(
            f"'{field}' of {name(index)} must be a tensor, an array or a number (found a {type(value).__name__} that "
            f"NumPy cannot convert: {str(error).splitlines()[0]:.80})"
        ) from None


def same_kind(values: Sequence[Any]) -> bool:
    """Whether all values are tensors of one dtype and device, or all are arrays of one dtype."""
    first = values[0]
    if not isinstance(first, torch.Tensor):
        return all(isinstance(value, np.ndarray) and value.dtype == first.dtype for value in values)
    device = first.device
    return all(
        isinstance(value, torch.Tensor) and value.dtype is first.dtype and value.device == device for value in values
    )


def concatenate_values(values: Sequence[Any]) -> Any:
    """One tensor or array of values of the same kind."""
    if isinstance(values[0], torch.Tensor):
        return torch.cat([value.detach() for value in values])
    return np.concatenate(values)


def same_dtype(arrays: Sequence[np.ndarray], field: str, name: SampleName) -> list[np.ndarray]:
    """The arrays of the samples in their common dtype; no whole number is rounded."""
    try:
        return exact_arrays(arrays)
    except InvalidValue as error:
        raise error.named(field, name) from None


def score_precision(value: Any) -> int:
    """The code of the precision of scores."""
    if isinstance(value, torch.Tensor):
        return _PRECISIONS.get(value.dtype, FLOAT64)
    return precision_of(np.asarray(value).dtype)


def to_host(values: Sequence[Any]) -> list[np.ndarray]:
    """NumPy arrays of the values in native byte order, tensors on a device fetched in a single copy.

    bfloat16, which NumPy does not have, becomes float32.
    """
    values = [_readable(value) for value in values]
    remote = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor) and value.device.type != "cpu"]
    if len(remote) > 1:
        # Wide elements first, so that every array is aligned in the bytes that are fetched together.
        remote.sort(key=lambda i: -values[i].element_size())
        packed = torch.cat([_as_bytes(values[i]) for i in remote]).cpu()
        start = 0
        for i in remote:
            stop = start + values[i].numel() * values[i].element_size()
            values[i] = packed[start:stop].view(values[i].dtype).view(values[i].shape)
            start = stop
    return [value.cpu().numpy() if isinstance(value, torch.Tensor) else value for value in values]


def _as_bytes(value: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor. One with at most one element may have any stride, which ``view`` refuses."""
    return value.contiguous().as_strided((value.numel(),), (1,)).view(torch.uint8)


def _readable(value: Any) -> Any:
    """A tensor that NumPy can take, or an array in native byte order."""
    if not isinstance(value, torch.Tensor):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    value = value.detach()
    return value.float() if value.dtype is torch.bfloat16 else value


def check_finite(values: np.ndarray, field: str, name: SampleName) -> None:
    """Raises MetricInputError for the first sample with a NaN or an infinity."""
    check_values(values, np.isfinite(values), field, name, "be finite", with_index=True)


def check_values(
    values: np.ndarray, valid: np.ndarray, field: str, name: SampleName, expected: str, *, with_index: bool = False
) -> None:
    """Raises MetricInputError for the first value that is not valid; the first axis is the samples."""
    if not valid.all():
        row = int(np.flatnonzero(~valid.reshape(len(valid), -1).all(axis=1))[0])
        index = int(np.flatnonzero(~valid[row].reshape(-1))[0])
        found = f"{values[row].reshape(-1)[index]}" + (f" at index {index}" if with_index else "")
        raise MetricInputError(f"'{field}' of {name(row)} must {expected} (found {found})")


def read_labels(values: np.ndarray, field: str, num_classes: int, name: SampleName) -> np.ndarray:
    """One class index per sample, checked, as int64."""
    flat = values.reshape(len(values), -1)
    if flat.shape[1] != 1:
        raise MetricInputError(f"'{field}' of {name(0)} must be one label (found {flat.shape[1]} values)")
    labels = flat[:, 0]
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    valid = (labels >= 0) & (labels < num_classes) & (labels == np.floor(labels))
    check_values(labels, valid, field, name, f"be a class index from 0 to {num_classes - 1}")
    return labels.astype(np.int64)


# --- fields whose shape differs between samples -----------------------------------------------------------------------


def squeezed_shape(array: Any) -> list[int]:
    """The shape of a tensor or array without the axes of length one."""
    return [length for length in array.shape if length != 1]


def flat_fields(
    samples: Samples,
    fields: Sequence[str],
    name: SampleName,
    *,
    largest: float = MAX_SUMMAND,
    keep_rest: bool = False,
) -> FlatBatch:
    """The values of several fields of the same shape as flat float64 columns, at most ``largest`` in size.

    With ``keep_rest`` there is a second column per field: what float64 rounds off its values. Without it, whole numbers
    that float64 does not hold exactly are refused.
    """
    read = [real_values(field_values(samples, field, name), field, name) for field in fields]
    for field, values in zip(fields[1:], read[1:]):
        for index, (first, value) in enumerate(zip(read[0], values)):
            if squeezed_shape(first) != squeezed_shape(value):
                raise MetricInputError(
                    f"'{field}' of {name(index)} must have the shape of '{fields[0]}', {tuple(first.shape)} "
                    f"(found {tuple(value.shape)})"
                )
    lengths = np.array([math.prod(value.shape) for value in read[0]], dtype=np.int64)

    def refusal(field: str, position: int, expected: str, value: Any) -> MetricInputError:
        row = int(np.searchsorted(np.cumsum(lengths), position, side="right"))
        index = position - lengths[:row].sum()
        return MetricInputError(f"'{field}' of {name(row)} must {expected} (found {value} at index {index})")

    flat = [[value.reshape(-1) for value in values] for values in read]
    pieces = [[concatenate_values(values)] if same_kind(values) else values for values in flat]
    arrays = iter(to_host([piece for field_pieces in pieces for piece in field_pieces]))
    columns: list[np.ndarray] = []
    for field, field_pieces in zip(fields, pieces):
        host = [next(arrays) for _ in field_pieces]
        column, rest = (np.concatenate(halves) for halves in zip(*map(split_values, host)))
        good = np.abs(column) <= largest
        if not good.all():
            position = int(np.flatnonzero(~good)[0])
            expected = f"be at most {largest:g} in size" if np.isfinite(column[position]) else "be finite"
            raise refusal(field, position, expected, column[position])
        columns.append(column)
        if keep_rest:
            columns.append(rest)
            continue
        whole = np.repeat([array.dtype.kind in "iu" for array in host], [array.size for array in host])
        inexact = np.flatnonzero(whole & (rest != 0))
        if len(inexact):
            position = int(inexact[0])
            expected = "hold whole numbers that float64 holds exactly; subtract a common offset first"
            raise refusal(field, position, expected, int(column[position]) + int(rest[position]))
    return FlatBatch(*columns, lengths=lengths)
