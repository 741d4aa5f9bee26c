"""Figures of confusion matrices. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Iterator, Sequence

import numpy as np

from mm_metrics_plugin.functional.classification.confusion_matrix import most_confused_classes, row_shares
from mm_metrics_plugin.render.tables import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

DPI = 110
MAX_NUMBERED = 25  # rows of a matrix whose cells are large enough for numbers
MAX_DRAWN = 100  # rows of a matrix that is drawn as a whole
BLOCK_DRAWN = 40  # most confused classes that are drawn of a larger matrix
MAX_NAME_LENGTH = 24
ZERO_COLOR = "#f3f3f3"
# Fonts for characters that matplotlib's default font lacks. The first that is installed is used.
CJK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Arial Unicode MS",
)


@contextmanager
def cjk_fallback_font() -> Iterator[None]:
    """Let texts that are made in the block use an installed font for Chinese, Japanese and Korean characters."""
    import matplotlib
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    fallback = [name for name in CJK_FONTS if name in installed][:1]
    with matplotlib.rc_context({"font.family": [*matplotlib.rcParams["font.family"], *fallback]}):
        yield


@cjk_fallback_font()
def confusion_figure(matrix: np.ndarray, labels: Sequence[str], *, title: str, color_theme: str = "plasma") -> Figure:
    """Draw a confusion matrix (rows are ground truth) twice: counts, and counts normalized over the rows.

    The figure grows with the number of classes, up to 100, so that names stay legible. Of more classes, the 40 most
    confused ones are drawn, and the title says so. Zero cells are gray.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    check_color_theme(color_theme)
    if len(labels) > MAX_DRAWN:
        title = f"{title}: the {BLOCK_DRAWN} most confused of {len(labels):,} classes"
        chosen = most_confused_classes(matrix, most=BLOCK_DRAWN)
        shares, matrix = row_shares(matrix[chosen])[:, chosen], matrix[np.ix_(chosen, chosen)]
        labels = [labels[index] for index in chosen]
    else:
        shares = row_shares(matrix)
    colormap = matplotlib.colormaps[color_theme].with_extremes(bad=ZERO_COLOR)
    shown = short_names(labels, MAX_NAME_LENGTH)
    names = [as_text(name) for name in shown]
    cells = len(names)

    # In inches. Automatic layouts measure every text, which takes minutes for hundreds of classes.
    cell_side = max(0.095, min(0.72, 11 / cells))
    font = max(4.6, min(10.0, cell_side * 72 * 0.7))
    panel = max(cell_side * cells, 2.4)
    margin = 0.45 + _text_width(shown, font)
    bar, gap, top = 0.25, 0.15, 0.75
    block = margin + panel + gap + bar + 0.75
    width, height = 2 * block, margin + panel + top
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(0.5, 1 - 0.25 / height, title, ha="center", va="center", fontsize=12)

    largest = max(2, int(matrix.max(initial=1)))
    panels: list[tuple[str, np.ndarray, Normalize, np.ndarray, Callable[[Any], str]]] = [
        ("counts", matrix, LogNorm(1, largest), _count_ticks(largest), _format_count),
        ("normalized over rows", shares, Normalize(0, 1), np.linspace(0, 1, 5), _format_share),
    ]
    for number, (name, values, norm, ticks, format_value) in enumerate(panels):
        left = number * block + margin
        axes = figure.add_axes((left / width, margin / height, panel / width, panel / height))
        edges = np.arange(cells + 1) - 0.5
        # Colored and drawn per cell; imshow does both per pixel, which takes ten times as long.
        axes.pcolormesh(edges, edges, np.ma.masked_equal(values, 0), norm=norm, cmap=colormap)
        axes.invert_yaxis()
        axes.set_title(name, fontsize=11)
        _label_axes(axes, names, font, 0.05 * cells / panel, (margin - 0.06) * cells / panel)
        if cells <= MAX_NUMBERED:
            colors = colormap(norm(values))
            _write_numbers(axes, colors, values, format_value, min(font, cell_side * 72 / 4.2))
        scale = figure.add_axes(((left + panel + gap) / width, margin / height, bar / width, panel / height))
        _draw_scale(scale, colormap, norm(ticks), [format_value(tick) for tick in ticks])
    return figure


