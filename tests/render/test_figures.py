"""Figures of one class and of hundreds: legible names, exact numbers, equal files."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from PIL import Image

from mm_metrics_plugin.render.figures.confusion_matrix import (
    BLOCK_DRAWN,
    DPI,
    MAX_DRAWN,
    MAX_NUMBERED,
    ZERO_COLOR,
    confusion_figure,
    save_png,
)


def drawn(classes):
    random = np.random.default_rng(0)
    matrix = random.poisson(0.2, (classes + 1, classes + 1))
    matrix[range(classes), range(classes)] += random.poisson(60, classes) + 1
    matrix[-1] = 0  # no detection without a match
    labels = [f"class number {index}" for index in range(classes)] + ["background"]
    return matrix, confusion_figure(matrix, labels, title="coco")


def texts(axes, kind):
    return [text for text in axes.texts if text.get_gid() == kind]


@pytest.mark.parametrize("classes", [1, 4, 80, 99])
def test_a_cell_is_large_enough_for_its_name(classes, tmp_path):
    matrix, figure = drawn(classes)
    for axes in (figure.axes[0], figure.axes[2]):
        height = axes.get_position().height * figure.get_figheight() * DPI
        for kind in ("row", "column"):
            names = texts(axes, kind)
            font = names[0].get_fontsize() * DPI / 72
            assert font >= 7 and height / len(matrix) >= font * 0.95  # pixels
            assert len(names) == len(matrix) and names[-1].get_text() == "background"
        assert bool(texts(axes, "cell")) == (len(matrix) <= MAX_NUMBERED)
    save_png(figure, tmp_path / "a.png")
    pixels = np.asarray(Image.open(tmp_path / "a.png"))
    assert min(pixels.shape[:2]) >= 400 and max(pixels.shape[:2]) <= 9_000
    assert (tmp_path / "a.png").stat().st_size < 6_000_000
    for margin in (pixels[:4], pixels[-4:], pixels[:, :4], pixels[:, -4:]):  # blank, so no name is cut off
        assert (margin[..., :3] == 255).all()


@pytest.mark.parametrize("classes", [MAX_DRAWN + 1, 1000])
def test_of_many_classes_the_most_confused_are_drawn(classes, tmp_path):
    random = np.random.default_rng(0)
    confused = np.sort(random.choice(classes, BLOCK_DRAWN, replace=False))
    matrix = np.diag(random.integers(20, 90, classes))
    matrix[confused, np.roll(confused, 1)] = random.integers(3, 9, BLOCK_DRAWN)
    others = np.setdiff1d(np.arange(classes), confused)
    matrix[others[0], others[1]] = 1  # confusions, but fewer
    figure = confusion_figure(matrix, [f"class {index}" for index in range(classes)], title="coco")
    for axes in (figure.axes[0], figure.axes[2]):
        assert [text.get_text() for text in texts(axes, "row")] == [f"class {index}" for index in confused]
    assert figure.texts[0].get_text() == f"coco: the {BLOCK_DRAWN} most confused of {classes:,} classes"
    save_png(figure, tmp_path / "a.png")
    assert max(Image.open(tmp_path / "a.png").size) <= 4000


def test_cells_show_the_matrix_and_an_empty_row_has_no_nan():
    matrix, figure = drawn(4)
    written = {tuple(map(int, text.get_position())): text.get_text() for text in texts(figure.axes[0], "cell")}
    assert written == {(column, row): str(matrix[row, column]) for row, column in np.argwhere(matrix)}
    figure.canvas.draw()
    colors = np.asarray(figure.axes[2].collections[0].get_facecolors()).reshape(*matrix.shape, 4)
    assert np.array_equal((colors == to_rgba(ZERO_COLOR)).all(axis=-1), matrix == 0)
    assert not any("nan" in text.get_text() for axes in figure.axes for text in axes.texts)


def test_equal_figures_are_equal_files(tmp_path):
    for name in ("a.png", "b.png"):
        save_png(drawn(4)[1], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_long_names_are_shortened_and_special_characters_escaped():
    names = ["x" * 200, "$\\frac{$", "a\nb", "\x1b[2J", "background"]
    figure = confusion_figure(np.eye(5, dtype=np.int64), names, title="coco")
    figure.canvas.draw()
    shown = [text.get_text() for text in texts(figure.axes[0], "row")]
    assert shown == ["x" * 12 + "…" + "x" * 11, "\\$\\frac{\\$", "a\\nb", "\\x1b[2J", "background"]


def test_an_unknown_colormap_is_an_error():
    with pytest.raises(ValueError, match="'mauve'"):
        confusion_figure(np.eye(2, dtype=int), ["a", "b"], title="", color_theme="mauve")


@pytest.mark.parametrize("name", ["W" * 24, "lower case letters", "\u72ac" * 23])
@pytest.mark.filterwarnings("ignore:.*missing from font")
def test_names_of_any_width_are_inside_the_figure_and_beside_the_axis_titles(name):
    figure = confusion_figure(np.eye(3, dtype=int), [name, "cat", "dog"], title="")
    figure.canvas.draw()
    panel, color_bar, other, _ = figure.axes
    for axes, left in ((panel, 0), (other, color_bar.get_window_extent().x1)):
        boxes = {text.get_gid() or text.get_text(): text.get_window_extent() for text in reversed(axes.texts)}
        assert left <= boxes["ground truth"].x0 and boxes["ground truth"].x1 <= boxes["row"].x0
        assert boxes["prediction"].y0 >= 0 and boxes["prediction"].y1 <= boxes["column"].y0


def test_an_installed_font_is_the_fallback_for_chinese_names(monkeypatch):
    """DejaVu Serif takes the place of a Chinese font, which test machines need not have."""
    monkeypatch.setattr("mm_metrics_plugin.render.figures.confusion_matrix.CJK_FONTS", ("No Such Font", "DejaVu Serif"))
    figure = confusion_figure(np.eye(2, dtype=int), ["cat", "dog"], title="")
    assert texts(figure.axes[0], "row")[0].get_fontfamily()[-1] == "DejaVu Serif"
