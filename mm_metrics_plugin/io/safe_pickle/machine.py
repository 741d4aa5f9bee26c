"""The state of an unpickler that can only make data.

Python's unpickler imports the names in a file and calls them. This one cannot import anything, and it calls and fills
only the :class:`SafeGlobal` and :class:`PartialObject` objects it was given. Opcodes that writers of data never emit
(instances, extension codes, POP, DUP, memo slots out of order, ...) are refused.

A pickle can make objects that are larger than their bytes in the file, and it can use one object many times. Both are
charged to one :class:`MemoryBudget`, which is proportional to the size of the file. An object is charged when it is
made, and again each time it is used again, because a reader that copies the content copies it each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.io.files import LARGE, Content, memory_limit, release

Names = Mapping[tuple[str, str], "SafeGlobal"]

CONTAINER_COST = 64  # bytes of an empty list or dict, and of a tuple of up to three items
SET_COST = 256
RECALL_COST = 256  # bytes it takes to keep track of a value that is used more than once
LONGEST_SHORT_TEXT = 64  # text up to this length may be used again at no cost
LONGEST_LINE = 4096  # of a number or name written as text
MOST_OTHER_KEYS = 20_000  # keys that are not text; time grows with the square of their number if their hashes collide
LONGEST_TUPLE_KEY = 8
NEAR = 4  # the last memo slots: text, its encoding, and the tuple of both
FORGOTTEN = object()  # in the memo, in place of text that has become bytes


class Damaged(Exception):
    """The bytes are not a valid pickle. Raised by opcodes and safe globals; :func:`run` adds file and offset."""


class Truncated(Damaged):
    """The pickle continues after the end of the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"is truncated ({reason})")


class Forbidden(Exception):
    """The file asks for more than data. Raised by opcodes and safe globals; :func:`run` adds file and offset."""


class MemoryBudget:
    """The memory that is left for the content of one file of ``file_size`` bytes."""

    __slots__ = ("left",)

    def __init__(self, file_size: int) -> None:
        self.left = memory_limit(file_size)

    def charge(self, cost: int) -> None:
        """Subtract ``cost`` bytes."""
        self.left -= cost
        if self.left < 0:
            raise Damaged("it expands to far more data than the file contains")


@dataclass(frozen=True, eq=False)
class SafeGlobal:
    """Replaces one global name of the pickle.

    Args:
        name: The dotted name that it replaces.
        make: Called as ``make(machine, *arguments)`` when the file calls the name.
        meaning: Its value as an argument of another safe global.
        ahead: Called as ``ahead(machine, at)`` before the arguments of a call are read. It makes the call and returns
            the position after it, or 0 if the arguments are to be read opcode by opcode.
        is_class: Whether the file makes instances of it, whose state follows.
    """

    name: str
    make: Callable[..., Any] | None = None
    meaning: Any = None
    ahead: Callable[[Machine, int], int] | None = None
    is_class: bool = False


class PartialObject:
    """A value that is complete only after the BUILD opcode has given its state."""

    __slots__ = ("built",)

    def __init__(self) -> None:
        self.built: Any = None

    def build(self, machine: Machine, state: Any) -> Any:
        """Return the finished value."""
        raise NotImplementedError


