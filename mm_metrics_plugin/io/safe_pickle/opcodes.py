"""Read a pickle opcode by opcode. Opcodes that data never needs are refused."""

from __future__ import annotations

import pickle
import struct
from codecs import raw_unicode_escape_decode  # by name, the codec would be imported at its first use
from sys import getsizeof
from typing import Any, Callable

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io.safe_pickle.machine import (
    CONTAINER_COST,
    LONGEST_LINE,
    SET_COST,
    Damaged,
    Forbidden,
    Machine,
    PartialObject,
    SafeGlobal,
    Truncated,
    printable,
)

HIGHEST_PROTOCOL = 5
MOST_MARKS = 256
LONGEST_INTEGER = 1024  # bytes
LONGEST_INDEX = 20  # digits

_UINT64 = struct.Struct("<Q").unpack_from

# A handler is called with the machine and the position after the opcode. It returns the position after its argument.
Handler = Callable[[Machine, int], int]


def _unknown(machine: Machine, at: int) -> int:
    raise Damaged(f"{machine.data[at - 1]:#04x} is not a pickle opcode")


_HANDLERS: list[Handler] = [_unknown] * 256


def opcode(name: str) -> Callable[[Handler], Handler]:
    """Register a function as the handler of an opcode."""

    def register(handler: Handler) -> Handler:
        _HANDLERS[getattr(pickle, name)[0]] = handler
        return handler

    return register


def run(machine: Machine, at: int = 0) -> tuple[Any, int]:
    """Read the pickle that begins at a position, and return its value and the position after it.

    Raises:
        UnsafePickleError: The pickle asks for something that data never needs.
        ResultFileError: The pickle is damaged or truncated.
    """
    data = machine.data
    machine.start = at
    handlers = _HANDLERS
    try:
        while True:
            code = data[at]
            if code == 46:  # STOP
                (value,) = machine.stack
                if machine.outer:
                    raise Damaged("the pickle stops inside an open mark")
                return value, at + 1
            at = handlers[code](machine, at + 1)
    except ResultFileError as error:  # of a nested pickle
        raise type(error)(f"{error} (inside the value before byte {at} of the file)") from None
    except Forbidden as error:
        raise UnsafePickleError(
            f"{machine.source}: {error}, at byte {at}; result data never needs it, and nothing in the file was run"
        ) from None
    except (Damaged, IndexError, struct.error, TypeError, ValueError, OverflowError) as error:
        # The stack of a truncated pickle never runs out of values, so an IndexError at the end comes from the data.
        if isinstance(error, struct.error) or (isinstance(error, IndexError) and at >= len(data) - 1):
            error = Truncated("the pickle does not end")
        reason = str(error) if isinstance(error, Damaged) else f"the pickle is damaged ({error})"
        raise ResultFileError(f"{machine.source}: {reason}, at byte {at} of {len(data)}") from None


@opcode("PROTO")
def _proto(machine: Machine, at: int) -> int:
    if at - 1 != machine.start:
        raise Damaged("it has a second header")
    if machine.data[at] > HIGHEST_PROTOCOL:
        raise Damaged(f"pickle protocol {machine.data[at]} is not supported (0 to {HIGHEST_PROTOCOL} are)")
    return at + 1


@opcode("FRAME")
def _frame(machine: Machine, at: int) -> int:
    length, left = _UINT64(machine.data, at)[0], len(machine.data) - at - 8
    if length > left:
        raise Truncated(f"a frame has {length} bytes, and {left} are left in the file")
    return at + 8


# -- values ----------------------------------------------------------------------------------------------------------


def _constant(name: str, make: Callable[[], Any], cost: int = 0) -> None:
    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        machine.charge(cost)
        machine.stack.append(make())
        return at


_constant("NONE", lambda: None)
_constant("NEWTRUE", lambda: True)
_constant("NEWFALSE", lambda: False)
_constant("EMPTY_TUPLE", tuple)
_constant("EMPTY_LIST", list, CONTAINER_COST)
_constant("EMPTY_DICT", {}.copy, CONTAINER_COST)  # dict() allocates a table on Python 3.8
_constant("EMPTY_SET", set, SET_COST)


def _push(machine: Machine, value: Any) -> None:
    machine.charge(getsizeof(value))
    machine.stack.append(value)


def _line(name: str, longest: int, use: Callable[[Machine, bytes], None]) -> None:
    """An opcode whose argument is a line of text."""

    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        text, end = machine.line(at, longest or len(machine.data))
        use(machine, text)
        return end


