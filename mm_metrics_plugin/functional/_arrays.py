"""Shared array helpers: sorting, groups, means, rates from counts, and parallel maps."""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, Sequence, TypeVar, Union

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.exceptions import MetricInputError, shortened

ABSENT_RULES = ("skip", "nan", "error")
MAX_INDEX = 1 << 62
# 16 float32 are one cache line; a narrower tile would read every line of the matrix more than once.
TILE_WIDTH = 16
# Rows transposed at once: their cache lines (64 bytes each) must still be cached for the next column.
TILE_ROWS = 512

_R = TypeVar("_R")
_T = TypeVar("_T")
Rows = Union[np.ndarray, Sequence[int], slice]  # of an array: indices, a mask or a slice
Scores = Union[np.ndarray, Sequence[np.ndarray]]  # (rows, classes), or consecutive blocks of rows


class Result:
    """Base class of result dataclasses."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain Python values; arrays become lists, and undefined numbers stay NaN."""
        return {name: _to_plain(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, (int, float))}
        return "\n".join(f"{name:<18}{value:g}" for name, value in numbers.items())


def _to_plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def json_values(value: Any) -> Any:
    """Values that JSON can hold: arrays become lists, keys text, and numbers that are NaN or infinite None.

    Example:
        >>> json_values({"recall": np.array([0.5, np.nan]), 3: (np.int64(7), "a")})
        {'recall': [0.5, None], '3': [7, 'a']}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value) if _JSON_TYPES.issuperset(map(type, value)) else [json_values(item) for item in value]
    return value


_JSON_TYPES = {int, str, bool, type(None)}


def divide(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> np.ndarray:
    """``numerator / denominator`` in float64, NaN where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(
        np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    )
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


def mean_over_classes(values: np.ndarray, *, weights: np.ndarray | None = None, absent: str = "skip") -> float:
    """The mean over classes. Undefined (NaN) classes are skipped, make the mean NaN, or raise, as ``absent`` says."""
    defined = ~np.isnan(values)
    if absent == "error" and not defined.all():
        undefined = ", ".join(str(index) for index in np.flatnonzero(~defined)[:10])
        raise MetricInputError(
            f"{int((~defined).sum())} of {len(values)} classes have no value on this data (classes {undefined}) "
            "and absent='error'"
        )
    if not defined.any() or (absent == "nan" and not defined.all()):
        return float("nan")
    kept = np.ones(int(defined.sum())) if weights is None else np.asarray(weights, dtype=np.float64)[defined]
    return float((values[defined] * kept).sum() / kept.sum()) if kept.sum() > 0 else float("nan")


def stable_order(*keys: np.ndarray) -> np.ndarray:
    """Indices that sort rows by the first key, then the second, and so on; a stable sort of keys without NaN.

    Keys are sorted 16 bits at a time, from the last key to the first: NumPy's stable sort of 16 bits is a radix sort.
    """
    order = None
    for key in reversed(keys):
        code = _sortable(np.asarray(key))
        bits = int(code.max()).bit_length() if len(code) else 0
        for shift in range(0, bits, 16):
            digits = (code >> code.dtype.type(shift)).astype(np.uint16)
            by_digit = np.argsort(digits if order is None else digits[order], kind="stable")
            order = by_digit if order is None else order[by_digit]
    return np.arange(len(keys[0])) if order is None else order


def _sortable(key: np.ndarray) -> np.ndarray:
    """Unsigned integers from 0 that sort in the order of the key."""
    if key.dtype.kind == "b" or not len(key):
        return key.astype(np.uint8)
    if key.dtype.kind == "f":
        unsigned = np.dtype(f"u{key.dtype.itemsize}")
        sign = unsigned.type(1) << unsigned.type(8 * unsigned.itemsize - 1)
        # With all bits of negative numbers and the sign of the others flipped, the bits sort like the numbers.
        bits = (key + key.dtype.type(0)).view(unsigned)  # -0.0 becomes 0.0
        bits ^= np.where(bits >= sign, ~unsigned.type(0), sign)
        bits -= bits.min()
        return np.asarray(bits)
    return np.asarray((key - key.min()).view(f"u{key.dtype.itemsize}"))


def index_array(name: str, values: npt.ArrayLike, limit_name: str = "", limit: int | None = None) -> np.ndarray:
    """The values as int64; MetricInputError unless they are a column of whole numbers from 0 to below the limit.

    Example:
        >>> index_array("image", [0, 7], "num_images", 5)
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.MetricInputError: 'image' must be below num_images=5 (found 7 in row 1)
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise MetricInputError(f"'{name}' must be one-dimensional (found shape {array.shape})")
    if not len(array):
        return array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= MAX_INDEX:
        number = array.astype(np.float64) if array.dtype.kind in "iuf" else np.full(len(array), np.nan)
        valid = (number >= 0) & (number < MAX_INDEX) & (number == np.floor(number))
        if not valid.all():
            row = int(np.argmin(valid))
            found = shortened(array[row : row + 1].tolist()[0])
            raise MetricInputError(f"'{name}' must be whole numbers of at least 0 (found {found} in row {row})")
    array = array.astype(np.int64, copy=False)
    if limit is not None and array.max() >= limit:
        row = int(np.argmax(array >= limit))
        raise MetricInputError(f"'{name}' must be below {limit_name}={limit} (found {array[row]} in row {row})")
    return array


def group_starts(groups: np.ndarray) -> np.ndarray:
    """Indices at which a new value begins in a sorted array."""
    if not len(groups):
        return np.empty(0, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(groups[1:] != groups[:-1]) + 1])


def position_in_group(groups: np.ndarray) -> np.ndarray:
    """The position of each row within its group; groups are sorted."""
    starts = group_starts(groups)
    return np.asarray(np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups)))))


def mean_of_defined(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis without NaN; NaN if all values are NaN."""
    defined = ~np.isnan(values)
    return divide(np.where(defined, values, 0).sum(axis=-1), defined.sum(axis=-1))


