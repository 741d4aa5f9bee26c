"""States accumulate samples between batches. Each array of a state is declared SUM, MAX or CONCAT."""

from __future__ import annotations

import copy
from typing import Any, Sequence, TypeVar

import numpy as np

SUM = "sum"
MAX = "max"
CONCAT = "concat"

_S = TypeVar("_S", bound="State")


class RowBuffer:
    """Rows appended batch by batch, in blocks that are never moved or resized.

    A new block has room for an eighth of the rows so far: little memory is unused, and there are few blocks.

    Example:
        >>> rows = RowBuffer()
        >>> rows.append(np.array([[1, 2], [3, 4]]))
        >>> rows.append(np.array([[5, 6]]))
        >>> len(rows), rows.to_array().tolist()
        (3, [[1, 2], [3, 4], [5, 6]])
    """

    def __init__(self) -> None:
        self._full: list[np.ndarray] = []
        self._open: np.ndarray | None = None
        self._used = 0
        self._length = 0
        self._reserved = 0

    def __len__(self) -> int:
        return self._length

    def append(self, rows: np.ndarray) -> None:
        """Copy ``rows`` (first axis: rows) to the end; all rows must have the same shape."""
        self._check_shape(rows.shape[1:])
        if self._open is not None and self._open.dtype != rows.dtype:
            self._close()
        copied = 0
        if self._open is not None:
            copied = min(len(rows), len(self._open) - self._used)
            self._open[self._used : self._used + copied] = rows[:copied]
            self._used += copied
        if copied < len(rows) or self.row_shape is None:
            self._close()
            rest = rows[copied:]
            size = max(len(rest), self._length // 8, self._reserved)
            self._open, self._reserved = np.empty((size, *rows.shape[1:]), dtype=rows.dtype), 0
            self._open[: len(rest)] = rest
            self._used = len(rest)
        self._length += len(rows)

    def reserve(self, rows: int) -> None:
        """Make the next block large enough for this number of rows."""
        self._reserved = rows

    def _close(self) -> None:
        if self._open is not None:
            self._full.append(self._open[: self._used])
            self._open, self._used = None, 0

    def _check_shape(self, shape: tuple[int, ...] | None) -> None:
        if None not in (shape, self.row_shape) and shape != self.row_shape:
            raise ValueError(f"rows of shape {shape} cannot follow rows of shape {self.row_shape}")

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """The shape of one row; None before the first ``append``."""
        return self.blocks[0].shape[1:] if self.blocks else None

    @property
    def blocks(self) -> list[np.ndarray]:
        """The rows in order, as views of the blocks."""
        return [*self._full, self._open[: self._used]] if self._open is not None else list(self._full)

    def to_array(self) -> np.ndarray | None:
        """All rows as one array; None before the first ``append``."""
        if len(self.blocks) > 1:  # replaced by one block, so that the rows are not in memory twice
            self._full, self._open, self._used = [np.concatenate(self.blocks)], None, 0
        return self.blocks[0] if self.blocks else None

    @property
    def rows(self) -> np.ndarray:
        """All rows as one array."""
        array = self.to_array()
        if array is None:
            raise ValueError("no rows were appended")
        return array

    def joined(self, other: RowBuffer) -> RowBuffer:
        """A new buffer of these rows followed by the rows of ``other``, without copying them."""
        self._check_shape(other.row_shape)
        result = RowBuffer()
        result._full = self.blocks + other.blocks
        result._length = len(self) + len(other)
        return result

    @classmethod
    def of(cls, rows: np.ndarray | None) -> RowBuffer:
        """A buffer of these rows, which are not copied."""
        result = cls()
        if rows is not None:
            result._full, result._length = [rows], len(rows)
        return result


class State:
    """Arrays that accumulate samples.

    A subclass declares its arrays in ``reductions`` (name: ``SUM``, ``MAX`` or ``CONCAT``) and writes ``update``;
    merging, distributing and saving follow from the declaration. A summed array is None until its shape is known;
    a concatenated one is a :class:`RowBuffer`.

    Example:
        >>> class Total(State):
        ...     reductions = {"total": SUM, "count": SUM}
        ...     def update(self, values):
        ...         self.add("total", values.sum(axis=0))
        ...         self.add("count", np.int64(len(values)))
        ...         return self
        >>> left, right = Total().update(np.array([1.0, 2.0])), Total().update(np.array([4.0]))
        >>> both = left.merge(right)
        >>> float(both.total), int(both.count), float(left.total)
        (7.0, 3, 3.0)
    """

    reductions: dict[str, str] = {}

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        for name, reduction in self.reductions.items():
            setattr(self, name, RowBuffer() if reduction == CONCAT else None)

    def empty(self: _S) -> _S:
        """An empty state with the same settings."""
        result = copy.copy(self)
        result._clear()
        return result

    def update(self: _S, *columns: Any, **options: Any) -> _S:
        """Add the samples of a batch and return the state."""
        raise NotImplementedError

    def add(self, name: str, value: Any) -> None:
        """Add ``value`` to one of the arrays by its reduction."""
        value = np.asarray(value)
        reduction, current = self.reductions[name], getattr(self, name)
        if reduction == CONCAT:
            current.append(value)
        elif current is None:
            setattr(self, name, value.copy())
        else:
            if current.shape != value.shape:
                raise ValueError(f"an array of shape {value.shape} cannot be added to one of shape {current.shape}")
            # Not in place, because 0-d arrays become scalars and narrow dtypes may have to widen.
            setattr(self, name, current + value if reduction == SUM else np.maximum(current, value))

    def merge(self: _S, other: _S) -> _S:
        """A new state with the samples of both, which are not changed.

        Raises:
            ValueError: Arrays of the states differ in shape.
        """
        result = self.empty()
        for name, reduction in self.reductions.items():
            own, added = getattr(self, name), getattr(other, name)
            if reduction == CONCAT:
                setattr(result, name, own.joined(added))
            else:
                for value in (own, added):
                    if value is not None:
                        result.add(name, value)
        return result

    def arrays(self) -> dict[str, np.ndarray | None]:
        """The arrays by name; None before the first update."""
        current = {name: getattr(self, name) for name in self.reductions}
        return {name: value.to_array() if isinstance(value, RowBuffer) else value for name, value in current.items()}

    def with_arrays(self: _S, arrays: dict[str, np.ndarray | None]) -> _S:
        """A state with the same settings and these arrays."""
        result = self.empty()
        for name, reduction in self.reductions.items():
            if arrays[name] is not None:
                setattr(result, name, RowBuffer.of(arrays[name]) if reduction == CONCAT else arrays[name])
        return result


class StateGroup(State):
    """Several states by name that are updated, merged and distributed together."""

    def __init__(self, **members: State) -> None:
        self.members = members
        super().__init__()

    def __getitem__(self, name: str) -> Any:
        return self.members[name]

    def _clear(self) -> None:
        self.members = {name: member.empty() for name, member in self.members.items()}
        self.reductions = {
            f"{name}.{array}": reduction
            for name, member in self.members.items()
            for array, reduction in member.reductions.items()
        }

    def update(self, *columns: Any) -> StateGroup:
        """Update every member."""
        for member in self.members.values():
            member.update(*columns)
        return self

    def merge(self, other: StateGroup) -> StateGroup:
        """A new group of the merged members."""
        result = self.empty()
        result.members = {name: member.merge(other.members[name]) for name, member in self.members.items()}
        return result

    def arrays(self) -> dict[str, np.ndarray | None]:
        """The members' arrays as ``member.array``."""
        return {
            f"{name}.{key}": value for name, member in self.members.items() for key, value in member.arrays().items()
        }

    def with_arrays(self, arrays: dict[str, np.ndarray | None]) -> StateGroup:
        """A group with these arrays."""
        result = self.empty()
        result.members = {
            name: member.with_arrays({key: arrays[f"{name}.{key}"] for key in member.reductions})
            for name, member in self.members.items()
        }
        return result


def merge_all(states: Sequence[_S]) -> _S:
    """The states merged from left to right."""
    result = states[0]
    for state in states[1:]:
        result = result.merge(state)
    return result


class Batch:
    """Arrays with one row per sample, read from samples and not yet added to a state.

    The last batch waits until it is known whether its last sample is padding.

    Example:
        >>> batch = Batch(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 1]))
        >>> len(batch), len(batch.without_last())
        (2, 1)
    """

    def __init__(self, *columns: Any) -> None:
        self.columns: tuple[Any, ...] = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def without_last(self) -> Batch:
        """The batch without its last sample."""
        return Batch(*(column[:-1] for column in self.columns))


class FlatBatch(Batch):
    """Flat arrays of equal length, the concatenated values of samples; ``lengths`` is their number per sample."""

    def __init__(self, *columns: np.ndarray, lengths: np.ndarray) -> None:
        super().__init__(*columns)
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def without_last(self) -> FlatBatch:
        """The batch without its last sample."""
        stop = int(self.lengths[:-1].sum())
        return FlatBatch(*(column[:stop] for column in self.columns), lengths=self.lengths[:-1])