class Machine:
    """Stack, memo, names and memory budget while one pickle is read.

    Args:
        data: The file. The memory of what was read is released, so it is read once.
        names: The (module, name) pairs that the file may use, each with its safe global.
        source: The name of the file in messages.
        persistent: Resolves persistent ids; without it they are refused.
        budget: The budget of the file that this pickle is a part of; by default a new one for ``data``.
        on_progress: Receives the fraction of the file that was read.
    """

    def __init__(
        self,
        data: Content,
        names: Names,
        source: str,
        persistent: Callable[[Any], Any] | None = None,
        budget: MemoryBudget | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        self.data = data
        self.names = names
        self.source = source
        self.persistent = persistent
        self.on_progress = on_progress
        self.start = 0
        self.released = 0  # where the memory that is not yet released begins
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []  # the stacks below each open mark
        self.memo: list[Any] = []
        self.budget = budget or MemoryBudget(len(data))
        self.charge = self.budget.charge
        self.other_keys = 0
        self.layouts: dict[bytes, Any] = {}  # of the tensors that were read in one step
        self.used_at: dict[SafeGlobal, int] = {}  # the last position of each name
        # Ids of the values that are used more than once. The height and size of each are filled in after reading.
        self.recalled: dict[int, tuple[int, int] | None] = {}

    def take(self, at: int, length: int) -> bytes:
        """The next ``length`` bytes."""
        end = at + length
        if end > len(self.data):
            raise Truncated(f"a value has {pluralize(length, 'byte')}, and {len(self.data) - at} are left in the file")
        if length < 0:
            raise Damaged("a value has a negative length")
        if at - self.released >= LARGE:
            self.released = release(self.data, self.released, at)
        return self.data[at:end]

    def line(self, at: int, longest: int = LONGEST_LINE) -> tuple[bytes, int]:
        """A line of text, and the position after it."""
        end = self.data.find(b"\n", at, at + longest + 1)
        if end < 0:
            if at + longest >= len(self.data):
                raise Truncated("a line of text does not end")
            raise Damaged(f"a line of text has more than {longest} characters")
        return self.data[at:end], end + 1

    def find(self, module: Any, name: Any, at: int) -> SafeGlobal:
        """The safe global of a name."""
        known = self.names.get((module, name)) if type(module) is str and type(name) is str else None
        if known is None:
            raise Forbidden(f"it asks for {printable(module)}.{printable(name)}")
        self.used_at[known] = at - 1
        return known

    def recall(self, index: int) -> None:
        """Push a value of the memo."""
        if not 0 <= index < len(self.memo):
            raise Damaged(f"memo slot {index} is empty")
        value = self.memo[index]
        kind = type(value)
        if kind is not SafeGlobal and (kind is not str or len(value) > LONGEST_SHORT_TEXT):
            if value is FORGOTTEN:
                raise Damaged("text is used again after it became bytes")
            if isinstance(value, PartialObject):
                value = value.built
                if value is None:
                    raise Damaged("a value is used before it is complete")
            if id(value) not in self.recalled:
                self.charge(RECALL_COST)
                self.recalled[id(value)] = None
        self.stack.append(value)

    def forget(self, text: str) -> None:
        """Forget text that has become bytes, and the tuples that contain it: no pickler uses them again."""
        for index in range(max(0, len(self.memo) - NEAR), len(self.memo)):
            value = self.memo[index]
            if value is text or (type(value) is tuple and len(value) == 2 and value[0] is text):
                self.memo[index] = FORGOTTEN

    def remember(self, index: int) -> None:
        """Store the value on top of the stack in the memo.

        Every pickler numbers its memo 0, 1, 2, ..., so the memo is a list, and a large index cannot take memory.
        """
        if index != len(self.memo):
            raise Damaged(f"memo slot {index} is not the next one ({len(self.memo)})")
        self.memo.append(self.stack[-1])

    def check_keys(self, keys: list[Any]) -> None:
        """Refuse keys whose hashing could be slow: nested tuples, and many numbers that may have the same hash."""
        for key in keys:
            if type(key) is str:
                continue
            for part in key if type(key) is tuple and len(key) <= LONGEST_TUPLE_KEY else (key,):
                kind = type(part)
                if kind not in (str, int, float, bool, bytes, type(None)) or (kind is int and abs(part) >= 1 << 61):
                    raise Damaged(f"a {kind.__name__} is not a key of result data (expected text or a plain number)")
                self.other_keys += 1
                if self.other_keys > MOST_OTHER_KEYS:
                    raise Damaged(f"more than {MOST_OTHER_KEYS} keys are not text")

    def since_mark(self) -> list[Any]:
        """Close the last mark and return the values pushed since."""
        items = self.stack
        self.stack = self.outer.pop()
        return items

    def top(self, kind: type) -> Any:
        """The value on top of the stack, which must be of the type ``kind`` (or a subclass that a safe global made)."""
        value = self.stack[-1]
        if not isinstance(value, kind):
            raise Damaged(f"items are added to a {type(value).__name__} (expected a {kind.__name__})")
        return value


def printable(name: Any) -> str:
    """A name without control characters, of at most 80 characters."""
    if type(name) is not str:
        return f"<{type(name).__name__}>"
    text = ascii(name)[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."
