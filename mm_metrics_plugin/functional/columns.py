"""Work on the columns of a tall matrix that arrives as blocks of rows."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Callable, Deque, Iterable, Iterator, List, Sequence, Tuple, TypeVar

import numpy as np

_R = TypeVar("_R")
_T = TypeVar("_T")

# 16 float32 are one cache line: a narrower tile would read every line of the matrix more than once.
TILE_WIDTH = 16
# Rows transposed at once: their cache lines (64 bytes each) must still be there when the next column asks for them.
TILE_ROWS = 512


def working_dtype(blocks: Sequence[np.ndarray]) -> np.dtype:
    """The dtype that holds every block exactly and that NumPy sorts fast: float32 or float64."""
    widest = np.result_type(*(block.dtype for block in blocks))
    return np.dtype(np.float32) if widest in (np.float16, np.float32) else np.dtype(np.float64)


def _tile(blocks: Sequence[np.ndarray], start: int, stop: int, dtype: np.dtype) -> np.ndarray:
    """Columns ``start:stop`` of the stacked blocks, one column a row, in memory of its own."""
    tile = np.empty((stop - start, sum(len(block) for block in blocks)), dtype=dtype)
    row = 0
    for block in blocks:
        for first in range(0, len(block), TILE_ROWS):
            part = block[first : first + TILE_ROWS, start:stop]
            tile[:, row : row + len(part)] = part.T
            row += len(part)
    return tile


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """``function(item)`` of every item, in order, on all cores: NumPy lets go of the interpreter while it computes.

    Only a few items and results are in memory at a time.

    Example:
        >>> list(map_in_order(abs, iter([-1, 2, -3])))
        [1, 2, 3]
    """
    cores = usable_cores()
    if cores == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(cores) as pool:
        waiting: Deque[Future[_R]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def map_columns(function: Callable[[int, np.ndarray], _R], blocks: Sequence[np.ndarray]) -> List[_R]:
    """``function(index, column)`` of every column, in order.

    The column is a private copy that the function may sort in place. Tiles of columns run on all cores: NumPy
    lets go of the interpreter while it copies and sorts.

    Example:
        >>> blocks = [np.array([[1.0, 5.0]]), np.array([[2.0, 3.0], [0.5, 4.0]])]
        >>> map_columns(lambda index, column: float(column.max()), blocks)
        [2.0, 5.0]
    """
    width = blocks[0].shape[1]
    dtype = working_dtype(blocks)

    def work(bounds: Tuple[int, int]) -> List[_R]:
        tile = _tile(blocks, bounds[0], bounds[1], dtype)
        return [function(bounds[0] + offset, column) for offset, column in enumerate(tile)]

    def tiles() -> Iterator[Tuple[int, int]]:
        for start in range(0, width, TILE_WIDTH):
            yield start, min(start + TILE_WIDTH, width)

    if width <= TILE_WIDTH:
        return work((0, width))
    with ThreadPoolExecutor(usable_cores()) as pool:
        return [value for values in pool.map(work, tiles()) for value in values]
