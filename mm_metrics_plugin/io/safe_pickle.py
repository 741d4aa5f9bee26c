"""Reading a pickle somebody else wrote, as data."""

from __future__ import annotations

import gc
import pickle
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io.pickle_machine import Machine, StandIn
from mm_metrics_plugin.io.pickle_opcodes import run
from mm_metrics_plugin.io.reading import PathLike, read_bytes
from mm_metrics_plugin.io.stand_ins import NAMES

DEEPEST = 64
_LEAVES = (str, int, float, bool, type(None), bytes, bytearray, complex, set, frozenset)


def read_pickle(path: PathLike, *, trust: bool = False) -> Any:
    """Read a pickle without running anything in it.

    Only the names that tensors, arrays and plain containers need are known, each answered by a stand-in of our own;
    torch is not imported. Tensors come as NumPy arrays (bfloat16 as float32), and arrays may be read-only.

    Args:
        path (str or PathLike): The file.
        trust (bool): Use :func:`pickle.load` instead, which runs whatever the file asks for. Default False.

    Returns:
        object: What was pickled.

    Raises:
        UnsafePickleError: The file asks for something that data never needs.
        ResultFileError: The file is damaged, cut off, or no pickle.

    Examples:
        >>> import os, pickle, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "results.pkl")
        ...     with open(path, "wb") as file:
        ...         pickle.dump([{"img_id": 7}], file)
        ...     read_pickle(path)
        [{'img_id': 7}]
    """
    data, name = read_bytes(path), Path(path).name
    return _run(data, name) if trust else loads(data, name)


def loads(data: bytes, source: str = "pickle") -> Any:
    r"""Like :func:`read_pickle`, for bytes already in memory.

    Args:
        data (bytes): The whole pickle.
        source (str): How messages name it.

    Examples:
        >>> import numpy, pickle
        >>> loads(pickle.dumps({"scores": numpy.array([0.5])}))
        {'scores': array([0.5])}
        >>> loads(b"cos\nsystem\n(Vls\ntR.")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.UnsafePickleError: pickle: it asks for os.system, at byte 0; ...
    """
    if data[:4] == b"PK\x03\x04":
        raise ResultFileError(
            f"{source}: is a zip archive by its byte 0, such as torch.save writes (expected a pickle)"
        )
    if data[:1] in (b"[", b"{"):
        raise ResultFileError(f"{source}: looks like JSON by its byte 0 (expected a pickle)")
    machine = Machine(data, NAMES, source)
    with _collector_paused():
        value, end = run(machine)
    if end != len(data):
        raise ResultFileError(f"{source}: {len(data) - end} bytes follow the end of the pickle, at byte {end}")
    stray = _check_nesting(value, f"{source}: lists or dicts are nested deeper than {DEEPEST} levels, by byte {end}")
    if stray is not None:
        what, at = (stray.name, machine.asked[stray]) if isinstance(stray, StandIn) else ("an unfinished value", end)
        raise UnsafePickleError(
            f"{source}: {what} stands where data belongs, at byte {at}; nothing in the file was run"
        )
    return value


def _check_nesting(value: Any, too_deep: str) -> Any:
    """Refuse a value whose nesting would exhaust whoever walks it.

    Returns:
        object: Whatever in it is no data, such as a stand-in that was never called; None if there is none.
    """
    heights: Dict[int, int] = {}  # of the containers seen to the end; shared ones are walked once
    path: List[Tuple[Any, Iterator[Any], int]] = []
    child: Any = value
    height = 0
    while True:
        kind = type(child)
        if isinstance(child, (dict, list, tuple)):
            known = heights.get(id(child))
            if known is None:
                if len(path) >= DEEPEST:
                    raise ResultFileError(too_deep)
                path.append((child, iter(child.values() if isinstance(child, dict) else child), height))
                height = 0
            else:
                height = max(height, known)
        elif kind not in _LEAVES and not isinstance(child, (np.ndarray, np.generic, np.dtype)):
            return child
        while path:
            container, children, outer = path[-1]
            try:
                child = next(children)
                break
            except StopIteration:
                path.pop()
                heights[id(container)] = height + 1
                if len(path) + height + 1 > DEEPEST:
                    raise ResultFileError(too_deep) from None
                height = max(outer, height + 1)
        else:
            return None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Data holds no cycles (they are refused), so the collector would only look at the same objects over again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(data: bytes, source: str) -> Any:
    warnings.warn(f"{source}: read with plain pickle on request; it may run anything that was put in it", stacklevel=3)
    try:
        return pickle.loads(data)
    except Exception as error:  # a pickle can raise whatever it likes
        raise ResultFileError(f"{source}: pickle could not load it ({type(error).__name__}: {error})") from error
