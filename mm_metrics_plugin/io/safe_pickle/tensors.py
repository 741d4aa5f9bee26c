"""torch's tensors as NumPy arrays. A storage is bytes, and a tensor is a view of them."""

from __future__ import annotations

import math
import re
import struct
from typing import Any, NamedTuple

import numpy as np

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.functional._inputs import BFloat16Array
from mm_metrics_plugin.io.safe_pickle.machine import CONTAINER_COST, FORGOTTEN, Damaged, Machine, SafeGlobal
from mm_metrics_plugin.io.safe_pickle.opcodes import run

ARRAY_COST = 112  # bytes of an array object without its values, and
DIMENSION_COST = 16  # for each of its dimensions
SLOW_STORAGE_COST = 4096  # reading a storage header opcode by opcode costs time rather than memory
LONGEST_STORAGE_HEADER = 4096
MOST_DIMENSIONS = 32
MOST_LAYOUTS = 1024  # of tensors, kept at a time


def check_dimensions(name: str, values: Any) -> tuple[int, ...]:
    """Check a shape, size or stride."""
    if type(values) is not tuple or len(values) > MOST_DIMENSIONS:
        raise Damaged(f"the {name} of an array is not a tuple of at most {MOST_DIMENSIONS} numbers")
    for value in values:
        if type(value) is not int or value < 0:
            raise Damaged(f"the {name} of an array has values other than whole numbers")
    return values


def wrong_size(name: str, count: int, dtype: np.dtype, nbytes: int) -> str:
    """The message for an array or storage whose bytes do not match its number of values."""
    return f"{name} of {pluralize(count, 'value')} with {pluralize(dtype.itemsize, 'byte')} each has {nbytes} bytes"


class _Kind(NamedTuple):
    """The NumPy dtype of the bytes of a torch dtype. bfloat16, which NumPy lacks, is converted to float32."""

    dtype: np.dtype
    widen: bool = False


class _Storage(NamedTuple):
    """The values of a storage: ``numel`` of them, from ``start`` on in ``content``."""

    content: bytes
    start: int
    numel: int
    kind: _Kind


_NUMPY_NAMES = "uint16 uint32 uint64 float64 float32 float16 int64 int32 int16 int8 uint8 bool complex64 complex128"
TORCH_DTYPES = {name: _Kind(np.dtype(name).newbyteorder("<")) for name in _NUMPY_NAMES.split()}
TORCH_DTYPES["bfloat16"] = _Kind(np.dtype("<u2"), widen=True)
_UNTYPED = _Kind(np.dtype("uint8"))
_TYPED = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_STORAGE_KINDS = {("torch", f"{name}Storage"): TORCH_DTYPES[dtype] for name, dtype in _TYPED.items()}
_STORAGE_KINDS.update({(module, "UntypedStorage"): _UNTYPED for module in ("torch", "torch.storage")})
_STORAGE_NAMES = {pair: SafeGlobal(".".join(pair), meaning=kind) for pair, kind in _STORAGE_KINDS.items()}

# What torch.save writes before the values of a single storage: five pickles, in which only type, key, device and number
# of values differ. A header that differs in any other byte is read opcode by opcode instead.
_HEADER = re.compile(
    rb"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\.\x80\x02M\xe9\x03\."
    rb"\x80\x02}q\x00\(X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03X\x0d\x00\x00\x00little_endianq\x02\x88"
    rb"X\x0a\x00\x00\x00type_sizesq\x03}q\x04\(X\x05\x00\x00\x00shortq\x05K\x02X\x03\x00\x00\x00intq\x06K\x04"
    rb"X\x04\x00\x00\x00longq\x07K[\x04\x08]uu\."
    rb"\x80\x02\(X\x07\x00\x00\x00storageq\x00c(torch(?:\.storage)?)\n([A-Za-z0-9]{1,40})\nq\x01"
    rb"X([\x01-\x14])\x00\x00\x00([0-9]{1,20})q\x02X(?:\x03\x00\x00\x00cpu|\x06\x00\x00\x00cuda:[0-9])q\x03"
    rb"(?:K(.)|M(..)|J(...[\x00-\x7f]))Ntq\x04Q\.\x80\x02\]q\x00X\3\x00\x00\x00\4q\x01a\.",
    re.DOTALL,
)
_COUNT = struct.Struct("<q")


