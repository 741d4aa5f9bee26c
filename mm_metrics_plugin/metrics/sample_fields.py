"""From data samples to arrays: one stack a field, one copy from the device a batch."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._exact_sum import split_values
from mm_metrics_plugin.functional._score_precision import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    precision_of,
)

SampleName = Callable[[int], str]
# What NumPy has too, bfloat16, and complex numbers, which have a message of their own.
_DTYPES = frozenset(
    getattr(torch, kind)
    for kind in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64"),
        *("complex32", "complex64", "complex128"),
    )
)
# By name: torch before 2.3 has none of them. uint1 to uint7 are no dtypes that torch computes with.
_CONVERTED = ("torch.float8", "torch.uint16", "torch.uint32", "torch.uint64")
# What a data set has to do so that samples have their ground truth.
_REMEDIES = {
    "gt_instances": ": add dict(type='LoadAnnotations', with_bbox=True) after Resize in the test pipeline",
    "gt_sem_seg": ": add dict(type='LoadAnnotations') after Resize in the test pipeline (in mmdet, with_seg=True)",
    "gt_label": ": the test dataset must have labels",
}
_PRECISIONS = {torch.bfloat16: BFLOAT16, torch.float16: FLOAT16, torch.float32: FLOAT32}


def check_samples(samples: Any, name: Callable[[Any, int], str]) -> None:
    """Raises MetricInputError unless samples come as a list of dicts (or data elements), one per sample."""
    remedy = "give a list with one dict per sample"
    if isinstance(samples, Mapping):
        keys = ", ".join(repr(str(key)) for key in list(samples)[:5])
        raise MetricInputError(f"data_samples must be a list (found one dict of a whole batch with {keys}): {remedy}")
    if not isinstance(samples, (Sequence, torch.Tensor, np.ndarray)) or isinstance(samples, str):
        raise MetricInputError(f"data_samples must be a list (found a {type(samples).__name__}): {remedy}")
    for index, sample in enumerate(samples):
        if not isinstance(sample, Mapping) and not hasattr(sample, "get"):
            found = f"the text {sample!r:.40}" if isinstance(sample, str) else f"a {type(sample).__name__}"
            # mmengine's Evaluator takes the keys of a dict for samples.
            cause = " (a dict of a whole batch gives its keys)" if isinstance(sample, str) else ""
            raise MetricInputError(f"{name({}, index)} must be a dict with fields (found {found}): {remedy}{cause}")


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
                found = (
                    ", ".join(sorted(map(str, value))) if isinstance(value, Mapping) else f"a {type(value).__name__}"
                )
                raise MetricInputError(
                    f"{name(index)} must have a field '{field}' (found {found or 'nothing'})"
                    f"{_REMEDIES.get(field.split('.')[0], '')}"
                ) from None
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
    value = plain_value(value, field, name, index)
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise MetricInputError(f"'{field}' of {name(index)} must hold real numbers (found {value.dtype})")
        return value
    if value.dtype.kind not in "biuf":
        raise not_numbers(value, field, name(index))
    return value


def plain_value(value: Any, field: str, name: SampleName, index: int) -> Any:
    """The value of one sample as a dense tensor of a dtype that torch computes with, or as an array.

    float8 becomes float32, and unsigned integers become int64 (of 64 bits: an array), which changes no number.

    Raises:
        MetricInputError: It holds no values, or in a form that depends on more than its dtype says.
    """
    if isinstance(value, torch.Tensor):
        refused = _refused_form(value)
        if refused is not None:
            wanted, found, remedy = refused
            raise MetricInputError(f"'{field}' of {name(index)} must be {wanted} (found {found}): {remedy}")
        if value.dtype in _DTYPES:
            return value
        kind = str(value.dtype)
        if kind.startswith("torch.float8"):
            return value.detach().float()
        return value.cpu().numpy() if kind == "torch.uint64" else value.to(torch.int64)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise MetricInputError(
            f"'{field}' of {name(index)} must be an array without a mask (found {int(value.mask.sum())} masked "
            "values): leave out what is masked, or call .filled(value)"
        )
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, and lists of tensors on a device
        raise MetricInputError(
            f"'{field}' of {name(index)} must be a tensor, an array or a number (found a {type(value).__name__} that "
            f"NumPy cannot convert: {str(error).splitlines()[0]:.80})"
        ) from None


def _refused_form(tensor: torch.Tensor) -> Optional[Tuple[str, str, str]]:
    """What was expected instead of this tensor, what was found and what to do; None for a tensor that can be read."""
    if tensor.is_nested:
        return "a dense tensor", "a nested tensor", "give every sample a tensor of its own, as nested.unbind() does"
    if tensor.layout is not torch.strided:
        return "a dense tensor", f"layout {tensor.layout}", "call .to_dense() before the metric is given the sample"
    if tensor.is_meta:
        shape = tuple(tensor.shape)
        return "a tensor with values", f"shape {shape} on the meta device", "load the model on a real device"
    if tensor.is_quantized:
        return (
            "a tensor of plain numbers",
            f"{tensor.dtype}",
            "call .dequantize() before the metric is given the sample",
        )
    if tensor.dtype not in _DTYPES and not str(tensor.dtype).startswith(_CONVERTED):
        return "a tensor of plain numbers", f"{tensor.dtype}", "convert it to float32 or int64"
    return None


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
        wide = FLOAT32 if str(value.dtype).startswith("torch.float8") else FLOAT64  # float8 is read as float32
        return _PRECISIONS.get(value.dtype, wide)
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
