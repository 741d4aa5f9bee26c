"""The lines that people add to the end of mmdet's confusion_matrix.py, as they were published."""

from __future__ import annotations

import sys
from typing import Sequence

import numpy as np

from mm_metrics_plugin.functional.classification.confusion_matrix import ConfusionResult


def published_heading(score_thr: float) -> str:
    """The heading above the block, which says what its AP and AR are.

    Example:
        >>> published_heading(0.3)
        "Published summary: AP and AR are mean precision and mean recall at score >= 0.3, by mmdet's counting"
    """
    rates = f"mean precision and mean recall at score >= {score_thr:g}"
    return f"Published summary: AP and AR are {rates}, by mmdet's counting"


def published_block(result: ConfusionResult, classes: Sequence[str]) -> str:
    """The published summary of a confusion matrix with background.

    "AP" and "AR" are means over the classes of precision and recall, not COCO's average precision. A class without
    detections or objects is nan and left out of the means.

    Args:
        result: From ``confusion_matrix_report(matrix, background=True)``.
        classes: Class names without background.

    Example:
        >>> from mm_metrics_plugin.functional.classification.confusion_matrix import confusion_matrix_report
        >>> print(published_block(confusion_matrix_report(np.array([[3, 1], [1, 0]]), background=True), ["cat"]))
        ===Averaging all classes===
        AP: 0.75
        AR: 0.75
        F1: 0.75
        Classes ('cat', 'background')
        Precision [0.75 0.  ]
        Recall [0.75 0.  ]
    """
    return "\n".join(
        [
            "===Averaging all classes===",
            f"AP: {result.macro.precision}",
            f"AR: {result.macro.recall}",
            f"F1: {result.f_of_means}",
            f"Classes {(*classes, 'background')}",
            f"Precision {_array(result.per_class.precision)}",
            f"Recall {_array(result.per_class.recall)}",
        ]
    )


def _array(values: np.ndarray) -> str:
    """As ``print`` shows an array under NumPy's own settings, whatever the caller's are, and never cut short."""
    return np.array2string(
        values, max_line_width=75, precision=8, suppress_small=False, threshold=sys.maxsize, floatmode="maxprec"
    )
