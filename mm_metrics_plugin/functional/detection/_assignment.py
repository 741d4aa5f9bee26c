"""The greedy assignment that every matching rule uses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_LEAST_SHARE = 0.1  # of the pairs left: a round that settles less costs more than going through them one by one
_PAIRS_AT_ONCE = 1 << 16  # that become Python integers at a time


class Assignment(NamedTuple):
    """The assigned pairs."""

    pair: np.ndarray  # rows of the pairs that were assigned, in no particular order
    bits: np.ndarray  # the settings under which each was
    det_bits: np.ndarray  # (N,) the settings under which each detection is assigned


def assign(det: np.ndarray, gt: np.ndarray, bits: np.ndarray, *, num_dets: int, shared: np.ndarray) -> Assignment:
    """Goes through pairs in order and assigns each whose detection and ground truth are both still free.

    A setting (an IoU threshold in an area range) is one bit, so one pass serves up to 64 of them. A pair that is the
    first one left of both its detection and its ground truth is assigned in any case. All such pairs are assigned at
    once, round after round. If a round assigns few pairs, the rest is processed pair by pair.

    Args:
        det: (P,) detection of each pair, in order of priority.
        gt: (P,) ground truth of each pair.
        bits: (P,) unsigned integers: the settings under which the pair is possible.
        num_dets: Number of detections.
        shared: (M,) ground truths that any number of detections may be assigned to (crowds).
    """
    gt_bits, det_bits = np.zeros(len(shared), dtype=bits.dtype), np.zeros(num_dets, dtype=bits.dtype)
    first_of_det, first_of_gt = np.empty(num_dets, dtype=np.intp), np.empty(len(shared), dtype=np.intp)
    any_shared = bool(shared.any())
    pair = np.flatnonzero(bits)
    det, gt, bits = det[pair], gt[pair], bits[pair]
    assigned, gained = [pair[:0]], [bits[:0]]
    before = np.inf
    while 0 < len(pair) <= (1 - _LEAST_SHARE) * before:
        before = len(pair)
        place = np.arange(len(pair))
        # The last of several values assigned to one index stays, so this keeps the first pair of each.
        first_of_det[det[::-1]] = place[::-1]
        first_of_gt[gt[::-1]] = place[::-1]
        is_first = first_of_gt[gt] == place
        if any_shared:
            is_first |= shared[gt]
        winner = np.flatnonzero(is_first & (first_of_det[det] == place))
        won = bits[winner]
        assigned.append(pair[winner])
        gained.append(won)
        det_bits[det[winner]] |= won
        gt_bits[gt[winner]] |= np.where(shared[gt[winner]], bits.dtype.type(0), won) if any_shared else won
        bits = bits & ~(det_bits[det] | gt_bits[gt])
        left = np.flatnonzero(bits)
        pair, det, gt, bits = pair[left], det[left], gt[left], bits[left]
    if len(pair):
        rows, won = _assign_one_by_one(det, gt, bits, num_dets, shared)
        assigned.append(pair[rows])
        gained.append(won)
        np.bitwise_or.at(det_bits, det[rows], won)
    return Assignment(np.concatenate(assigned), np.concatenate(gained), det_bits)


def _assign_one_by_one(
    det: np.ndarray, gt: np.ndarray, bits: np.ndarray, num_dets: int, shared: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the pairs that are assigned, and the settings of each; all are free at first."""
    det_free, gt_free = [-1] * num_dets, [-1] * len(shared)
    is_shared = shared.tolist()
    rows: list[int] = []
    gained: list[int] = []
    for start in range(0, len(det), _PAIRS_AT_ONCE):
        block = slice(start, start + _PAIRS_AT_ONCE)
        columns = zip(det[block].tolist(), gt[block].tolist(), bits[block].tolist())
        for row, (one_det, one_gt, one_bits) in enumerate(columns, start):
            won = one_bits & det_free[one_det] & gt_free[one_gt]
            if won:
                det_free[one_det] &= ~won
                if not is_shared[one_gt]:
                    gt_free[one_gt] &= ~won
                rows.append(row)
                gained.append(won)
    return np.array(rows, dtype=np.intp), np.array(gained, dtype=bits.dtype)
