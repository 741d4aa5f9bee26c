"""Where the safe reader draws its lines: the last file it takes, the first it does not, and what it says of that."""

from __future__ import annotations

import collections
import pickle
import re
import struct
import tracemalloc

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io.budget import OverBudget
from mm_metrics_plugin.io.safe_pickle import _check_content, loads
from mm_metrics_plugin.io.safe_pickle.machine import Machine, SafeGlobal, shown
from mm_metrics_plugin.io.safe_pickle.opcodes import run
from mm_metrics_plugin.io.safe_pickle.safe_globals import NAMES
from tests.helpers.hand_made_pickles import (
    GOOD,
    NEXT,
    P2,
    UNUSUAL,
    array,
    blob,
    dtype,
    frombuffer,
    numbers,
    storage,
    tensor,
)
from tests.helpers.hostile_pickles import BUILD, MARK, STOP, TUPLE, call, name, storage_bytes, text

READ = {
    "protocol 5": (b"\x80\x05N", None),
    "frame to the end": (b"\x80\x04\x95" + struct.pack("<Q", 2) + b"N", None),
    "the longest integer": (
        P2 + b"\x8b" + struct.pack("<i", 1024) + b"\1" * 1024,
        int.from_bytes(b"\1" * 1024, "little"),
    ),
    "the longest line": (b"I" + b"0" * 4095 + b"7\n", 7),
    "the longest memo index": (b"]p" + b"0" * 20 + b"\n", []),
    "the longest memo index asked for": (b"(]p0\ng" + b"0" * 20 + b"\nl", [[], []]),
    "text to the end": (P2 + b"X\3\0\0\0abc", "abc"),
    "INT of truth": (b"(I00\nI01\nI7\nl", [False, True, 7]),
    "LONG with and without its letter": (b"(L12L\nL-3\nl", [12, -3]),
    "a tuple of eight as key": (P2 + b"}" + MARK + b"K\1" * 8 + TUPLE + b"Ns", {(1,) * 8: None}),
    "great numbers as keys": (
        pickle.dumps({2**61 - 1: 1, 1 - 2**61: 2, 2.5: 3}, 2)[:-1],
        {2**61 - 1: 1, 1 - 2**61: 2, 2.5: 3},
    ),
    "20,000 keys that are not text": (pickle.dumps(dict.fromkeys(range(20_000)), 4)[:-1], dict.fromkeys(range(20_000))),
    "memo in order": (P2 + b"(]q\0}q\1h\0h\1l", [[], {}, [], {}]),
    "memo by long indices": (P2 + b"(]r\0\0\0\0j\0\0\0\0l", [[], []]),
    "old tuples": (b"(K\1K\2K\3l", [1, 2, 3]),
    "tuples of one to three": (P2 + b"(K\1\x85K\2K\3\x86K\4K\5K\6\x87l", [(1,), (2, 3), (4, 5, 6)]),
    "dict from pairs": (b"(" + text("a") + b"K\1" + text("b") + b"K\2d", {"a": 1, "b": 2}),
    "items one by one": (b"(l" + b"K\1aK\2a", [1, 2]),
    "complex": (
        P2 + call("__builtin__", "complex", b"G" + struct.pack(">d", 1.5) + b"G" + struct.pack(">d", -2), 2),
        1.5 - 2j,
    ),
    "no bytes": (P2 + call("__builtin__", "bytes", b"", 2), b""),
    "bytes": (P2 + call("_codecs", "encode", text("\xff") + text("latin1"), 2), b"\xff"),
    "size": (P2 + call("torch", "Size", numbers(3, 0), 2), (3, 0)),
    "ordered": (P2 + name("collections", "OrderedDict", 2) + b")R" + text("a") + b"K\1s", collections.OrderedDict(a=1)),
}


@pytest.mark.parametrize("what", READ)
def test_the_last_that_is_read(what):
    data, expected = READ[what]
    value = loads(data + STOP)
    assert value == expected and type(value) is type(expected)
    if type(value) is list:
        assert [type(part) for part in value] == [type(part) for part in expected]


