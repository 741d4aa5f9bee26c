"""The site builds without a warning, loads nothing from outside, can be searched, and has every public name."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from docs import build, conf_base
from mm_metrics_plugin.cli import make_parser
from tests.browser.conftest import TIMEOUT
from tests.helpers.documents import ROOT, prose

PUBLIC = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").split()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run([sys.executable, "-m", "docs.build", folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_nothing_is_loaded_from_another_server(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    loaded = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*href=[\"']?(?:https?:)?//"
    for page in pages:
        assert not re.search(loaded, page.read_text(encoding="utf-8")), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_links_between_the_languages_resolve(site):
    for language in build.LANGUAGES:
        for page in (site / language).rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            assert re.search(r'<a href="([^"]+)" lang=', text), page
            for target, anchor in re.findall(r'href="((?:\.\./)+(?:en|zh_cn)/[^"#]+)#?([^"]*)"', text):
                other = (page.parent / target).resolve().read_text(encoding="utf-8")
                assert not anchor or f'id="{anchor}"' in other, f"{page}: {target}#{anchor}"


def test_every_public_name_is_documented(site):
    ids = set()
    for page in (site / "en" / "reference" / "api").glob("*.html"):
        ids |= set(re.findall(r'id="(mm_metrics_plugin\.[\w.]+)"', page.read_text(encoding="utf-8")))
    # The functions of the top level are documented in mm_metrics_plugin.evaluation, where they are defined.
    names = {name.rsplit(".", 1)[1] for name in ids if name.count(".") == 2}
    assert {name for name in PUBLIC if name not in ids and name.rsplit(".", 1)[1] not in names} == {
        "mm_metrics_plugin.__version__"
    }


def test_options_that_the_chinese_page_explains_exist():
    (choices,) = [action for action in make_parser()._actions if action.dest == "subcommand"]
    options = {
        name for parser in choices.choices.values() for action in parser._actions for name in action.option_strings
    }
    assert set(re.findall(r"`(--[a-z-]+)", prose(ROOT / "docs" / "zh_cn" / "command.md"))) <= options


@pytest.mark.parametrize(
    "query, title",
    [
        ("en/search.html?q=bootstrap", "Confidence intervals and significance tests"),
        ("zh_cn/search.html?q=置信区间", "比较多次实验"),
    ],
)
def test_the_search_finds_a_page(site, browser, query, title):
    page = browser.new_page()
    page.goto(f"{site.as_uri()}/{query}")
    page.locator("#search-results li a", has_text=title).first.wait_for(timeout=1000 * TIMEOUT)
    page.close()


def test_links_to_files_of_the_repository_become_paths():
    text = (
        "[configs/digits.py](../../../configs/digits.py), [a script](../../../demo/shapes.py), [p](auc.md), ![i](x.png)"
    )
    assert conf_base.replace_repository_links(text, "docs/en/tutorials") == (
        "`configs/digits.py`, a script (`demo/shapes.py`), [p](auc.md), ![i](x.png)"
    )
