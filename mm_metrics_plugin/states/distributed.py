"""Reduce a state over all processes. torch and mmengine are imported inside the functions that need them."""

from __future__ import annotations

import os
import pickle
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.states.base import CONCAT, State

_Layout = Dict[str, Optional[Tuple[str, Tuple[int, ...]]]]


class _Notice(NamedTuple):
    """What a process tells the others before any array travels."""

    samples: int
    blank: Optional[State]
    layout: _Layout


def launched_processes(environment: Optional[Mapping[str, str]] = None) -> Tuple[int, int]:
    """The rank of this process and the number of processes, as ``torchrun`` sets them.

    A process is one of several only if all four variables are set that processes need to find each other. ``RANK``
    alone, left over in a shell, means nothing.

    Args:
        environment: Environment variables; those of this process by default.

    Example:
        >>> launched_processes({"RANK": "1"})
        (0, 1)
        >>> launched_processes({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
        (1, 4)
    """
    variables = os.environ if environment is None else environment
    rank, size = variables.get("RANK", ""), variables.get("WORLD_SIZE", "")
    complete = rank.isdigit() and size.isdigit() and variables.get("MASTER_ADDR") and variables.get("MASTER_PORT")
    if not complete or not int(rank) < int(size):
        return 0, 1
    return int(rank), int(size)


def portable(error: BaseException) -> BaseException:
    """The error if it survives the way to another process, else a RuntimeError with its type and message."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # any failure means the same: it cannot travel
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def all_gather_or_raise(value: Any, error: Optional[BaseException] = None) -> List[Any]:
    """Gather a value from every process, in the order of ranks, or raise the error of one of them on all.

    No process continues before all have answered, so none goes on after another one failed.

    Args:
        value: The value of this process.
        error: An error of this process. It is raised on all.
    """
    from mmengine.dist import all_gather_object

    told = all_gather_object((value, None if error is None else portable(error)))
    if error is not None:
        raise error
    for _, remote in told:
        if remote is not None:
            raise remote
    return [one for one, _ in told]


def all_reduce_state(
    state: Optional[State], samples: int, error: Optional[BaseException]
) -> Tuple[Optional[State], int]:
    """Merge the states of all processes; every process gets the merged state and the total number of samples.

    Only settings, shapes and dtypes travel as objects. A process without samples cannot know settings that are learned
    from samples, so it takes them from one that has some. Summed arrays are reduced one dtype at a time, so that counts
    never pass through a float; concatenated ones are gathered in rank order.

    Args:
        state: The state of this process; None if ``error`` is given.
        samples: Its number of samples.
        error: An error of this process. It is raised on all.
    """
    from mmengine.dist import get_world_size

    if get_world_size() == 1:
        if error is not None:
            raise error
        return state, samples
    arrays = {} if state is None else state.arrays()
    layout = {key: None if value is None else (value.dtype.str, value.shape) for key, value in arrays.items()}
    blank = None if state is None else state.empty()
    notices: List[_Notice] = all_gather_or_raise(_Notice(samples, blank, layout), error)
    total = sum(notice.samples for notice in notices)
    if state is None:
        return None, total
    if total and not samples:
        state = next(notice.blank for notice in notices if notice.samples and notice.blank is not None)
        arrays = state.arrays()
    combined: Dict[str, Any] = {}
    reduced: Dict[Tuple[str, str], List[str]] = {}
    for key, reduction in state.reductions.items():
        # A process without samples may hold a state of another kind, so what it says of its arrays is not asked.
        entries = [notice.layout[key] if notice.samples else None for notice in notices]
        known = [(rank, entry) for rank, entry in enumerate(entries) if entry is not None]
        if not known:
            combined[key] = None
            continue
        dtype = np.result_type(*(np.dtype(entry[0]) for _, entry in known))
        skip = 1 if reduction == CONCAT else 0
        first_rank, (_, first_shape) = known[0]
        for rank, (_, shape) in known:
            if shape[skip:] != first_shape[skip:]:
                name = key.rpartition(".")[2]  # without that of the state it belongs to
                raise MetricInputError(
                    f"'{name}' must have the same shape on all processes (found {first_shape[skip:]} on rank "
                    f"{first_rank} and {shape[skip:]} on rank {rank})"
                )
        value = arrays[key]
        if reduction == CONCAT:
            lengths = [0 if entry is None else entry[1][0] for entry in entries]
            combined[key] = _gather(value, dtype, first_shape[1:], lengths)
        else:
            if value is None:
                fill = 0 if reduction != "max" else (np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf)
                value = np.full(first_shape, fill)
            combined[key] = value.astype(dtype)  # a copy: what is reduced is reduced in place
            reduced.setdefault((reduction, dtype.str), []).append(key)
    for (reduction, _), keys in reduced.items():
        _reduce(combined, keys, reduction)
    return state.with_arrays(combined), total


def _gather(rows: Optional[np.ndarray], dtype: np.dtype, row_shape: Tuple[int, ...], lengths: List[int]) -> np.ndarray:
    """The rows of all ranks in rank order. They travel as bytes, padded to the longest."""
    import torch
    from mmengine.dist import all_gather

    room = np.zeros((max(lengths), *row_shape), dtype=dtype)
    if rows is not None:
        room[: len(rows)] = rows
    if not room.size:
        return room
    parts = all_gather(torch.from_numpy(room.reshape(-1).view(np.uint8)))
    return np.concatenate(
        [part.numpy().view(dtype).reshape(room.shape)[:length] for part, length in zip(parts, lengths)]
    )


def _reduce(arrays: Dict[str, Any], keys: List[str], reduction: str) -> None:
    """Replaces the arrays named (all of one dtype) by their sum or maximum over the ranks."""
    import torch
    from mmengine.dist import all_reduce

    flat = torch.from_numpy(np.concatenate([arrays[key].reshape(-1) for key in keys]))
    all_reduce(flat, op=reduction)
    values, start = flat.numpy(), 0
    for key in keys:
        size = arrays[key].size
        arrays[key] = values[start : start + size].reshape(arrays[key].shape)
        start += size
