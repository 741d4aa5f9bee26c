"""Figures of the results of metrics."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any, Sequence

from mm_metrics_plugin.functional.classification.calibration_error import CalibrationResult
from mm_metrics_plugin.functional.classification.confusion_matrix import MatrixView
from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves
from mm_metrics_plugin.functional.detection.froc import FROCResult
from mm_metrics_plugin.functional.detection.pr_curves import DetectionCurves
from mm_metrics_plugin.render.figures.confusion_matrix import confusion_figure
from mm_metrics_plugin.render.figures.curves import (
    classification_curve_figure,
    froc_curve_figure,
    pr_curve_figure,
    reliability_figure,
    threshold_curve_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOR_THEME = "plasma"


@singledispatch
def draw_figures(result: Any, classes: Sequence[str]) -> list[Figure]:
    """Draw the figures of a result: two of the curves of a detector, one of any other result.

    Args:
        result: A matrix, curves or a calibration. For results of your own, ``draw_figures.register`` a function.
        classes: Names of the classes.

    Example:
        >>> import numpy as np
        >>> from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_view
        >>> len(draw_figures(matrix_view(np.eye(2, dtype=int), ["cat", "dog"]), ["cat", "dog"]))
        1
    """
    raise TypeError(f"there is no figure of a {type(result).__name__}")


@draw_figures.register(MatrixView)
def _draw_matrix(result: MatrixView, classes: Sequence[str]) -> list[Figure]:
    return [confusion_figure(result.matrix, result.labels, title=result.title)]


@draw_figures.register(ClassificationCurves)
def _draw_classification(result: ClassificationCurves, classes: Sequence[str]) -> list[Figure]:
    return [classification_curve_figure(result, classes, COLOR_THEME)]


@draw_figures.register(DetectionCurves)
def _draw_detection(result: DetectionCurves, classes: Sequence[str]) -> list[Figure]:
    return [draw(result, classes, COLOR_THEME) for draw in (pr_curve_figure, threshold_curve_figure)]


@draw_figures.register(FROCResult)
def _draw_froc(result: FROCResult, classes: Sequence[str]) -> list[Figure]:
    return [froc_curve_figure(result, classes, COLOR_THEME)]


@draw_figures.register(CalibrationResult)
def _draw_calibration(result: CalibrationResult, classes: Sequence[str]) -> list[Figure]:
    return [reliability_figure(result)]
