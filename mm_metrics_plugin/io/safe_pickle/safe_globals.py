"""The names that a result pickle may use, with what they make.

These are NumPy arrays, torch tensors as NumPy arrays, plain containers, and boxes and masks of mmdet and mmrotate as
their attributes.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from functools import partial
from typing import Any, Callable

import numpy as np

from mm_metrics_plugin.io.safe_pickle.machine import (
    CONTAINER_COST,
    LONGEST_SHORT_TEXT,
    SET_COST,
    Damaged,
    Forbidden,
    Machine,
    PartialObject,
    SafeGlobal,
)
from mm_metrics_plugin.io.safe_pickle.tensors import (
    ARRAY_COST,
    DIMENSION_COST,
    TORCH_DTYPES,
    check_dimensions,
    load_from_bytes,
    rebuild_parameter,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    tensor_ahead,
    torch_size,
    wrong_size,
)

DTYPE_COST = 192
SET_MEMBER_COST = 128
_PLAIN_DTYPE = re.compile(r"b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[SU][1-9][0-9]{0,6}")

# -- plain containers ----------------------------------------------------------------------------------------------


def _encode(machine: Machine, text: Any, encoding: Any) -> bytes:
    """Bytes, as protocols 0 to 2 write them."""
    if type(text) is not str or encoding != "latin1":
        raise Forbidden("it calls _codecs.encode other than for bytes")
    machine.charge(len(text))
    if len(text) > LONGEST_SHORT_TEXT:  # this halves the memory of a classifier's scores
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
        raise Damaged("a complex number is not made from two floats")
    return complex(real, imaginary)


def _set_of(kind: type, machine: Machine, members: Any) -> Any:
    if type(members) is not list:
        raise Damaged(f"a set is made from a {type(members).__name__} (expected a list)")
    machine.charge(SET_COST + SET_MEMBER_COST * len(members))
    machine.check_keys(members)
    return kind(members)


def _ordered_dict(machine: Machine) -> OrderedDict[Any, Any]:
    machine.charge(SET_COST)
    return OrderedDict()


# -- NumPy ---------------------------------------------------------------------------------------------------------

_NDARRAY = SafeGlobal("numpy.ndarray")


class _PartialDtype(PartialObject):
    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def build(self, machine: Machine, state: Any) -> np.dtype:
        if type(state) is not tuple or len(state) != 8 or state[2:5] != (None, None, None):
            raise Damaged(f"the state of dtype {self.code} is not a state of plain numbers or text")
        if type(state[1]) is not str or state[1] not in ("<", ">", "|", "="):
            raise Damaged(f"dtype {self.code} has no byte order")
        return np.dtype(state[1] + self.code)


def _dtype(machine: Machine, code: Any, align: Any = False, copy: Any = True) -> _PartialDtype:
    if type(code) is not str or not _PLAIN_DTYPE.fullmatch(code):
        raise Forbidden(f"it asks for NumPy dtype {code[:20] if type(code) is str else type(code).__name__!r}")
    machine.charge(DTYPE_COST)
    return _PartialDtype(code)


def _array(machine: Machine, content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array over ``content``, which it does not copy."""
    if not isinstance(dtype, np.dtype):
        raise Damaged(f"the dtype of an array is a {type(dtype).__name__}")
    if type(content) not in (bytes, bytearray):
        raise Forbidden(f"it makes an array from a {type(content).__name__}")
    count = math.prod(check_dimensions("shape", shape))
    if count * dtype.itemsize != len(content):
        raise Damaged(wrong_size("an array", count, dtype, len(content)))
    machine.charge(ARRAY_COST + DIMENSION_COST * len(shape) + len(content))
    if dtype.kind == "U" and content:
        code_points = np.frombuffer(content, np.dtype("u4").newbyteorder(dtype.byteorder))
        if code_points.max() > 0x10FFFF:
            raise Damaged("an array of text has an invalid character")
    return np.ndarray(shape, dtype, content or None, order=order)