def load_from_bytes(machine: Machine, content: Any) -> _Storage:
    """Replaces ``torch.storage._load_from_bytes``."""
    if type(content) is not bytes:
        raise Damaged(f"a storage is made from a {type(content).__name__} (expected bytes)")
    machine.charge(CONTAINER_COST)
    header = _HEADER.match(content)
    kind = header and _STORAGE_KINDS.get((header.group(1).decode(), header.group(2).decode()))
    if header and kind and len(header.group(4)) == header.group(3)[0]:
        count = int.from_bytes(header.group(header.lastindex or 0), "little")
        start = header.end()
    else:
        machine.charge(SLOW_STORAGE_COST)
        kind, count, start = _storage_header(machine, content)
    if content[start : start + _COUNT.size] != _COUNT.pack(count):
        raise Damaged("a storage has two different lengths")
    start += _COUNT.size
    if len(content) - start != count * kind.dtype.itemsize:
        raise Damaged(wrong_size("a storage", count, kind.dtype, len(content) - start))
    return _Storage(content, start, count, kind)


def _storage_header(machine: Machine, content: bytes) -> tuple[_Kind, int, int]:
    """Read the header opcode by opcode. Only the names of storage classes are allowed in it."""
    claims = []

    def persistent(identity: Any) -> Any:
        if type(identity) is not tuple or len(identity) != 6 or identity[0] != "storage" or identity[5] is not None:
            raise Damaged("the persistent id does not name a storage")
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
        raise Damaged("a storage does not begin as torch.save writes it")
    if type(system) is not dict or system.get("little_endian") is not True:
        raise Damaged("a storage was not written on a little-endian machine")
    if len(claims) != 1 or claim is not claims[0]:
        raise Damaged("a storage does not hold exactly one storage")
    _, storage_type, key, device, count, _ = claim
    if (
        type(storage_type) is not SafeGlobal
        or type(key) is not str
        or type(device) is not str
        or type(count) is not int
    ):
        raise Damaged("the persistent id of a storage has values of other types")
    if type(keys) is not list or len(keys) != 1 or type(keys[0]) is not str or keys[0] != key or count < 0:
        raise Damaged("the keys of a storage do not agree")
    return storage_type.meaning, count, at


def _tensor(machine: Machine, storage: _Storage, offset: Any, size: Any, stride: Any) -> np.ndarray:
    """A tensor, after checking that it stays inside its storage."""
    check_dimensions("size", size)
    check_dimensions("stride", stride)
    if type(offset) is not int or offset < 0 or len(size) != len(stride):
        raise Damaged("a tensor has an invalid offset, size or stride")
    count = math.prod(size)
    last = offset + sum((length - 1) * step for length, step in zip(size, stride))
    if count and last >= storage.numel:
        raise Damaged(f"a tensor reaches value {last} of a storage that has {storage.numel}")
    kind, itemsize = storage.kind, storage.kind.dtype.itemsize
    machine.charge(ARRAY_COST + DIMENSION_COST * len(size) + count * (4 if kind.widen else itemsize))
    steps = tuple([step * itemsize for step in stride])
    start = storage.start + offset * itemsize if count else storage.start
    values: np.ndarray = np.ndarray(size, kind.dtype, storage.content, start, steps)
    return _widened(values) if kind.widen else values


def _widened(values: np.ndarray) -> np.ndarray:
    """bfloat16 values as float32, exactly."""
    wide = values.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32).view(BFloat16Array)


