"""What is remembered between batches, and how two memories become one."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional, Sequence, Tuple, TypeVar

import numpy as np

SUM = "sum"
MAX = "max"
CONCAT = "concat"

_S = TypeVar("_S", bound="State")


class RowBuffer:
    """Rows appended batch by batch, kept packed.

    Blocks are never moved or resized: a new one has room for an eighth of the rows already held, so at most
    that much memory waits unused, and the number of blocks stays logarithmic however small the batches are.

    Example:
        >>> rows = RowBuffer()
        >>> rows.append(np.array([[1, 2], [3, 4]]))
        >>> rows.append(np.array([[5, 6]]))
        >>> len(rows), rows.to_array().tolist()
        (3, [[1, 2], [3, 4], [5, 6]])
    """

    def __init__(self) -> None:
        self._full: List[np.ndarray] = []
        self._open: Optional[np.ndarray] = None
        self._used = 0
        self._length = 0
        self._reserved = 0

    def __len__(self) -> int:
        return self._length

    def append(self, rows: np.ndarray) -> None:
        """Copies ``rows`` (first axis: rows) to the end.

        Raises:
            ValueError: The rows have another shape than those before.
        """
        known = self.row_shape
        if known is not None and known != rows.shape[1:]:
            raise ValueError(f"rows of shape {rows.shape[1:]} cannot follow rows of shape {known}")
        if self._open is not None and self._open.dtype != rows.dtype:
            self._close()
        taken = 0
        if self._open is not None:
            taken = min(len(rows), len(self._open) - self._used)
            self._open[self._used : self._used + taken] = rows[:taken]
            self._used += taken
        if taken < len(rows) or self.row_shape is None:
            self._close()
            rest = rows[taken:]
            room = max(len(rest), self._length // 8, self._reserved)
            self._open, self._reserved = np.empty((room, *rows.shape[1:]), dtype=rows.dtype), 0
            self._open[: len(rest)] = rest
            self._used = len(rest)
        self._length += len(rows)

    def reserve(self, rows: int) -> None:
        """Makes the next block large enough for so many rows, where it is known how many will come."""
        self._reserved = rows

    def _close(self) -> None:
        if self._open is not None:
            self._full.append(self._open[: self._used])
            self._open, self._used = None, 0

    @property
    def row_shape(self) -> Optional[Tuple[int, ...]]:
        """The shape of one row; None as long as nothing was appended."""
        blocks = self.blocks
        return blocks[0].shape[1:] if blocks else None

    @property
    def blocks(self) -> List[np.ndarray]:
        """The rows in order, as views of the blocks they lie in."""
        return [*self._full, self._open[: self._used]] if self._open is not None else list(self._full)

    def to_array(self) -> Optional[np.ndarray]:
        """All rows as one array; None as long as nothing was appended."""
        if len(self.blocks) > 1:  # from now on one block, so that the rows are not in memory twice
            self._full, self._open, self._used = [np.concatenate(self.blocks)], None, 0
        return self.blocks[0] if self.blocks else None

    def joined(self, other: RowBuffer) -> RowBuffer:
        """A new buffer of these rows and then those of ``other``. It shares the blocks; nothing is copied."""
        if self.row_shape is not None and other.row_shape is not None and self.row_shape != other.row_shape:
            raise ValueError(f"rows of shape {other.row_shape} cannot follow rows of shape {self.row_shape}")
        result = RowBuffer()
        result._full = self.blocks + other.blocks
        result._length = len(self) + len(other)
        return result

    @classmethod
    def of(cls, rows: Optional[np.ndarray]) -> RowBuffer:
        """A buffer that holds ``rows`` without copying them."""
        result = cls()
        if rows is not None:
            result._full, result._length = [rows], len(rows)
        return result


class State:
    """A small class of arrays that adds up samples.

    A subclass lists its arrays in ``reductions`` (name: ``SUM``, ``MAX`` or ``CONCAT``) and writes ``update``.
    Merging, distributing and saving follow from that list. A summed array is None until its shape is known;
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

    reductions: Dict[str, str] = {}

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        for name, reduction in self.reductions.items():
            setattr(self, name, RowBuffer() if reduction == CONCAT else None)

    def empty(self: _S) -> _S:
        """A state with the same settings that has seen nothing."""
        result = copy.copy(self)
        result._clear()
        return result

    def update(self: _S, *columns: Any) -> _S:
        """Adds the samples of a batch and returns the state."""
        raise NotImplementedError

    def add(self, name: str, value: Any) -> None:
        """Adds to one of the arrays, in the way its reduction says."""
        value = np.asarray(value)
        reduction, held = self.reductions[name], getattr(self, name)
        if reduction == CONCAT:
            held.append(value)
        elif held is None:
            setattr(self, name, value.copy())
        else:
            if held.shape != value.shape:
                raise ValueError(f"an array of shape {value.shape} cannot be added to one of shape {held.shape}")
            # Not in place: a 0-d array would turn into a scalar, and a narrow dtype must be free to widen.
            setattr(self, name, held + value if reduction == SUM else np.maximum(held, value))

    def merge(self: _S, other: _S) -> _S:
        """A new state of all samples of both; neither changes.

        Raises:
            ValueError: The two hold arrays of different shapes.
        """
        result = self.empty()
        for name, reduction in self.reductions.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if reduction == CONCAT:
                setattr(result, name, mine.joined(theirs))
            else:
                for value in (mine, theirs):
                    if value is not None:
                        result.add(name, value)
        return result

    def arrays(self) -> Dict[str, Optional[np.ndarray]]:
        """Every array by its name; None where nothing is known of it yet."""
        held = {name: getattr(self, name) for name in self.reductions}
        return {name: value.to_array() if isinstance(value, RowBuffer) else value for name, value in held.items()}

    def with_arrays(self: _S, arrays: Dict[str, Optional[np.ndarray]]) -> _S:
        """A state with the settings of this one that holds ``arrays``."""
        result = self.empty()
        for name, reduction in self.reductions.items():
            value = arrays[name]
            setattr(result, name, RowBuffer.of(value) if reduction == CONCAT else value)
        return result


class StateGroup(State):
    """Several states that see the same batches, merged and distributed as one.

    Args:
        members: The states by name.
    """

    def __init__(self, **members: State) -> None:
        self.members = members
        super().__init__()

    def __getitem__(self, name: str) -> State:
        return self.members[name]

    def _clear(self) -> None:
        self.members = {name: member.empty() for name, member in self.members.items()}
        self.reductions = {
            f"{name}.{array}": reduction
            for name, member in self.members.items()
            for array, reduction in member.reductions.items()
        }

    def update(self, *columns: Any) -> StateGroup:
        """Shows the batch to every member."""
        for member in self.members.values():
            member.update(*columns)
        return self

    def merge(self, other: StateGroup) -> StateGroup:
        """A new group of the members merged one by one."""
        result = self.empty()
        result.members = {name: member.merge(other.members[name]) for name, member in self.members.items()}
        return result

    def arrays(self) -> Dict[str, Optional[np.ndarray]]:
        """The members' arrays as ``member.array``."""
        return {
            f"{name}.{key}": value for name, member in self.members.items() for key, value in member.arrays().items()
        }

    def with_arrays(self, arrays: Dict[str, Optional[np.ndarray]]) -> StateGroup:
        """A group whose members hold ``arrays``."""
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