class _PartialArray(PartialObject):
    __slots__ = ()

    def build(self, machine: Machine, state: Any) -> np.ndarray:
        if type(state) is not tuple or len(state) != 5 or type(state[3]) not in (bool, int):
            raise Damaged("the state of an array is not a version, shape, dtype, order and content")
        _, shape, dtype, fortran, content = state
        array = _array(machine, content, dtype, shape, "F" if fortran else "C")
        if not array.dtype.isnative:  # NumPy converts the byte order here, and only here
            machine.charge(array.nbytes)
            array = array.astype(array.dtype.newbyteorder("="))
        return array


def _reconstruct(machine: Machine, kind: Any, shape: Any, code: Any) -> _PartialArray:
    if kind is not _NDARRAY or shape != (0,) or code != b"b":
        raise Forbidden("it calls numpy's _reconstruct other than for an empty array")
    machine.charge(CONTAINER_COST)
    return _PartialArray()


def _frombuffer(machine: Machine, content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if type(order) is not str or order not in ("C", "F"):
        raise Damaged("an array is neither in C nor in Fortran order")
    return _array(machine, content, dtype, shape, order)


def _scalar(machine: Machine, dtype: Any, content: Any) -> Any:
    return _array(machine, content, dtype, (), "C")[()]


# -- mmdet and mmrotate ----------------------------------------------------------------------------------------------


class _PartialFields(PartialObject):
    """An instance whose attributes are data: one of them is its value, or all are, as a dict."""

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[str, ...]) -> None:
        super().__init__()
        self.fields = fields

    def build(self, machine: Machine, state: Any) -> Any:
        if type(state) is not dict or not set(self.fields) <= set(state):
            raise Damaged(f"the state of an object is not a dict with {', '.join(self.fields)}")
        return state[self.fields[0]] if len(self.fields) == 1 else {name: state[name] for name in self.fields}


def _instance_of(fields: tuple[str, ...], machine: Machine) -> _PartialFields:
    machine.charge(CONTAINER_COST)
    return _PartialFields(fields)


_BOXES, _MASKS = ("tensor",), ("masks", "height", "width")
_CLASSES = {
    ("mmdet.structures.bbox.horizontal_boxes", "HorizontalBoxes"): _BOXES,
    ("mmrotate.structures.bbox.rotated_boxes", "RotatedBoxes"): _BOXES,
    ("mmrotate.structures.bbox.quadri_boxes", "QuadriBoxes"): _BOXES,
    ("mmdet.structures.mask.structures", "BitmapMasks"): _MASKS,
    ("mmdet.structures.mask.structures", "PolygonMasks"): _MASKS,
}


# -- the list of names ---------------------------------------------------------------------------------------------


def _names() -> dict[tuple[str, str], SafeGlobal]:
    makers: dict[tuple[str, str], Callable[..., Any]] = {
        ("_codecs", "encode"): _encode,
        ("collections", "OrderedDict"): _ordered_dict,
        ("torch", "Size"): torch_size,
        ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
        ("torch._utils", "_rebuild_tensor_v3"): rebuild_tensor_v3,
        ("torch.storage", "_load_from_bytes"): load_from_bytes,
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
    names = {pair: SafeGlobal(".".join(pair), make) for pair, make in makers.items()}
    names["numpy", "ndarray"] = _NDARRAY
    for pair, fields in _CLASSES.items():
        names[pair] = SafeGlobal(".".join(pair), partial(_instance_of, fields), is_class=True)
    rebuild = SafeGlobal("torch._utils._rebuild_tensor_v2", rebuild_tensor_v2, ahead=tensor_ahead)
    names["torch._utils", "_rebuild_tensor_v2"] = rebuild
    for name, kind in TORCH_DTYPES.items():
        names["torch", name] = SafeGlobal(f"torch.{name}", meaning=kind)
    return names


NAMES = _names()