DAMAGED = {
    "opcode": (P2 + b"\0", "0x00 is no pickle opcode, at byte 2"),
    "protocol": (b"\x80\x06N", "pickle protocol 6 is not known (0 to 5 are), at byte 0"),
    "second header": (P2 + P2 + b"N", "a second header stands in the middle, at byte 2"),
    "frame": (b"\x80\x04\x95" + struct.pack("<Q", 3) + b"N", "a frame is longer than the file, at byte 2"),
    "open mark": (b"(]", "the pickle stops inside an open mark, at byte 2"),
    "too many marks": (b"(" * 257, "more than 256 containers are open at once, at byte 256"),
    "as many marks as may be": (b"(" * 256, "the pickle is damaged at byte 256"),
    "long integer": (P2 + b"\x8b" + struct.pack("<i", 1025) + b"\1" * 1025, "an integer of 1025 bytes is too long, at"),
    "long line": (b"I" + b"0" * 4096 + b"7\n", "a line of text does not end, at byte 0"),
    "long memo index": (b"]p" + b"0" * 21 + b"\n", "a line of text does not end, at byte 1"),
    "text beyond the end": (P2 + b"X\5\0\0\0abc", "5 bytes are announced and 4 are left in the file, at byte 2"),
    "bytes of Python 2": (b"U\1a", "it holds a byte string of Python 2"),
    "more bytes of Python 2": (b"T\1\0\0\0a", "it holds a byte string of Python 2"),
    "a line of Python 2": (b"S'a'\n", "it holds a byte string of Python 2"),
    "a tuple of nine as key": (P2 + b"}" + MARK + b"K\1" * 9 + TUPLE + b"Ns", "a tuple is no key for result data"),
    "a tuple in a tuple as key": (P2 + b"})\x85Ns", "a tuple is no key for result data"),
    "a great number as key": (P2 + b"}" + pickle.dumps(2**61, 2)[2:-1] + b"Ns", "a int is no key for result data"),
    "a greater number as key": (P2 + b"}" + pickle.dumps(2**62, 2)[2:-1] + b"Ns", "a int is no key for result data"),
    "a low number as key": (P2 + b"}" + pickle.dumps(-(2**61), 2)[2:-1] + b"Ns", "a int is no key for result data"),
    "a great number in a set": (b"\x80\x04\x8f(" + pickle.dumps(2**61, 2)[2:-1] + b"\x90", "a int is no key"),
    "a list in a frozenset": (b"\x80\x04(]\x91", "a list is no key"),
    "20,001 odd keys": (pickle.dumps(dict.fromkeys(range(20_001)), 4)[:-1], "more than 20000 keys are not text"),
    "key without value": (b"(K\1d", "a key stands without its value, at byte 3"),
    "append to nothing": (b"NNa", "items are added to a NoneType (expected a list), at byte 2"),
    "appends to a dict": (b"}(Ne", "items are added to a dict (expected a list), at byte 3"),
    "items for a list": (b"]" + text("a") + b"Ns", "items are added to a list (expected a dict), at byte 8"),
    "members for a list": (b"\x80\x04](N\x90", "items are added to a list (expected a set), at byte 5"),
    "memo out of order": (b"]q\1", "memo slot 1 comes where 0 is due, at byte 1"),
    "memo twice": (b"]q\0q\0", "memo slot 0 comes where 1 is due, at byte 3"),
    "empty memo": (b"h\0", "memo slot 0 is empty, at byte 0"),
    "memo beyond": (b"]q\0h\1", "memo slot 1 is empty, at byte 3"),
    "memo below": (b"]p0\ng-1\n", "memo slot -1 is empty, at byte 4"),
    "used too early": (P2 + call("numpy", "dtype", text("u1") + b"\x89\x88", 2) + b"q\0h\0", "a value is used before"),
    "called with a list": (P2 + name("collections", "OrderedDict", 2) + b"]R", "collections.OrderedDict is called"),
    "complex": (P2 + call("__builtin__", "complex", b"K\1K\2", 2), "a complex number is not made of two floats"),
    "half complex": (P2 + call("__builtin__", "complex", b"G" + b"\0" * 8 + b"K\2", 2), "a complex number is not made"),
    "set of a tuple": (P2 + call("__builtin__", "set", b")", 2), "a set is made of a tuple (expected a list)"),
    "no member": (P2 + call("__builtin__", "frozenset", b"(]l", 2), "a list is no key"),
    "size of a list": (P2 + call("torch", "Size", b"]", 2), "the size of an array is not a tuple of at most 32"),
}

