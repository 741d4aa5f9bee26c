"""One state out of the states of all processes."""

from __future__ import annotations

import pickle
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from mmengine.dist import all_gather, all_gather_object, all_reduce, get_world_size

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.states.base import CONCAT, State

_Layout = Dict[str, Optional[Tuple[str, Tuple[int, ...]]]]


class _Notice(NamedTuple):
    """What a process tells the others before any array travels."""

    samples: int
    blank: Optional[State]
    layout: _Layout


def portable(error: BaseException) -> BaseException:
    """The error if it survives the way to another process, else a RuntimeError with its type and message."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # any failure means the same: it cannot travel
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def exchange(value: Any, error: Optional[BaseException] = None) -> List[Any]:
    """What every process gave, in the order of the processes, on each of them.

    Nobody gets anything before everybody gave something: of a process that died on the way no other goes on with less.

    Args:
        value: What this process gives.
        error: What went wrong on this process instead. It is raised on all.
    """
    told = all_gather_object((value, None if error is None else portable(error)))
    if error is not None:
        raise error
    for _, remote in told:
        if remote is not None:
            raise remote
    return [one for one, _ in told]


def add_up(state: Optional[State], samples: int, error: Optional[BaseException]) -> Tuple[Optional[State], int]:
    """The state and the number of samples of all processes together, on each of them.

    Only settings, shapes and dtypes travel as objects. A process without samples cannot know settings that are learned
    from samples, so it takes them from one that has some. Summed arrays are reduced one dtype at a time, so that counts
    never pass through a float; concatenated ones are gathered in rank order.

    Args:
        state: What this process has added up; None if ``error`` is given.
        samples: How many samples that are.
        error: What went wrong on this process. It is raised on all.
    """
    if get_world_size() == 1:
        if error is not None:
            raise error
        return state, samples
    arrays = {} if state is None else state.arrays()
    layout = {key: None if value is None else (value.dtype.str, value.shape) for key, value in arrays.items()}
    blank = None if state is None else state.empty()
    notices: List[_Notice] = exchange(_Notice(samples, blank, layout), error)
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
    flat = torch.from_numpy(np.concatenate([arrays[key].reshape(-1) for key in keys]))
    all_reduce(flat, op=reduction)
    values, start = flat.numpy(), 0
    for key in keys:
        size = arrays[key].size
        arrays[key] = values[start : start + size].reshape(arrays[key].shape)
        start += size
