"""Reads fields whose shape may differ from sample to sample."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, Sequence

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._exact_sum import LARGEST, split_values
from mm_metrics_plugin.metrics.sample_fields import SampleName, field_values, real_values, same_kind, to_host
from mm_metrics_plugin.states.flat_batch import FlatBatch


def lean_shape(array: Any) -> List[int]:
    """The shape of a tensor or array without the axes of length one."""
    return [length for length in array.shape if length != 1]


def flat_fields(
    samples: Sequence[Mapping],
    fields: Sequence[str],
    name: SampleName,
    *,
    largest: float = LARGEST,
    keep_rest: bool = False,
) -> FlatBatch:
    """The values of several fields as float64, those of a sample at the same places of every column.

    Every sample's values are converted by themselves, so that none depends on the dtype of another sample.

    Args:
        samples: The samples of one batch, at least one.
        fields: The fields to read. Values may be tensors on any device, arrays or numbers of any shape.
        name: Tells how to speak of a sample.
        largest: Values must be at most this in size.
        keep_rest: Put a second column behind that of each field: what float64 rounds off its values. Without it, whole
            numbers that float64 does not hold exactly are refused.

    Raises:
        MetricInputError: A field is missing, holds something else than real numbers, or differs in shape from the
            first; a value is too large.
    """
    read = [real_values(field_values(samples, field, name), field, name) for field in fields]
    for field, values in zip(fields[1:], read[1:]):
        for index, (first, value) in enumerate(zip(read[0], values)):
            if lean_shape(first) != lean_shape(value):
                raise MetricInputError(
                    f"'{field}' of {name(index)} must have the shape of '{fields[0]}', {tuple(first.shape)} "
                    f"(found {tuple(value.shape)})"
                )
    lengths = np.array([math.prod(value.shape) for value in read[0]], dtype=np.int64)
    pieces = [_pieces(values) for values in read]
    arrays = iter(to_host([piece for parts in pieces for piece in parts]))
    columns: List[np.ndarray] = []
    for field, parts in zip(fields, pieces):
        host = [next(arrays) for _ in parts]
        split = [split_values(array) for array in host]
        whole = np.repeat([array.dtype.kind in "iu" for array in host], [array.size for array in host])
        column, rest = (np.concatenate(halves) for halves in zip(*split))
        _check_size(column, field, lengths, name, largest)
        if keep_rest:
            columns += [column, rest]
            continue
        columns.append(column)
        inexact = whole & (rest != 0)
        if inexact.any():
            place = int(np.flatnonzero(inexact)[0])
            wanted = "hold whole numbers that float64 holds exactly; subtract a common offset first"
            raise _refusal(place, field, lengths, name, wanted, int(column[place]) + int(rest[place]))
    return FlatBatch(*columns, lengths=lengths)


def _check_size(column: np.ndarray, field: str, lengths: np.ndarray, name: SampleName, largest: float) -> None:
    good = np.abs(column) <= largest
    if not good.all():
        place = int(np.flatnonzero(~good)[0])
        wanted = f"be at most {largest:g} in size" if np.isfinite(column[place]) else "be finite"
        raise _refusal(place, field, lengths, name, wanted, column[place])


def _refusal(
    place: int, field: str, lengths: np.ndarray, name: SampleName, wanted: str, found: Any
) -> MetricInputError:
    """What to raise for the value at a place of a column."""
    row = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
    return MetricInputError(
        f"'{field}' of {name(row)} must {wanted} (found {found} at index {place - lengths[:row].sum()})"
    )


def _pieces(values: List[Any]) -> List[Any]:
    """The values flattened: all in one piece where they are of one dtype, else one piece per sample."""
    if not same_kind(values):
        return [value.reshape(-1) for value in values]
    if isinstance(values[0], torch.Tensor):
        return [torch.cat([value.detach().reshape(-1) for value in values])]
    return [np.concatenate([value.reshape(-1) for value in values])]
