"""No room reaches where it may not, and the package stands without torch and mmengine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mm_metrics_plugin"
FRAMEWORKS = {"torch", "mmengine", "mmdet", "mmpretrain", "mmcv", "mmseg"}
ROOMS = {"metrics", "functional", "states", "io", "report", "cli"}

# What a room must not import at all, and (for rooms that may need a framework for one kind of file) not on import.
FORBIDDEN = {
    "functional": FRAMEWORKS | {f"mm_metrics_plugin.{room}" for room in ROOMS - {"functional"}},
    "states": FRAMEWORKS | {f"mm_metrics_plugin.{room}" for room in ("metrics", "io", "report", "cli")},
    "io": {"mm_metrics_plugin.metrics", "mm_metrics_plugin.report", "mm_metrics_plugin.cli", "torch"},
    "report": FRAMEWORKS | {f"mm_metrics_plugin.{room}" for room in ("metrics", "io", "cli")},
    "metrics": {"mm_metrics_plugin.cli", "mm_metrics_plugin.io.safe_pickle"},
}


def imports(path):
    """Every module a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def trespasses(path, forbidden):
    return sorted({name for name in imports(path) for wall in forbidden if name == wall or name.startswith(wall + ".")})


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_a_room_stays_in_its_walls(room):
    found = {path.name: trespasses(path, FORBIDDEN[room]) for path in (PACKAGE / room).rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}


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
names = [m.name for m in pkgutil.walk_packages(mm_metrics_plugin.__path__, "mm_metrics_plugin.")]
rooms = [n for n in names if n.split(".")[1] in ("functional", "states", "io", "report", "cli") and "__main__" not in n]
for name in rooms:
    importlib.import_module(name)
assert "torch" not in [n for n, m in sys.modules.items() if m is not None]
print(len(rooms))
"""


@pytest.mark.parametrize("missing", [["torch"], ["mmengine"], ["torch", "mmengine"]])
def test_the_package_stands_without(missing):
    code = WITHOUT.format(missing=missing)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
