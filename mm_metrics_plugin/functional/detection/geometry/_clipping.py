"""Areas of intersections of convex quadrilaterals, by clipping one with the sides of the other in float64."""

from __future__ import annotations

import numpy as np

_BLOCK_PAIRS = 1 << 13  # the arrays fit the cache


def polygon_areas(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(N,) signed area of polygons with corners (V, N), positive if x turns to y."""
    twice: np.ndarray = (x * np.roll(y, -1, axis=0) - np.roll(x, -1, axis=0) * y).sum(axis=0)
    return twice / 2


def intersection_areas(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """(P,) area of the intersections of convex quadrilaterals (2, 4, P) with areas of at least 0.

    Clipping is continuous: a rounding error moves a corner, and the area changes as little. A corner on a side of the
    other one is inside, so the intersection of equal quadrilaterals has exactly their area.
    """
    pairs = first.shape[2]
    result = np.zeros(pairs)
    for start in range(0, pairs, _BLOCK_PAIRS):
        block = slice(start, start + _BLOCK_PAIRS)
        result[block] = _clipped_areas(first[..., block], second[..., block])
    return result


def _clipped_areas(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    result = np.zeros(first.shape[2])
    left = np.arange(len(result))  # the pairs that may intersect
    x, y = first
    for side in range(4):
        (from_x, from_y), (to_x, to_y) = second[:, side, left], second[:, side - 3, left]
        depth = (to_x - from_x) * (y - from_y) - (to_y - from_y) * (x - from_x)
        inside = depth >= 0
        some = inside.any(axis=0)
        if not some.all():
            some = np.flatnonzero(some)
            left, x, y, depth, inside = left[some], x[:, some], y[:, some], depth[:, some], inside[:, some]
        if not inside.all():
            x, y = _clipped(x, y, depth, inside)
    result[left] = polygon_areas(x, y)
    return result


def _clipped(x: np.ndarray, y: np.ndarray, depth: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners inside, and the points where a side goes in or out; the first corner fills the other places.

    Arrays are flat here, with the index ``corner * pairs + pair``: that is several times as fast.
    """
    corners, pairs = x.shape
    crosses = np.not_equal(inside, np.concatenate([inside[1:], inside[:1]]))
    place = np.empty((2, corners, pairs), dtype=np.int64)  # of each corner, and of the point on the side that follows
    following = np.arange(pairs)
    for corner in range(corners):
        place[0, corner] = following
        following += inside[corner] * pairs
        place[1, corner] = following
        following += crosses[corner] * pairs
    number = int(following.max()) // pairs
    kept, start = np.flatnonzero(inside), np.flatnonzero(crosses)
    end = start + pairs
    end[end >= corners * pairs] -= corners * pairs
    share, depth = depth.ravel(), depth.ravel()
    share = share[start] / (share[start] - share[end])
    place_kept, place_start = place[0].ravel()[kept], place[1].ravel()[start]
    results = []
    for values in (x.ravel(), y.ravel()):
        clipped = np.empty(number * pairs)
        clipped[place_kept] = values[kept]
        clipped[place_start] = values[start] + share * (values[end] - values[start])
        rows = clipped.reshape(number, pairs)
        for row in range(3, number):
            np.copyto(rows[row], rows[0], where=following < (row + 1) * pairs)
        results.append(rows)
    return results[0], results[1]
