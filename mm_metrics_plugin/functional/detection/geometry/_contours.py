"""Contours of masks, for drawing."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional._arrays import group_starts, stable_order
from mm_metrics_plugin.functional.detection.geometry import Outlines
from mm_metrics_plugin.functional.detection.geometry._runs import Columns

TOLERANCE = 1.0  # pixels: a removed point is nearer to the line between its neighbors
MIN_POINTS = 12  # shorter contours are exact
_MIN_PROGRESS = 0.1  # fraction of the points a round must remove


def contours(columns: Columns, number: int) -> Outlines:
    """The outlines of ``number`` masks: closed lines around their pixels and holes.

    Each run in a column has two edges, its top from left to right and its bottom from right to left. On the line
    between two columns, the ends of the edges of both columns, sorted by y, are connected in pairs: between the ends of
    a pair, only one of the columns has a pixel.
    """
    row, edges = np.repeat(columns.row, 2), 2 * len(columns.row)
    enter = np.stack([columns.x, columns.x + 1], axis=1).ravel()
    leave = np.stack([columns.x + 1, columns.x], axis=1).ravel()
    y = np.stack([columns.top, columns.bottom], axis=1).ravel()
    ends = stable_order(np.tile(row, 2), np.append(enter, leave), np.tile(y, 2)).reshape(-1, 2)
    following = np.empty(edges, dtype=np.int64)
    following[ends.max(axis=1) - edges] = ends.min(axis=1)
    contour, order = _cycles(following)
    # The corners: where a vertical line connects two edges.
    turns = np.flatnonzero(y[order] != y[following[order]])
    edge, contour = order[turns], np.repeat(contour[turns], 2)
    points = np.stack([leave[edge], y[edge], leave[edge], y[following[edge]]], axis=1).reshape(-1, 2)
    points, contour = _simplified(points.astype(np.float64), contour)
    return _closed(points, contour, row, number)


def _cycles(following: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first edge of the cycle of each edge, and the edges; both are in the order of the cycles.

    Every round doubles the number of following edges that are looked at.
    """
    first, jump = np.arange(len(following)), following
    while (first != first[following]).any():
        first = np.minimum(first, first[jump])
        jump = jump[jump]
    jump = np.where(following == first, np.arange(len(following)), following)  # the last edge of a cycle stays
    left = (following != first).astype(np.int64)  # number of edges to the last one
    while (jump != jump[jump]).any():
        left += left[jump]
        jump = jump[jump]
    order = stable_order(first, -left)
    return first[order], order


def _simplified(points: np.ndarray, contour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points without those near the line between their neighbors; every round removes every second one of them."""
    parity, removed = 0, np.ones(1, dtype=bool)
    while np.count_nonzero(removed) > _MIN_PROGRESS * len(removed):
        starts = group_starts(contour)
        lengths = np.diff(np.append(starts, len(contour)))
        index = np.arange(len(contour))
        before, after = index - 1, index + 1
        before[starts], after[starts + lengths - 1] = starts + lengths - 1, starts
        x, y = points.T
        chord_x, chord_y, x, y = x[after] - x[before], y[after] - y[before], x - x[before], y - y[before]
        distance = np.abs(chord_x * y - chord_y * x)
        removed = (index - np.repeat(starts, lengths)) % 2 == parity
        removed &= (distance < TOLERANCE * np.hypot(chord_x, chord_y)) & np.repeat(lengths > MIN_POINTS, lengths)
        removed[(starts + lengths - 1)[lengths % 2 == 1]] = False  # it is beside the first one
        points, contour, parity = points[~removed], contour[~removed], 1 - parity
    return points, contour


def _closed(points: np.ndarray, contour: np.ndarray, row: np.ndarray, number: int) -> Outlines:
    """Outlines of closed contours: the first point is repeated at the end, followed by NaN if another one follows."""
    starts = group_starts(contour)
    lengths = np.diff(np.append(starts, len(contour)))
    shape = row[contour[starts]]
    last_of_shape = np.append(shape[1:] != shape[:-1], True)[: len(shape)]
    stops = starts + lengths
    at = np.concatenate([stops, stops[~last_of_shape]])
    added = np.concatenate([points[starts], np.full((int((~last_of_shape).sum()), 2), np.nan)])
    total = np.bincount(shape, weights=lengths + 2 - last_of_shape, minlength=number)
    return Outlines(np.insert(points, at, added, axis=0), total.astype(np.int32))
