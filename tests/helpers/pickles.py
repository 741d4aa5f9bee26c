"""Pickles assembled opcode by opcode, and a corpus of hostile ones.

The hostile pickles try to get past a list of allowed names, or to exhaust the reader. Those that would run something
create a canary file, so that a test can check whether anything ran.
"""

from __future__ import annotations

import pickle
import random
import struct
from typing import Iterator

PROTOCOLS = range(6)
MARK, STOP, REDUCE, BUILD, POP, TUPLE = b"(", b".", b"R", b"b", b"0", b"t"
P2 = b"\x80\x02"
MINUS_ONE = b"J\xff\xff\xff\xff"  # as in the state of a dtype


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def short(value: str) -> bytes:
    data = value.encode()
    return b"\x8c" + bytes([len(data)]) + data


def integer(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def numbers(*values: int) -> bytes:
    return MARK + b"".join(map(integer, values)) + TUPLE


def blob(content: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(content)) + content


def name(module: str, attribute: str, protocol: int = 2) -> bytes:
    if protocol >= 4:
        return short(module) + short(attribute) + b"\x93"
    return f"c{module}\n{attribute}\n".encode()


def call(module: str, attribute: str, arguments: bytes, protocol: int = 2) -> bytes:
    return name(module, attribute, protocol) + MARK + arguments + TUPLE + REDUCE


def dtype(code: str = "u1", order: bytes = text("|"), state: bytes = b"") -> bytes:
    made = call("numpy", "dtype", text(code) + b"\x89\x88")
    return made + (state or MARK + b"K\3" + order + b"NNN" + MINUS_ONE * 2 + b"K\0" + TUPLE) + BUILD


def frombuffer(content: bytes, shape: bytes, kind: bytes = b"", order: bytes = text("C")) -> bytes:
    return call("numpy._core.numeric", "_frombuffer", content + (kind or dtype()) + shape + order)


def array(state: bytes, first: bytes = b"", shape: bytes = b"K\0\x85", code: bytes = blob(b"b")) -> bytes:
    made = call("numpy.core.multiarray", "_reconstruct", (first or name("numpy", "ndarray")) + shape + code)
    return made + state + BUILD


def array_state(shape: bytes, content: bytes, kind: bytes = b"", order: bytes = b"\x89") -> bytes:
    return MARK + b"K\1" + shape + (kind or dtype()) + order + content + TUPLE


def storage_bytes(values: bytes, count: int, kind: str = "FloatStorage") -> bytes:
    """A storage as torch.save writes it, without torch."""
    sizes = {"short": 2, "int": 4, "long": 4}
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": sizes}
    parts = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, system)]
    key = "94410857984480"
    parts += [P2, b"(", text("storage"), b"q\0", f"ctorch\n{kind}\n".encode(), b"q\1", text(key), b"q\2"]
    parts += [text("cpu"), b"q\3K", bytes([count]), b"Ntq\4Q.", P2, b"]q\0", text(key), b"q\1a."]
    return b"".join(parts) + struct.pack("<q", count) + values


def storage(content: bytes, protocol: int = 3) -> bytes:
    argument = blob(content)
    if protocol < 3:
        latin = content.decode("latin-1")
        escaped = latin.replace("\\", "\\u005c").replace("\n", "\\u000a").encode("raw-unicode-escape")
        argument = call("_codecs", "encode", (text(latin) if protocol else b"V" + escaped + b"\n") + text("latin1"))
    return call("torch.storage", "_load_from_bytes", argument, protocol)


def tensor(made: bytes, offset: bytes = b"K\0", size: bytes = numbers(1), stride: bytes = numbers(1)) -> bytes:
    return call("torch._utils", "_rebuild_tensor_v2", made + offset + size + stride + b"\x89}")


def tensor_v3(made: bytes, kind: bytes, size: bytes = numbers(2)) -> bytes:
    return call("torch._utils", "_rebuild_tensor_v3", made + b"K\0" + size + numbers(1) + b"\x89}" + kind)


GOOD = storage_bytes(b"\0\0\x80\x3f", 1)
UNTYPED = storage_bytes(b"\0\0\x80\x3f\0\0\0\x40", 8, "UntypedStorage")
UNUSUAL = GOOD.replace(b"longq\x07K\4", b"longq\x07K\7")  # torch writes 4 or 8, so this is read opcode by opcode


