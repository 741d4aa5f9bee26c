"""An opcode machine for pickles that can only make data.

The stock unpicklers look names up and call what they find. This one has no way to import, call, or set an attribute
on anything but the :class:`StandIn` and :class:`InMaking` objects it was given. What honest writers of data never
emit (instances, extension codes, POP, DUP, memo slots out of order, ...) is refused rather than interpreted: the
fewer moves a file has, the fewer there are to get wrong.

Amplification is bounded by one ledger: everything that makes more memory than its bytes in the file is charged
against a budget proportional to the file.
"""

from __future__ import annotations

import pickle
import struct
from codecs import raw_unicode_escape_decode  # by its name, the codec would be imported at first use
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Tuple

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError

Names = Mapping[Tuple[str, str], "StandIn"]

CONTAINER_COST = 64  # bytes of an empty list, dict or tuple, about
SET_COST = 256
BASE_BUDGET = 32 << 20
BUDGET_PER_BYTE = 4
MOST_MARKS = 256
LONGEST_INTEGER = 1024  # bytes
LONGEST_LINE = 4096  # of a number or name written as text
MOST_ODD_KEYS = 20_000  # keys that are not text: their hashes can be made to collide, which costs the square of this
LONGEST_TUPLE_KEY = 8

_UINT16 = struct.Struct("<H").unpack_from
_INT32 = struct.Struct("<i").unpack_from
_UINT32 = struct.Struct("<I").unpack_from
_UINT64 = struct.Struct("<Q").unpack_from
_FLOAT64 = struct.Struct(">d").unpack_from


class Damaged(Exception):
    """What a stand-in or an opcode raises when the bytes make no sense; the machine adds file and offset."""


class Forbidden(Exception):
    """What a stand-in or an opcode raises when the file asks for more than data; the machine adds file and offset."""


class StandIn:
    """Answers for one global name. Its attributes cannot be set after it was made.

    Args:
        name (str): The dotted name it stands for.
        make (callable, optional): Called as ``make(machine, *arguments)`` when the file calls the name.
        meaning (object): What the name means where another stand-in takes it as an argument.
    """

    __slots__ = ("make", "meaning", "name")
    name: str
    make: Optional[Callable[..., Any]]
    meaning: Any

    def __init__(self, name: str, make: Optional[Callable[..., Any]] = None, meaning: Any = None) -> None:
        for slot, value in (("name", name), ("make", make), ("meaning", meaning)):
            object.__setattr__(self, slot, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"stand-in for {self.name} is fixed")


class InMaking:
    """A value that is complete only after the BUILD opcode has given its state."""

    __slots__ = ("built",)

    def __init__(self) -> None:
        self.built: Any = None

    def build(self, machine: Machine, state: Any) -> Any:
        """Return the finished value."""
        raise NotImplementedError


