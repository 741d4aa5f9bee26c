"""The limits of the safe reader: the last value that it reads, the first that it refuses, and the message."""

from __future__ import annotations

import pickle
import re
import struct
import tracemalloc

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io.safe_pickle import _check_content, loads
from mm_metrics_plugin.io.safe_pickle.machine import Damaged, Machine, printable
from mm_metrics_plugin.io.safe_pickle.opcodes import run
from mm_metrics_plugin.io.safe_pickle.safe_globals import NAMES
from tests.helpers.pickles import (
    BUILD,
    GOOD,
    MARK,
    MINUS_ONE,
    P2,
    STOP,
    TUPLE,
    UNTYPED,
    UNUSUAL,
    array,
    array_state,
    blob,
    call,
    dtype,
    frombuffer,
    integer,
    name,
    numbers,
    storage,
    storage_bytes,
    tensor,
    tensor_v3,
    text,
    unusual,
)

KEYS = {2**61 - 1: 1, 1 - 2**61: 2, 2.5: 3}
UINT16 = b"ctorch\nuint16\n"
# The pickle of the persistent id in a storage.
ID_PICKLE = UNUSUAL[UNUSUAL.index(b"(" + text("storage")) : UNUSUAL.index(b"Q.") + 2]
READ = {
    "protocol 5": (b"\x80\x05N", None),
    "frame to the end": (b"\x80\x04\x95" + struct.pack("<Q", 2) + b"N", None),
    "the longest integer": (P2 + b"\x8b" + struct.pack("<i", 1024) + b"\1" * 1024, (256**1024 - 1) // 255),
    "the longest line": (b"I" + b"0" * 4095 + b"7\n", 7),
    "the longest memo index": (b"(]p" + b"0" * 20 + b"\ng" + b"0" * 20 + b"\nl", [[], []]),
    "text to the end": (P2 + b"X\3\0\0\0abc", "abc"),
    "a tuple of eight as key": (P2 + b"}" + MARK + b"K\1" * 8 + TUPLE + b"Ns", {(1,) * 8: None}),
    "large numbers as keys": (pickle.dumps(KEYS, 2)[:-1], KEYS),
    "20,000 keys that are not text": (pickle.dumps(dict.fromkeys(range(20_000)), 4)[:-1], dict.fromkeys(range(20_000))),
    "memo by long indices": (P2 + b"(]r\0\0\0\0j\0\0\0\0l", [[], []]),
    "C order": (frombuffer(blob(b"\1\2\3\4"), numbers(2, 2)), np.array([[1, 2], [3, 4]], "u1")),
    "Fortran order": (frombuffer(blob(b"\1\2"), numbers(1, 2), order=text("F")), np.array([[1, 2]], "u1")),
    "32 dimensions": (frombuffer(blob(b"a"), numbers(*[1] * 32)), np.full([1] * 32, 97, "u1")),
    "the last character": (
        frombuffer(blob(b"\xff\xff\x10\0"), numbers(1), dtype("U1", text("<"))),
        np.array(["\U0010ffff"]),
    ),
    "an order of 0": (array(array_state(numbers(1), blob(b"a"), order=b"K\0")), np.array([97], "u1")),
    "a tensor": (tensor(storage(GOOD)), np.ones(1, "f4")),
    "an unusual header": (tensor(storage(UNUSUAL)), np.ones(1, "f4")),
    "an expanded tensor": (tensor(storage(GOOD), size=numbers(3), stride=numbers(0)), np.ones(3, "f4")),
    "an empty tensor at the end": (tensor(storage(GOOD), offset=b"K\1", size=numbers(0)), np.ones(0, "f4")),
    "an untyped storage to the end": (
        tensor_v3(storage(UNTYPED), UINT16, numbers(4)),
        np.array([0, 0x3F80, 0, 0x4000], "u2"),
    ),
}


@pytest.mark.parametrize("what", READ)
def test_values_at_the_limits_are_read(what):
    data, expected = READ[what]
    value = loads(data + STOP)
    np.testing.assert_equal(value, expected)
    assert type(value) is type(expected)
    assert getattr(value, "dtype", None) == getattr(expected, "dtype", None)


DAMAGED = {
    "opcode": P2 + b"\0",
    "protocol": b"\x80\x06N",
    "second header": P2 + P2 + b"N",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 3) + b"N",
    "open mark": b"(]",
    "too many marks": b"(" * 257,
    "as many marks as may be": b"(" * 256,
    "long integer": b"\x8b" + struct.pack("<i", 1025) + b"\1" * 1025,
    "long line": b"I" + b"0" * 4096 + b"7\n",
    "long memo index": b"]p" + b"0" * 21 + b"\n",
    "text beyond the end": P2 + b"X\5\0\0\0abc",
    "bytes of Python 2": b"U\1a",
    "more bytes of Python 2": b"T\1\0\0\0a",
    "a line of Python 2": b"S'a'\n",
    "a tuple of nine as key": b"}" + MARK + b"K\1" * 9 + TUPLE + b"Ns",
    "a tuple in a tuple as key": b"})\x85Ns",
    "a large number as key": b"}" + pickle.dumps(2**61, 2)[2:-1] + b"Ns",
    "a larger number as key": b"}" + pickle.dumps(2**62, 2)[2:-1] + b"Ns",
    "a low number as key": b"}" + pickle.dumps(-(2**61), 2)[2:-1] + b"Ns",
    "a large number in a set": b"\x80\x04\x8f(" + pickle.dumps(2**61, 2)[2:-1] + b"\x90",
    "a list in a frozenset": b"\x80\x04(]\x91",
    "20,001 keys that are not text": pickle.dumps(dict.fromkeys(range(20_001)), 4)[:-1],
    "key without value": b"(K\1d",
    "append to nothing": b"NNa",
    "appends to a dict": b"}(Ne",
    "items for a list": b"]" + text("a") + b"Ns",
    "members for a list": b"\x80\x04](N\x90",
    "memo out of order": b"]q\1",
    "memo twice": b"]q\0q\0",
    "empty memo": b"h\0",
    "memo beyond": b"]q\0h\1",
    "memo below": b"]p0\ng-1\n",
    "used too early": call("numpy", "dtype", text("u1") + b"\x89\x88") + b"q\0h\0",
    "called with a list": name("collections", "OrderedDict") + b"]R",
    "complex": call("__builtin__", "complex", b"K\1K\2"),
    "half complex": call("__builtin__", "complex", b"G" + b"\0" * 8 + b"K\2"),
    "set of a tuple": call("__builtin__", "set", b")", 2),
    "no member": call("__builtin__", "frozenset", b"(]l", 2),
    "size of a list": call("torch", "Size", b"]"),
    "33 dimensions": frombuffer(blob(b"a"), numbers(*[1] * 33)),
    "a length below zero": frombuffer(blob(b""), numbers(-1)),
    "a boolean length": frombuffer(blob(b"a"), b"\x88\x85"),
    "too few bytes": frombuffer(blob(b"abc"), numbers(2, 2)),
    "too many bytes": frombuffer(blob(b"abcde"), numbers(2, 2)),
    "no dtype": frombuffer(blob(b"a"), numbers(1), b"N"),
    "no order": frombuffer(blob(b"a"), numbers(1), order=text("K")),
    "a number for an order": frombuffer(blob(b"a"), numbers(1), order=b"K\1"),
    "no character": frombuffer(blob(b"\0\0\x11\0"), numbers(1), dtype("U1", text("<"))),
    "no byte order": dtype(order=text("!")),
    "a number for a byte order": dtype(order=b"K\1"),
    "fields of a dtype": dtype(state=MARK + b"K\3" + text("|") + b"NN}" + MINUS_ONE * 2 + b"K\0" + TUPLE),
    "a short state": dtype(state=MARK + b"K\3" + text("|") + b"NNN" + MINUS_ONE * 2 + TUPLE),
    "a list as state": dtype(state=b"]"),
    "state of an array": array(b")"),
    "order of an array": array(MARK + b"K\1" + numbers(1) + dtype() + b"N" + blob(b"a") + TUPLE),
    "a storage of text": call("torch.storage", "_load_from_bytes", text("a")),
    "a tensor of nothing": tensor(b"N"),
    "a parameter of nothing": call("torch._utils", "_rebuild_parameter", b"N\x89}"),
    "a typed storage": tensor_v3(storage(GOOD), UINT16),
    "no storage": tensor_v3(b"N", UINT16),
    "a tensor without dtype": tensor_v3(storage(UNTYPED), b"N"),
    "a name for a dtype": tensor_v3(storage(UNTYPED), b"ctorch\nSize\n"),
    "beyond an untyped storage": tensor_v3(storage(UNTYPED), UINT16, numbers(5)),
    "beyond a storage": tensor(storage(GOOD), size=numbers(2)),
    "behind a storage": tensor(storage(GOOD), offset=b"K\1"),
    "an offset of text": tensor(storage(GOOD), offset=text("a")),
    "an offset below zero": tensor(storage(GOOD), offset=integer(-1)),
    "more sizes than strides": tensor(storage(GOOD), size=numbers(1, 1)),
    "a list of sizes": tensor(storage(GOOD), size=b"]"),
    "two lengths": storage(GOOD[:-12] + struct.pack("<q", 2) + GOOD[-4:]),
    "too few values": storage(GOOD[:-1]),
    "too many values": storage(GOOD + b"\0"),
    "magic": storage(GOOD.replace(b"\x8a\x0al\xfc", b"\x8a\x0am\xfc")),
    "version": storage(GOOD.replace(b"\x80\x02M\xe9\x03.", b"\x80\x02M\xea\x03.")),
    "big endian": storage(GOOD.replace(b"q\2\x88X", b"q\2\x89X")),
    "no system": storage(unusual(UNUSUAL[UNUSUAL.index(b"\x80\x02}q\0") : UNUSUAL.index(b"\x80\x02(")], P2 + b"N.")),
    "no storage in a storage": storage(unusual(ID_PICKLE, b"N.")),
    "a storage in a list": storage(unusual(b"tq\4Q.", b"tq\4Q\x85.")),
    "a short id": storage(unusual(b"q\3K\1Nt", b"q\3K\1t")),
    "another id": storage(unusual(text("storage"), text("storagf"))),
    "a view in an id": storage(unusual(b"q\3K\1Nt", b"q\3K\1\x88t")),
    "no name in an id": storage(unusual(b"ctorch\nFloatStorage\n", b"N")),
    "a number for a key": storage(unusual(text("94410857984480") + b"q\2", b"K\1q\2")),
    "a number for a device": storage(unusual(text("cpu"), b"K\1")),
    "a boolean for a count": storage(unusual(b"q\3K\1N", b"q\3\x88N")),
    "a count below zero": storage(unusual(b"q\3K\1N", b"q\3" + MINUS_ONE + b"N")),
    "another key": storage(unusual(b"]q\0" + text("94410857984480"), b"]q\0" + text("94410857984481"))),
    "no keys": storage(unusual(b"]q\0" + text("94410857984480") + b"q\1a.", b"].")),
    "two keys": storage(unusual(b"q\1a.", b"q\1ah\1a.")),
}

