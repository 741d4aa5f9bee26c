"""The published figures, to the last digit."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional.classification.confusion_matrix import confusion_matrix_report
from mm_metrics_plugin.render.detection import published_block

PUBLISHED = """\
===Averaging all classes===
AP: 0.95018367938121
AR: 0.664406462586606
F1: 0.7820042508816204
Classes ('a', 'b', 'c', 'd', 'background')
Precision [0.92405063 0.97506925 0.96411483 0.9375     0.        ]
Recall [0.65765766 0.80182232 0.79019608 0.40794979 0.        ]"""


def counts_matrix():
    matrix = np.zeros((5, 5), dtype=np.int64)
    matrix[range(4), range(4)] = 73, 352, 403, 195
    matrix[4, :4] = 6, 9, 15, 13
    matrix[:4, 4] = 38, 87, 107, 283
    return matrix


def test_the_published_block():
    assert published_block(confusion_matrix_report(counts_matrix(), background=True), "abcd") == PUBLISHED


def test_confusions_instead_of_background_change_nothing():
    """TP, FP and FN are what counts, not which cells they stand in."""
    matrix = counts_matrix()
    matrix[0, 1], matrix[0, 4], matrix[4, 1] = 5, 33, 4
    assert published_block(confusion_matrix_report(matrix, background=True), "abcd") == PUBLISHED


def test_settings_of_the_caller_change_nothing():
    with np.printoptions(precision=2, linewidth=20, threshold=2, floatmode="fixed"):
        assert published_block(confusion_matrix_report(counts_matrix(), background=True), "abcd") == PUBLISHED


def test_many_classes_are_printed_as_numpy_prints_them_and_in_full():
    random = np.random.default_rng(0)
    for classes in (80, 1200):
        matrix = random.integers(1, 50, (classes + 1, classes + 1))
        result = confusion_matrix_report(matrix, background=True)
        lines = published_block(result, [str(index) for index in range(classes)])
        with np.printoptions(threshold=10_000):
            assert f"Precision {result.per_class.precision}\nRecall {result.per_class.recall}" in lines


def test_a_class_without_detections_is_nan_and_not_in_the_mean():
    matrix = counts_matrix()
    matrix[:, 3] = 0
    lines = published_block(confusion_matrix_report(matrix, background=True), "abcd").splitlines()
    assert lines[1] == f"AP: {np.mean([73 / 79, 352 / 361, 403 / 418])}" and "nan" in lines[5]