def unusual(old: bytes, new: bytes) -> bytes:
    assert UNUSUAL.count(old) == 1, old
    return UNUSUAL.replace(old, new)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The data with some bytes changed, removed, inserted, repeated or truncated."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at, action = rng.randrange(max(1, len(changed))), rng.random()
        part = slice(at, at + rng.randrange(1, 9))
        if action < 0.6:
            changed[at : at + 1] = bytes([rng.randrange(256)])
        elif action < 0.7:
            del changed[part]
        elif action < 0.8:
            changed[at:at] = rng.getrandbits(64).to_bytes(8, "little")
        elif action < 0.97:
            changed[part] = changed[part] * 3
        else:
            del changed[at:]
    return bytes(changed)


# -- hostile pickles -------------------------------------------------------------------------------------------------


def corpus(canary: str) -> dict[str, bytes]:
    """All hostile pickles by name; ``canary`` is the path they touch if they run."""
    made = dict(_other_pickles())
    for protocol in PROTOCOLS:
        header = b"\x80" + bytes([protocol]) if protocol >= 2 else b""
        for label, body in _bodies(canary, protocol):
            made[f"{label}-{protocol}"] = header + body + STOP
        runs = call("os", "system", text(f"touch {canary}"), protocol)
        made[f"trailing-pickle-{protocol}"] = pickle.dumps([1], protocol) + header + runs + STOP
    return made


def _bodies(canary: str, p: int) -> Iterator[tuple[str, bytes]]:
    """What every protocol can write."""
    command, code = text(f"touch {canary}"), text(f"open({canary!r}, 'w')")
    builtins = "__builtin__" if p < 3 else "builtins"
    ordered, huge = name("collections", "OrderedDict", p), b"\x8a\x06\0\0\0\0\x10\0"
    yield "os.system", call("os", "system", command, p)
    yield "posix.system-hidden-by-pop", call("posix", "system", command, p) + POP + b"N"
    yield "builtins.eval", call(builtins, "eval", code, p)
    yield "dotted-name", name("collections", "_sys.modules", p)
    yield "dotted-function", call("collections", "_sys.exit", b"N", p)
    yield "prefix", call("numpy.testing._private.utils", "runstring", code + b"}", p)
    yield "numpy.size-getitem", call("numpy", "size", b"N", p)
    yield "build-on-function", name("_codecs", "encode", p) + b"}" + text("__defaults__") + b"Nsb"
    yield "build-on-dict", b"}}" + text("__class__") + b"Nsb"
    yield "inst", MARK + command + b"ios\nsystem\n"
    yield "obj", MARK + name("os", "system", p) + command + b"o"
    yield "obj-on-allowed", MARK + ordered + b"o"
    yield "newobj", ordered + b")\x81"
    yield "newobj-ex", ordered + b")}\x92"
    for opcode, size in ((b"\x82", 1), (b"\x83", 2), (b"\x84", 4)):
        yield f"extension-{size}", opcode + (240).to_bytes(size, "little")
    runs = call("os", "system", command)
    yield "nested-load-from-bytes", storage(P2 + runs + STOP, p)
    nested = storage_bytes(b"\0" * 4, 1).replace(b"ctorch\nFloatStorage\nq\1", runs + b"q\1")
    yield "nested-load-in-storage-id", storage(nested, p)
    yield "encode-with-other-codec", call("_codecs", "encode", text("a" * 100) + text("zlib"), p)
    for kind in ("bytes", "bytearray"):
        yield f"{kind}-of-8-gib", call(builtins, kind, b"\x8a\x05\0\0\0\0\2", p)
    yield "reconstruct-64-gib", array(b")", shape=MARK + huge + TUPLE)
    for label, length, kind, content in (
        ("array-state-64-gib", huge, "f4", b"N"),
        ("object-array", b"K\1", "O8", b"]Na"),
        ("void-array", b"K\1", "V8", b"N"),
    ):
        yield label, array(array_state(MARK + length + TUPLE, content, dtype(kind, text("<"))))
    yield "function-as-result", b"]" + ordered + b"a"
    for label, (offset, sizes, strides) in BAD_TENSORS.items():
        made = storage(storage_bytes(b"\0" * 16, 4), p)
        yield f"tensor-{label}", tensor(made, integer(offset), numbers(*sizes), numbers(*strides))
    yield "deep-lists", b"]" * 50_000 + b"a" * 49_999
    yield "persistent-id", text("os.system") + b"Q"
    yield "persistent-id-line", b"Pos.system\n"