_BOOLEANS = {b"00": False, b"01": True}
_line("INT", LONGEST_LINE, lambda machine, text: _push(machine, _BOOLEANS[text] if text in _BOOLEANS else int(text)))
_line("LONG", LONGEST_LINE, lambda machine, text: _push(machine, int(text[:-1] if text.endswith(b"L") else text)))
_line("FLOAT", LONGEST_LINE, lambda machine, text: _push(machine, float(text)))
_line("UNICODE", 0, lambda machine, text: _push(machine, raw_unicode_escape_decode(text)[0]))
_line("GET", LONGEST_INDEX, lambda machine, text: machine.recall(int(text)))
_line("PUT", LONGEST_INDEX, lambda machine, text: machine.remember(int(text)))


def _number(name: str, layout: str) -> None:
    """A number of fixed length."""
    size = struct.calcsize(layout)
    number_at = struct.Struct(layout).unpack_from

    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        machine.stack.append(number_at(machine.data, at)[0])
        return at + size


for _name, _layout in (("BININT", "<i"), ("BININT1", "<B"), ("BININT2", "<H"), ("BINFLOAT", ">d")):
    _number(_name, _layout)


def _integer(content: bytes) -> int:
    if len(content) > LONGEST_INTEGER:
        raise Damaged(f"an integer of {len(content)} bytes is too long")
    return int.from_bytes(content, "little", signed=True)


def _text(content: bytes) -> str:
    return str(content, "utf-8", "surrogatepass")


def _sized(name: str, layout: str, make: Callable[[bytes], Any]) -> None:
    """A value after its length."""
    size = struct.calcsize(layout)
    length_at = struct.Struct(layout).unpack_from

    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        length: int = length_at(machine.data, at)[0]
        at += size
        value = make(machine.take(at, length))
        machine.charge(getsizeof(value))
        machine.stack.append(value)
        return at + length


_sized("LONG1", "<B", _integer)
_sized("LONG4", "<i", _integer)
_sized("SHORT_BINUNICODE", "<B", _text)
_sized("BINUNICODE", "<I", _text)
_sized("BINUNICODE8", "<Q", _text)
_sized("SHORT_BINBYTES", "<B", bytes)
_sized("BINBYTES", "<I", bytes)
_sized("BINBYTES8", "<Q", bytes)
_sized("BYTEARRAY8", "<Q", bytearray)


# -- containers ------------------------------------------------------------------------------------------------------


@opcode("MARK")
def _mark(machine: Machine, at: int) -> int:
    function = machine.stack[-1] if machine.stack else None
    end = function.ahead(machine, at) if type(function) is SafeGlobal and function.ahead is not None else 0
    if end:
        return end
    if len(machine.outer) >= MOST_MARKS:
        raise Damaged(f"more than {MOST_MARKS} containers are open at once")
    machine.outer.append(machine.stack)
    machine.stack = []
    return at


def _short_tuple(name: str, length: int) -> None:
    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        machine.charge(CONTAINER_COST)
        value = tuple(machine.stack[-length:])
        machine.stack[-length] = value  # an IndexError if there are fewer
        del machine.stack[len(machine.stack) - length + 1 :]
        return at


for _length in (1, 2, 3):
    _short_tuple(f"TUPLE{_length}", _length)


def _from_mark(name: str, make: Callable[[list[Any]], Any]) -> None:
    """A container of the values since the last mark."""

    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        items = machine.since_mark()
        if make is frozenset:
            machine.check_keys(items)
        _push(machine, make(items))
        return at


_from_mark("TUPLE", tuple)
_from_mark("LIST", list)
_from_mark("FROZENSET", frozenset)


def _add(machine: Machine, kind: type, items: Any, at: int) -> int:
    """Add items to the container on top of the stack, which must be of the type ``kind``, and charge for its growth."""
    target = machine.top(kind)
    before = getsizeof(target)
    if kind is list:
        target.extend(items)
    else:
        target.update(items)
    machine.charge(getsizeof(target) - before)
    return at


@opcode("APPEND")
def _append(machine: Machine, at: int) -> int:
    item = machine.stack.pop()
    return _add(machine, list, [item], at)


@opcode("APPENDS")
def _appends(machine: Machine, at: int) -> int:
    if machine.on_progress is not None:
        machine.on_progress(at / len(machine.data))
    return _add(machine, list, machine.since_mark(), at)


@opcode("DICT")
def _dict(machine: Machine, at: int) -> int:
    machine.charge(CONTAINER_COST)
    items = machine.since_mark()
    machine.stack.append({})
    return _set_items(machine, items, at)


