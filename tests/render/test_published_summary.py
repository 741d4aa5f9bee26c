"""The published summary of mmdet's counting, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.fixture
def matrix():
    matrix = np.diag([73, 352, 403, 195, 0])
    matrix[4, :4] = 6, 9, 15, 13
    matrix[:4, 4] = 38, 87, 107, 283
    return matrix


def block(matrix):
    return published_block(confusion_matrix_report(matrix, background=True), "abcd")


def test_the_published_block(matrix):
    assert block(matrix) == PUBLISHED
    with np.printoptions(precision=2, linewidth=20, threshold=2, floatmode="fixed"):
        assert block(matrix) == PUBLISHED
    # TP, FP and FN matter, not which cells they are in.
    matrix[0, 1], matrix[0, 4], matrix[4, 1] = 5, 33, 4
    assert block(matrix) == PUBLISHED


def test_a_class_without_detections_is_nan_and_not_in_the_mean(matrix):
    matrix[:, 3] = 0
    lines = block(matrix).splitlines()
    assert lines[1] == f"AP: {np.mean([73 / 79, 352 / 361, 403 / 418])}" and "nan" in lines[5]


def test_many_classes_are_printed_as_numpy_prints_them_and_in_full():
    matrix = np.random.default_rng(0).integers(1, 50, (1201, 1201))
    result = confusion_matrix_report(matrix, background=True)
    with np.printoptions(threshold=10_000):
        expected = f"Precision {result.per_class.precision}\nRecall {result.per_class.recall}"
    assert expected in published_block(result, [str(index) for index in range(1200)])