FORBIDDEN = {
    "a name": P2 + name("os", "system"),
    "a call of data": P2 + b"N)R",
    "a call of a dtype": b"ctorch\nfloat32\n)R",
    "state of data": P2 + b"]}b",
    "state of a name": b"ctorch\nSize\n}b",
    "state set twice": dtype() + MARK + b"K\3" + text("|") + b"NNN" + MINUS_ONE * 2 + b"K\0" + TUPLE + BUILD,
    "an id": b"NQ",
    "an instance": b"(ios\nsystem\n",
    "a name that is never called": P2 + b"](ctorch\nSize\ne",
    "a value that is never finished": call("numpy", "dtype", text("u1") + b"\x89\x88"),
    "another encoding": call("_codecs", "encode", text("a") + text("utf-8")),
    "encoded bytes": call("_codecs", "encode", blob(b"a") + text("latin1")),
    "bytes of a number": call("__builtin__", "bytes", b"K\1"),
    "bytes of two": call("__builtin__", "bytes", b"K\1" + text("a")),
    "a bytearray of a number": call("__builtin__", "bytearray", b"K\1"),
    "objects": dtype("O8"),
    "dates": dtype("M8"),
    "odd floats": dtype("f3"),
    "endless text": dtype("S10000000"),
    "a dtype without end": dtype("S" + "1" * 30),
    "text of no length": dtype("U0"),
    "a dtype of a number": call("numpy", "dtype", b"K\1"),
    "an array of text": frombuffer(text("a"), numbers(1)),
    "an array of another kind": array(b")", first=b"ctorch\nSize\n"),
    "an array to be read from": array(b")", shape=b"K\1\x85"),
    "an array of other letters": array(b")", code=blob(b"c")),
}
OPCODES = ("OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "POP", "POP_MARK", "DUP")
FORBIDDEN.update({opcode: b"](" + getattr(pickle, opcode) for opcode in OPCODES})


@pytest.mark.parametrize("what", [*DAMAGED, *FORBIDDEN])
def test_values_beyond_the_limits_are_refused(what):
    kind = UnsafePickleError if what in FORBIDDEN else ResultFileError
    with pytest.raises(kind, match=r"(at|by) byte \d+") as caught:
        loads((DAMAGED.get(what) or FORBIDDEN[what]) + STOP)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (P2 + b"\0", "0x00 is not a pickle opcode, at byte 2"),
        (b"]q\1", "memo slot 1 is not the next one (0), at byte 1"),
        (P2 + b"X\5\0\0\0abc", "is truncated (a value has 5 bytes, and 4 are left in the file), at byte 2 of 11"),
        (tensor(storage(GOOD), size=numbers(2)), "a tensor reaches value 1 of a storage that has 1"),
        (P2 + name("os", "system"), "it asks for os.system, at byte 2"),
        (P2 + b"](ctorch\nSize\ne", "torch.Size is used as a value, at byte 4"),
        (dtype("O8"), "it asks for NumPy dtype 'O8'"),
    ],
)
def test_messages_name_the_value_and_the_offset(data, message):
    with pytest.raises(ResultFileError, match=re.escape(message)):
        loads(data + STOP)


def test_the_budget_grows_with_the_file_and_ends():
    machine = Machine(bytes(10), {}, "a file")
    machine.charge((32 << 20) + 24 * 10)
    with pytest.raises(Damaged, match="far more data than the file contains"):
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
    "ordered dicts": call("collections", "OrderedDict", b"") + b"h\0Ns",
    "short text": b"\x8c\2ab",
    "short text that is not Latin": b"\x8c\2\xc4\x80",
    "lines of text": b"Vab\n",
    "short bytes": b"C\2ab",
    "bytearrays": b"\x96\1" + b"\0" * 7 + b"a",
    "bytearrays by name": call("__builtin__", "bytearray", blob(b"ab")),
    "encoded bytes": call("_codecs", "encode", text("ab") + text("latin1")),
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
    "sizes": call("torch", "Size", numbers(3)),
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


def test_names_are_escaped():
    assert printable("a" * 80) == "a" * 80
    assert printable("a" * 81) == "a" * 77 + "..."
    assert printable("é\n\x1b") == "\\xe9\\n\\x1b"
    assert printable(7) == "<int>"