def fbeta_score(
    tp: np.ndarray | float, fp: np.ndarray | float, fn: np.ndarray | float, beta: float = 1.0
) -> np.ndarray:
    """The F-beta score of counts; NaN where all three are 0.

    Example:
        >>> fbeta_score(np.array([2, 0]), np.array([1, 0]), np.array([1, 0]))
        array([0.66666667,        nan])
    """
    squared = beta**2
    return divide((1 + squared) * tp, (1 + squared) * tp + squared * fn + fp)


def fbeta_of_rates(precision: np.ndarray, recall: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """The F-beta score of precision and recall, such as means over classes; 0 where both are 0."""
    weighted = beta**2 * precision + recall
    return np.where(weighted == 0, 0.0, divide((1 + beta**2) * precision * recall, weighted))


def rates_from_counts(
    tp: np.ndarray, fp: np.ndarray, fn: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Precision, recall and F1 of counts (..., classes): per class, and macro and micro averages; NaN if undefined."""
    per_class = {"precision": divide(tp, tp + fp), "recall": divide(tp, tp + fn), "f1": fbeta_score(tp, fp, fn)}
    precision, recall = mean_of_defined(per_class["precision"]), mean_of_defined(per_class["recall"])
    pooled = [counts.sum(axis=-1) for counts in (tp, fp, fn)]
    return per_class, {
        "precision": precision,
        "recall": recall,
        "f1_of_means": fbeta_of_rates(precision, recall),
        "f1": mean_of_defined(per_class["f1"]),
        "precision_micro": divide(pooled[0], pooled[0] + pooled[1]),
        "recall_micro": divide(pooled[0], pooled[0] + pooled[2]),
        "f1_micro": fbeta_score(*pooled),
    }


def worst_first(
    group: np.ndarray, severity: np.ndarray, *ties: np.ndarray, per_group: int = 50, most: int = 20_000
) -> tuple[np.ndarray, int]:
    """Indices of the worst rows of each group, and the maximum number of rows per group.

    Rows are sorted by group, descending severity, and ascending ``ties``. The maximum is ``per_group``, or less (but at
    least 1) if all groups together had more than ``most`` rows.
    """
    counts = np.unique(group, return_counts=True)[1]
    limit = per_group
    while limit > 1 and int(np.minimum(counts, limit).sum()) > most:
        limit -= 1
    order = np.lexsort((*ties[::-1], -severity, group))
    return order[position_in_group(group[order]) < limit], limit


def score_blocks(scores: Scores) -> Sequence[np.ndarray]:
    """Scores as a list of blocks of rows."""
    return [scores] if isinstance(scores, np.ndarray) else scores


def working_dtype(blocks: Sequence[np.ndarray]) -> np.dtype:
    """float32 if it is exact for every block, else float64."""
    widest = np.result_type(*(block.dtype for block in blocks))
    return np.dtype(np.float32) if widest in (np.float16, np.float32) else np.dtype(np.float64)


def _tile(blocks: Sequence[np.ndarray], start: int, stop: int, dtype: np.dtype) -> np.ndarray:
    """Columns ``start:stop`` of the stacked blocks as contiguous rows."""
    tile = np.empty((stop - start, sum(len(block) for block in blocks)), dtype=dtype)
    row = 0
    for block in blocks:
        for first in range(0, len(block), TILE_ROWS):
            rows = block[first : first + TILE_ROWS, start:stop]
            tile[:, row : row + len(rows)] = rows.T
            row += len(rows)
    return tile


def usable_cores() -> int:
    """Number of CPU cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Like ``map``, on all cores; only a few items and results are in memory at a time."""
    cores = usable_cores()
    if cores == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(cores) as pool:
        waiting: deque[Future[_R]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def map_columns(function: Callable[[int, np.ndarray], _R], blocks: Sequence[np.ndarray]) -> list[_R]:
    """``function(index, column)`` of every column of stacked blocks, on all cores; the column is a copy."""
    width = blocks[0].shape[1]
    dtype = working_dtype(blocks)

    def work(start: int) -> list[_R]:
        tile = _tile(blocks, start, min(start + TILE_WIDTH, width), dtype)
        return [function(start + offset, column) for offset, column in enumerate(tile)]

    if width <= TILE_WIDTH:
        return work(0)
    with ThreadPoolExecutor(usable_cores()) as pool:
        return [value for values in pool.map(work, range(0, width, TILE_WIDTH)) for value in values]


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, made unique by appending the class index to duplicates."""
    counts = Counter(names)
    taken = set(names)
    result = []
    for index, name in enumerate(names):
        if counts[name] > 1:
            name = f"{name}_{index}"
            while name in taken:
                name += f"_{index}"
            taken.add(name)
        result.append(name)
    return result
