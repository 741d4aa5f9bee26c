"""Read a pickle opcode by opcode. Opcodes that data never needs are refused."""

from __future__ import annotations

import pickle
import struct
from codecs import raw_unicode_escape_decode  # by name, the codec would be imported at its first use
from sys import getsizeof
from typing import Any, Callable, List, Tuple

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io.budget import OverBudget
from mm_metrics_plugin.io.safe_pickle.machine import (
    CONTAINER_COST,
    LONGEST_SHORT_TEXT,
    SET_COST,
    Damaged,
    Forbidden,
    Machine,
    PartialObject,
    SafeGlobal,
    shown,
)

HIGHEST_PROTOCOL = 5
MOST_MARKS = 256
LONGEST_INTEGER = 1024  # bytes

_UINT32 = struct.Struct("<I").unpack_from
_UINT64 = struct.Struct("<Q").unpack_from


Handler = Callable[[Machine, int], int]


def _unknown(machine: Machine, at: int) -> int:
    raise Damaged(f"{machine.data[at - 1]:#04x} is no pickle opcode")


_HANDLERS: List[Handler] = [_unknown] * 256


def opcode(name: str) -> Callable[[Handler], Handler]:
    """Register a function as the handler of an opcode.

    It is called with the machine and the position after the opcode, and returns the position after its argument.
    """

    def register(handler: Handler) -> Handler:
        _HANDLERS[getattr(pickle, name)[0]] = handler
        return handler

    return register


