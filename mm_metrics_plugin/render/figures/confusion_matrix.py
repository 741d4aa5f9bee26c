"""Pictures of confusion matrices. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Optional, Sequence, Union

import numpy as np

from mm_metrics_plugin.evaluation.detection import confused_block
from mm_metrics_plugin.functional.classification.confusion_matrix import row_shares
from mm_metrics_plugin.render.tables import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
MOST_NUMBERED = 25  # with more rows than this, numbers in the cells would not be read
MOST_DRAWN = 100  # rows of a matrix that is drawn as a whole
BLOCK_DRAWN = 40  # most confused classes that are drawn of a larger one
LONGEST_NAME = 24
NOTHING = "#f3f3f3"  # the color of cells that are 0


def confusion_figure(
    matrix: np.ndarray,
    shares: Optional[np.ndarray],
    labels: Sequence[str],
    *,
    title: str,
    color_theme: str = "plasma",
) -> Figure:
    """Draw a confusion matrix twice: as counts, and as shares of the rows.

    Cells are large enough for their names, so that the figure grows with the number of classes, up to 100. Of more
    classes the 40 most confused ones are drawn, and the title says so. Cells of 0 are grey.

    Args:
        matrix: Counts; rows truth, columns prediction.
        shares: The same with every row divided by its sum; None to have them computed.
        labels: Names of the rows and columns.
        title: What stands above.
        color_theme: Name of a colour map of matplotlib.

    Raises:
        ValueError: matplotlib has no such colour map.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    check_color_theme(color_theme)
    if len(labels) > MOST_DRAWN:
        title = f"{title}: the {BLOCK_DRAWN} most confused of {len(labels):,} classes"
        chosen, matrix, shares = confused_block(matrix, most=BLOCK_DRAWN)
        labels = [labels[index] for index in chosen]
    elif shares is None:
        shares = row_shares(matrix)
    colours = matplotlib.colormaps[color_theme].with_extremes(bad=NOTHING)
    names = [as_text(name) for name in short_names(labels, LONGEST_NAME)]
    cells = len(names)

    # In inches. Set by hand: layouts that measure every text take minutes for hundreds of classes.
    cell_side = max(0.095, min(0.72, 11 / cells))
    font = max(4.6, min(10.0, cell_side * 72 * 0.7))
    panel = max(cell_side * cells, 2.4)
    margin = 0.45 + max(map(len, names)) * font * 0.6 / 72
    bar, gap, top = 0.25, 0.15, 0.75
    block = margin + panel + gap + bar + 0.75
    width, height = 2 * block, margin + panel + top
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(0.5, 1 - 0.25 / height, title, ha="center", va="center", fontsize=12, fontweight="bold")

    panels = (
        ("counts", matrix, LogNorm(1, max(2, int(matrix.max(initial=1)))), _count),
        ("shares of the row", shares, Normalize(0, 1), _share),
    )
    for number, (name, values, norm, text) in enumerate(panels):
        left = number * block + margin
        axes = figure.add_axes((left / width, margin / height, panel / width, panel / height))
        shades = ScalarMappable(norm, colours)
        # Coloured a cell at a time; imshow would do it a pixel at a time, which takes four times as long.
        axes.imshow(shades.to_rgba(np.ma.masked_equal(values, 0), bytes=True), interpolation="nearest")
        axes.set_title(name, fontsize=11)
        _name_axes(axes, names, font)
        if cells <= MOST_NUMBERED:
            _write_numbers(axes, shades, values, text, min(font, cell_side * 72 / 4.2))
        scale = figure.add_axes(((left + panel + gap) / width, margin / height, bar / width, panel / height))
        figure.colorbar(shades, cax=scale)
    return figure


def as_text(name: str) -> str:
    r"""A name that matplotlib shows as it is: ``$`` would begin a formula.

    Example:
        >>> print(as_text("$10_$20"))
        \$10_\$20
    """
    return name.replace("$", r"\$")


def check_color_theme(name: str) -> None:
    """Raise ValueError unless matplotlib has a color map of this name.

    Example:
        >>> check_color_theme("viridis")
    """
    import matplotlib

    if name not in matplotlib.colormaps:
        raise ValueError(f"'color_theme' must be the name of a color map of matplotlib (found {name!r})")


def save_png(figure: Figure, file: Union[Path, BinaryIO]) -> None:
    """Write a figure to a file, without the version of matplotlib in it, so that equal figures are equal files."""
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs={"compress_level": 1})


def to_rgb(figure: Figure, *, dpi: int = DPI) -> np.ndarray:
    """The pixels of a figure, (height, width, 3) bytes.

    Example:
        >>> to_rgb(confusion_figure(np.eye(2, dtype=int), np.eye(2), ["a", "b"], title=""), dpi=50).shape[2]
        3
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3].copy()


def show(figures: Sequence[Figure]) -> bool:
    """Open a window with each figure; False if this machine has no display to open it on."""
    from matplotlib import pyplot

    if pyplot.get_backend().lower() in ("agg", "cairo", "pdf", "pgf", "ps", "svg", "template"):
        return False
    for figure in figures:
        figure.canvas.draw()
        window = pyplot.figure(figsize=figure.get_size_inches(), dpi=DPI)
        window.figimage(np.asarray(figure.canvas.buffer_rgba()))  # type: ignore[attr-defined]
    pyplot.show()
    return True


def _count(value: Any) -> str:
    return f"{value:,}" if value < 100_000 else f"{value:.0e}".replace("e+0", "e")


def _share(value: Any) -> str:
    return f"{value:.2f}"


def _name_axes(axes: Axes, names: Sequence[str], font: float) -> None:
    places = np.arange(len(names))
    axes.set_xticks(places, names, rotation=90, fontsize=font)
    axes.set_yticks(places, names, fontsize=font)
    axes.tick_params(length=0 if len(names) > MOST_NUMBERED else 2, pad=2)
    axes.set_xlabel("prediction", fontsize=10)
    axes.set_ylabel("ground truth", fontsize=10)
    if len(names) > 1:
        # Fine lines, by which the eye finds its row.
        edges = np.arange(1, len(names)) - 0.5
        width = 0.5 if len(names) <= 100 else 0.15
        axes.hlines(edges, -0.5, len(names) - 0.5, colors="white", linewidth=width)
        axes.vlines(edges, -0.5, len(names) - 0.5, colors="white", linewidth=width)


def _write_numbers(axes: Axes, shades: Any, values: np.ndarray, text: Any, font: float) -> None:
    for row, column in np.argwhere(values != 0):
        red, green, blue, _ = shades.to_rgba(values[row, column])
        bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
        axes.text(
            column,
            row,
            text(values[row, column]),
            ha="center",
            va="center",
            fontsize=font,
            color="black" if bright else "white",
        )
