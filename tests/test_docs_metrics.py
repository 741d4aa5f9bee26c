"""docs/en/reference/metrics.md has every metric and key with its rule for ``save_best``; migrate.md is complete."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from mmengine.evaluator import BaseMetric

import mm_metrics_plugin
from mm_metrics_plugin.testing import evaluate, guessed_rule
from tests.helpers.cases import CASES

PAGE = Path(__file__).parent.parent / "docs" / "en" / "reference" / "metrics.md"
MIGRATION = PAGE.parent.parent / "how_to" / "migrate.md"
ROW = re.compile(r"^\| (`.+`) \| .+ \| (greater|less|never|–)(\*?) \|$")


def documented():
    """For each metric its keys as patterns, with the rule and whether ``rule=`` must be given."""
    sections = re.split(r"^### `(\w+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    tables = {}
    for name, text in zip(sections[1::2], sections[2::2]):
        rows = [match for match in map(ROW.match, text.splitlines()) if match]
        tables[name] = [
            (re.sub(r"<\w+>", ".+", re.escape(key).replace(r"\<", "<").replace(r"\>", ">")), rule, bool(explicit))
            for keys, rule, explicit in (row.groups() for row in rows)
            for key in re.findall(r"`([^`]+)`", keys)
        ]
    return tables


TABLES = documented()


def row_of(name, bare):
    """The most exact row that fits the key: literal keys come before patterns."""
    bare = re.sub(r"(_thr-\d\.\d\d|_no-thr)(?=/|$)", "", bare)
    fitting = [row for row in TABLES[name] if re.fullmatch(row[0], bare)]
    assert fitting, f"{name} gives {bare}, which is not in {PAGE.name}"
    return min(fitting, key=lambda row: (".+" in row[0], -len(row[0])))


def metric_classes():
    """Every concrete metric by its name."""
    found = {name: getattr(mm_metrics_plugin, name) for name in mm_metrics_plugin.metrics.__all__}
    return {
        name: value for name, value in found.items() if issubclass(value, BaseMetric) and not inspect.isabstract(value)
    }


def test_every_metric_is_documented():
    assert set(TABLES) == set(metric_classes())


@pytest.mark.parametrize("name", sorted(metric_classes()))
def test_every_option_is_in_the_docstring(name):
    found = metric_classes()[name]
    (described,) = re.findall(r"\n    Args:\n(.+?)\n\n", found.__doc__, flags=re.DOTALL)
    assert re.findall(r"^ {8}\**(\w+): ", described, flags=re.MULTILINE) == list(inspect.signature(found).parameters)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_key_is_documented_with_its_rule(case):
    metric = case.metric()
    prefix = f"{metric.prefix}/" if metric.prefix else ""
    for key in evaluate(metric, case.draw(40)):
        _, rule, explicit = row_of(type(metric).__name__, key[len(prefix) :])
        guess = guessed_rule(key)
        if rule == "never":
            assert row_of(type(metric).__name__, key[len(prefix) :])[0] == "auc_error"  # the only exception
            continue
        assert (guess or "–") == rule or (guess is None and explicit), f"{key}: {guess} is inferred"
        assert not (explicit and guess), f"{key}: mmengine infers {guess}, so no rule is needed"


def test_metrics_of_one_prefix_have_different_keys():
    """Mmengine raises an error if two metrics have the same key."""
    owners = {}
    for name, metric in metric_classes().items():
        for key in {pattern for pattern, _, _ in TABLES[name] if ".+" not in pattern}:
            owners.setdefault((metric.default_prefix, key), []).append(name)
    assert len(owners) > 60
    assert {key: names for key, names in owners.items() if len(names) > 1} == {}


def first_cells(system):
    page = MIGRATION.read_text(encoding="utf-8")
    (section,) = re.findall(rf"\n## {system}\n(.+?)(?=\n## |\Z)", page, flags=re.DOTALL)
    return " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))


def test_every_stock_metric_of_mmpretrain_is_mapped():
    from mmpretrain.evaluation import metrics as stock

    cells = first_cells("mmpretrain")
    assert not [name for name in stock.__all__ if not re.search(rf"`{name}\b", cells)]


def test_every_metric_of_torchmetrics_for_classes_boxes_and_regions_is_mapped():
    from torchmetrics import classification, detection, segmentation

    cells = first_cells("torchmetrics")
    names = [*classification.__all__, *detection.__all__, *segmentation.__all__]
    plain = [name for name in names if not name.startswith(("Binary", "Multiclass", "Multilabel"))]
    assert not [name for name in plain if not re.search(rf"`{name}\b", cells)]


def test_metrics_and_options_of_the_mapping_exist():
    page = MIGRATION.read_text(encoding="utf-8")
    cells = [line.split("|")[2] for line in page.splitlines() if line.startswith("| `")]
    for name, options in re.findall(r"`(\w+)\(([^`]*)\)`", " ".join(cells)):
        if hasattr(mm_metrics_plugin, name) and "..." not in options:
            eval(f"mm_metrics_plugin.{name}({options.replace('=k', '=1')})")  # our own page
