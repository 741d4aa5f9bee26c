"""What the names in a result pickle mean here: NumPy arrays, torch tensors as NumPy arrays, and plain containers."""

from __future__ import annotations

import math
import re
import struct
from collections import OrderedDict
from functools import lru_cache, partial
from typing import Any, Callable, Dict, Tuple

import numpy as np

from mm_metrics_plugin.io.safe_pickle.machine import (
    CONTAINER_COST,
    LONGEST_SHORT_TEXT,
    SET_COST,
    SPENT,
    Damaged,
    Forbidden,
    InMaking,
    Machine,
    StandIn,
)
from mm_metrics_plugin.io.safe_pickle.opcodes import run
from mm_metrics_plugin.io.values import BFloat16Array

ARRAY_COST = 112  # bytes of an array object without its values, and
DIMENSION_COST = 16  # for each of its dimensions
DTYPE_COST = 192
SET_MEMBER_COST = 128
SLOW_STORAGE_COST = 4096  # reading a storage header opcode by opcode costs time rather than memory
LONGEST_STORAGE_HEADER = 4096
MOST_DIMENSIONS = 32
_PLAIN_DTYPE = re.compile(r"b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[SU][1-9][0-9]{0,6}")

# -- plain containers ----------------------------------------------------------------------------------------------


def _encode(machine: Machine, text: Any, encoding: Any) -> bytes:
    """Bytes, as protocols 0 to 2 write them."""
    if type(text) is not str or encoding != "latin1":
        raise Forbidden("it calls _codecs.encode for something else than bytes")
    machine.charge(len(text))
    if len(text) > LONGEST_SHORT_TEXT:  # half of the memory that the scores of a classifier take
        machine.forget(text)
    return text.encode("latin1")


def _bytes(machine: Machine, *arguments: Any) -> bytes:
    if arguments:  # only the empty bytes are written like this
        raise Forbidden(f"it calls bytes with a {type(arguments[0]).__name__}")
    return b""


def _bytearray(machine: Machine, content: Any = b"") -> bytearray:
    if type(content) is not bytes:
        raise Forbidden(f"it calls bytearray with a {type(content).__name__}")
    machine.charge(len(content))
    return bytearray(content)


