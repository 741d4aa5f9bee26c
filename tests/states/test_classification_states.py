"""States of counts: any cutting into batches and any merging gives the matrix of all samples."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.counts import ConfusionState
from mm_metrics_plugin.states.scores import ScoreHistogramState


@pytest.mark.parametrize("num_classes", [3, 200], ids=["counted by bincount", "counted in place"])
def test_confusion_state_equals_scikit_learn(num_classes):
    generator = np.random.default_rng(0)
    truth, predicted = generator.integers(0, num_classes, 500), generator.integers(-1, num_classes, 500)
    parts = np.array_split(np.arange(500), 7)
    states = [ConfusionState(num_classes).update(truth[part], predicted[part]) for part in parts]
    states[2].update(truth[:0], predicted[:0])
    before = states[0].matrix.copy()
    matrix = merge_all(states).matrix
    np.testing.assert_array_equal(states[0].matrix, before)
    expected = confusion_matrix(truth, np.where(predicted < 0, num_classes, predicted), labels=range(num_classes + 1))
    np.testing.assert_array_equal(matrix, expected[:num_classes])
    assert matrix.dtype == np.int64


def test_narrow_dtypes_do_not_overflow_and_stay_as_they_were():
    truth, predicted = np.full(10, 200, dtype=np.uint8), np.full(10, 199, dtype=np.uint8)
    matrix = ConfusionState(201).update(truth, predicted).matrix
    assert matrix[200, 199] == 10 == matrix.sum()
    assert (truth == 200).all() and (predicted == 199).all()


def test_rules_are_counted_side_by_side():
    truth, predicted = np.array([0, 1, 1]), np.array([[0, -1], [1, 1], [0, -1]])
    both = ConfusionState(2, num_rules=2).update(truth, predicted).matrices
    for rule in range(2):
        np.testing.assert_array_equal(both[rule], ConfusionState(2).update(truth, predicted[:, rule]).matrix)


def test_multi_label_histograms_leave_out_ignored_labels():
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.3]])
    state = ScoreHistogramState(64).update(scores, np.array([[1, -1], [0, 1], [-1, -1]], dtype=np.int8))
    assert state.totals.sum(axis=1).tolist() == [2, 1]
    assert state.positives.sum(axis=1).tolist() == [1, 1]
