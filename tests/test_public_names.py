"""Public names change only together with ``public_names.txt``, so that every change is deliberate."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import mm_metrics_plugin
from mm_metrics_plugin import metrics

PACKAGES = ("", ".evaluation", ".functional", ".render", ".states", ".testing")
FILE = Path(__file__).parent / "public_names.txt"


def test_public_names():
    lines = []
    for package in PACKAGES:
        module = import_module(f"mm_metrics_plugin{package}")
        for name in sorted(module.__all__):
            getattr(module, name)
            lines.append(f"{module.__name__}.{name}")
    assert "\n".join(lines) + "\n" == FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["", ".evaluation", ".render"])
def test_names_that_are_imported_on_use_are_listed_and_no_others(package):
    module = import_module(f"mm_metrics_plugin{package}")
    assert dir(module) == sorted(module.__all__)


def test_every_metric_is_exported():
    assert set(metrics.__all__) <= set(mm_metrics_plugin.__all__)
