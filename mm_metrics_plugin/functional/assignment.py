"""The kernel under every protocol: which pairs overlap, and who takes whom.

Rows of objects are sorted by group (an image, or a class of an image), rows of detections by group and then by
descending score. Pairs of a detection and an object of its group are laid flat, a block at a time, so that what is held
in memory does not depend on how much one image holds.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple

import numpy as np

from mm_metrics_plugin.functional.boxes import Columns, group_starts, mmdet_overlap

PAIRS_AT_ONCE = 1 << 16  # a few arrays of this length fit the cache of a core
KEPT_AT_ONCE = 1 << 18  # overlapping pairs that wait for their turn: a few MB


class Pairs(NamedTuple):
    """Overlapping pairs: rows of detections (ascending), rows of objects, and how much they overlap."""

    detection: np.ndarray
    object: np.ndarray
    overlap: np.ndarray


def candidates(object_groups: np.ndarray, detection_groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the objects of each detection's group begin, and how many they are.

    Args:
        object_groups: Sorted.
        detection_groups: In any order.

    Example:
        >>> candidates(np.array([2, 2, 5]), np.array([5, 1, 2]))
        (array([2, 0, 0]), array([1, 0, 2]))
    """
    if not len(object_groups):
        nothing = np.zeros(len(detection_groups), dtype=np.int64)
        return nothing, nothing
    starts = group_starts(object_groups)
    known = object_groups[starts]
    place = np.minimum(np.searchsorted(known, detection_groups), len(known) - 1)
    lengths = np.diff(np.append(starts, len(object_groups)))
    return starts[place], np.where(known[place] == detection_groups, lengths[place], 0)


def coco_pairs(
    detections: Columns, objects: Columns, crowd: np.ndarray, first: np.ndarray, count: np.ndarray, threshold: float
) -> Iterator[Pairs]:
    """Pairs that overlap by at least the threshold in COCO's arithmetic, a block at a time."""
    any_crowd = bool(crowd.any())
    for owners, rows, overlap in _touching(detections, objects, first, count):
        area = detections[4][owners]
        union = area + objects[4][rows] - overlap
        if any_crowd:
            union = np.where(crowd[rows], area, union)
        overlap /= union
        kept = np.flatnonzero(overlap >= threshold)
        yield Pairs(owners[kept], rows[kept], overlap[kept])


def mmdet_pairs(
    detections: Columns, objects: Columns, first: np.ndarray, count: np.ndarray, threshold: float
) -> Iterator[Pairs]:
    """Pairs that overlap by at least the threshold in mmdet's arithmetic, a block at a time."""
    limit = np.float32(threshold)
    for owners, rows, common in _touching(detections, objects, first, count):
        overlap = mmdet_overlap(common, detections[4][owners], objects[4][rows])
        kept = np.flatnonzero(overlap >= limit)
        yield Pairs(owners[kept], rows[kept], overlap[kept])


