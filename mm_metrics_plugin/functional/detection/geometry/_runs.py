"""Run-length encoding of masks: runs of all masks one after the other, as start and stop in column-major order.

Runs of a mask are sorted, not empty, and do not touch, so equal masks have equal runs.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import Rows, stable_order

_BLOCK_RUNS = 1 << 18  # runs looked up at once; these arrays fit the cache
_BLOCK_PIXELS = 1 << 22  # of bitmaps


class Runs(NamedTuple):
    """The runs of several masks."""

    runs: np.ndarray  # (R, 2) start and stop of each run of foreground
    lengths: np.ndarray  # (N,) int64, number of runs of each mask

    def rows(self) -> np.ndarray:
        """(R,) the mask of each run."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def take(self, rows: Rows) -> Runs:
        """The selected masks (indices, a mask or a slice); a slice is not copied."""
        lengths, first = self.lengths[rows], segment_starts(self.lengths)[rows]
        if isinstance(rows, slice) and rows.step in (None, 1):
            start = int(first[0]) if len(first) else 0
            return Runs(self.runs[start : start + int(lengths.sum())], lengths)
        return Runs(np.take(self.runs, expanded(first, lengths), axis=0), lengths)

    @classmethod
    def concatenate(cls, parts: Sequence[Runs]) -> Runs:
        """The masks of all parts, in order."""
        return cls(*map(np.concatenate, zip(*parts)))

    def joined(self) -> Runs:
        """The same masks without empty runs, with touching runs as one, in 32 bits."""
        rows, runs = self.rows(), self.runs
        filled = runs[:, 1] > runs[:, 0]
        if not filled.all():
            rows, runs = rows[filled], runs[filled]
        touches = (runs[1:, 0] == runs[:-1, 1]) & (rows[1:] == rows[:-1])
        if touches.any():
            first, last = np.append(True, ~touches), np.append(~touches, True)
            rows, runs = rows[first], np.stack([runs[first, 0], runs[last, 1]], axis=1)
        return Runs(runs.astype(np.uint32), np.bincount(rows, minlength=len(self.lengths)))


class Columns(NamedTuple):
    """Runs split at the columns of the image."""

    row: np.ndarray  # (C,) the mask
    x: np.ndarray  # (C,) the column
    top: np.ndarray  # (C,) the first y
    bottom: np.ndarray  # (C,) the last y + 1


NO_RUNS = Runs(np.empty((0, 2), dtype=np.uint32), np.empty(0, dtype=np.int64))


def segment_starts(lengths: np.ndarray) -> np.ndarray:
    """The first index of consecutive segments."""
    return np.asarray(np.cumsum(lengths) - lengths, dtype=np.int64)


def expanded(first: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The indices ``first[i], ..., first[i] + lengths[i] - 1`` of all segments, one after the other."""
    return np.asarray(np.arange(int(lengths.sum())) + np.repeat(first - segment_starts(lengths), lengths))


def segment_sums(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The sums of consecutive segments, 0 of an empty one."""
    total = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=total[1:])
    return np.diff(total[np.append(0, np.cumsum(lengths))])


