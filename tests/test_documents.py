"""What README and CONTRIBUTING say is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import METRICS

import mm_metrics_plugin

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def blocks(name):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", blocks("README.md"))
def test_configs_of_the_readme_load_and_build(block):
    config = Config.fromstring(block, ".py")
    ours = [evaluator for evaluator in config.val_evaluator if hasattr(mm_metrics_plugin, evaluator["type"])]
    assert ours
    for evaluator in ours:
        METRICS.build(evaluator)


def test_contributing_shows_the_example_that_is_tested():
    example = (ROOT / "docs" / "own_metric_example.py").read_text(encoding="utf-8")
    assert blocks("CONTRIBUTING.md") == [example]
    assert len(example.splitlines()) <= 40


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_inside_the_project_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_make_targets_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:^    |`)make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
