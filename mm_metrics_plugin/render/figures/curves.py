"""Figures of curves. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.detection.froc import FPS_PER_IMAGE
from mm_metrics_plugin.render.figures.confusion_matrix import DPI, as_text, check_color_theme, cjk_fallback_font
from mm_metrics_plugin.render.tables import short_names
from mm_metrics_plugin.settings import number_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mm_metrics_plugin.functional.classification.calibration_error import CalibrationResult
    from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves
    from mm_metrics_plugin.functional.detection.froc import FROCResult
    from mm_metrics_plugin.functional.detection.pr_curves import DetectionCurves

    Line = Tuple[np.ndarray, np.ndarray]  # x and y of a curve

MAX_NAMED = 12  # classes that a legend names
MAX_NAME_LENGTH = 20
MAX_POINTS = 1000  # of a curve: twice the pixels of the axes
LEGEND_FONT = 7


@cjk_fallback_font()
def pr_curve_figure(curves: DetectionCurves, classes: Sequence[str], color_theme: str) -> Figure:
    """Draw the precision-recall curves of a detector."""
    lines = [(curve.recall, curve.precision) for curve in curves.per_class]
    mean = curves.mean_recall, curves.mean_precision
    title = f"Precision-recall curves (all detections, {_matches(curves)})"
    return _curve_figure(title, classes, color_theme, [("recall", "precision", lines, mean)])


@cjk_fallback_font()
def threshold_curve_figure(curves: DetectionCurves, classes: Sequence[str], color_theme: str) -> Figure:
    """Draw precision, recall and F-score of a detector against the score threshold."""
    grid, f_score = curves.confidence, f"F{curves.beta:g}"
    panels = [
        ("score threshold", name, [(grid, values) for values in per_class], (grid, mean_values))
        for name, per_class, mean_values in (
            ("precision", curves.precision, curves.mean_precision),
            ("recall", curves.recall, curves.mean_recall),
            (f_score, curves.f_score, curves.mean_f_score),
        )
    ]
    title = f"Precision, recall and {f_score} by score threshold (all detections, {_matches(curves)})"
    figure = _curve_figure(title, classes, color_theme, panels)
    for axes in figure.axes:
        axes.set_xlim(grid[0], grid[-1])
    return figure


@cjk_fallback_font()
def froc_curve_figure(froc: FROCResult, classes: Sequence[str], color_theme: str) -> Figure:
    """Draw the FROC curves of a detector: sensitivity by false positives per image, on a logarithmic scale."""
    fps = np.geomspace(FPS_PER_IMAGE[0], FPS_PER_IMAGE[-1], MAX_POINTS)
    pooled, *lines = [(fps, froc.sensitivity(curve, fps)) for curve in (froc.overall, *froc.per_class)]
    title = f"FROC curves (all detections, {_matches(froc)})"
    panels = [("false positives per image", "sensitivity", lines, pooled)]
    figure = _curve_figure(title, classes, color_theme, panels, overall="all (pooled)")
    (axes,) = figure.axes
    axes.set_xscale("log", base=2)
    axes.set_xlim(fps[0], fps[-1])
    axes.set_xticks(FPS_PER_IMAGE, [number_text(value) for value in FPS_PER_IMAGE])
    return figure


def _matches(curves: DetectionCurves | FROCResult) -> str:
    return f"{curves.overlap_name} >= {number_text(curves.iou_thr)}"


@cjk_fallback_font()
def classification_curve_figure(curves: ClassificationCurves, classes: Sequence[str], color_theme: str) -> Figure:
    """Draw the ROC and precision-recall curves, one-vs-rest."""
    roc = [(np.append(0.0, curve.false_positive_rate), np.append(0.0, curve.recall)) for curve in curves.per_class]
    pr = [(curve.recall, curve.precision) for curve in curves.per_class]
    figure = _curve_figure(
        "ROC and precision-recall curves, one-vs-rest",
        classes,
        color_theme,
        [("false positive rate", "true positive rate", roc, None), ("recall", "precision", pr, None)],
    )
    figure.axes[0].plot([0, 1], [0, 1], color="gray", linewidth=0.8, linestyle=":")
    return figure


def reliability_figure(result: CalibrationResult) -> Figure:
    """Draw a reliability diagram: accuracy by confidence, and the number of predictions by confidence."""
    figure, (axes, counts) = _panels(2, f"Reliability diagram: ECE {result.ece:.4f}, MCE {result.mce:.4f}")
    left = result.edges[:-1]
    outline: dict[str, Any] = dict(width=np.diff(result.edges), align="edge", edgecolor="white", linewidth=0.5)
    axes.bar(left, np.nan_to_num(result.accuracy), color="#4477aa", label="accuracy", **outline)
    axes.plot([0, 1], [0, 1], color="gray", linewidth=0.8, linestyle=":", label="perfectly calibrated")
    axes.plot(result.confidence, result.accuracy, "o", color="#cc3311", markersize=4, label="mean confidence")
    axes.set(xlabel="confidence", ylabel="accuracy")
    axes.legend(fontsize=LEGEND_FONT, loc="upper left")
    counts.bar(left, result.counts, color="#bbbbbb", **outline)
    counts.set(xlabel="confidence", ylabel="predictions")
    counts.autoscale(axis="y")
    return figure


def _curve_figure(
    title: str,
    classes: Sequence[str],
    color_theme: str,
    panels: Sequence[tuple[str, str, Sequence[Line], Line | None]],
    *,
    overall: str = "mean",
) -> Figure:
    """Panels with one curve per class, and one over all classes; one legend for all, unless there are many classes.

    A panel is given by the labels of its axes, its curves and the one over all classes, which ``overall`` names.
    """
    import matplotlib
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    check_color_theme(color_theme)
    named = len(classes) <= MAX_NAMED
    names = short_names(classes, MAX_NAME_LENGTH) if named else []
    colors = matplotlib.colormaps[color_theme](np.linspace(0, 0.9, len(classes)))
    line_width, alpha = (1.1, 1.0) if named else (0.6, 0.5)
    handles = [Line2D([], [], color=color, linewidth=line_width) for color in colors] if named else []
    if panels[0][3] is not None:
        names.append(overall)
        handles.append(Line2D([], [], color="black", linewidth=2.2))
    figure, all_axes = _panels(len(panels), title, names)
    for axes, (x_label, y_label, lines, mean) in zip(all_axes, panels):
        points = [np.column_stack([_thinned(values) for values in line]) for line in lines]
        axes.add_collection(LineCollection(points, colors=colors, linewidths=line_width, alpha=alpha))
        if mean is not None:
            axes.plot(*mean, color="black", linewidth=2.2)
        axes.set(xlabel=x_label, ylabel=y_label)
    if handles:
        legend = all_axes[-1].legend(
            handles, ["name"] * len(handles), fontsize=LEGEND_FONT, loc="upper left", bbox_to_anchor=(1.0, 1.01)
        )
        # Set afterwards: a legend leaves out labels that begin with "_".
        for text, name in zip(legend.get_texts(), names):
            text.set_text(as_text(name))
    return figure


def _thinned(values: np.ndarray) -> np.ndarray:
    """At most 1,000 points of a curve, the first and the last included."""
    if len(values) <= MAX_POINTS:
        return values
    return np.asarray(values[np.linspace(0, len(values) - 1, MAX_POINTS).astype(int)])


def _panels(number: int, title: str, names: Sequence[str] = ()) -> tuple[Figure, list[Axes]]:
    """Axes side by side, with space on the right for a legend with the given names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # In inches. An automatic layout measures every text, which takes as long as the drawing.
    legend = 0.6 + max(map(len, names)) * LEGEND_FONT * 0.65 / 72 if names else 0.15
    side, left, gap = 4.3, 0.7, 0.75
    width = left + number * side + (number - 1) * gap + legend
    figure = Figure(figsize=(width, 4.6), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(0.5, 0.97, title, ha="center", va="top", fontsize=12)
    all_axes = []
    for place in range(number):
        axes = figure.add_axes(((left + place * (side + gap)) / width, 0.12, side / width, 0.78))
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.grid(linewidth=0.4, alpha=0.6)
        all_axes.append(axes)
    return figure, all_axes
