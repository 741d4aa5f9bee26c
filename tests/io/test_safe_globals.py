"""Arrays, storages and tensors in result files: each way in which one can be wrong is named."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io.safe_pickle import loads
from tests.helpers.hand_made_pickles import (
    GOOD,
    ID,
    NEXT,
    P2,
    UNTYPED,
    UNUSUAL,
    array,
    blob,
    dtype,
    frombuffer,
    integer,
    numbers,
    storage,
    tensor,
    tensor_v3,
    unusual,
)
from tests.helpers.hostile_pickles import MARK, STOP, TUPLE, call, text

DAMAGED = {
    # arrays
    "33 dimensions": (P2 + frombuffer(blob(b"a"), numbers(*[1] * 33)), "the shape of an array is not a tuple of at"),
    "a length below zero": (P2 + frombuffer(blob(b""), numbers(-1)), "the shape of an array is not made of whole"),
    "a length of truth": (P2 + frombuffer(blob(b"a"), b"\x88\x85"), "the shape of an array is not made of whole"),
    "too few bytes": (P2 + frombuffer(blob(b"abc"), numbers(2, 2)), "an array of 4 values of 1 bytes comes with 3"),
    "too many bytes": (P2 + frombuffer(blob(b"abcde"), numbers(2, 2)), "an array of 4 values of 1 bytes comes with 5"),
    "no dtype": (P2 + frombuffer(blob(b"a"), numbers(1), b"N"), "an array has a NoneType for its dtype"),
    "no order": (P2 + frombuffer(blob(b"a"), numbers(1), order=text("K")), "an array is neither in C nor in Fortran"),
    "a number for an order": (P2 + frombuffer(blob(b"a"), numbers(1), order=b"K\1"), "an array is neither in C nor in"),
    "no text": (P2 + frombuffer(blob(b"\0\0\x11\0"), numbers(1), dtype("U1", text("<"))), "an array of text holds"),
    "no byte order": (P2 + dtype(order=text("!")), "dtype u1 has no byte order"),
    "a number for a byte order": (P2 + dtype(order=b"K\1"), "dtype u1 has no byte order"),
    "fields of a dtype": (
        P2 + dtype(state=MARK + b"K\3" + text("|") + b"NN}" + NEXT + NEXT + b"K\0" + TUPLE),
        "the state of dtype u1 is not that of plain numbers or text",
    ),
    "a short state": (P2 + dtype(state=MARK + b"K\3" + text("|") + b"NNN" + NEXT + NEXT + TUPLE), "the state of dtype"),
    "a list as state": (P2 + dtype(state=b"]"), "the state of dtype u1 is not"),
    "state of an array": (P2 + array(b")"), "the state of an array is not a version, shape, dtype, order and content"),
    "order of an array": (
        P2 + array(MARK + b"K\1" + numbers(1) + dtype() + b"N" + blob(b"a") + TUPLE),
        "the state of an array is not a version",
    ),
    # storages and tensors
    "a storage of text": (P2 + call("torch.storage", "_load_from_bytes", text("a"), 2), "a storage is made of a str"),
    "a tensor of nothing": (P2 + tensor(b"N"), "a tensor is made of a NoneType (expected a storage)"),
    "a parameter of nothing": (P2 + call("torch._utils", "_rebuild_parameter", b"N\x89}", 2), "a parameter is made of"),
    "a typed storage": (P2 + tensor_v3(storage(GOOD), b"ctorch\nuint16\n"), "a tensor is not made of an untyped"),
    "no storage": (P2 + tensor_v3(b"N", b"ctorch\nuint16\n"), "a tensor is not made of an untyped storage"),
    "a tensor without dtype": (P2 + tensor_v3(storage(UNTYPED), b"N"), "a tensor has no dtype"),
    "a name for a dtype": (P2 + tensor_v3(storage(UNTYPED), b"ctorch\nSize\n"), "a tensor has no dtype"),
    "beyond an untyped storage": (
        P2 + tensor_v3(storage(UNTYPED), b"ctorch\nuint16\n", numbers(5)),
        "a tensor reaches value 4 of a storage that has 4",
    ),
    "beyond a storage": (P2 + tensor(storage(GOOD), size=numbers(2)), "a tensor reaches value 1 of a storage that has"),
    "behind a storage": (P2 + tensor(storage(GOOD), offset=b"K\1"), "a tensor reaches value 1 of a storage that has 1"),
    "an offset of text": (P2 + tensor(storage(GOOD), offset=text("a")), "a tensor has no proper offset, size and"),
    "an offset below zero": (P2 + tensor(storage(GOOD), offset=integer(-1)), "a tensor has no proper offset, size and"),
    "more sizes than strides": (P2 + tensor(storage(GOOD), size=numbers(1, 1)), "a tensor has no proper offset, size"),
    "a list of sizes": (P2 + tensor(storage(GOOD), size=b"]"), "the size of an array is not a tuple"),
    "two lengths": (P2 + storage(GOOD[:-12] + struct.pack("<q", 2) + GOOD[-4:]), "a storage announces two different"),
    "too few values": (P2 + storage(GOOD[:-1]), "a storage of 1 values of 4 bytes holds 3 bytes"),
    "too many values": (P2 + storage(GOOD + b"\0"), "a storage of 1 values of 4 bytes holds 5 bytes"),
    "magic": (P2 + storage(GOOD.replace(b"\x8a\x0al\xfc", b"\x8a\x0am\xfc")), "a storage does not begin as torch.save"),
    "version": (P2 + storage(GOOD.replace(b"\x80\x02M\xe9\x03.", b"\x80\x02M\xea\x03.")), "a storage does not begin"),
    "big endian": (P2 + storage(GOOD.replace(b"q\2\x88X", b"q\2\x89X")), "a storage was not written on a"),
    "no system": (
        P2 + storage(unusual(UNUSUAL[UNUSUAL.index(b"\x80\x02}q\0") : UNUSUAL.index(b"\x80\x02(")], P2 + b"N.")),
        "a storage was not written on a little-endian machine",
    ),
    "no storage in a storage": (P2 + storage(unusual(ID + b"tq\4Q.", b"N.")), "a storage holds something else than"),
    "a storage in a list": (P2 + storage(unusual(b"tq\4Q.", b"tq\4Q\x85.")), "a storage holds something else than one"),
    "a short id": (P2 + storage(unusual(b"q\3K\1Nt", b"q\3K\1t")), "the persistent id is not that of a storage"),
    "another id": (P2 + storage(unusual(text("storage"), text("storagf"))), "the persistent id is not that of a"),
    "a view in an id": (P2 + storage(unusual(b"q\3K\1Nt", b"q\3K\1\x88t")), "the persistent id is not that of a"),
    "no name in an id": (P2 + storage(unusual(b"ctorch\nFloatStorage\n", b"N")), "the persistent id of a storage is"),
    "a number for a key": (P2 + storage(unusual(text("94410857984480") + b"q\2", b"K\1q\2")), "the persistent id of a"),
    "a number for a place": (P2 + storage(unusual(text("cpu"), b"K\1")), "the persistent id of a storage is not of"),
    "a truth for a count": (P2 + storage(unusual(b"q\3K\1N", b"q\3\x88N")), "the persistent id of a storage is not of"),
    "a count below zero": (P2 + storage(unusual(b"q\3K\1N", b"q\3" + NEXT + b"N")), "the keys of a storage do not"),
    "another key": (
        P2 + storage(unusual(b"]q\0" + text("94410857984480"), b"]q\0" + text("94410857984481"))),
        "the keys of a storage do not agree",
    ),
    "no keys": (P2 + storage(unusual(b"]q\0" + text("94410857984480") + b"q\1a.", b"].")), "the keys of a storage do"),
    "two keys": (P2 + storage(unusual(b"q\1a.", b"q\1ah\1a.")), "the keys of a storage do not agree"),
}

FORBIDDEN = {
    "text in no code": (P2 + call("_codecs", "encode", text("a") + text("utf-8"), 2), "it calls _codecs.encode for"),
    "bytes in a code": (P2 + call("_codecs", "encode", blob(b"a") + text("latin1"), 2), "it calls _codecs.encode for"),
    "bytes of a number": (P2 + call("__builtin__", "bytes", b"K\1", 2), "it calls bytes with a int"),
    "bytes of two": (P2 + call("__builtin__", "bytes", b"K\1" + text("a"), 2), "it calls bytes with a int"),
    "a bytearray of a number": (P2 + call("__builtin__", "bytearray", b"K\1", 2), "it calls bytearray with a int"),
    "objects": (P2 + dtype("O8"), "it asks for NumPy dtype 'O8'"),
    "dates": (P2 + dtype("M8"), "it asks for NumPy dtype 'M8'"),
    "odd floats": (P2 + dtype("f3"), "it asks for NumPy dtype 'f3'"),
    "endless text": (P2 + dtype("S10000000"), "it asks for NumPy dtype 'S10000000'"),
    "a dtype without end": (P2 + dtype("S" + "1" * 30), f"it asks for NumPy dtype 'S{'1' * 19}'"),
    "text of no length": (P2 + dtype("U0"), "it asks for NumPy dtype 'U0'"),
    "a dtype of a number": (P2 + call("numpy", "dtype", b"K\1", 2), "it asks for NumPy dtype 'int'"),
    "an array of text": (P2 + frombuffer(text("a"), numbers(1)), "it makes an array out of a str"),
    "an array of another kind": (P2 + array(b")", first=b"ctorch\nSize\n"), "it calls numpy's _reconstruct for"),
    "an array to be read from": (P2 + array(b")", shape=b"K\1\x85"), "it calls numpy's _reconstruct for something"),
    "an array of other letters": (P2 + array(b")", code=blob(b"c")), "it calls numpy's _reconstruct for something"),
}


@pytest.mark.parametrize("what", [*DAMAGED, *FORBIDDEN])
def test_the_first_that_is_refused(what):
    data, message = DAMAGED.get(what) or FORBIDDEN[what]
    with pytest.raises(ResultFileError, match=re.escape(message)) as caught:
        loads(data + STOP)
    assert type(caught.value) is (UnsafePickleError if what in FORBIDDEN else ResultFileError)


def test_arrays_and_tensors_made_by_hand():
    """What the table above varies is read as it stands."""
    for data, expected in (
        (frombuffer(blob(b"\1\2\3\4"), numbers(2, 2)), np.array([[1, 2], [3, 4]], "u1")),
        (frombuffer(blob(b"\1\2\3\4"), numbers(2, 2), order=text("F")), np.array([[1, 3], [2, 4]], "u1")),
        (frombuffer(blob(b"a"), numbers(*[1] * 32)), np.full([1] * 32, 97, "u1")),
        (frombuffer(blob(b"\xff\xff\x10\0"), numbers(1), dtype("U1", text("<"))), np.array(["\U0010ffff"])),
        (frombuffer(blob(b"\0\1"), numbers(1), dtype("u2", text(">"))), np.array([1], ">u2")),
        (array(MARK + b"K\1" + numbers(1) + dtype() + b"\x89" + blob(b"a") + TUPLE), np.array([97], "u1")),
        (array(MARK + b"K\1" + numbers(1) + dtype() + b"K\0" + blob(b"a") + TUPLE), np.array([97], "u1")),
        (tensor(storage(GOOD)), np.ones(1, "f4")),
        (tensor(storage(UNUSUAL)), np.ones(1, "f4")),
        (tensor(storage(GOOD), size=numbers(3), stride=numbers(0)), np.ones(3, "f4")),
        (tensor(storage(GOOD), offset=b"K\1", size=numbers(0)), np.ones(0, "f4")),
        (tensor_v3(storage(UNTYPED), b"ctorch\nuint16\n", numbers(4)), np.array([0, 0x3F80, 0, 0x4000], "u2")),
        (tensor_v3(storage(UNTYPED), b"ctorch\nfloat32\n"), np.array([1, 2], "f4")),
    ):
        value = loads(P2 + data + STOP)
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)