FORBIDDEN = {
    "a name": (P2 + name("os", "system", 2), "it asks for os.system, at byte 2"),
    "a call of data": (P2 + b"N)R", "it calls a NoneType, at byte 4"),
    "a call of a dtype": (P2 + b"ctorch\nfloat32\n)R", "it calls torch.float32"),
    "state of data": (P2 + b"]}b", "it sets the state of a list, at byte 4"),
    "state of a name": (P2 + b"ctorch\nSize\n}b", "it sets the state of torch.Size"),
    "state set twice": (
        P2 + dtype() + MARK + b"K\3" + text("|") + b"NNN" + NEXT + NEXT + b"K\0" + TUPLE + BUILD,
        "it sets the state of a ",
    ),
    "an id": (P2 + b"NQ", "it uses the opcode BINPERSID"),
    "an instance": (b"(ios\nsystem\n", "it makes an instance of os.system, at byte 1"),
    "a name that is never called": (P2 + b"](ctorch\nSize\ne", "torch.Size stands where data belongs, at byte 4"),
    "a value that is never finished": (P2 + call("numpy", "dtype", text("u1") + b"\x89\x88", 2), "an unfinished value"),
}


@pytest.mark.parametrize("what", [*DAMAGED, *FORBIDDEN])
def test_the_first_that_is_refused(what):
    data, message = DAMAGED.get(what) or FORBIDDEN[what]
    with pytest.raises(ResultFileError, match=re.escape(message)) as caught:
        loads(data + STOP)
    assert type(caught.value) is (UnsafePickleError if what in FORBIDDEN else ResultFileError)


