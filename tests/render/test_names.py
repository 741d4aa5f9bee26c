"""Names are text in every output, whatever they contain."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from benchmarks.detection_problem import make_problem
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.render.figures.curves import MAX_NAME_LENGTH, MAX_NAMED, _curve_figure
from mm_metrics_plugin.render.markdown import escape, item, table
from mm_metrics_plugin.render.tables import printable, short_names
from tests.helpers import result_files as files

NAMES = [
    *("$10_$20", "_hidden", "x[/y]", "[red]dog", "a|b", "~~struck~~", "&amp; &lt;", "<b>bold</b>", "`code` *x* __y__"),
    *("\x1b[2Jclear", "café 中文", "{x}", "%s %d", "1. one", "- dash", "# head", "back\\slash", "$\\frac{$", '"q", x'),
    *("name of twenty characters, a", "name of twenty characters, b", "turn \u202e round", "a\nb", "y" * 5000),
]


def parsed(source):
    """The text that a reader of Markdown sees, the kinds of inline tokens but plain text, and the number of lists."""
    tokens = MarkdownIt("js-default", {"linkify": False, "typographer": False}).parse(source)
    inline = [child for token in tokens for child in token.children or []]
    lists = sum(token.type in ("bullet_list_open", "ordered_list_open") for token in tokens)
    return (
        "".join(child.content for child in inline),
        {child.type for child in inline} - {"text", "text_special"},
        lists,
    )


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=30).filter(lambda name: name.strip()))
def test_markdown_shows_names_as_they_are(name):
    for source in ("\n".join(table(["class", name], [[name, 1]])), item(name), f"## {escape(name)}"):
        text, kinds, lists = parsed(source)
        assert printable(name).strip() in text and not kinds and lists == source.startswith("- ")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=60), unique=True, min_size=1, max_size=12))
def test_shortened_names_are_distinct(names):
    short = short_names(names, MAX_NAME_LENGTH)
    assert len(set(short)) == len(names)
    assert all(len(name) <= MAX_NAME_LENGTH and name.isprintable() for name in short)


def test_names_that_differ_in_the_middle_are_numbered():
    assert short_names(["cat", "a very long name of a class"], 12) == ["cat", "a very…class"]
    names = ["x" * 50 + middle + "x" * 50 for middle in "ab"]
    assert short_names(names, 12) == ["xxx… (no. 0)", "xxx… (no. 1)"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Reports on detectors and classifiers with special characters in the names of classes, images and runs."""
    folder = tmp_path_factory.mktemp("names")
    problem = make_problem(8, len(NAMES), 30, 10.0, seed=0)
    truth = files.truth_of(problem, NAMES)
    for image, name in zip(truth["images"], NAMES):
        image["file_name"] = name + ".jpg"
    truth = files.write_json(folder / "t.json", truth)
    scores = {"old[lr0.1].pkl": problem.scores, "$a_$b & ~c~ [i].pkl": problem.scores**2}
    runs = [
        files.write_pickle(folder / name, files.results_of(problem._replace(scores=values)))
        for name, values in scores.items()
    ]
    samples = files.write_pickle(folder / "samples.pkl", files.samples(200, len(NAMES)))
    (folder / "names.txt").write_text("\n".join(name.replace("\n", " ") for name in NAMES), encoding="utf-8")
    for arguments in (
        ["detection", truth, runs[0], folder / "detection"],
        ["classification", samples, folder / "classification", "--classes", folder / "names.txt"],
        ["compare", truth, *runs, folder / "comparison", "--permutations", "20"],
    ):
        assert main([*map(str, arguments), "--quiet"]) == 0, arguments
    return folder, truth, runs


def test_every_file_contains_the_names(written):
    folder, _, runs = written
    assert json.loads((folder / "detection" / "report.json").read_text(encoding="utf-8"))["classes"] == NAMES
    with open(folder / "detection" / "per_class.csv", encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 2 * len(NAMES)
    for name, words in (
        ("detection/report.md", map(printable, NAMES)),
        ("classification/report.md", ()),
        ("comparison/comparison.md", (run.name for run in runs)),
    ):
        source = (folder / name).read_text(encoding="utf-8")
        text, kinds, _ = parsed(source)
        assert "\x1b" not in source and "\u202e" not in source and kinds <= {"softbreak"}
        assert all(word in text for word in words)
    for name in ("detection", "classification"):
        assert (folder / name / "confusion_matrix.png").stat().st_size > 5_000


def test_the_terminal_shows_the_names(written):
    _, truth, runs = written
    text = files.printed("detection", truth, runs[0], "--verbose")
    assert "\x1b" not in text and "\u202e" not in text
    joined = re.sub(r"\s", "", text)
    assert all(re.sub(r"\s", "", printable(name)) in joined for name in NAMES[:-5])
    text = files.printed("compare", truth, *runs, "--permutations", "20")
    assert all(run.name in text for run in runs)


@pytest.mark.filterwarnings("ignore:.*missing from font")
def test_legends_name_every_class():
    names = NAMES[:MAX_NAMED]
    line = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    figure = _curve_figure("title", names, "plasma", [("recall", "precision", [line] * len(names), line)])
    figure.canvas.draw()
    legend = figure.axes[0].get_legend()
    assert legend.get_window_extent().x1 < figure.bbox.x1
    shown = [text.get_text().replace("\\$", "$") for text in legend.get_texts()]
    assert shown == [*short_names(names, MAX_NAME_LENGTH), "mean"] and "_hidden" in shown and "$10_$20" in shown