def run(machine: Machine, at: int = 0) -> Tuple[Any, int]:
    r"""Read one pickle.

    Args:
        machine: A new one.
        at: Where in its data the pickle begins.

    Returns:
        The value and the position after it.

    Raises:
        UnsafePickleError: The pickle asks for something that data never needs.
        ResultFileError: The pickle is damaged or cut off.

    Example:
        >>> run(Machine(b"]K\x01a.", {}, "a list"))
        ([1], 5)
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
    except ResultFileError as error:  # of a pickle inside this one
        raise type(error)(f"{error} (which stands before byte {at} of the file)") from None
    except Forbidden as error:
        raise UnsafePickleError(
            f"{machine.source}: {error}, at byte {at}; result data never needs it, and nothing in the file was run"
        ) from None
    except (Damaged, OverBudget) as error:
        raise ResultFileError(f"{machine.source}: {error}, at byte {at}") from None
    except (IndexError, struct.error):
        what = "the file ends too early" if at + 9 >= len(data) else "the pickle is damaged"
        raise ResultFileError(f"{machine.source}: {what}, at byte {at} of {len(data)}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ResultFileError(f"{machine.source}: the pickle is damaged at byte {at} ({error})") from None


@opcode("PROTO")
def _proto(machine: Machine, at: int) -> int:
    if at - 1 != machine.start:
        raise Damaged("a second header stands in the middle")
    if machine.data[at] > HIGHEST_PROTOCOL:
        raise Damaged(f"pickle protocol {machine.data[at]} is not known (0 to {HIGHEST_PROTOCOL} are)")
    return at + 1


@opcode("FRAME")
def _frame(machine: Machine, at: int) -> int:
    if at + 8 + _UINT64(machine.data, at)[0] > len(machine.data):
        raise Damaged("a frame is longer than the file")
    return at + 8


# -- values ----------------------------------------------------------------------------------------------------------


def _constant(name: str, value: Any) -> None:
    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        machine.stack.append(value)
        return at


for _name, _value in (("NONE", None), ("NEWTRUE", True), ("NEWFALSE", False), ("EMPTY_TUPLE", ())):
    _constant(_name, _value)


@opcode("INT")
def _int_line(machine: Machine, at: int) -> int:
    text, end = machine.line(at)
    machine.stack.append({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text))
    return end


@opcode("LONG")
def _long_line(machine: Machine, at: int) -> int:
    text, end = machine.line(at)
    machine.stack.append(int(text[:-1] if text.endswith(b"L") else text))
    return end


@opcode("FLOAT")
def _float_line(machine: Machine, at: int) -> int:
    text, end = machine.line(at)
    machine.stack.append(float(text))
    return end


@opcode("UNICODE")
def _unicode_line(machine: Machine, at: int) -> int:
    text, end = machine.line(at, len(machine.data))
    value = raw_unicode_escape_decode(text)[0]
    machine.charge(getsizeof(value))
    machine.stack.append(value)
    return end


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
    called = machine.stack[-1] if machine.stack else None
    end = called.ahead(machine, at) if type(called) is SafeGlobal and called.ahead is not None else 0
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


@opcode("TUPLE")
def _tuple(machine: Machine, at: int) -> int:
    value = tuple(machine.since_mark())
    machine.charge(getsizeof(value))
    machine.stack.append(value)
    return at


def _empty(name: str, kind: Callable[[], Any], cost: int) -> None:
    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        machine.charge(cost)
        machine.stack.append(kind())
        return at


_empty("EMPTY_LIST", list, CONTAINER_COST)
_empty("EMPTY_DICT", {}.copy, CONTAINER_COST)  # dict() allocates a table on Python 3.8
_empty("EMPTY_SET", set, SET_COST)


@opcode("LIST")
def _list(machine: Machine, at: int) -> int:
    items = machine.since_mark()
    machine.charge(getsizeof(items))
    machine.stack.append(items)
    return at


@opcode("APPEND")
def _append(machine: Machine, at: int) -> int:
    return _extend(machine, [machine.stack.pop()], at)


@opcode("APPENDS")
def _appends(machine: Machine, at: int) -> int:
    if machine.on_progress is not None:
        machine.on_progress(at / len(machine.data))
    return _extend(machine, machine.since_mark(), at)


def _extend(machine: Machine, items: List[Any], at: int) -> int:
    target = machine.top(list)
    before = getsizeof(target)
    target.extend(items)
    machine.charge(getsizeof(target) - before)
    return at


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


def _set_items(machine: Machine, items: List[Any], at: int) -> int:
    keys = items[::2]
    if len(items) % 2:
        raise Damaged("a key stands without its value")
    machine.check_keys(keys)
    target = machine.top(dict)
    before = getsizeof(target)
    target.update(zip(keys, items[1::2]))
    machine.charge(getsizeof(target) - before)
    return at


@opcode("ADDITEMS")
def _additems(machine: Machine, at: int) -> int:
    items = machine.since_mark()
    machine.check_keys(items)
    target = machine.top(set)
    before = getsizeof(target)
    target.update(items)
    machine.charge(getsizeof(target) - before)
    return at


@opcode("FROZENSET")
def _frozenset(machine: Machine, at: int) -> int:
    items = machine.since_mark()
    machine.check_keys(items)
    value = frozenset(items)
    machine.charge(getsizeof(value))
    machine.stack.append(value)
    return at


# -- memo ------------------------------------------------------------------------------------------------------------


@opcode("GET")
def _get_line(machine: Machine, at: int) -> int:
    text, end = machine.line(at, 20)
    machine.recall(int(text))
    return end


@opcode("BINGET")
def _binget(machine: Machine, at: int) -> int:
    index, memo = machine.data[at], machine.memo
    if index < len(memo) and type(memo[index]) is str and len(memo[index]) <= LONGEST_SHORT_TEXT:
        machine.stack.append(memo[index])  # as `recall`, for the most frequent values: keys of dicts
    else:
        machine.recall(index)
    return at + 1


@opcode("LONG_BINGET")
def _long_binget(machine: Machine, at: int) -> int:
    machine.recall(_UINT32(machine.data, at)[0])
    return at + 4


@opcode("PUT")
def _put_line(machine: Machine, at: int) -> int:
    text, end = machine.line(at, 20)
    machine.remember(int(text))
    return end


@opcode("BINPUT")
def _binput(machine: Machine, at: int) -> int:
    machine.remember(machine.data[at])
    return at + 1


@opcode("LONG_BINPUT")
def _long_binput(machine: Machine, at: int) -> int:
    memo = machine.memo
    index = _UINT32(machine.data, at)[0]
    if index == len(memo):  # as `remember`, for the most frequent opcode
        memo.append(machine.stack[-1])
    else:
        machine.remember(index)
    return at + 4


@opcode("MEMOIZE")
def _memoize(machine: Machine, at: int) -> int:
    machine.memo.append(machine.stack[-1])
    return at


# -- names, and what is done with them -------------------------------------------------------------------------------


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
        raise Forbidden(f"it calls {_called(function)}")
    if type(arguments) is not tuple:
        raise Damaged(f"{function.name} is called with a {type(arguments).__name__} (expected a tuple)")
    stack[-1] = function.make(machine, *arguments)
    return at


@opcode("BUILD")
def _build(machine: Machine, at: int) -> int:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if not isinstance(target, PartialObject) or target.built is not None:
        raise Forbidden(f"it sets the state of {_called(target)}")
    machine.stack[-1] = target.built = target.build(machine, state)
    return at


def _called(value: Any) -> str:
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
    raise Forbidden(f"it makes an instance of {shown(str(module, 'latin-1'))}.{shown(str(name, 'latin-1'))}")


@opcode("STRING")
@opcode("BINSTRING")
@opcode("SHORT_BINSTRING")
def _python2(machine: Machine, at: int) -> int:
    raise Damaged("it holds a byte string of Python 2, which has no certain meaning here")


def _refuse(name: str) -> None:
    @opcode(name)
    def handler(machine: Machine, at: int) -> int:
        raise Forbidden(f"it uses the opcode {name}")


for _name in ("OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID"):
    _refuse(_name)
for _name in ("POP", "POP_MARK", "DUP", "NEXT_BUFFER", "READONLY_BUFFER"):
    _refuse(_name)
