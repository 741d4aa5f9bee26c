"""Figures for one class and for hundreds, and no holes in them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.functional.classification.confusion_matrix import row_shares
from mm_metrics_plugin.render.figures.confusion_matrix import (
    BLOCK_DRAWN,
    DPI,
    MOST_DRAWN,
    MOST_NUMBERED,
    NOTHING,
    confusion_figure,
    save_png,
)


def drawn(classes, empty=False):
    random = np.random.default_rng(0)
    matrix = random.poisson(0.2, (classes + 1, classes + 1))
    matrix[range(classes), range(classes)] += random.poisson(60, classes) + 1
    matrix[-1] *= not empty
    labels = [f"class number {index}" for index in range(classes)] + ["background"]
    return matrix, confusion_figure(matrix, row_shares(matrix), labels, title="coco")


@pytest.mark.parametrize("classes", [1, 4, 80, 99])
def test_a_cell_is_large_enough_for_its_name(classes, tmp_path):
    matrix, figure = drawn(classes)
    counts, shares = figure.axes[0], figure.axes[2]
    for axes in (counts, shares):
        height = axes.get_position().height * figure.get_figheight() * DPI
        font = axes.get_yticklabels()[0].get_fontsize() * DPI / 72
        assert font >= 7 and height / len(matrix) >= font * 0.95  # pixels
        assert [label.get_text() for label in axes.get_yticklabels()][-1] == "background"
        written = {text.get_text() for text in axes.texts}
        assert bool(written) == (len(matrix) <= MOST_NUMBERED)
    save_png(figure, tmp_path / "a.png")
    pixels = np.asarray(Image.open(tmp_path / "a.png"))
    assert min(pixels.shape[:2]) >= 400 and max(pixels.shape[:2]) <= 9_000
    assert (tmp_path / "a.png").stat().st_size < 6_000_000
    # The names do not run out of the picture: its rim is blank.
    for rim in (pixels[:4], pixels[-4:], pixels[:, :4], pixels[:, -4:]):
        assert (rim[..., :3] == 255).all()


@pytest.mark.parametrize("classes", [101, 1000])
def test_of_many_classes_the_most_confused_are_drawn(classes, tmp_path):
    random = np.random.default_rng(0)
    confused = np.sort(random.choice(classes, BLOCK_DRAWN, replace=False))
    matrix = np.diag(random.integers(20, 90, classes))
    matrix[confused, np.roll(confused, 1)] = random.integers(3, 9, BLOCK_DRAWN)
    others = np.setdiff1d(np.arange(classes), confused)
    matrix[others[0], others[1]] = 1  # confusions, but fewer
    figure = confusion_figure(matrix, None, [f"class {index}" for index in range(classes)], title="coco")
    for axes in (figure.axes[0], figure.axes[2]):
        assert [label.get_text() for label in axes.get_yticklabels()] == [f"class {index}" for index in confused]
    assert figure.texts[0].get_text() == f"coco: the {BLOCK_DRAWN} most confused of {classes:,} classes"
    save_png(figure, tmp_path / "a.png")
    assert max(Image.open(tmp_path / "a.png").size) <= 4000
    assert classes > MOST_DRAWN


def test_numbers_in_the_cells_are_those_of_the_matrix():
    matrix, figure = drawn(4)
    written = {tuple(map(int, text.get_position())): text.get_text() for text in figure.axes[0].texts}
    assert written == {(c, r): str(matrix[r, c]) for r, c in np.argwhere(matrix)}


def test_an_empty_background_row_has_no_nan():
    matrix, figure = drawn(4, empty=True)
    assert not matrix[-1].any()
    shown = np.asarray(figure.axes[2].images[0].get_array())[..., :3]
    blank = (shown == [int(NOTHING[at : at + 2], 16) for at in (1, 3, 5)]).all(axis=-1)
    assert np.array_equal(blank, matrix == 0) and blank[-1].all()
    assert not any("nan" in text.get_text() for axes in figure.axes for text in axes.texts)


def test_equal_figures_are_equal_files(tmp_path):
    for name in ("a.png", "b.png"):
        save_png(drawn(4)[1], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_long_names_are_cut_and_odd_ones_harmless():
    names = ["x" * 200, "$\\frac{$", "a\nb", "\x1b[2J", "background"]
    matrix = np.eye(5, dtype=np.int64)
    figure = confusion_figure(matrix, row_shares(matrix), names, title="coco")
    figure.canvas.draw()
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == ["x" * 12 + "…" + "x" * 11, "\\$\\frac{\\$", "a\\nb", "\\x1b[2J", "background"]


def test_an_unknown_colour_map_is_refused():
    with pytest.raises(ValueError, match="'mauve'"):
        confusion_figure(np.eye(2, dtype=int), np.eye(2), ["a", "b"], title="", color_theme="mauve")