class Machine:
    r"""Reads one pickle out of ``data``.

    Args:
        data (bytes): The file.
        names (Mapping): The only (module, name) pairs that are known, each with its stand-in.
        source (str): How messages name the file.
        persistent (callable, optional): Answers persistent ids; without it they are refused.

    Examples:
        >>> Machine(b"]K\x01a.", {}, "a list").load()
        ([1], 5)
    """

    __slots__ = ("asked", "budget", "data", "memo", "names", "odd_keys", "outer", "persistent", "source", "stack")

    def __init__(
        self, data: bytes, names: Names, source: str, persistent: Optional[Callable[[Any], Any]] = None
    ) -> None:
        self.data = data
        self.names = names
        self.source = source
        self.persistent = persistent
        self.stack: List[Any] = []
        self.outer: List[List[Any]] = []  # the stacks below each open mark
        self.memo: List[Any] = []
        self.budget = BASE_BUDGET + BUDGET_PER_BYTE * len(data)
        self.odd_keys = 0
        self.asked: Dict[StandIn, int] = {}  # where each name came last

    def load(self, at: int = 0) -> Tuple[Any, int]:
        """Run from ``at`` to STOP.

        Returns:
            Tuple[object, int]: The value and the position after it.
        """
        data = self.data
        handlers = _HANDLERS
        try:
            while True:
                code = data[at]
                if code == 46:  # STOP
                    (value,) = self.stack
                    if self.outer:
                        raise Damaged("the pickle stops inside an open mark")
                    return value, at + 1
                at = handlers[code](self, at + 1)
        except ResultFileError as error:  # of a pickle inside this one
            raise type(error)(f"{error} (which stands before byte {at} of the file)") from None
        except Forbidden as error:
            raise UnsafePickleError(
                f"{self.source}: {error}, at byte {at}; result data never needs it, and nothing in the file was run"
            ) from None
        except Damaged as error:
            raise ResultFileError(f"{self.source}: {error}, at byte {at}") from None
        except (IndexError, struct.error):
            what = "the file ends too early" if at + 9 >= len(data) else "the pickle is damaged"
            raise ResultFileError(f"{self.source}: {what}, at byte {at} of {len(data)}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ResultFileError(f"{self.source}: the pickle is damaged at byte {at} ({error})") from None

    def charge(self, cost: int) -> None:
        """Take ``cost`` bytes from what the file may occupy."""
        self.budget -= cost
        if self.budget < 0:
            raise Damaged("it unfolds to far more data than the file holds")

    # -- the parts opcodes are made of -----------------------------------------------------------------------------

    def _take(self, at: int, length: int) -> bytes:
        end = at + length
        if end > len(self.data):
            raise Damaged(f"{length} bytes are announced and {max(0, len(self.data) - at)} are left in the file")
        return self.data[at:end]

    def _line(self, at: int, longest: int = LONGEST_LINE) -> Tuple[bytes, int]:
        end = self.data.find(b"\n", at, at + longest + 1)
        if end < 0:
            raise Damaged("a line of text does not end")
        return self.data[at:end], end + 1

    def _push(self, value: Any, at: int) -> int:
        self.stack.append(value)
        return at

    def _since_mark(self) -> List[Any]:
        items = self.stack
        self.stack = self.outer.pop()
        return items

    def _find(self, module: Any, name: Any, at: int) -> StandIn:
        found = self.names.get((module, name)) if type(module) is str and type(name) is str else None
        if found is None:
            raise Forbidden(f"it asks for {_shown(module)}.{_shown(name)}")
        self.asked[found] = at - 1
        return found

    def _recall(self, index: int) -> None:
        if not 0 <= index < len(self.memo):
            raise Damaged(f"memo slot {index} is empty")
        value = self.memo[index]
        if isinstance(value, InMaking):
            value = value.built
            if value is None:
                raise Damaged("a value is used before it is complete")
        self.stack.append(value)

    def _remember(self, index: int) -> None:
        # Every pickler numbers its memo 0, 1, 2, ...; a list then is the memo and no index can claim memory.
        if index != len(self.memo):
            raise Damaged(f"memo slot {index} comes where {len(self.memo)} is due")
        self.memo.append(self.stack[-1])

    def check_keys(self, keys: List[Any]) -> None:
        """Refuse keys whose hashing could be made slow: nested ones, and great numbers of colliding numbers."""
        for key in keys:
            if type(key) is not str:
                if type(key) is tuple and len(key) <= LONGEST_TUPLE_KEY:
                    for part in key:
                        self._check_odd_key(part)
                else:
                    self._check_odd_key(key)

    def _check_odd_key(self, key: Any) -> None:
        kind = type(key)
        if kind not in (str, int, float, bool, bytes, type(None)) or (kind is int and abs(key) >= 1 << 61):
            raise Damaged(f"a {kind.__name__} is no key for result data (expected text or a plain number)")
        self.odd_keys += 1
        if self.odd_keys > MOST_ODD_KEYS:
            raise Damaged(f"more than {MOST_ODD_KEYS} keys are not text")

    # -- opcodes: each takes the position after its code and returns the position after its argument ---------------

    def _proto(self, at: int) -> int:
        if at != 1 and self.data[at - 2] != 46:  # at the start, or after the STOP of the pickle before
            raise Damaged("a second header stands in the middle")
        if self.data[at] > 5:
            raise Damaged(f"pickle protocol {self.data[at]} is not known (0 to 5 are)")
        return at + 1

    def _frame(self, at: int) -> int:
        if at + 8 + _UINT64(self.data, at)[0] > len(self.data):
            raise Damaged("a frame is longer than the file")
        return at + 8

    def _none(self, at: int) -> int:
        return self._push(None, at)

    def _true(self, at: int) -> int:
        return self._push(True, at)

    def _false(self, at: int) -> int:
        return self._push(False, at)

    def _int_line(self, at: int) -> int:
        text, end = self._line(at)
        return self._push({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text), end)

    def _long_line(self, at: int) -> int:
        text, end = self._line(at)
        return self._push(int(text[:-1] if text.endswith(b"L") else text), end)

    def _binint(self, at: int) -> int:
        return self._push(_INT32(self.data, at)[0], at + 4)

    def _binint1(self, at: int) -> int:
        self.stack.append(self.data[at])
        return at + 1

    def _binint2(self, at: int) -> int:
        self.stack.append(_UINT16(self.data, at)[0])
        return at + 2

    def _long1(self, at: int) -> int:
        length = self.data[at]
        return self._push(int.from_bytes(self._take(at + 1, length), "little", signed=True), at + 1 + length)

    def _long4(self, at: int) -> int:
        length = _INT32(self.data, at)[0]
        if not 0 <= length <= LONGEST_INTEGER:
            raise Damaged(f"an integer of {length} bytes is announced")
        return self._push(int.from_bytes(self._take(at + 4, length), "little", signed=True), at + 4 + length)

    def _float_line(self, at: int) -> int:
        text, end = self._line(at)
        return self._push(float(text), end)

    def _binfloat(self, at: int) -> int:
        return self._push(_FLOAT64(self.data, at)[0], at + 8)

    def _unicode_line(self, at: int) -> int:
        text, end = self._line(at, len(self.data))
        return self._push(raw_unicode_escape_decode(text)[0], end)

    def _short_binunicode(self, at: int) -> int:
        length = self.data[at]
        return self._push(str(self._take(at + 1, length), "utf-8", "surrogatepass"), at + 1 + length)

    def _binunicode(self, at: int) -> int:
        length = _UINT32(self.data, at)[0]
        return self._push(str(self._take(at + 4, length), "utf-8", "surrogatepass"), at + 4 + length)

    def _binunicode8(self, at: int) -> int:
        length = _UINT64(self.data, at)[0]
        return self._push(str(self._take(at + 8, length), "utf-8", "surrogatepass"), at + 8 + length)

    def _short_binbytes(self, at: int) -> int:
        length = self.data[at]
        return self._push(self._take(at + 1, length), at + 1 + length)

    def _binbytes(self, at: int) -> int:
        length = _UINT32(self.data, at)[0]
        return self._push(self._take(at + 4, length), at + 4 + length)

    def _binbytes8(self, at: int) -> int:
        length = _UINT64(self.data, at)[0]
        return self._push(self._take(at + 8, length), at + 8 + length)

    def _bytearray8(self, at: int) -> int:
        length = _UINT64(self.data, at)[0]
        return self._push(bytearray(self._take(at + 8, length)), at + 8 + length)

    def _mark(self, at: int) -> int:
        if len(self.outer) >= MOST_MARKS:
            raise Damaged(f"more than {MOST_MARKS} containers are open at once")
        self.outer.append(self.stack)
        self.stack = []
        return at

    def _empty_tuple(self, at: int) -> int:
        return self._push((), at)

    def _tuple1(self, at: int) -> int:
        self.charge(CONTAINER_COST)
        self.stack[-1] = (self.stack[-1],)
        return at

    def _tuple2(self, at: int) -> int:
        self.charge(CONTAINER_COST)
        stack = self.stack
        stack[-2:] = [(stack[-2], stack[-1])]
        return at

    def _tuple3(self, at: int) -> int:
        self.charge(CONTAINER_COST)
        stack = self.stack
        stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
        return at

    def _tuple(self, at: int) -> int:
        self.charge(CONTAINER_COST)
        return self._push(tuple(self._since_mark()), at)

    def _empty_list(self, at: int) -> int:
        self.charge(CONTAINER_COST)
        return self._push([], at)

    def _list(self, at: int) -> int:
        self.charge(CONTAINER_COST)
        return self._push(self._since_mark(), at)

    def _append(self, at: int) -> int:
        value = self.stack.pop()
        self._top(list).append(value)
        return at

    def _appends(self, at: int) -> int:
        items = self._since_mark()
        self._top(list).extend(items)
        return at

    def _empty_dict(self, at: int) -> int:
        self.charge(CONTAINER_COST)
        return self._push({}, at)

    def _dict(self, at: int) -> int:
        items = self._since_mark()
        self.stack.append({})
        return self._set_items(items, at)

    def _setitem(self, at: int) -> int:
        value = self.stack.pop()
        return self._set_items([self.stack.pop(), value], at)

    def _setitems(self, at: int) -> int:
        return self._set_items(self._since_mark(), at)

    def _set_items(self, items: List[Any], at: int) -> int:
        keys = items[::2]
        if len(items) % 2:
            raise Damaged("a key stands without its value")
        self.check_keys(keys)
        self._top(dict).update(zip(keys, items[1::2]))
        return at

    def _empty_set(self, at: int) -> int:
        self.charge(SET_COST)
        return self._push(set(), at)

    def _additems(self, at: int) -> int:
        items = self._since_mark()
        self.check_keys(items)
        self._top(set).update(items)
        return at

    def _frozenset(self, at: int) -> int:
        items = self._since_mark()
        self.charge(SET_COST)
        self.check_keys(items)
        return self._push(frozenset(items), at)

    def _top(self, kind: type) -> Any:
        top = self.stack[-1]
        if not isinstance(top, kind):  # subclasses on the stack are only those our own stand-ins made
            raise Damaged(f"items are added to a {type(top).__name__} (expected a {kind.__name__})")
        return top

    def _get_line(self, at: int) -> int:
        text, end = self._line(at, 20)
        self._recall(int(text))
        return end

    def _binget(self, at: int) -> int:
        self._recall(self.data[at])
        return at + 1

    def _long_binget(self, at: int) -> int:
        self._recall(_UINT32(self.data, at)[0])
        return at + 4

    def _put_line(self, at: int) -> int:
        text, end = self._line(at, 20)
        self._remember(int(text))
        return end

    def _binput(self, at: int) -> int:
        self._remember(self.data[at])
        return at + 1

    def _long_binput(self, at: int) -> int:
        self._remember(_UINT32(self.data, at)[0])
        return at + 4

    def _memoize(self, at: int) -> int:
        self.memo.append(self.stack[-1])
        return at

    def _global(self, at: int) -> int:
        module, middle = self._line(at)
        name, end = self._line(middle)
        return self._push(self._find(str(module, "utf-8"), str(name, "utf-8"), at), end)

    def _stack_global(self, at: int) -> int:
        name = self.stack.pop()
        return self._push(self._find(self.stack.pop(), name, at), at)

    def _reduce(self, at: int) -> int:
        stack = self.stack
        arguments = stack.pop()
        function = stack[-1]
        if type(function) is not StandIn or function.make is None:
            what = function.name if type(function) is StandIn else f"a {type(function).__name__}"
            raise Forbidden(f"it calls {what}")
        if type(arguments) is not tuple:
            raise Damaged(f"{function.name} is called with a {type(arguments).__name__} (expected a tuple)")
        stack[-1] = function.make(self, *arguments)
        return at

    def _build(self, at: int) -> int:
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, InMaking) or target.built is not None:
            what = target.name if type(target) is StandIn else f"a {type(target).__name__}"
            raise Forbidden(f"it sets the state of {what}")
        self.stack[-1] = target.built = target.build(self, state)
        return at

    def _binpersid(self, at: int) -> int:
        if self.persistent is None:
            raise Forbidden("it uses the opcode BINPERSID")
        self.stack[-1] = self.persistent(self.stack[-1])
        return at

    def _inst(self, at: int) -> int:
        module, middle = self._line(at)
        name, _ = self._line(middle)
        raise Forbidden(f"it makes an instance of {_shown(str(module, 'latin-1'))}.{_shown(str(name, 'latin-1'))}")


