"""Top-k decisions compared with a stable sort, and pairs of scores compared with SciPy."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import mannwhitneyu

from mm_metrics_plugin.functional.ranking import count_pairs, label_ranks, pos_neg_ratio, top_k_decisions
from mm_metrics_plugin.functional.thresholding import hard_decisions

tied_scores = arrays(np.float32, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 3).map(float))


@settings(max_examples=150, deadline=None)
@given(tied_scores, st.data())
def test_ranks_and_decisions_follow_a_stable_sort(scores, data):
    order = np.argsort(-scores, axis=1, kind="stable")
    num_classes = scores.shape[1]
    labels = np.array(data.draw(st.lists(st.integers(0, num_classes - 1), min_size=len(scores), max_size=len(scores))))
    assert label_ranks(scores, labels).tolist() == [row.tolist().index(label) for row, label in zip(order, labels)]
    k = data.draw(st.integers(1, num_classes))
    expected = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(expected, order[:, :k], True, axis=1)
    np.testing.assert_array_equal(top_k_decisions(scores, k=k), expected)
    thresholds = [-1.0, 0.0, 1.5, 3.0]
    above = scores.max(axis=1)[:, None] > np.array(thresholds)
    expected = np.where(above, order[:, :1], -1)
    np.testing.assert_array_equal(hard_decisions(scores, thresholds=thresholds), expected)


def test_correct_pairs_without_ties_are_mann_whitneys_u():
    generator = np.random.default_rng(0)
    positive, negative = generator.normal(0.5, 1, 40), generator.normal(0, 1, 30)
    grid = np.broadcast_arrays(positive[:, None], negative[None, :])
    assert count_pairs(*grid)[0] == mannwhitneyu(positive, negative, alternative="two-sided").statistic
    assert math.isnan(pos_neg_ratio(*count_pairs(np.zeros(0), np.zeros(0)))) and pos_neg_ratio(0, 1) == 0.5
