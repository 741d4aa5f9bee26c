"""Names are text in every renderer, whatever they contain."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.render.figures.curves import MAX_NAME_LENGTH, MAX_NAMED
from mm_metrics_plugin.render.markdown import escape, item, table
from mm_metrics_plugin.render.tables import printable, short_names
from tests.helpers import result_files as files

NAMES = [
    *("$10_$20", "_hidden", "x[/y]", "[red]dog", "a|b", "~~struck~~", "&amp; &lt;", "<b>bold</b>", "`code` *x* __y__"),
    *("\x1b[2Jclear", "café 中文", "{x}", "%s %d", "1. one", "- dash", "# head", "back\\slash", "$\\frac{$", '"q", x'),
    *("name of twenty characters, a", "name of twenty characters, b", "turn \u202e round", "a\nb", "y" * 5000),
]


def text_of(tokens):
    """What a reader of Markdown sees, and every kind of inline token but plain text."""
    seen, kinds = "", set()
    for token in tokens:
        for child in token.children or []:
            seen += child.content
            kinds.add(child.type)
    return seen, kinds - {"text", "text_special"}


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=30).filter(lambda name: name.strip()))
def test_markdown_shows_names_as_they_are(name):
    parser = MarkdownIt("js-default", {"linkify": False, "typographer": False})
    shown = printable(name).strip()
    for source in ("\n".join(table(["class", name], [[name, 1]])), item(name), f"## {escape(name)}"):
        tokens = parser.parse(source)
        seen, kinds = text_of(tokens)
        assert not kinds and shown in seen
        assert sum(token.type in ("bullet_list_open", "ordered_list_open") for token in tokens) == source.startswith(
            "- "
        )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=60), unique=True, min_size=1, max_size=12))
def test_shortened_names_stay_apart(names):
    found = short_names(names, MAX_NAME_LENGTH)
    assert len(set(found)) == len(names)
    for short, name in zip(found, names):
        assert len(short) <= MAX_NAME_LENGTH and short.isprintable() and (short == printable(name) or len(short) > 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Reports on detectors and classifiers with hostile names of classes, images and runs."""
    place = tmp_path_factory.mktemp("names")
    from benchmarks.detection_problem import make_problem

    size = len(NAMES)
    made = make_problem(8, size, 30, 10.0, seed=0)
    truth = files.truth_of(made, NAMES)
    for image, name in zip(truth["images"], NAMES):
        image["file_name"] = name + ".jpg"
    files.write_json(place / "t.json", truth)
    runs = [place / "old[lr0.1].pkl", place / "$a_$b & ~c~ [i].pkl"]
    content = files.results_of(made)
    files.write_pickle(runs[0], content)
    files.write_pickle(runs[1], files.results_of(made._replace(scores=made.scores**2)))
    samples = files.write_pickle(place / "samples.pkl", files.samples(200, size))
    few = files.write_pickle(place / "few.pkl", files.samples(60, MAX_NAMED))
    printable_names = [name.replace("\n", " ") for name in NAMES]
    (place / "names.txt").write_text("\n".join(printable_names), encoding="utf-8")
    (place / "few.txt").write_text("\n".join(printable_names[:MAX_NAMED]), encoding="utf-8")
    for arguments in (
        ["detection", place / "t.json", runs[0], place / "detection"],
        ["classification", samples, place / "classification", "--classes", place / "names.txt"],
        ["classification", few, place / "few", "--classes", place / "few.txt"],
        ["compare", place / "t.json", *runs, place / "comparison", "--permutations", "20"],
    ):
        assert main([*map(str, arguments), "--quiet"]) == 0, arguments
    return place, runs


def test_every_file_is_written_and_holds_the_names(written):
    place, runs = written
    report = json.loads((place / "detection" / "report.json").read_text(encoding="utf-8"))
    assert report["classes"] == NAMES
    rows = list(csv.DictReader(io.StringIO((place / "detection" / "per_class.csv").read_text(encoding="utf-8"))))
    assert len(rows) == 2 * len(NAMES)
    for folder, name in (("detection", "report.md"), ("classification", "report.md"), ("comparison", "comparison.md")):
        source = (place / folder / name).read_text(encoding="utf-8")
        assert "\x1b" not in source and "\u202e" not in source
        seen, kinds = text_of(MarkdownIt("js-default", {"linkify": False}).parse(source))
        assert kinds <= {"softbreak"}
        for class_name in NAMES:
            if folder == "detection":
                assert printable(class_name) in seen
    for run in runs:
        assert run.name in seen
    for folder in ("detection", "classification"):
        assert (place / folder / "confusion_matrix.png").stat().st_size > 5_000


def test_the_terminal_shows_the_names(written, capsys):
    place, runs = written
    assert main(["detection", str(place / "t.json"), str(runs[0]), "--verbose"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and "\u202e" not in text
    together = re.sub(r"\s", "", text)
    for name in NAMES[:-5]:
        assert re.sub(r"\s", "", printable(name)) in together
    assert main(["compare", str(place / "t.json"), *map(str, runs), "--permutations", "20"]) == 0
    text = capsys.readouterr().out
    assert all(run.name in text for run in runs)


def test_legends_name_every_class():
    import numpy as np

    from mm_metrics_plugin.render.figures.curves import _curve_figure

    names = NAMES[:MAX_NAMED]
    line = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    figure = _curve_figure("title", names, "plasma", [("recall", "precision", [line] * len(names), line)])
    figure.canvas.draw()
    legend = figure.axes[0].get_legend()
    assert legend.get_window_extent().x1 < figure.bbox.x1
    shown = [text.get_text().replace("\\$", "$") for text in legend.get_texts()]
    assert shown == [*short_names(names, MAX_NAME_LENGTH), "mean"]
    assert len(set(shown)) == len(shown) and "_hidden" in shown and "$10_$20" in shown