BAD_TENSORS = {
    "offset-negative": (-1, (4,), (1,)),
    "offset-beyond": (4, (1,), (1,)),
    "stride-negative": (3, (4,), (-1,)),
    "stride-beyond": (0, (4,), (2,)),
    "size-beyond": (0, (5,), (1,)),
    "size-negative": (0, (-4,), (1,)),
    "size-overflows": (0, (2**62, 4), (2**62, 1)),
    "ranks-differ": (0, (4,), (1, 1)),
    "expanded": (0, (2**40,), (0,)),
}


def _other_pickles() -> Iterator[tuple[str, bytes]]:
    """Opcodes that exist in some protocols only, or need none."""
    doubled = b"".join(b"h%ch%c\x86\x94" % (n, n) for n in range(60))
    bodies = {
        "deep-tuples": P2 + b")" + b"\x85" * 50_000,
        "deep-behind-shallow": _deep_behind_shallow(),
        "tuple-hash-bomb": b"\x80\x04})\x94" + doubled + b"Ns",
        "tuple-hash-bomb-in-set": b"\x80\x04\x8f()\x94" + doubled + b"\x90",
        "long-tuple-keys": P2 + b"}q\0(" + b"N" * 100_000 + b"tq\1Ns" + b"h\1Ns" * 100_000,
        "memo-index-huge": P2 + b"Nr\xff\xff\xff\x7f",
        "memo-index-huge-line": b"Np99999999999999999\n",
        "memo-index-negative-line": b"Np-1\n",
        "binbytes-claims-4-gib": b"\x80\x04B\xff\xff\xff\xffabc",
        "binunicode-claims-4-gib": b"\x80\x04X\xff\xff\xff\xffabc",
        "frame-claims-all": b"\x80\x04\x95" + b"\xff" * 8 + b"N",
        "long4-claims-2-gib": P2 + b"\x8b\xff\xff\xff\x7f" + b"\1" * 100,
        "long4-negative": P2 + b"\x8b\xff\xff\xff\xff" + b"\1" * 100,
        "long-line-of-digits": b"L" + b"9" * 1_000_000 + b"L\n",
        "many-sets": b"\x80\x04(" + b"\x8f" * 1_500_000 + b"l",
        "many-marks": b"(" * 2_000_000,
        "encode-again-and-again": _again(call("_codecs", "encode", text("x" * 1_000_000) + text("latin1"))),
        "array-again-and-again": _again(frombuffer(blob(bytes(1_000_000)), numbers(1_000_000))),
        "storage-again-and-again": _again(storage(UNUSUAL), 30_000),
        "colliding-integers": _colliding(30_000),
        "text-array-of-no-characters": P2 + frombuffer(blob(b"\xff" * 4), numbers(1), dtype("U1", text("<"))),
        "next-buffer": b"\x80\x05\x97",
        "readonly-buffer": b"\x80\x05N\x98",
        "cycle": P2 + b"]q\0h\0a",
        "stack-global-of-numbers": b"\x80\x04K\1K\2\x93",
        "newline-in-name": b"\x80\x04" + short("os\x1b[2J\n") + short("system") + b"\x93",
    }
    for label, opcode in (("bytearray8", b"\x96"), ("binbytes8", b"\x8e"), ("binunicode8", b"\x8d")):
        for size in (2**33, 2**62, 2**64 - 1):
            bodies[f"{label}-claims-{size}"] = b"\x80\x05" + opcode + struct.pack("<Q", size) + b"abc"
    for label, body in bodies.items():
        yield label, body + STOP
    yield "zip-archive", b"PK\x03\x04" + b"\0" * 100
    yield "json", b'[{"image_id": 1}]'
    yield "empty", b""


def _deep_behind_shallow() -> bytes:
    """A chain of lists that are all in the outermost list as well, so the shortest path to each is short."""
    links = (b"]r" + struct.pack("<I", n) + b"j" + struct.pack("<I", n - 1) + b"a" for n in range(1, 5000))
    return P2 + b"(]q\0" + b"".join(links) + b"l"


def _again(once: bytes, times: int = 1000) -> bytes:
    """A call, and the same call with the same arguments many times."""
    function, arguments = once[: once.index(MARK)], once[once.index(MARK) : -len(TUPLE + REDUCE)]
    return P2 + b"(" + function + b"q\0" + arguments + b"tq\1R" + b"h\0h\1R" * times + b"l"


def _colliding(count: int) -> bytes:
    """Integers with the same hash: a dict of n of them takes n² comparisons."""
    keys = ((2**61 - 1) * (n + 1) for n in range(count))
    return P2 + b"}(" + b"".join(b"\x8a\x0a" + key.to_bytes(10, "little") + b"N" for key in keys) + b"u"