def _shown(name: Any) -> str:
    """A name as it can be printed: one line, no control characters, of bounded length."""
    if type(name) is not str:
        return f"<{type(name).__name__}>"
    text = ascii(name)[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."


def _refuse(opcode: str) -> Callable[[Machine, int], int]:
    def handler(machine: Machine, at: int) -> int:
        raise Forbidden(f"it uses the opcode {opcode}")

    return handler


def _python2(machine: Machine, at: int) -> int:
    raise Damaged("it holds a byte string of Python 2, which has no certain meaning here")


def _unknown(machine: Machine, at: int) -> int:
    raise Damaged(f"{machine.data[at - 1]:#04x} is no pickle opcode")


def _table() -> List[Callable[[Machine, int], int]]:
    table: List[Callable[[Machine, int], int]] = [_unknown] * 256
    known: Dict[str, Callable[[Machine, int], int]] = {
        "PROTO": Machine._proto,
        "FRAME": Machine._frame,
        "NONE": Machine._none,
        "NEWTRUE": Machine._true,
        "NEWFALSE": Machine._false,
        "INT": Machine._int_line,
        "LONG": Machine._long_line,
        "BININT": Machine._binint,
        "BININT1": Machine._binint1,
        "BININT2": Machine._binint2,
        "LONG1": Machine._long1,
        "LONG4": Machine._long4,
        "FLOAT": Machine._float_line,
        "BINFLOAT": Machine._binfloat,
        "UNICODE": Machine._unicode_line,
        "SHORT_BINUNICODE": Machine._short_binunicode,
        "BINUNICODE": Machine._binunicode,
        "BINUNICODE8": Machine._binunicode8,
        "SHORT_BINBYTES": Machine._short_binbytes,
        "BINBYTES": Machine._binbytes,
        "BINBYTES8": Machine._binbytes8,
        "BYTEARRAY8": Machine._bytearray8,
        "MARK": Machine._mark,
        "EMPTY_TUPLE": Machine._empty_tuple,
        "TUPLE1": Machine._tuple1,
        "TUPLE2": Machine._tuple2,
        "TUPLE3": Machine._tuple3,
        "TUPLE": Machine._tuple,
        "EMPTY_LIST": Machine._empty_list,
        "LIST": Machine._list,
        "APPEND": Machine._append,
        "APPENDS": Machine._appends,
        "EMPTY_DICT": Machine._empty_dict,
        "DICT": Machine._dict,
        "SETITEM": Machine._setitem,
        "SETITEMS": Machine._setitems,
        "EMPTY_SET": Machine._empty_set,
        "ADDITEMS": Machine._additems,
        "FROZENSET": Machine._frozenset,
        "GET": Machine._get_line,
        "BINGET": Machine._binget,
        "LONG_BINGET": Machine._long_binget,
        "PUT": Machine._put_line,
        "BINPUT": Machine._binput,
        "LONG_BINPUT": Machine._long_binput,
        "MEMOIZE": Machine._memoize,
        "GLOBAL": Machine._global,
        "STACK_GLOBAL": Machine._stack_global,
        "REDUCE": Machine._reduce,
        "BUILD": Machine._build,
        "BINPERSID": Machine._binpersid,
        "INST": Machine._inst,
        "STRING": _python2,
        "BINSTRING": _python2,
        "SHORT_BINSTRING": _python2,
    }
    refused = [
        "OBJ",
        "NEWOBJ",
        "NEWOBJ_EX",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "POP",
        "POP_MARK",
        "DUP",
        "NEXT_BUFFER",
        "READONLY_BUFFER",
    ]
    for name in refused:
        known[name] = _refuse(name)
    for name, handler in known.items():
        table[getattr(pickle, name)[0]] = handler
    return table


_HANDLERS = _table()
