"""The greedy assignment used by every matching rule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_MIN_PROGRESS = 0.1  # fraction of the pairs a vectorized round must settle; below it a loop is faster
_BLOCK_PAIRS = 1 << 16  # converted to Python integers at a time


class Assignment(NamedTuple):
    """The assigned pairs."""

    pair: np.ndarray  # indices of the assigned pairs, unordered
    bits: np.ndarray  # settings under which each of them is assigned
    det_bits: np.ndarray  # (N,) settings under which each detection is assigned


def assign(det: np.ndarray, gt: np.ndarray, bits: np.ndarray, *, num_dets: int, shared: np.ndarray) -> Assignment:
    """Greedy matching: each pair, in order of priority, is assigned if its detection and ground truth are unassigned.

    Each setting (an IoU threshold in an area range) is one bit, so one pass serves up to 64 of them. A pair that is the
    first of both its detection and its ground truth is always assigned, so all such pairs are assigned at once, round
    after round. When a round assigns few pairs, a loop processes the rest.

    Args:
        det: (P,) detection of each pair, in order of priority.
        gt: (P,) ground truth of each pair.
        bits: (P,) unsigned integers: settings under which the pair may be assigned.
        num_dets: Number of detections.
        shared: (M,) ground truths that may be assigned to any number of detections (crowds).
    """
    gt_bits, det_bits = np.zeros(len(shared), dtype=bits.dtype), np.zeros(num_dets, dtype=bits.dtype)
    first_of_det, first_of_gt = np.empty(num_dets, dtype=np.intp), np.empty(len(shared), dtype=np.intp)
    any_shared = bool(shared.any())
    pair = np.flatnonzero(bits)
    det, gt, bits = det[pair], gt[pair], bits[pair]
    assigned, assigned_bits = [pair[:0]], [bits[:0]]
    previous = np.inf
    while 0 < len(pair) <= (1 - _MIN_PROGRESS) * previous:
        previous = len(pair)
        index = np.arange(len(pair))
        # The last write to an index wins, so in reverse order the first pair remains.
        first_of_det[det[::-1]] = index[::-1]
        first_of_gt[gt[::-1]] = index[::-1]
        is_first = first_of_gt[gt] == index
        if any_shared:
            is_first |= shared[gt]
        winner = np.flatnonzero(is_first & (first_of_det[det] == index))
        won = bits[winner]
        assigned.append(pair[winner])
        assigned_bits.append(won)
        det_bits[det[winner]] |= won
        gt_bits[gt[winner]] |= np.where(shared[gt[winner]], bits.dtype.type(0), won) if any_shared else won
        bits = bits & ~(det_bits[det] | gt_bits[gt])
        remaining = np.flatnonzero(bits)
        pair, det, gt, bits = pair[remaining], det[remaining], gt[remaining], bits[remaining]
    if len(pair):
        rows, won = _assign_in_loop(det, gt, bits, num_dets, shared)
        assigned.append(pair[rows])
        assigned_bits.append(won)
        np.bitwise_or.at(det_bits, det[rows], won)
    return Assignment(np.concatenate(assigned), np.concatenate(assigned_bits), det_bits)


def _assign_in_loop(
    det: np.ndarray, gt: np.ndarray, bits: np.ndarray, num_dets: int, shared: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the assigned pairs, and the settings of each."""
    det_free, gt_free = [-1] * num_dets, [-1] * len(shared)
    is_shared = shared.tolist()
    rows: list[int] = []
    row_bits: list[int] = []
    for start in range(0, len(det), _BLOCK_PAIRS):
        block = slice(start, start + _BLOCK_PAIRS)
        columns = zip(det[block].tolist(), gt[block].tolist(), bits[block].tolist())
        for row, (one_det, one_gt, one_bits) in enumerate(columns, start):
            won = one_bits & det_free[one_det] & gt_free[one_gt]
            if won:
                det_free[one_det] &= ~won
                if not is_shared[one_gt]:
                    gt_free[one_gt] &= ~won
                rows.append(row)
                row_bits.append(won)
    return np.array(rows, dtype=np.intp), np.array(row_bits, dtype=bits.dtype)