def runs_of_bitmaps(bitmaps: np.ndarray) -> Runs:
    """Runs from boolean masks (N, height, width)."""
    number, height, width = bitmaps.shape
    step = max(1, _BLOCK_PIXELS // max(height * width, 1))
    blocks = [_runs_of_block(bitmaps[start : start + step]) for start in range(0, number, step)]
    return Runs.concatenate([NO_RUNS, *blocks])


def _runs_of_block(bitmaps: np.ndarray) -> Runs:
    number, height, width = bitmaps.shape
    lines = bitmaps.reshape(number * height, width)
    filled = np.flatnonzero(lines.any(axis=1))
    lines = lines[filled]
    row, y = np.divmod(filled, max(height, 1))
    follows = np.append(False, (filled[1:] == filled[:-1] + 1) & (y[1:] > 0))[: len(filled)]
    # A line where a mask begins or ends in some column: where it differs from the line above.
    changes = lines.copy()
    changes[1:] ^= lines[:-1] & follows[1:, None]
    ends = np.flatnonzero(~np.append(follows[1:], False)[: len(filled)])
    row, y = np.append(row, row[ends]), np.append(y, y[ends] + 1)
    # flatnonzero is much faster than nonzero of two dimensions.
    line, x = np.divmod(np.flatnonzero(np.concatenate([changes, lines[ends]])), max(width, 1))
    row, y = row[line], y[line]
    order = np.argsort((row * width + x) * (height + 1) + y)
    row, runs = row[order][::2], (x * height + y)[order].reshape(-1, 2)
    return Runs(runs, np.bincount(row, minlength=number)).joined()


def columns_of_runs(masks: Runs, heights: np.ndarray) -> Columns:
    """The runs of masks in images of the given heights, split at the columns."""
    row = masks.rows()
    start, stop = masks.runs.T.astype(np.int64)
    height = heights[row]
    first, last = start // height, (stop - 1) // height
    number = last - first + 1
    x = expanded(first, number)
    row, first, last, height = (np.repeat(values, number) for values in (row, first, last, height))
    top = np.where(x == first, np.repeat(start, number) - x * height, 0)
    bottom = np.where(x == last, np.repeat(stop, number) - x * height, height)
    return Columns(row, x, top, bottom)


def runs_of_columns(columns: Columns, heights: np.ndarray) -> Runs:
    """The inverse of :func:`columns_of_runs`; ``heights`` (N,) are those of the images."""
    offset = columns.x * heights[columns.row]
    order = stable_order(columns.row, offset + columns.top)
    runs = np.stack([offset + columns.top, offset + columns.bottom], axis=1)[order]
    return Runs(runs, np.bincount(columns.row, minlength=len(heights))).joined()


def intersections(masks: Runs, others: Runs, rows: np.ndarray, other_rows: np.ndarray) -> np.ndarray:
    """(P,) number of pixels in ``masks[rows]`` and in ``others[other_rows]``.

    The runs of a mask are looked up among the runs of the other one: the pixels of the other one in a run are those
    before its stop minus those before its start.
    """
    starts, stops = _keys(masks)
    other_starts, other_stops = _keys(others)
    pixels_before = np.append(0, np.cumsum(other_stops - other_starts))
    first_run = segment_starts(others.lengths)
    # The part of the mask between the first and the last pixel of the other one.
    filled = np.flatnonzero((masks.lengths[rows] > 0) & (others.lengths[other_rows] > 0))
    rows, other_rows, result = rows[filled], other_rows[filled], np.zeros(len(rows), dtype=np.int64)
    low = others.runs[first_run[other_rows], 0].astype(np.int64) + (rows << 32)
    high = others.runs[first_run[other_rows] + others.lengths[other_rows] - 1, 1].astype(np.int64) + (rows << 32)
    first = np.searchsorted(stops, low, side="right")
    number = np.maximum(np.searchsorted(starts, high) - first, 0)
    ends = np.cumsum(number)

    def pixels(position: np.ndarray) -> np.ndarray:
        """The pixels of the other masks before a position."""
        run = np.searchsorted(other_starts, position)
        return np.asarray(pixels_before[run] - np.maximum(other_stops[run - 1] - position, 0) * (run > 0))

    begin = 0
    while begin < len(rows):
        base = int(ends[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(ends, base + _BLOCK_RUNS, side="right")), begin + 1)
        block = slice(begin, end)
        run = expanded(first[block], number[block])
        shift = np.repeat((other_rows[block] - rows[block]) << 32, number[block])
        result[filled[block]] = segment_sums(pixels(stops[run] + shift) - pixels(starts[run] + shift), number[block])
        begin = end
    return result


def _keys(masks: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Starts and stops that ascend over all masks."""
    offset = masks.rows() << 32
    return masks.runs[:, 0] + offset, masks.runs[:, 1] + offset