def _text_width(texts: Sequence[str], font: float) -> float:
    """The width of the widest text, in inches."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    make_renderer: Any = RendererAgg  # without annotations
    renderer = make_renderer(1, 1, DPI)
    properties = FontProperties(size=font)
    widths = [renderer.get_text_width_height_descent(text, properties, ismath=False)[0] for text in texts]
    return float(max(widths, default=0) / DPI)


def as_text(name: str) -> str:
    """Escape a name for matplotlib, where ``$`` begins a formula."""
    return name.replace("$", r"\$")


def check_color_theme(name: str) -> None:
    """Raise a ValueError unless matplotlib has a colormap of this name."""
    import matplotlib

    if name not in matplotlib.colormaps:
        raise ValueError(f"'color_theme' must be the name of a color map of matplotlib (found {name!r})")


def save_png(figure: Figure, file: Path | BinaryIO) -> None:
    """Write a figure as PNG. Equal figures give equal files: the version of matplotlib is not in them."""
    _draw(figure, DPI).save(file, format="png", dpi=(DPI, DPI), compress_level=1)


def to_rgb(figure: Figure, *, dpi: int = DPI) -> np.ndarray:
    """Draw a figure into an array of (height, width, 3) bytes."""
    return np.array(_draw(figure, dpi))


def _draw(figure: Figure, dpi: int) -> Image:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL.Image import frombuffer

    figure.set_dpi(dpi)
    canvas: Any = FigureCanvasAgg(figure)  # whose methods have no annotations
    canvas.draw()
    size = canvas.get_width_height()
    return frombuffer("RGBA", size, canvas.buffer_rgba(), "raw", "RGBA", 0, 1).convert("RGB")


def show(figures: Sequence[Figure]) -> bool:
    """Open a window for each figure; False if there is no display."""
    from matplotlib import pyplot

    if pyplot.get_backend().lower() in ("agg", "cairo", "pdf", "pgf", "ps", "svg", "template"):
        return False
    for figure in figures:
        window = pyplot.figure(figsize=figure.get_size_inches(), dpi=DPI)
        window.figimage(to_rgb(figure))
    pyplot.show()
    return True


def _format_count(value: Any) -> str:
    return f"{value:,}" if value < 100_000 else f"{value:.0e}".replace("e+0", "e")


def _format_share(value: Any) -> str:
    return f"{value:.2f}"


def _count_ticks(largest: int) -> np.ndarray:
    """Powers of 10, and for small counts their multiples by 2 and 5."""
    ticks = 10 ** np.arange(len(str(largest)))
    if largest < 100:
        ticks = np.outer(ticks, (1, 2, 5)).ravel()
    return ticks[ticks <= largest]


def _label_axes(axes: Axes, names: Sequence[str], font: float, pad: float, margin: float) -> None:
    """Name the rows and columns, with lines between them; ``pad`` and ``margin`` are in cells.

    The names are plain texts: a tick label costs several artists and is measured twice.
    """
    cells = len(names)
    start, end = -0.5, cells - 0.5
    axes.set_xticks([])
    axes.set_yticks([])
    for index, name in enumerate(names):
        axes.text(start - pad, index, name, ha="right", va="center_baseline", fontsize=font, gid="row")
        axes.text(index, end + pad, name, ha="center", va="top", rotation=90, fontsize=font, gid="column")
    middle = (start + end) / 2
    axes.text(start - margin, middle, "ground truth", ha="left", va="center", rotation=90, fontsize=10)
    axes.text(middle, end + margin, "prediction", ha="center", va="bottom", fontsize=10)
    edges = np.arange(start + 1, end)
    axes.hlines(edges, start, end, colors="white", linewidth=0.5)
    axes.vlines(edges, start, end, colors="white", linewidth=0.5)


def _write_numbers(
    axes: Axes, colors: np.ndarray, values: np.ndarray, format_value: Callable[[Any], str], font: float
) -> None:
    bright = colors[..., :3] @ (0.299, 0.587, 0.114) > 0.55
    for row, column in np.argwhere(values != 0):
        color = "black" if bright[row, column] else "white"
        text = format_value(values[row, column])
        axes.text(column, row, text, ha="center", va="center", fontsize=font, color=color, gid="cell")


def _draw_scale(axes: Axes, colormap: Any, places: np.ndarray, labels: Sequence[str]) -> None:
    """A color bar. matplotlib's own takes four times as long."""
    axes.pcolormesh([0, 1], np.linspace(0, 1, 257), np.linspace(0, 1, 256)[:, None], cmap=colormap)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks(places, labels)