def _touching(
    detections: Columns, objects: Columns, first: np.ndarray, count: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows of the detections and objects that have an area in common, and that area, a block at a time."""
    for start, stop, repeats, rows in _blocks(first, count):
        width = np.minimum(np.repeat(detections[2][start:stop], repeats), objects[2][rows])
        width -= np.maximum(np.repeat(detections[0][start:stop], repeats), objects[0][rows])
        # Most pairs have nothing in common from left to right: the rest is reckoned only for those that have.
        common = np.flatnonzero(width > 0)
        rows, width = rows[common], width[common]
        owners = np.repeat(np.arange(start, stop), repeats)[common]
        height = np.minimum(detections[3][owners], objects[3][rows])
        height -= np.maximum(detections[1][owners], objects[1][rows])
        common = np.flatnonzero(height > 0)
        yield owners[common], rows[common], width[common] * height[common]


def gathered(blocks: Iterator[Pairs]) -> Iterator[Pairs]:
    """Joins small blocks, so that what follows runs over as many groups at once as memory allows."""
    held: list[Pairs] = []
    length = 0
    for block in blocks:
        held.append(block)
        length += len(block.detection)
        if length >= KEPT_AT_ONCE:
            yield _joined(held)
            held, length = [], 0
    if length:
        yield _joined(held)


def take_in_turn(
    pairs: Pairs,
    detection_groups: np.ndarray,
    bits: np.ndarray,
    taken: np.ndarray,
    shared: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Every detection in turn takes the first object that is still free: COCO's rule, for many settings at once.

    A setting (such as one IoU threshold) is one bit, so that one pass serves up to 64 of them. All groups move side
    by side: in each round the first pair of every group that is still possible under some setting comes about there.
    Taking a shared object hinders no other detection, so these need not wait for their turn: all detections whose
    first possible object is shared take it in the same round.

    Args:
        pairs: In order of detections, and for each detection in the order in which it prefers its objects.
        detection_groups: Group of each detection, ascending.
        bits: For each pair, the settings under which it is possible.
        taken: For each object, the settings under which it is no longer free. Changed in place, so that the pairs
            may come in several blocks.
        shared: For each object, whether any number of detections may take it (crowds).

    Returns:
        Rows of ``pairs`` that came about, and the settings under which each did.
    """
    row = np.arange(len(bits))
    owner, thing = pairs.detection, pairs.object
    group = detection_groups[owner]
    free_for_all = shared[thing]
    any_shared = bool(free_for_all.any())
    closes = np.where(free_for_all, bits.dtype.type(0), ~bits.dtype.type(0))
    settled = np.zeros(len(detection_groups), dtype=bits.dtype)
    rows, gained = [row[:0]], [bits[:0]]
    bits = bits & ~taken[thing]
    while True:
        live = np.flatnonzero(bits != 0)
        if not len(live):
            break
        row, owner, thing, group, bits = row[live], owner[live], thing[live], group[live], bits[live]
        best = group_starts(group)
        if any_shared:
            first = free_for_all[row]
            first[1:] &= owner[1:] != owner[:-1]
            first[best] = True
            best = np.flatnonzero(first)
        gain, winner = bits[best], row[best]
        taken[thing[best]] |= gain & closes[winner]
        settled[owner[best]] |= gain
        rows.append(winner)
        gained.append(gain)
        bits &= ~(taken[thing] | settled[owner])
    return np.concatenate(rows), np.concatenate(gained)


def by_preference(pairs: Pairs, last: np.ndarray) -> Pairs:
    """Pairs of each detection by descending overlap; of equal ones the later object first, as ``pycocotools`` has it.

    Args:
        pairs: In order of detections, and for each detection in order of objects.
        last: For each object, whether it comes after all others whatever it overlaps.
    """
    same = pairs.detection[1:] == pairs.detection[:-1]
    several = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if not len(several):
        return pairs
    # Most detections have one candidate; only the others need sorting, and they stay on the same rows.
    owner, thing, overlap = (column[several] for column in pairs)
    order = several[np.lexsort((-thing, -overlap, last[thing], owner))]
    thing, overlap = pairs.object.copy(), pairs.overlap.copy()
    thing[several], overlap[several] = pairs.object[order], pairs.overlap[order]
    return Pairs(pairs.detection, thing, overlap)


def _blocks(first: np.ndarray, count: np.ndarray) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Cuts detections into runs with about ``PAIRS_AT_ONCE`` pairs; gives the rows of objects of all pairs of a run."""
    ends = np.cumsum(count)
    start, base = 0, 0
    while start < len(count):
        stop = max(int(np.searchsorted(ends, base + PAIRS_AT_ONCE, side="right")), start + 1)
        repeats = count[start:stop]
        shift = first[start:stop] - (ends[start:stop] - repeats - base)
        end = int(ends[stop - 1])
        yield start, stop, repeats, np.arange(end - base) + np.repeat(shift, repeats)
        start, base = stop, end


def _joined(blocks: list[Pairs]) -> Pairs:
    if len(blocks) == 1:
        return blocks[0]
    return Pairs(*(np.concatenate(columns) for columns in zip(*blocks)))
