"""The site builds without a warning, asks nothing of other servers, and leaves nothing out."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape

import pytest

from docs import generate, hooks
from mm_metrics_plugin.cli import make_parser
from tests.helpers.documents import ROOT
from tests.test_docs_metrics import metric_classes


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def text_of(page):
    """What a page says, without its tags."""
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_nothing_is_asked_of_another_server(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*href=[\"']?(?:https?:)?//"
    for page in pages:
        assert not re.search(loaded, page.read_text(encoding="utf-8")), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_every_metric_and_option_is_on_the_page_of_options(site):
    text = text_of(site / "api" / "metrics.html")
    for name, found in metric_classes().items():
        assert re.search(rf"\b{name}\(", text), name
        described = re.findall(r"^ {8}(\w+): (.+)$", found.__doc__, flags=re.MULTILINE)
        assert described and all(option in text for option, _ in described)


def test_every_public_function_has_its_place(site):
    import ast

    for room in ("functional", "states", "io"):
        text = text_of(site / "api" / f"{room}.html")
        paths = (ROOT / "mm_metrics_plugin" / room).rglob("*.py")
        for path in (one for one in paths if not one.name.startswith("_")):  # private modules have no page
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
            missing = [name for name in names if not name.startswith("_") and not re.search(rf"\b{name}\b", text)]
            assert not missing, f"{room}/{path.name}: {missing}"


def test_every_option_of_the_command_is_on_its_page(site):
    text = text_of(site / "command.html")
    (choices,) = [action for action in make_parser()._actions if action.dest == "subcommand"]
    for name, parser in choices.choices.items():
        assert f"mm-metrics {name}" in text
        for action in parser._actions:
            assert all(option in text for option in action.option_strings)


def test_every_message_is_on_the_page_of_errors(site):
    text = text_of(site / "errors.html")
    assert "must be finite (found" in text and "comes {counts[twice[0]]} times" in text
    counted = re.findall(r"raise (MetricInputError|ResultFileError)\(", "".join(map(_source, _package())))
    assert len(re.findall(r"^\| `", generate.message_lists(), re.MULTILINE)) > 0.8 * len(counted) > 50


def _package():
    return sorted((ROOT / "mm_metrics_plugin").rglob("*.py"))


def _source(path):
    return path.read_text(encoding="utf-8")


def test_links_out_of_the_pages_become_names():
    from pathlib import Path

    text = "[configs/digits.py](../configs/digits.py), [a script](../demo/shapes.py), [page](metrics.md), ![p](x.png)"
    assert hooks.without_outer_links(text, Path(".")) == (
        "configs/digits.py, a script (`demo/shapes.py`), [page](metrics.md), ![p](x.png)"
    )
