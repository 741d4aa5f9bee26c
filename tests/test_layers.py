"""Import directions between the packages; what works without torch and mmengine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mm_metrics_plugin"
FRAMEWORKS = {"torch", "mmengine", "mmdet", "mmpretrain", "mmcv", "mmseg"}
PACKAGES = {"functional", "states", "reports", "metrics", "io", "evaluation", "render", "cli"}

# The packages that a package may import. All may import `settings` and `exceptions`.
ALLOWED = {
    "functional": set(),
    "states": {"functional"},
    "reports": {"functional", "states"},
    "metrics": {"functional", "states", "reports", "io", "render"},
    "io": {"functional"},
    "evaluation": {"functional", "states", "reports", "io"},
    "render": {"functional", "reports", "io", "evaluation"},
    "cli": {"functional", "states", "reports", "io", "evaluation", "render"},
}
# A report's methods import render, so that reports do not depend on it at import.
RENDERS_INSIDE_METHODS = "reports/base.py"
# Packages that import no framework, not even inside a function.
WITHOUT_FRAMEWORKS = {"functional", "render"}
FORBIDDEN = {
    name: {f"mm_metrics_plugin.{other}" for other in PACKAGES - allowed - {name}}
    | (FRAMEWORKS if name in WITHOUT_FRAMEWORKS else set())
    for name, allowed in ALLOWED.items()
}


def imports(path):
    """All modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def violations(path, forbidden):
    return sorted(
        {name for name in imports(path) for other in forbidden if name == other or name.startswith(other + ".")}
    )


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_import_directions(package):
    forbidden = {
        path.name: violations(path, FORBIDDEN[package])
        for path in (PACKAGE / package).rglob("*.py")
        if path.relative_to(PACKAGE).as_posix() != RENDERS_INSIDE_METHODS
    }
    assert {name: names for name, names in forbidden.items() if names} == {}


def test_no_assert_checks_input():
    asserting = [
        path.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert asserting == []


WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None  # importing it now fails as if it were not installed
import importlib, pkgutil
import mm_metrics_plugin
try:
    from mm_metrics_plugin import SingleLabelAUC
except ImportError as error:
    assert "SingleLabelAUC needs torch and mmengine" in str(error) and "pip install " + {missing!r}[0] in str(error)
else:
    raise AssertionError("SingleLabelAUC was imported")
assert not hasattr(mm_metrics_plugin, "NoSuchName")
packages = [f"mm_metrics_plugin.{{name}}" for name in ("functional", "states", "io", "evaluation", "render", "cli")]
modules = []
for package in packages:
    modules += [m.name for m in pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")]
modules = [name for name in modules if "__main__" not in name]
for name in modules:
    importlib.import_module(name)
assert "torch" not in [n for n, m in sys.modules.items() if m is not None]
print(len(modules))
"""


def texts(path):
    """The string literals of a file but docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_only_the_command_speaks_of_flags():
    """Messages name arguments as Python does; the command writes them as flags."""
    others = [path for path in PACKAGE.rglob("*.py") if not {"cli", "testing"} & set(path.parts)]
    flag = re.compile(r"(?<!-)--([a-z]|$)|OUT_DIR|GROUND_TRUTH")
    allowed = {"--options"}  # of a parser that reads key=value pairs
    found = [
        (path.name, text)
        for path in others
        for text in texts(path)
        if flag.search(text.replace("test.py --out", "")) and text not in allowed  # of mmdet's and mmpretrain's tool
    ]
    assert found == []


@pytest.mark.parametrize("missing", [["torch"], ["mmengine"], ["torch", "mmengine"]])
def test_import_without(missing):
    code = WITHOUT.format(missing=missing)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
