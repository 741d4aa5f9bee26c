"""Decisions beside plain sorting and scikit-learn's top-k accuracy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import top_k_accuracy_score

from mm_metrics_plugin.functional.ranking import label_ranks, top_k_decisions
from mm_metrics_plugin.functional.thresholding import hard_decisions

tied_scores = arrays(np.float32, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 3).map(float))


@settings(max_examples=150, deadline=None)
@given(tied_scores, st.data())
def test_ranks_and_top_decisions_follow_a_stable_sort(scores, data):
    order = np.argsort(-scores, axis=1, kind="stable")
    labels = np.array(
        data.draw(st.lists(st.integers(0, scores.shape[1] - 1), min_size=len(scores), max_size=len(scores)))
    )
    assert label_ranks(scores, labels).tolist() == [row.tolist().index(label) for row, label in zip(order, labels)]
    k = data.draw(st.integers(1, scores.shape[1]))
    expected = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(expected, order[:, :k], True, axis=1)
    np.testing.assert_array_equal(top_k_decisions(scores, k=k), expected)


def scores_with_ties(shape, digits, seed=0):
    return np.round(np.random.default_rng(seed).random(shape), digits).astype(np.float32)


def test_ranks_give_scikit_learns_top_k_accuracy():
    scores = scores_with_ties((300, 6), 6, seed=3)
    labels = np.arange(300) % 6
    for k in range(1, 6):
        found = np.mean(label_ranks(scores, labels) < k)
        assert found == pytest.approx(top_k_accuracy_score(labels, scores, k=k), abs=1e-15)


def test_a_decision_takes_the_first_best_class_above_the_threshold():
    scores = scores_with_ties((200, 4), 1, seed=4)
    thresholds = [0.0, 0.5, 0.9, 1.0]
    found = hard_decisions(scores, thresholds=thresholds)
    for row, decisions in zip(scores, found):
        for threshold, decision in zip(thresholds, decisions):
            best = int(np.argmax(row))
            assert decision == (best if row[best] > np.float32(threshold) else -1)