OPCODES = [
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


@pytest.mark.parametrize("opcode", OPCODES)
def test_opcodes_that_results_never_need_are_refused_by_name(opcode):
    with pytest.raises(UnsafePickleError, match=rf"it uses the opcode {opcode}, at byte 2"):
        loads(b"](" + getattr(pickle, opcode) + STOP * 4)


def test_where_a_short_file_becomes_a_damaged_one():
    """An opcode that finds nothing to work on, near the end of a file, most likely was cut off."""
    with pytest.raises(ResultFileError, match="the file ends too early, at byte 0 of 9"):
        loads(b"a" + b"N" * 8)
    with pytest.raises(ResultFileError, match="the pickle is damaged, at byte 0 of 10"):
        loads(b"a" + b"N" * 9)


def test_the_budget_grows_with_the_file_and_ends():
    machine = Machine(bytes(10), {}, "a file")
    machine.charge((32 << 20) + 24 * 10)
    with pytest.raises(OverBudget, match="far more data than the file holds"):
        machine.charge(1)


ONE = text("a")
MANY = {
    "empty lists": b"]",
    "lists of one": b"]Na",
    "lists of five": b"](NNNNNe",
    "old lists": b"(NNl",
    "empty dicts": b"}",
    "dicts of one": b"}h\0Ns",
    "dicts of one number": b"}K\1Ns",
    "dicts of six": b"}(K\1NK\2NK\3NK\4NK\5NK\6Nu",
    "old dicts": b"(h\0Nd",
    "tuples of one": b"N\x85",
    "tuples of three": b"NNN\x87",
    "tuples of five": b"(NNNNNt",
    "empty sets": b"\x8f",
    "sets of one": b"\x8f(K\1\x90",
    "sets of five": b"\x8f(K\1K\2K\3K\4K\5\x90",
    "frozen sets": b"(K\1\x91",
    "sets by name": call("__builtin__", "set", b"](K\1K\2K\3K\4K\5e", 2),
    "ordered dicts": call("collections", "OrderedDict", b"", 2) + b"h\0Ns",
    "short text": b"\x8c\2ab",
    "short text that is not Latin": b"\x8c\2\xc4\x80",
    "lines of text": b"Vab\n",
    "short bytes": b"C\2ab",
    "bytearrays": b"\x96\1" + b"\0" * 7 + b"a",
    "bytearrays by name": call("__builtin__", "bytearray", blob(b"ab"), 2),
    "encoded bytes": call("_codecs", "encode", text("ab") + text("latin1"), 2),
    "whole numbers": b"M\0\1",
    "long numbers": b"\x8a\1\x80",
    "numbers": b"F1\n",
    "dtypes": dtype("S7", text("|")),
    "arrays": frombuffer(blob(b"abc"), numbers(3)),
    "arrays of 32 dimensions": frombuffer(blob(b"a"), numbers(*[1] * 32)),
    "arrays that are filled": array(MARK + b"K\1" + numbers(2) + dtype() + b"\x89" + blob(b"ab") + TUPLE),
    "scalars": call("numpy._core.multiarray", "scalar", dtype("f8", text("<")) + blob(bytes(8)), 2),
    "tensors": tensor(storage(GOOD)),
    "tensors of 32 dimensions": tensor(storage(GOOD), size=numbers(*[1] * 32), stride=numbers(*[1] * 32)),
    "tensors that are widened": tensor(storage(storage_bytes(bytes(16), 8, "BFloat16Storage")), size=numbers(8)),
    "tensors read slowly": tensor(storage(UNUSUAL)),
    "sizes": call("torch", "Size", numbers(3), 2),
    "remembered lists": b"]\x94",
}


@pytest.mark.parametrize("what", MANY)
def test_the_budget_is_charged_for_all_memory_but_a_few_bytes_per_byte(what):
    """Numbers, references and the memo are not charged. They take at most 15 bytes for each byte of the file."""
    data = b"\x80\4" + ONE + b"\x94(" + MANY[what] * 3000 + b"l\x86" + STOP
    machine = Machine(data, NAMES, "a file")
    before = machine.budget.left = 1 << 40
    tracemalloc.start()
    try:
        value, _ = run(machine)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    charged = before - machine.budget.left
    assert len(value[1]) == 3000
    assert taken <= charged + 15 * len(data) + 10_000


def test_each_value_is_charged_again_when_it_is_used_again():
    values = (b"](NNe", b"}h\0Ns", b"NN\x86", blob(bytes(500)), text("a" * 500), frombuffer(blob(b"abc"), numbers(3)))
    for shared in values:
        sizes = []
        for times in (1, 11, 21):
            data = b"\x80\4" + ONE + b"\x94(" + shared + b"\x94" + b"h\1" * times + b"l\x86" + STOP
            machine = Machine(data, NAMES, "a file")
            value, _ = run(machine)
            before = machine.budget.left
            _check_content(value, machine)
            sizes.append(before - machine.budget.left)
        assert sizes[0] > 30
        np.testing.assert_array_equal(np.divide(sizes, sizes[0]), [1, 11, 21])


def test_safe_globals_are_immutable_and_names_are_escaped():
    with pytest.raises(AttributeError, match="immutable"):
        SafeGlobal("a.b").name = "c"
    assert shown("a" * 80) == "a" * 80
    assert shown("a" * 81) == "a" * 77 + "..."
    assert shown("é\n\x1b") == "\\xe9\\n\\x1b"
    assert shown(7) == "<int>"
