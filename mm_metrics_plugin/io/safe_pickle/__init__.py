"""Safe unpickling: reads a pickle as data, without running anything in it."""

from __future__ import annotations

import gc
import pickle
import warnings
from collections import OrderedDict
from contextlib import contextmanager
from pathlib import Path
from sys import getsizeof
from typing import Any, Callable, Iterator

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, UnsafePickleError, pluralize
from mm_metrics_plugin.io.file_heads import recognize_bytes
from mm_metrics_plugin.io.files import Content, PathLike, read_content
from mm_metrics_plugin.io.safe_pickle.machine import Damaged, Machine, SafeGlobal
from mm_metrics_plugin.io.safe_pickle.opcodes import run
from mm_metrics_plugin.io.safe_pickle.safe_globals import NAMES

DEEPEST = 64
_STARTS, _STOP = (b"\x80", b"(", b"]", b"}"), b"."  # pickles of lists and dicts begin with one of these bytes
REFERENCE_COST = 32  # bytes that readers need for each array in a list
_NUMBERS = frozenset((int, float, bool, type(None)))
_LEAVES = (complex, set, frozenset)
_CONTAINERS = (dict, list, tuple, OrderedDict)


def read_pickle(path: PathLike, *, trust: bool = False, on_progress: Callable[[float], None] | None = None) -> Any:
    """Read a pickle without running anything in it.

    Only the names that tensors, arrays and plain containers need are allowed, each replaced by a safe global; torch is
    not imported. Tensors become NumPy arrays (bfloat16 as float32), and arrays may be read-only.

    Args:
        path: The file.
        trust: Use :func:`pickle.load` instead, which runs any code in the file.
        on_progress: Receives the fraction of the file that was read.
    """
    return read_hashed_pickle(path, trust=trust, on_progress=on_progress)[0]


def read_hashed_pickle(
    path: PathLike, *, trust: bool = False, on_progress: Callable[[float], None] | None = None
) -> tuple[Any, str]:
    """The content of :func:`read_pickle`, and the SHA-256 of the file."""
    (data, digest), name = read_content(path), Path(path).name
    return _load_with_pickle(data, name) if trust else loads(data, name, on_progress=on_progress), digest


def loads(data: Content, source: str = "pickle", *, on_progress: Callable[[float], None] | None = None) -> Any:
    """Like :func:`read_pickle`, for bytes in memory; ``source`` is their name in messages."""
    machine = Machine(data, NAMES, source, on_progress=on_progress)
    with collector_paused():
        try:
            value, end = run(machine)
        except ResultFileError:
            if data[:1] in _STARTS or data[-1:] == _STOP:
                raise
            what = recognize_bytes(data).what
            raise ResultFileError(f"{source}: found {what}, at byte 0 (expected a pickle)") from None
        if end != len(data):
            rest = pluralize(len(data) - end, "byte")
            raise ResultFileError(f"{source}: the pickle is followed by {rest}, at byte {end}")
        try:
            stray = _check_content(value, machine)
        except Damaged as error:
            raise ResultFileError(f"{source}: {error}, by byte {end}") from None
    if stray is not None:
        what, at = "an unfinished value", end
        if isinstance(stray, SafeGlobal):
            what, at = stray.name, machine.used_at[stray]
        raise UnsafePickleError(f"{source}: {what} is used as a value, at byte {at}; nothing in the file was run")
    return value


def _check_content(value: Any, machine: Machine) -> Any:
    """Charge every value for each time it is used again, and refuse content that is nested too deeply.

    A pickle of 300 bytes can hold a list that holds one list twice, which holds one list twice, and so on. It takes
    little memory until it is copied or printed. After this check, a walk through the content takes no more time and
    memory than the budget allows.

    Returns:
        A value that is not data, such as a safe global that was never called; None if all values are data.
    """
    recalled = machine.recalled
    outer: list[tuple[Iterator[Any], int, int, int]] = []  # the containers around the current one
    children, identity, height, size = iter((value,)), 0, 0, 0
    while True:
        for child in children:
            kind = type(child)
            if kind in _NUMBERS:
                continue
            known = recalled.get(id(child))
            if known is not None:
                machine.charge(known[1])
                if len(outer) + known[0] > DEEPEST:
                    raise _too_deep()
                height = max(height, known[0] + 1)
                size += known[1]
            elif kind in _CONTAINERS:
                if len(outer) >= DEEPEST:
                    raise _too_deep()
                outer.append((children, identity, height, size))
                children = iter(child if kind in (list, tuple) else child.values())
                if kind is list and _NUMBERS.issuperset(map(type, child)):
                    children = iter(())  # no values to check
                identity, height, size = id(child), 1, getsizeof(child)
                break
            elif isinstance(child, (np.ndarray, np.generic, str, bytes, bytearray)):
                own = REFERENCE_COST + child.nbytes if isinstance(child, np.ndarray) else getsizeof(child)
                if id(child) in recalled:
                    recalled[id(child)] = 0, own
                size += own
            elif kind not in _LEAVES and not isinstance(child, np.dtype):
                return child
        else:
            if not outer:
                return None
            inner = height, size
            if identity in recalled:
                recalled[identity] = inner
            children, identity, height, size = outer.pop()
            height = max(height, inner[0] + 1)
            size += inner[1]


def _too_deep() -> Damaged:
    return Damaged(f"lists or dicts are nested deeper than {DEEPEST} levels")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector. Data holds no cycles, and collections would visit the same objects repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load_with_pickle(data: Content, source: str) -> Any:
    warnings.warn(
        f"{source}: read with plain pickle on request; it may run any code in it",
        MetricWarning,
        stacklevel=4,
    )
    try:
        return pickle.loads(data)
    except Exception as error:  # a pickle can raise any exception
        raise ResultFileError(f"{source}: pickle could not load it ({type(error).__name__}: {error})") from error
