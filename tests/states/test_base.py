"""Row buffers, and merging of states."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.states.base import CONCAT, MAX, SUM, RowBuffer, State, StateGroup
from mm_metrics_plugin.states.scores import RecentScoreState, ScoreState


class Everything(State):
    """One array of each kind."""

    reductions = {"total": SUM, "highest": MAX, "rows": CONCAT}

    def update(self, rows):
        self.add("total", rows.sum(axis=0))
        self.add("highest", rows.max(axis=0))
        self.add("rows", rows)
        return self


def allocated_bytes(buffer):
    """The bytes of all blocks, including unused rows."""
    return sum((block if block.base is None else block.base).nbytes for block in buffer.blocks)


@pytest.mark.parametrize("batch", [1, 3, 64])
@pytest.mark.parametrize("width", [1, 10])
def test_row_buffer_wastes_less_than_a_third(batch, width):
    buffer, rows = RowBuffer(), 3000
    expected = np.random.default_rng(0).random((rows, width), dtype=np.float32)
    for start in range(0, rows, batch):
        buffer.append(expected[start : start + batch])
    assert np.array_equal(buffer.to_array(), expected)
    assert allocated_bytes(buffer) <= 1.3 * expected.nbytes
    assert len(buffer.blocks) < 100


def test_row_buffer_is_exact_for_mixed_dtypes():
    buffer = RowBuffer()
    buffer.append(np.array([0.1], dtype=np.float32))
    buffer.append(np.array([0.1], dtype=np.float64))
    assert buffer.to_array().tolist() == [float(np.float32(0.1)), 0.1]


def test_row_buffer_raises_for_rows_of_another_shape():
    buffer = RowBuffer()
    buffer.append(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"rows of shape \(4,\) cannot follow rows of shape \(3,\)"):
        buffer.append(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="cannot follow"):
        buffer.joined(RowBuffer.of(np.zeros((1, 4))))


def parts():
    generator = np.random.default_rng(0)
    return [Everything().update(generator.integers(0, 9, (n, 2))) for n in (4, 1, 7)]


def same(left, right):
    return all(np.array_equal(value, right.arrays()[key]) for key, value in left.arrays().items())


def test_merge_is_associative_and_does_not_modify_inputs():
    a, b, c = parts()
    before = [{key: value.copy() for key, value in part.arrays().items()} for part in (a, b, c)]
    assert same(a.merge(b).merge(c), a.merge(b.merge(c)))
    a.merge(b).update(np.array([[100, 100]]))
    for part, arrays in zip((a, b, c), before):
        assert all(np.array_equal(value, arrays[key]) for key, value in part.arrays().items())


def test_empty_is_the_identity():
    a = parts()[0]
    assert same(a, a.merge(a.empty()))
    assert same(a, a.empty().merge(a))
    assert a.empty().merge(a.empty()).arrays() == {"total": None, "highest": None, "rows": None}


def test_merging_arrays_of_other_shapes_raises():
    with pytest.raises(ValueError, match="cannot be added"):
        Everything().update(np.zeros((1, 2))).merge(Everything().update(np.zeros((1, 3))))


def test_state_group_merges_all_members():
    group = StateGroup(all=ScoreState(), recent=RecentScoreState(2))
    for start in range(0, 12, 3):
        labels = np.arange(start, start + 3)
        group.update(labels[:, None] / 10, labels)
    assert group["all"].arrays()["labels"].tolist() == list(range(12))
    assert group["recent"].arrays()["labels"].tolist() == list(range(6, 12))
    again = group.with_arrays(group.arrays())
    merged = group.empty().merge(again)
    for key, value in group.arrays().items():
        assert np.array_equal(value, merged.arrays()[key])
    assert set(group.reductions) == {"all.scores", "all.labels", "recent.scores", "recent.labels"}
