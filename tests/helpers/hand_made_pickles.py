"""Pickles put together opcode by opcode, as no pickler writes them."""

from __future__ import annotations

import struct

from tests.helpers.hostile_pickles import BUILD, MARK, TUPLE, call, name, storage_bytes, text

P2 = b"\x80\x02"
NEXT = b"J\xff\xff\xff\xff"  # -1, as a dtype's state has it


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def blob(content: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(content)) + content


def numbers(*values: int) -> bytes:
    return MARK + b"".join(map(integer, values)) + TUPLE


def dtype(code: str = "u1", order: bytes = text("|"), state: bytes = b"") -> bytes:
    made = call("numpy", "dtype", text(code) + b"\x89\x88", 2)
    return made + (state or MARK + b"K\3" + order + b"NNN" + NEXT + NEXT + b"K\0" + TUPLE) + BUILD


def frombuffer(content: bytes, shape: bytes, kind: bytes = b"", order: bytes = text("C")) -> bytes:
    return call("numpy._core.numeric", "_frombuffer", content + (kind or dtype()) + shape + order, 2)


def array(state: bytes, first: bytes = b"", shape: bytes = b"K\0\x85", code: bytes = blob(b"b")) -> bytes:
    made = call("numpy.core.multiarray", "_reconstruct", (first or name("numpy", "ndarray", 2)) + shape + code, 2)
    return made + state + BUILD


def storage(content: bytes) -> bytes:
    return call("torch.storage", "_load_from_bytes", blob(content), 2)


def tensor(made: bytes, offset: bytes = b"K\0", size: bytes = numbers(1), stride: bytes = numbers(1)) -> bytes:
    return call("torch._utils", "_rebuild_tensor_v2", made + offset + size + stride + b"\x89}", 2)


def tensor_v3(made: bytes, kind: bytes, size: bytes = numbers(2)) -> bytes:
    return call("torch._utils", "_rebuild_tensor_v3", made + b"K\0" + size + numbers(1) + b"\x89}" + kind, 2)


GOOD = storage_bytes(b"\0\0\x80\x3f", 1)
UNTYPED = storage_bytes(b"\0\0\x80\x3f\0\0\0\x40", 8, "UntypedStorage")
# Not as torch lays it out to the byte, so that it is read opcode by opcode.
UNUSUAL = GOOD.replace(b"longq\x07K\4", b"longq\x07K\7")
ID = (
    b"("
    + text("storage")
    + b"q\0ctorch\nFloatStorage\nq\1"
    + text("94410857984480")
    + b"q\2"
    + text("cpu")
    + b"q\3K\1N"
)


def unusual(old: bytes, new: bytes) -> bytes:
    assert UNUSUAL.count(old) == 1, old
    return UNUSUAL.replace(old, new)
