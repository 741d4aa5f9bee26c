"""Reading a pickle somebody else wrote, as data."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple, Union

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io.pickle_machine import InMaking, Machine, StandIn
from mm_metrics_plugin.io.stand_ins import NAMES

DEEPEST = 64
_LEAVES = (str, int, float, bool, type(None), bytes, bytearray, complex, set, frozenset)


def read_pickle(path: Union[str, os.PathLike[str]], *, trust: bool = False) -> Any:
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
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror})") from None
    if trust:
        return _run(data, path.name)
    return loads(data, path.name)


def loads(data: bytes, source: str = "pickle") -> Any:
    """Like :func:`read_pickle`, for bytes already in memory.

    Args:
        data (bytes): The whole pickle.
        source (str): How messages name it.

    Examples:
        >>> import numpy, pickle
        >>> loads(pickle.dumps({"scores": numpy.array([0.5])}))
        {'scores': array([0.5])}
        >>> loads(b"cos\\nsystem\\n(S'ls'\\ntR.")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.UnsafePickleError: pickle: it asks for os.system, at byte 0; ...
    """
    if data[:4] == b"PK\x03\x04":
        raise ResultFileError(f"{source}: is a zip archive, such as torch.save writes (expected a pickle)")
    value, end = Machine(data, NAMES, source).load()
    if end != len(data):
        raise ResultFileError(f"{source}: {len(data) - end} bytes follow the end of the pickle, at byte {end}")
    _check_data(value, source)
    return value


def _check_data(value: Any, source: str) -> None:
    """Refuse a value that still holds stand-ins, or whose nesting would exhaust whoever walks it."""
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
                    raise ResultFileError(f"{source}: lists or dicts are nested deeper than {DEEPEST} levels")
                path.append((child, iter(child.values() if isinstance(child, dict) else child), height))
                height = 0
            else:
                height = max(height, known)
        elif kind not in _LEAVES and not isinstance(child, (np.ndarray, np.generic, np.dtype)):
            what = child.name if isinstance(child, StandIn) else "an unfinished value"
            error = UnsafePickleError if isinstance(child, (StandIn, InMaking)) else ResultFileError
            raise error(f"{source}: {what} stands where data belongs; nothing in the file was run")
        while path:
            container, children, outer = path[-1]
            try:
                child = next(children)
                break
            except StopIteration:
                path.pop()
                heights[id(container)] = height + 1
                if len(path) + height + 1 > DEEPEST:
                    raise ResultFileError(f"{source}: lists or dicts are nested deeper than {DEEPEST} levels") from None
                height = max(outer, height + 1)
        else:
            return


def _run(data: bytes, source: str) -> Any:
    warnings.warn(f"{source}: read with plain pickle on request; it may run anything that was put in it", stacklevel=3)
    try:
        return pickle.loads(data)
    except Exception as error:  # a pickle can raise whatever it likes
        raise ResultFileError(f"{source}: pickle could not load it ({type(error).__name__}: {error})") from error