def _complex(machine: Machine, real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise Damaged("a complex number is not made of two floats")
    return complex(real, imaginary)


def _set_of(kind: type, machine: Machine, members: Any) -> Any:
    if type(members) is not list:
        raise Damaged(f"a set is made of a {type(members).__name__} (expected a list)")
    machine.charge(SET_COST + SET_MEMBER_COST * len(members))
    machine.check_keys(members)
    return kind(members)


def _ordered_dict(machine: Machine) -> OrderedDict:
    machine.charge(SET_COST)
    return OrderedDict()


# -- NumPy ---------------------------------------------------------------------------------------------------------

_NDARRAY = StandIn("numpy.ndarray")


class _DtypeInMaking(InMaking):
    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def build(self, machine: Machine, state: Any) -> np.dtype:
        if type(state) is not tuple or len(state) != 8 or state[2:5] != (None, None, None):
            raise Damaged(f"the state of dtype {self.code} is not that of plain numbers or text")
        if type(state[1]) is not str or state[1] not in ("<", ">", "|", "="):
            raise Damaged(f"dtype {self.code} has no byte order")
        return np.dtype(state[1] + self.code)


def _dtype(machine: Machine, code: Any, align: Any = False, copy: Any = True) -> _DtypeInMaking:
    if type(code) is not str or not _PLAIN_DTYPE.fullmatch(code):
        raise Forbidden(f"it asks for NumPy dtype {code[:20] if type(code) is str else type(code).__name__!r}")
    machine.charge(DTYPE_COST)
    return _DtypeInMaking(code)


def _whole_numbers(what: str, values: Any) -> Tuple[int, ...]:
    if type(values) is not tuple or len(values) > MOST_DIMENSIONS:
        raise Damaged(f"the {what} of an array is not a tuple of at most {MOST_DIMENSIONS} numbers")
    for value in values:
        if type(value) is not int or value < 0:
            raise Damaged(f"the {what} of an array is not made of whole numbers")
    return values


def _array(machine: Machine, content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array over ``content``, which it does not copy."""
    if not isinstance(dtype, np.dtype):
        raise Damaged(f"an array has a {type(dtype).__name__} for its dtype")
    if type(content) not in (bytes, bytearray):
        raise Forbidden(f"it makes an array out of a {type(content).__name__}")
    count = math.prod(_whole_numbers("shape", shape))
    if count * dtype.itemsize != len(content):
        raise Damaged(f"an array of {count} values of {dtype.itemsize} bytes comes with {len(content)} bytes")
    machine.charge(ARRAY_COST + DIMENSION_COST * len(shape) + len(content))
    if dtype.kind == "U" and content and _code_points(content, dtype).max() > 0x10FFFF:
        raise Damaged("an array of text holds what is no character")
    return np.ndarray(shape, dtype, content or None, order=order)


def _code_points(content: Any, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(content, np.dtype("u4").newbyteorder(dtype.byteorder))


class _ArrayInMaking(InMaking):
    __slots__ = ()

    def build(self, machine: Machine, state: Any) -> np.ndarray:
        if type(state) is not tuple or len(state) != 5 or type(state[3]) not in (bool, int):
            raise Damaged("the state of an array is not a version, shape, dtype, order and content")
        _, shape, dtype, fortran, content = state
        array = _array(machine, content, dtype, shape, "F" if fortran else "C")
        if not array.dtype.isnative:  # NumPy, too, turns it round here, and only here
            machine.charge(array.nbytes)
            array = array.astype(array.dtype.newbyteorder("="))
        return array


def _reconstruct(machine: Machine, kind: Any, shape: Any, code: Any) -> _ArrayInMaking:
    if kind is not _NDARRAY or shape != (0,) or code != b"b":
        raise Forbidden("it calls numpy's _reconstruct for something else than an array to be filled")
    machine.charge(CONTAINER_COST)
    return _ArrayInMaking()


def _frombuffer(machine: Machine, content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if type(order) is not str or order not in ("C", "F"):
        raise Damaged("an array is neither in C nor in Fortran order")
    return _array(machine, content, dtype, shape, order)


def _scalar(machine: Machine, dtype: Any, content: Any) -> Any:
    return _array(machine, content, dtype, (), "C")[()]


# -- torch: a storage is bytes, a tensor is a view of them ---------------------------------------------------------


class _Kind:
    """How the values of a torch dtype lie in memory. bfloat16, which NumPy lacks, is widened to float32, exactly."""

    __slots__ = ("dtype", "widen")

    def __init__(self, name: str, widen: bool = False) -> None:
        self.dtype = np.dtype(name).newbyteorder("<")
        self.widen = widen


class _Storage:
    __slots__ = ("content", "count", "kind", "start")

    def __init__(self, content: bytes, start: int, count: int, kind: _Kind) -> None:
        self.content = content
        self.start = start
        self.count = count
        self.kind = kind


_UNTYPED = _Kind("uint8")
_NUMPY_TOO = "uint16 uint32 uint64 float64 float32 float16 int64 int32 int16 int8 uint8 bool complex64 complex128"
_TORCH_DTYPES = {name: _Kind(name) for name in _NUMPY_TOO.split()}
_TORCH_DTYPES["bfloat16"] = _Kind("uint16", widen=True)
_STORAGE_KINDS: Dict[bytes, _Kind] = {
    b"torch\nDoubleStorage": _TORCH_DTYPES["float64"],
    b"torch\nFloatStorage": _TORCH_DTYPES["float32"],
    b"torch\nHalfStorage": _TORCH_DTYPES["float16"],
    b"torch\nBFloat16Storage": _TORCH_DTYPES["bfloat16"],
    b"torch\nLongStorage": _TORCH_DTYPES["int64"],
    b"torch\nIntStorage": _TORCH_DTYPES["int32"],
    b"torch\nShortStorage": _TORCH_DTYPES["int16"],
    b"torch\nCharStorage": _TORCH_DTYPES["int8"],
    b"torch\nByteStorage": _TORCH_DTYPES["uint8"],
    b"torch\nBoolStorage": _TORCH_DTYPES["bool"],
    b"torch\nComplexFloatStorage": _TORCH_DTYPES["complex64"],
    b"torch\nComplexDoubleStorage": _TORCH_DTYPES["complex128"],
    b"torch\nUntypedStorage": _UNTYPED,
    b"torch.storage\nUntypedStorage": _UNTYPED,
}

# What torch.save writes before the values of a single storage. Five pickles, the same bytes every time but for type,
# key, place and number of values; whatever differs from this in any byte goes to the opcode machine instead.
_HEADER = re.compile(
    rb"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\.\x80\x02M\xe9\x03\."
    rb"\x80\x02}q\x00\(X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03X\x0d\x00\x00\x00little_endianq\x02\x88"
    rb"X\x0a\x00\x00\x00type_sizesq\x03}q\x04\(X\x05\x00\x00\x00shortq\x05K\x02X\x03\x00\x00\x00intq\x06K\x04"
    rb"X\x04\x00\x00\x00longq\x07K[\x04\x08]uu\."
    rb"\x80\x02\(X\x07\x00\x00\x00storageq\x00c(torch(?:\.storage)?\n[A-Za-z0-9]{1,40})\nq\x01"
    rb"X([\x01-\x14])\x00\x00\x00([0-9]{1,20})q\x02X(?:\x03\x00\x00\x00cpu|\x06\x00\x00\x00cuda:[0-9])q\x03"
    rb"(?:K(.)|M(..)|J(...[\x00-\x7f]))Ntq\x04Q\.\x80\x02\]q\x00X\2\x00\x00\x00\3q\x01a\.",
    re.DOTALL,
)
_COUNT = struct.Struct("<q")


def _load_from_bytes(machine: Machine, content: Any) -> _Storage:
    if type(content) is not bytes:
        raise Damaged(f"a storage is made of a {type(content).__name__} (expected bytes)")
    machine.charge(CONTAINER_COST)
    header = _HEADER.match(content)
    kind = header and _STORAGE_KINDS.get(header.group(1))
    if header and kind and len(header.group(3)) == header.group(2)[0]:
        count = int.from_bytes(header.group(header.lastindex or 0), "little")
        start = header.end()
    else:
        machine.charge(SLOW_STORAGE_COST)
        kind, count, start = _storage_header(machine, content)
    if _COUNT.unpack_from(content, start)[0] != count:
        raise Damaged("a storage announces two different lengths")
    start += _COUNT.size
    if len(content) - start != count * kind.dtype.itemsize:
        raise Damaged(f"a storage of {count} values of {kind.dtype.itemsize} bytes holds {len(content) - start} bytes")
    return _Storage(content, start, count, kind)


def _storage_header(machine: Machine, content: bytes) -> Tuple[_Kind, int, int]:
    """The same header by the opcode machine, which here knows nothing but the storage classes."""
    claims = []

    def persistent(identity: Any) -> Any:
        if type(identity) is not tuple or len(identity) != 6 or identity[0] != "storage" or identity[5] is not None:
            raise Damaged("the persistent id is not that of a storage")
        claims.append(identity)
        return identity

    source = f"{machine.source}, storage of a tensor"
    head = content[:LONGEST_STORAGE_HEADER]
    parts, at = [], 0
    for _ in range(5):
        part, at = run(Machine(head, _STORAGE_NAMES, source, persistent, machine.budget), at)
        parts.append(part)
    magic, version, system, claim, keys = parts
    if type(magic) is not int or magic != 0x1950A86A20F9469CFC6C or type(version) is not int or version != 1001:
        raise Damaged("a storage does not begin as torch.save begins")
    if type(system) is not dict or system.get("little_endian") is not True:
        raise Damaged("a storage was not written on a little-endian machine")
    if len(claims) != 1 or claim is not claims[0]:
        raise Damaged("a storage holds something else than one storage")
    _, stand_in, key, place, count, _ = claim
    if type(stand_in) is not StandIn or type(key) is not str or type(place) is not str or type(count) is not int:
        raise Damaged("the persistent id of a storage is not of the usual kind")
    if type(keys) is not list or len(keys) != 1 or type(keys[0]) is not str or keys[0] != key or count < 0:
        raise Damaged("the keys of a storage do not agree")
    return stand_in.meaning, count, at


def _tensor(machine: Machine, storage: Any, kind: _Kind, offset: Any, size: Any, stride: Any) -> np.ndarray:
    _whole_numbers("size", size)
    _whole_numbers("stride", stride)
    if type(offset) is not int or offset < 0:
        raise Damaged("a tensor has no proper offset, size and stride")
    return _view(machine, storage, kind, offset, size, stride, *_span(size, stride))


def _span(size: Tuple[int, ...], stride: Tuple[int, ...]) -> Tuple[int, int]:
    """The number of values of a tensor, and the distance from the first to the last."""
    if len(size) != len(stride):
        raise Damaged("a tensor has no proper offset, size and stride")
    return math.prod(size), sum((length - 1) * step for length, step in zip(size, stride))


def _view(
    machine: Machine, storage: Any, kind: _Kind, offset: int, size: Any, stride: Any, count: int, span: int
) -> np.ndarray:
    """The view of a storage that a tensor is, after checking that it stays inside."""
    if count and offset + span >= storage.count:
        raise Damaged(f"a tensor reaches value {offset + span} of a storage that has {storage.count}")
    itemsize = kind.dtype.itemsize
    machine.charge(ARRAY_COST + DIMENSION_COST * len(size) + count * (4 if kind.widen else itemsize))
    if count == 0:
        nothing: np.ndarray = np.zeros(size, np.float32 if kind.widen else kind.dtype)
        return nothing.view(BFloat16Array) if kind.widen else nothing
    steps = tuple([step * itemsize for step in stride])
    values: np.ndarray = np.ndarray(size, kind.dtype, storage.content, storage.start + offset * itemsize, steps)
    if kind.widen:
        wide = values.astype(np.uint32)
        wide <<= np.uint32(16)
        return wide.view(np.float32).view(BFloat16Array)
    return values


def _with_bits(machine: Machine, values: np.ndarray, metadata: Any) -> np.ndarray:
    """The values of a tensor whose memory holds their negatives or conjugates, as torch's metadata says."""
    if metadata is None:
        return values
    if type(metadata) is not dict:
        raise Damaged(f"the metadata of a tensor is a {type(metadata).__name__} (expected a dict)")
    for bit, function, kinds in (("conj", np.conjugate, "c"), ("neg", np.negative, "fc")):
        if metadata.get(bit, False) is not False:
            if metadata[bit] is not True or values.dtype.kind not in kinds:
                raise Damaged(f"a tensor of {values.dtype} has an unusable {bit} bit")
            machine.charge(values.nbytes)
            values = function(values)
    return values


def _rebuild_tensor_v2(
    machine: Machine, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, metadata: Any = None
) -> np.ndarray:
    if type(storage) is not _Storage:
        raise Damaged(f"a tensor is made of a {type(storage).__name__} (expected a storage)")
    return _with_bits(machine, _tensor(machine, storage, storage.kind, offset, size, stride), metadata)


def _rebuild_tensor_v3(
    machine: Machine,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> np.ndarray:
    if type(storage) is not _Storage or storage.kind is not _UNTYPED:
        raise Damaged("a tensor is not made of an untyped storage")
    if type(dtype) is not StandIn or type(dtype.meaning) is not _Kind:
        raise Damaged("a tensor has no dtype")
    kind = dtype.meaning
    typed = _Storage(storage.content, storage.start, storage.count // kind.dtype.itemsize, kind)
    return _with_bits(machine, _tensor(machine, typed, kind, offset, size, stride), metadata)


def _rebuild_parameter(machine: Machine, tensor: Any, grad: Any, hooks: Any) -> np.ndarray:
    if not isinstance(tensor, np.ndarray):
        raise Damaged(f"a parameter is made of a {type(tensor).__name__} (expected a tensor)")
    machine.charge(ARRAY_COST + tensor.nbytes)  # the file may call this any number of times for one tensor
    return tensor


def _size(machine: Machine, lengths: Any) -> Tuple[int, ...]:
    machine.charge(CONTAINER_COST + DIMENSION_COST * MOST_DIMENSIONS)  # as of a parameter
    return _whole_numbers("size", lengths)


# What stands before and after the text of a storage in protocol 2, where the memo has passed 255. The same opcodes
# every time but for the slots, the size and the stride; whatever differs goes to the opcode machine instead.
_BEFORE = struct.Struct("<cBcBcI")
_NUMBER = rb"(?:K.|M..|J...[\x00-\x7f])"
_NUMBERS = rb"(N\x85|NN\x86|NNN\x87)".replace(b"N", _NUMBER)
_PUT = rb"r(....)"
_AFTER = re.compile(
    rb"Ph(.)\x86PRP\x85PRPK\x00NPNP\x89h(.)\)RPtPRP".replace(b"N", _NUMBERS).replace(b"P", _PUT), re.DOTALL
)
_SLOTS = struct.Struct("<10I")
_USED_UP = (SPENT,) * 9


def _tensor_ahead(machine: Machine, at: int) -> int:
    """Read a tensor as torch writes it in protocol 2, in one step instead of 35."""
    data, memo, slot = machine.data, machine.memo, len(machine.memo)
    try:
        get, load, get_too, encode, text, length = _BEFORE.unpack_from(data, at)
        start = at + _BEFORE.size
        after = _AFTER.match(data, start + length)
        if after is None or slot < 256:
            return 0
        p0, latin1, p1, p2, p3, p4, size, p5, stride, p6, hooks, p7, p8, p9 = after.groups()
        if b"".join((p0, p1, p2, p3, p4, p5, p6, p7, p8, p9)) != _SLOTS.pack(*range(slot, slot + 10)):
            return 0
        if get + get_too + text != b"hhX" or memo[load] is not _LOAD or memo[encode] is not _ENCODE:
            return 0
        if memo[latin1[0]] != "latin1" or memo[hooks[0]] is not _HOOKS:
            return 0
        content = str(machine.take(start, length), "utf-8").encode("latin1")
        machine.charge(2 * len(content))  # also that of the text
        storage = _load_from_bytes(machine, content)
        values = _view(machine, storage, storage.kind, 0, *_extent(size, stride))
    except (Damaged, ValueError, struct.error):  # which the opcodes say again, with the byte they are at
        return 0
    memo.extend(_USED_UP)
    memo.append(values)
    machine.stack[-1] = values
    return after.end()


_REBUILD = StandIn("torch._utils._rebuild_tensor_v2", _rebuild_tensor_v2, ahead=_tensor_ahead)


@lru_cache(maxsize=1024)
def _extent(size: bytes, stride: bytes) -> Tuple[Tuple[int, ...], Tuple[int, ...], int, int]:
    lengths, steps = (run(Machine(opcodes + b".", {}, "size"))[0] for opcodes in (size, stride))
    return (lengths, steps, *_span(lengths, steps))


# -- the list of names ---------------------------------------------------------------------------------------------


def _names() -> Dict[Tuple[str, str], StandIn]:
    makers: Dict[Tuple[str, str], Callable[..., Any]] = {
        ("_codecs", "encode"): _encode,
        ("collections", "OrderedDict"): _ordered_dict,
        ("torch", "Size"): _size,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
        ("torch.storage", "_load_from_bytes"): _load_from_bytes,
        ("numpy", "dtype"): _dtype,
    }
    for builtins in ("builtins", "__builtin__"):
        makers[builtins, "bytes"] = _bytes
        makers[builtins, "bytearray"] = _bytearray
        makers[builtins, "complex"] = _complex
        makers[builtins, "set"] = partial(_set_of, set)
        makers[builtins, "frozenset"] = partial(_set_of, frozenset)
    for core in ("numpy.core", "numpy._core"):  # NumPy 1.x and 2.x
        makers[f"{core}.multiarray", "_reconstruct"] = _reconstruct
        makers[f"{core}.multiarray", "scalar"] = _scalar
        makers[f"{core}.numeric", "_frombuffer"] = _frombuffer
    names = {pair: StandIn(".".join(pair), make) for pair, make in makers.items()}
    names["numpy", "ndarray"] = _NDARRAY
    names["torch._utils", "_rebuild_tensor_v2"] = _REBUILD
    for name, kind in _TORCH_DTYPES.items():
        names["torch", name] = StandIn(f"torch.{name}", meaning=kind)
    return names


NAMES = _names()
_LOAD = NAMES["torch.storage", "_load_from_bytes"]
_ENCODE = NAMES["_codecs", "encode"]
_HOOKS = NAMES["collections", "OrderedDict"]
_STORAGE_NAMES = {
    (module, name): StandIn(f"{module}.{name}", meaning=kind)
    for (module, name), kind in ((pair.decode().split("\n"), kind) for pair, kind in _STORAGE_KINDS.items())
}
