"""Reduce a state over all processes. torch and mmengine are imported inside the functions that need them."""

from __future__ import annotations

import os
import pickle
from typing import Any, NamedTuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.states.base import CONCAT, State


class _Layout(NamedTuple):
    """The settings that processes exchange before the arrays; ``arrays`` are dtypes and shapes by name, or None."""

    samples: int
    blank: State | None
    arrays: dict[str, tuple[str, tuple[int, ...]] | None]


def launched_processes() -> tuple[int, int]:
    """The rank of this process and the number of processes, as ``torchrun`` sets them.

    All four variables that processes need to find each other must be set; ``RANK`` alone may be left over in a shell.
    """
    variables = os.environ
    rank, size = variables.get("RANK", ""), variables.get("WORLD_SIZE", "")
    complete = rank.isdigit() and size.isdigit() and variables.get("MASTER_ADDR") and variables.get("MASTER_PORT")
    if not complete or not int(rank) < int(size):
        return 0, 1
    return int(rank), int(size)


def portable(error: BaseException) -> BaseException:
    """The error if it can be pickled, else a RuntimeError with its type and message."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # it cannot be sent
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def all_gather_or_raise(value: Any, error: BaseException | None = None) -> list[Any]:
    """Gather a value from every process, in rank order, or raise the error of one of them on all.

    Every process waits for all others, so none continues after another one failed.
    """
    from mmengine.dist import all_gather_object

    gathered = all_gather_object((value, None if error is None else portable(error)))
    if error is not None:
        raise error
    for _, remote in gathered:
        if remote is not None:
            raise remote
    return [remote_value for remote_value, _ in gathered]


def all_reduce_state(state: State | None, samples: int, error: BaseException | None) -> tuple[State | None, int]:
    """Merge the states of all processes; every process gets the merged state and the total number of samples.

    Only settings, shapes and dtypes are sent as objects. A process without samples takes the settings that are learned
    from samples from another process. Summed arrays are reduced by dtype, so that counts never become floats;
    concatenated ones are gathered in rank order. An ``error`` of one process is raised on all.
    """
    from mmengine.dist import get_world_size

    if get_world_size() == 1:
        if error is not None:
            raise error
        return state, samples
    arrays = {} if state is None else state.arrays()
    layout = _Layout(
        samples,
        None if state is None else state.empty(),
        {key: None if value is None else (value.dtype.str, value.shape) for key, value in arrays.items()},
    )
    layouts: list[_Layout] = all_gather_or_raise(layout, error)
    total = sum(other.samples for other in layouts)
    if state is None:
        return None, total
    if total and not samples:
        state = next(other.blank for other in layouts if other.samples and other.blank is not None)
        arrays = state.arrays()
    merged: dict[str, Any] = {}
    groups: dict[tuple[str, str], list[str]] = {}  # arrays to reduce, by reduction and dtype
    for key, reduction in state.reductions.items():
        # The state of a process without samples may have other settings, so its arrays are not used.
        entries = [other.arrays[key] if other.samples else None for other in layouts]
        if not any(entries):
            merged[key] = None
            continue
        dtype, shape = _common_layout(key, entries, skip=1 if reduction == CONCAT else 0)
        value = arrays[key]
        if reduction == CONCAT:
            lengths = [0 if entry is None else entry[1][0] for entry in entries]
            merged[key] = _gather(value, dtype, shape, lengths)
        else:
            if value is None:
                fill = 0 if reduction != "max" else (np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf)
                value = np.full(shape, fill)
            merged[key] = value.astype(dtype)  # a copy, because it is reduced in place
            groups.setdefault((reduction, dtype.str), []).append(key)
    for (reduction, _), keys in groups.items():
        _reduce(merged, keys, reduction)
    return state.with_arrays(merged), total


def _common_layout(key: str, entries: list[Any], skip: int) -> tuple[np.dtype, tuple[int, ...]]:
    """The dtype and the shape, without its first ``skip`` axes, of an array on all ranks that have it."""
    known = [(rank, *entry) for rank, entry in enumerate(entries) if entry is not None]
    first_rank, _, first_shape = known[0]
    for rank, _, shape in known:
        if shape[skip:] != first_shape[skip:]:
            name = key.rpartition(".")[2]  # without the name of the state in a group
            raise MetricInputError(
                f"'{name}' must have the same shape on all processes (found {first_shape[skip:]} on rank "
                f"{first_rank} and {shape[skip:]} on rank {rank})"
            )
    return np.result_type(*(np.dtype(dtype) for _, dtype, _ in known)), first_shape[skip:]


def _gather(rows: np.ndarray | None, dtype: np.dtype, row_shape: tuple[int, ...], lengths: list[int]) -> np.ndarray:
    """The rows of all ranks in rank order. They are sent as bytes, padded to the longest."""
    import torch
    from mmengine.dist import all_gather

    padded = np.zeros((max(lengths), *row_shape), dtype=dtype)
    if rows is not None:
        padded[: len(rows)] = rows
    if not padded.size:
        return padded
    gathered = all_gather(torch.from_numpy(padded.reshape(-1).view(np.uint8)))
    return np.concatenate(
        [tensor.numpy().view(dtype).reshape(padded.shape)[:length] for tensor, length in zip(gathered, lengths)]
    )


def _reduce(arrays: dict[str, Any], keys: list[str], reduction: str) -> None:
    """Replaces the arrays (all of one dtype) by their sum or maximum over the ranks."""
    import torch
    from mmengine.dist import all_reduce

    flat = torch.from_numpy(np.concatenate([arrays[key].reshape(-1) for key in keys]))
    all_reduce(flat, op=reduction)
    ends = np.cumsum([arrays[key].size for key in keys])
    for key, values in zip(keys, np.split(flat.numpy(), ends[:-1])):
        arrays[key] = values.reshape(arrays[key].shape)
