"""Pictures of curves. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.render.figures.confusion_matrix import DPI, as_text, check_color_theme
from mm_metrics_plugin.render.tables import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mm_metrics_plugin.functional.classification.calibration_error import CalibrationResult
    from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves
    from mm_metrics_plugin.functional.detection.pr_curves import DetectionCurves

MOST_NAMED = 12  # with more classes than this, a legend would not be read
LONGEST_NAME = 20
MOST_POINTS = 2000


def detection_curve_figures(curves: DetectionCurves, classes: Sequence[str], color_theme: str) -> List[Figure]:
    """Precision against recall; precision, recall and F against confidence.

    Args:
        curves: What is drawn.
        classes: Their names.
        color_theme: Name of a colour map of matplotlib.
    """
    title = f"all detections, IoU >= {curves.iou_thr:g}"
    figure, (axes,) = _panels(1, f"precision and recall, {title}")
    lines = [(curve.recall, curve.precision) for curve in curves.per_class]
    _draw(axes, lines, (curves.mean_recall, curves.mean_precision), classes, color_theme)
    axes.set(xlabel="recall", ylabel="precision")
    against, panels = _panels(3, f"against confidence, {title}")
    for axes, name, each, mean in zip(
        panels,
        ("precision", "recall", f"F{curves.beta:g}"),
        (curves.precision, curves.recall, curves.f_score),
        (curves.mean_precision, curves.mean_recall, curves.mean_f_score),
    ):
        _draw(axes, [(curves.confidence, row) for row in each], (curves.confidence, mean), classes, color_theme)
        axes.set(xlabel="confidence", ylabel=name, xlim=(curves.confidence[0], curves.confidence[-1]))
    return [figure, against]


def classification_curve_figure(curves: ClassificationCurves, classes: Sequence[str], color_theme: str) -> Figure:
    """ROC and precision-recall curves of each class against the rest."""
    figure, (roc, pr) = _panels(2, "each class against the rest")
    starts = [(np.append(0.0, curve.false_positive_rate), np.append(0.0, curve.recall)) for curve in curves.per_class]
    _draw(roc, starts, None, classes, color_theme)
    roc.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle=":")
    roc.set(xlabel="false positive rate", ylabel="true positive rate")
    _draw(pr, [(curve.recall, curve.precision) for curve in curves.per_class], None, classes, color_theme)
    pr.set(xlabel="recall", ylabel="precision")
    return figure


def reliability_figure(result: CalibrationResult) -> Figure:
    """How often decisions are right beside how sure they are, and how many there are of each confidence."""
    figure, (axes, amounts) = _panels(2, f"reliability: ECE {result.ece:.4f}, MCE {result.mce:.4f}")
    left = result.edges[:-1]
    outline: Dict[str, Any] = dict(width=np.diff(result.edges), align="edge", edgecolor="white", linewidth=0.5)
    axes.bar(left, np.nan_to_num(result.accuracy), color="#4477aa", label="accuracy", **outline)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle=":", label="perfectly calibrated")
    axes.plot(result.confidence, result.accuracy, "o", color="#cc3311", markersize=4, label="mean confidence")
    axes.set(xlabel="confidence", ylabel="share that is right")
    axes.legend(fontsize=7, loc="upper left")
    amounts.bar(left, result.counts, color="#bbbbbb", **outline)
    amounts.set(xlabel="confidence", ylabel="decisions")
    amounts.autoscale(axis="y")
    return figure


def _panels(number: int, title: str) -> Tuple[Figure, List[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = 5.2 * number
    figure = Figure(figsize=(width, 4.6), dpi=DPI)
    FigureCanvasAgg(figure)
    # In inches and by hand: a layout that measures every text takes as long as the drawing.
    figure.subplots_adjust(left=0.7 / width, right=1 - 0.15 / width, bottom=0.12, top=0.9, wspace=0.19)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    axes = [figure.add_subplot(1, number, place + 1) for place in range(number)]
    for one in axes:
        one.set(xlim=(0, 1), ylim=(0, 1.02))
        one.grid(linewidth=0.4, alpha=0.6)
    return figure, axes


def _draw(axes: Axes, lines: Sequence[Any], mean: Any, classes: Sequence[str], color_theme: str) -> None:
    import matplotlib

    check_color_theme(color_theme)
    colours, named = matplotlib.colormaps[color_theme], len(classes) <= MOST_NAMED
    handles: List[Any] = []
    for index, (across, up) in enumerate(lines):
        if len(across) > 2 * MOST_POINTS:  # more than there are pixels
            step = len(across) // MOST_POINTS
            across, up = [*across[::step], across[-1]], [*up[::step], up[-1]]
        colour = colours(index / max(1, len(classes) - 1) * 0.9)
        width, alpha = (1.1, 1.0) if named else (0.6, 0.5)
        handles += axes.plot(across, up, color=colour, linewidth=width, alpha=alpha)
    labels = short_names(classes, LONGEST_NAME) if named else []
    handles = handles[: len(labels)]
    if mean is not None:
        handles += axes.plot(*mean, color="black", linewidth=2.2)
        labels.append("mean")
    if handles:
        legend = axes.legend(handles, ["name"] * len(handles), fontsize=7, loc="best")
        # Set afterwards: a legend leaves out labels that begin with "_".
        for place, label in zip(legend.get_texts(), labels):
            place.set_text(as_text(label))