def _with_bits(machine: Machine, values: np.ndarray, metadata: Any) -> np.ndarray:
    """The values of a tensor whose storage holds their negatives or conjugates, according to torch's metadata."""
    if metadata is None:
        return values
    if type(metadata) is not dict:
        raise Damaged(f"the metadata of a tensor is a {type(metadata).__name__} (expected a dict)")
    for bit, function, kinds in (("conj", np.conjugate, "c"), ("neg", np.negative, "fc")):
        if metadata.get(bit, False) is not False:
            if metadata[bit] is not True or values.dtype.kind not in kinds:
                raise Damaged(f"a tensor of {values.dtype} has an invalid {bit} bit")
            machine.charge(values.nbytes)
            values = function(values)
    return values


def rebuild_tensor_v2(
    machine: Machine, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, metadata: Any = None
) -> np.ndarray:
    """Replaces ``torch._utils._rebuild_tensor_v2``."""
    if type(storage) is not _Storage:
        raise Damaged(f"a tensor is made from a {type(storage).__name__} (expected a storage)")
    return _with_bits(machine, _tensor(machine, storage, offset, size, stride), metadata)


def rebuild_tensor_v3(
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
    """Replaces ``torch._utils._rebuild_tensor_v3``."""
    if type(storage) is not _Storage or storage.kind is not _UNTYPED:
        raise Damaged("a tensor is not made from an untyped storage")
    if type(dtype) is not SafeGlobal or type(dtype.meaning) is not _Kind:
        raise Damaged("a tensor has no dtype")
    count = storage.numel // dtype.meaning.dtype.itemsize
    typed = storage._replace(numel=count, kind=dtype.meaning)
    return rebuild_tensor_v2(machine, typed, offset, size, stride, grad, hooks, metadata)


def rebuild_parameter(machine: Machine, tensor: Any, grad: Any, hooks: Any) -> np.ndarray:
    """Replaces ``torch._utils._rebuild_parameter``."""
    if not isinstance(tensor, np.ndarray):
        raise Damaged(f"a parameter is made from a {type(tensor).__name__} (expected a tensor)")
    machine.charge(ARRAY_COST + tensor.nbytes)  # the file may call this any number of times for one tensor
    return tensor


def torch_size(machine: Machine, lengths: Any) -> tuple[int, ...]:
    """Replaces ``torch.Size``."""
    machine.charge(CONTAINER_COST + DIMENSION_COST * MOST_DIMENSIONS)  # as of a parameter
    return check_dimensions("size", lengths)


# -- tensors in one step ---------------------------------------------------------------------------------------------

# The opcodes after the text of a storage in protocol 2 with more than 255 memo slots. Only the slots (P), size and
# stride (N) differ from tensor to tensor. Tensors that are written differently are read opcode by opcode.
_NUMBER = rb"(?:K.|M..|J...[\x00-\x7f])"
_NUMBERS = rb"(N\x85|NN\x86|NNN\x87)".replace(b"N", _NUMBER)
_PUT = rb"r(....)"
_TAIL = re.compile(
    rb"Ph(.)\x86PRP\x85PRPK\x00NPNP\x89h(.)\)RPtPRP".replace(b"N", _NUMBERS).replace(b"P", _PUT), re.DOTALL
)
_SLOT_GROUPS = (1, 3, 4, 5, 6, 8, 10, 12, 13, 14)  # of _TAIL
_SLOTS = struct.Struct("<10I")
_BEFORE = struct.Struct("<cBcBc")
_LENGTH = struct.Struct("<I")
_TYPE_AT = 173  # in the text: the name of the storage's type
_SIZE_AT = 33  # in the tail
_USED_UP = (FORGOTTEN,) * 9


class _TensorLayout:
    """The bytes around the values of a tensor, which repeat in every tensor of the same type and shape.

    Only the key of the storage, which is a number, and the memo slots differ. The slots are consecutive, so the opcodes
    after the text, read as one little-endian number, are ``tail + first_slot * step``.
    """

    def __init__(self, machine: Machine, at: int, start: int, end: int) -> None:
        """Check the opcodes from ``at`` on, and the storage, whose text is from ``start`` to ``end``."""
        memo, slot = machine.memo, len(machine.memo)
        self.before = machine.data[at : at + _BEFORE.size]
        get, load, get_too, encode, text = _BEFORE.unpack(self.before)
        tail = _TAIL.match(machine.data, end)
        if tail is None or get + get_too + text != b"hhX":  # otherwise the text could be the rest of the file
            raise Damaged("a tensor is written with other opcodes")
        content = str(machine.data[start:end], "utf-8").encode("latin1")
        header = _HEADER.match(content)
        if header is None:
            raise Damaged("a storage has another header")
        called = [memo[index] for index in (load, encode, tail.group(11)[0])]
        names = [value.name if type(value) is SafeGlobal else "" for value in called]
        encoding, slots = memo[tail.group(2)[0]], b"".join(tail.group(*_SLOT_GROUPS))
        if names != _CALLED or type(encoding) is not str or encoding != "latin1":
            raise Damaged("a tensor is made by other calls")
        if slots != _SLOTS.pack(*range(slot, slot + len(_SLOT_GROUPS))):
            raise Damaged("memo slots are not consecutive")
        storage = load_from_bytes(machine, content)
        self.size, stride = (run(Machine(opcodes + b".", {}, "size"))[0] for opcodes in tail.group(7, 9))
        values = _tensor(machine, storage, 0, self.size, stride)
        self.widen, self.dtype = storage.kind.widen, storage.kind.dtype
        self.strides = tuple([step * self.dtype.itemsize for step in stride])
        self.nbytes = storage.numel * self.dtype.itemsize
        self.cost = CONTAINER_COST + ARRAY_COST + DIMENSION_COST * values.ndim + values.nbytes
        self.tail_size = tail.end() - end
        self.step = sum(1 << 8 * (tail.start(group) - end) for group in _SLOT_GROUPS)
        self.tail = int.from_bytes(tail.group(), "little") - slot * self.step
        first, last = header.span(4)
        key = content[first - _LENGTH.size : last]
        self.head, self.middle, self.rest = content[: storage.start].split(key)

    def read(self, machine: Machine, at: int, start: int, end: int) -> np.ndarray | None:
        """The tensor; None if the bytes around its values differ."""
        data = machine.data
        opcodes = int.from_bytes(data[end : end + self.tail_size], "little")
        if opcodes != self.tail + len(machine.memo) * self.step or data[at : at + _BEFORE.size] != self.before:
            return None
        content = str(machine.take(start, end - start), "utf-8").encode("latin1")
        key_at = len(self.head) + _LENGTH.size
        digits = content[key_at : key_at + content[key_at - _LENGTH.size]]
        key = _LENGTH.pack(len(digits)) + digits
        header = self.head + key + self.middle + key + self.rest
        if not content.startswith(header) or not digits.isdigit() or len(content) != len(header) + self.nbytes:
            return None
        machine.charge(2 * len(content) + self.cost)  # the text is charged as well
        values: np.ndarray = np.ndarray(self.size, self.dtype, content, len(header), self.strides)
        return _widened(values) if self.widen else values


_CALLED = ["torch.storage._load_from_bytes", "_codecs.encode", "collections.OrderedDict"]


def tensor_ahead(machine: Machine, at: int) -> int:
    """Read a tensor as torch writes it in protocol 2, in one step instead of 35."""
    layouts = machine.layouts
    start = at + _BEFORE.size + _LENGTH.size
    try:
        end: int = start + _LENGTH.unpack_from(machine.data, at + _BEFORE.size)[0]
        kind = machine.data[start + _TYPE_AT : start + _TYPE_AT + 2] + machine.data[end + _SIZE_AT : end + _SIZE_AT + 4]
        layout = layouts.get(kind)
        values = layout.read(machine, at, start, end) if layout else None
        if layout is None or values is None:
            layout = _TensorLayout(machine, at, start, end)
            if len(layouts) >= MOST_LAYOUTS:
                layouts.clear()
            layouts[kind] = layout
            values = layout.read(machine, at, start, end)
    except (Damaged, ValueError, IndexError, struct.error):  # the opcodes raise it again, with their position
        return 0
    if values is None:
        return 0
    machine.memo.extend(_USED_UP)
    machine.memo.append(values)
    machine.stack[-1] = values
    return end + layout.tail_size
