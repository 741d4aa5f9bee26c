"""Confusion matrices: published numbers, conventions of other libraries, large counts, invalid input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import fbeta_of_rates as f_score
from mm_metrics_plugin.functional.classification.confusion_matrix import (
    class_counts,
    confusion_matrix_report,
    stat_scores_report,
)

# Counts of a published detection run on 4 classes.
TP, FP, FN = np.array([73, 352, 403, 195]), np.array([6, 9, 15, 13]), np.array([38, 87, 107, 283])


def published_matrix():
    """A matrix with these counts: all FP in the background row, all FN in the background column."""
    matrix = np.zeros((5, 5), dtype=np.int64)
    matrix[range(4), range(4)] = TP
    matrix[4, :4], matrix[:4, 4] = FP, FN
    return matrix


def test_published_detection_numbers():
    report = confusion_matrix_report(published_matrix(), background=True)
    assert report.macro.precision == pytest.approx(0.95018367938121, abs=1e-14)
    assert report.macro.recall == pytest.approx(0.664406462586606, abs=1e-14)
    assert report.f_of_means == pytest.approx(0.7820042508816204, abs=1e-14)
    np.testing.assert_allclose(report.per_class.precision, [0.92405063, 0.97506925, 0.96411483, 0.9375, 0], atol=5e-9)
    np.testing.assert_allclose(report.per_class.recall, [0.65765766, 0.80182232, 0.79019608, 0.40794979, 0], atol=5e-9)


def test_background_is_excluded_from_means_but_its_cells_count():
    report = confusion_matrix_report(published_matrix(), background=True)
    assert report.micro.precision == TP.sum() / (TP.sum() + FP.sum())
    assert report.micro.recall == TP.sum() / (TP.sum() + FN.sum())
    assert report.balanced_accuracy == report.macro.recall
    assert confusion_matrix_report(published_matrix()).macro.recall < report.macro.recall


def test_paddlerec_and_mmpretrain_on_their_own_example():
    matrix = np.zeros((4, 4), dtype=np.int64)
    np.add.at(matrix, ([0, 2, 1, 3], [0, 1, 1, 3]), 1)
    states = np.stack(class_counts(matrix))[[0, 1, 3, 2]].T
    assert states.tolist() == [[1, 0, 3, 0], [1, 1, 2, 0], [0, 0, 3, 1], [1, 0, 3, 0]]
    paddle = confusion_matrix_report(matrix, zero_division=1)
    six = [paddle.macro.precision, paddle.macro.recall, paddle.f_of_means]
    six += [paddle.micro.precision, paddle.micro.recall, paddle.micro.f_score]
    assert six == pytest.approx([0.875, 0.75, 0.807692, 0.75, 0.75, 0.75], abs=5e-7)
    mmpretrain = confusion_matrix_report(matrix, zero_division=0).macro
    actual = [mmpretrain.precision, mmpretrain.recall, mmpretrain.f_score]
    assert actual == pytest.approx([0.625, 0.75, 0.666667], abs=5e-7)


def test_f_score_of_undefined_rates_is_undefined():
    assert f_score(0.0, 0.0) == f_score(0.0, 0.5) == f_score(0.5, 0.0) == 0
    assert np.isnan([f_score(0.0, np.nan), f_score(np.nan, 0.0)]).all()


def test_counts_of_pixels_do_not_overflow():
    matrix = np.array([[3, 1], [1, 3]], dtype=np.int64)
    small, large = confusion_matrix_report(matrix), confusion_matrix_report(matrix * 2**59)
    assert (large.mcc, large.kappa, large.macro.precision) == (small.mcc, small.kappa, small.macro.precision)


@pytest.mark.parametrize(
    "matrix", [*(np.zeros(shape, int) for shape in [(2, 4), (3, 2), (4,), (2, 2, 2)]), np.zeros((2, 2)), np.eye(2) > 0]
)
def test_invalid_confusion_matrices_raise(matrix):
    with pytest.raises(MetricInputError, match="square"):
        confusion_matrix_report(matrix)


def test_results_are_plain_values_and_the_input_is_not_modified():
    matrix = published_matrix()
    before = matrix.copy()
    report = confusion_matrix_report(matrix, background=True)
    np.testing.assert_array_equal(matrix, before)
    assert json.loads(json.dumps(report.to_dict()))["tp"] == [*TP.tolist(), 0]
    assert "macro" in str(report) and "0.9502" in str(report)
    counts = stat_scores_report(report.tp, report.fp, report.fn, report.tn, background=True)
    assert counts.to_dict()["macro"] == report.to_dict()["macro"]