@opcode("SETITEM")
def _setitem(machine: Machine, at: int) -> int:
    value = machine.stack.pop()
    return _set_items(machine, [machine.stack.pop(), value], at)


@opcode("SETITEMS")
def _setitems(machine: Machine, at: int) -> int:
    return _set_items(machine, machine.since_mark(), at)


def _set_items(machine: Machine, items: list[Any], at: int) -> int:
    keys = items[::2]
    if len(items) % 2:
        raise Damaged("a key has no value")
    machine.check_keys(keys)
    return _add(machine, dict, zip(keys, items[1::2]), at)


@opcode("ADDITEMS")
def _additems(machine: Machine, at: int) -> int:
    items = machine.since_mark()
    machine.check_keys(items)
    return _add(machine, set, items, at)


# -- memo ------------------------------------------------------------------------------------------------------------


def _indexed(name: str, layout: str, use: Callable[[Machine, int], None]) -> None:
    """An opcode whose argument is an index of the memo."""
    size = struct.calcsize(layout)
    index_at = struct.Struct(layout).unpack_from

    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        use(machine, index_at(machine.data, at)[0])
        return at + size


_indexed("BINGET", "<B", Machine.recall)
_indexed("LONG_BINGET", "<I", Machine.recall)
_indexed("BINPUT", "<B", Machine.remember)
_indexed("LONG_BINPUT", "<I", Machine.remember)


@opcode("MEMOIZE")
def _memoize(machine: Machine, at: int) -> int:
    machine.memo.append(machine.stack[-1])
    return at


# -- names and calls -------------------------------------------------------------------------------------------------


@opcode("GLOBAL")
def _global(machine: Machine, at: int) -> int:
    module, middle = machine.line(at)
    name, end = machine.line(middle)
    machine.stack.append(machine.find(str(module, "utf-8"), str(name, "utf-8"), at))
    return end


@opcode("STACK_GLOBAL")
def _stack_global(machine: Machine, at: int) -> int:
    name = machine.stack.pop()
    machine.stack[-1] = machine.find(machine.stack[-1], name, at)
    return at


@opcode("REDUCE")
def _reduce(machine: Machine, at: int) -> int:
    stack = machine.stack
    arguments = stack.pop()
    function = stack[-1]
    if type(function) is not SafeGlobal or function.make is None:
        raise Forbidden(f"it calls {_name_of(function)}")
    if type(arguments) is not tuple:
        raise Damaged(f"{function.name} is called with a {type(arguments).__name__} (expected a tuple)")
    stack[-1] = function.make(machine, *arguments)
    return at


@opcode("NEWOBJ")
def _newobj(machine: Machine, at: int) -> int:
    function = machine.stack[-2] if len(machine.stack) > 1 else None
    if type(function) is not SafeGlobal or not function.is_class:
        raise Forbidden(f"it uses the opcode NEWOBJ{'' if function is None else f' for {_name_of(function)}'}")
    return _reduce(machine, at)


@opcode("BUILD")
def _build(machine: Machine, at: int) -> int:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if not isinstance(target, PartialObject) or target.built is not None:
        raise Forbidden(f"it sets the state of {_name_of(target)}")
    machine.stack[-1] = target.built = target.build(machine, state)
    return at


def _name_of(value: Any) -> str:
    return value.name if type(value) is SafeGlobal else f"a {type(value).__name__}"


@opcode("BINPERSID")
def _binpersid(machine: Machine, at: int) -> int:
    if machine.persistent is None:
        raise Forbidden("it uses the opcode BINPERSID")
    machine.stack[-1] = machine.persistent(machine.stack[-1])
    return at


@opcode("INST")
def _inst(machine: Machine, at: int) -> int:
    module, middle = machine.line(at)
    name, _ = machine.line(middle)
    raise Forbidden(f"it makes an instance of {printable(str(module, 'latin-1'))}.{printable(str(name, 'latin-1'))}")


def _refuse(name: str, error: type, reason: str) -> None:
    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        raise error(reason)


for _name in ("STRING", "BINSTRING", "SHORT_BINSTRING"):
    _refuse(_name, Damaged, "it holds a byte string of Python 2, whose encoding is unknown")
for _name in ("OBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID"):
    _refuse(_name, Forbidden, f"it uses the opcode {_name}")
for _name in ("POP", "POP_MARK", "DUP", "NEXT_BUFFER", "READONLY_BUFFER"):
    _refuse(_name, Forbidden, f"it uses the opcode {_name}")
