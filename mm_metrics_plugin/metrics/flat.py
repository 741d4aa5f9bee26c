"""Reads fields whose shape may differ from sample to sample."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.summation import LARGEST
from mm_metrics_plugin.metrics.fields import SampleName, field_values, not_numbers, to_host
from mm_metrics_plugin.states.flat_batch import FlatBatch


def lean_shape(array: Any) -> List[int]:
    """The shape of a tensor or array without the axes of length one."""
    return [length for length in array.shape if length != 1]


def flat_fields(
    samples: Sequence[Mapping], fields: Sequence[str], name: SampleName, *, largest: float = LARGEST
) -> FlatBatch:
    """The values of several fields as float64, those of a sample at the same places of every column.

    Args:
        samples: The samples of one batch, at least one.
        fields: The fields to read. Values may be tensors on any device, arrays or numbers of any shape.
        name: Tells how to speak of a sample.
        largest: Values must be at most this in size.

    Raises:
        MetricInputError: A field is missing, holds something else than numbers, or differs in shape from the first.
    """
    read = [_arrays(samples, field, name) for field in fields]
    for field, values in zip(fields[1:], read[1:]):
        for index, (first, value) in enumerate(zip(read[0], values)):
            if lean_shape(first) != lean_shape(value):
                raise MetricInputError(
                    f"'{field}' of {name(index)} must have the shape of '{fields[0]}', {tuple(first.shape)} "
                    f"(found {tuple(value.shape)})"
                )
    lengths = np.array([math.prod(value.shape) for value in read[0]], dtype=np.int64)
    columns = to_host([_concatenate(values) for values in read])
    return FlatBatch(
        *(_checked(column, field, lengths, name, largest) for column, field in zip(columns, fields)), lengths=lengths
    )


def _checked(column: np.ndarray, field: str, lengths: np.ndarray, name: SampleName, largest: float) -> np.ndarray:
    column = column.astype(np.float64)
    good = np.abs(column) <= largest
    if not good.all():
        place = int(np.flatnonzero(~good)[0])
        row = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
        wanted = f"be at most {largest:g} in size" if np.isfinite(column[place]) else "be finite"
        raise MetricInputError(
            f"'{field}' of {name(row)} must {wanted} (found {column[place]} at index {place - lengths[:row].sum()})"
        )
    return column


def _arrays(samples: Sequence[Mapping], field: str, name: SampleName) -> List[Any]:
    """The field's values as tensors where they are, else as arrays."""
    values = field_values(samples, field, name)
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            values[index] = np.asarray(value)
            if values[index].dtype.kind not in "biuf":
                raise not_numbers(values[index], field, name(index))
    return values


def _concatenate(values: List[Any]) -> Any:
    if not any(isinstance(value, torch.Tensor) for value in values):
        return np.concatenate([value.reshape(-1) for value in values])
    return torch.cat([torch.as_tensor(value).detach().reshape(-1) for value in values])
