"""Decisions beside plain sorting and scikit-learn's top-k accuracy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import top_k_accuracy_score

from mm_metrics_plugin.functional.ranking import label_ranks, top_k_decisions
from mm_metrics_plugin.functional.thresholding import hard_decisions

SHAPES = [(40, 2), (40, 3), (60, 5), (80, 11)]


def scores_with_ties(shape, digits, seed=0):
    return np.round(np.random.default_rng(seed).random(shape), digits).astype(np.float32)


@pytest.mark.parametrize("digits", [1, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_k_are_those_of_a_stable_sort(shape, digits):
    scores = scores_with_ties(shape, digits)
    order = np.argsort(-scores, axis=1, kind="stable")  # of equal scores the lower class comes first
    for k in range(1, shape[1] + 1):
        expected = np.zeros(shape, dtype=bool)
        np.put_along_axis(expected, order[:, :k], True, axis=1)
        np.testing.assert_array_equal(top_k_decisions(scores, k=k).astype(bool), expected, err_msg=f"k = {k}")


@pytest.mark.parametrize("digits", [1, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_ranks_are_places_in_a_stable_sort(shape, digits):
    scores = scores_with_ties(shape, digits, seed=1)
    labels = np.random.default_rng(2).integers(0, shape[1], shape[0])
    order = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_array_equal(label_ranks(scores, labels), np.argmax(order == labels[:, None], axis=1))


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
