"""The environment check, with all libraries and with some of them hidden or replaced."""

from __future__ import annotations

import re

import pytest

from mm_metrics_plugin.cli import environment
from mm_metrics_plugin.cli.environment import LIBRARIES
from tests.helpers.result_files import ROOT, command, refused, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")

# Every Python process imports this first.
HIDE = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in {names!r} else find(name, *rest)
"""


def check(folder, hidden=(), files=()):
    """Run the check without the hidden modules and with the files before all other modules."""
    (folder / "sitecustomize.py").write_text(HIDE.format(names=list(hidden)))
    for name, text in dict(files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    done = command(cwd=folder, script=("-m", "mm_metrics_plugin"), env={"PYTHONPATH": str(folder)})
    assert done.returncode in (0, 1) and done.stderr == "" and "Traceback" not in done.stdout, done.stderr
    found = dict(re.findall(r"^metrics in (\w+): (.+)$", done.stdout, re.MULTILINE))
    assert done.returncode == any(text != "registered" for text in found.values())
    return done.stdout, found


def test_the_whole_stack_works(tmp_path):
    text, found = check(tmp_path)
    assert found == dict.fromkeys(("mmengine", "mmdet", "mmpretrain", "mmseg"), "registered")
    locked = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "requirements" / "lock.txt").read_text(), re.MULTILINE))
    locked = {name.lower(): version for name, version in locked.items()}
    for name, (_, (distribution, *_)) in LIBRARIES.items():
        assert re.search(rf"^{name} +{re.escape(locked[distribution])}", text, re.MULTILINE)


def test_missing_and_crashing_libraries(tmp_path):
    crash = {"mmpretrain/__init__.py": "import os\nos._exit(3)\n"}
    text, found = check(tmp_path, ["mmcv._ext", "ftfy", "plotly"], crash)
    assert found["mmengine"] == "registered" and found["mmpretrain"] == "exit code 3"
    assert found["mmdet"].endswith("-> pip install openmim && mim install 'mmcv>=2.0.0'")
    assert found["mmseg"] == "ModuleNotFoundError: No module named 'ftfy' -> pip install ftfy"
    assert re.search("^plotly +-$", text, re.MULTILINE)
    _, found = check(tmp_path, ["pkg_resources"])  # as with setuptools >= 81
    assert found["mmdet"].endswith("-> pip install 'setuptools<81'")


def test_nothing_is_wrong_without_torch(tmp_path):
    text, found = check(tmp_path, ["torch"])
    assert not found and re.search("^torch +-$", text, re.MULTILINE)


def test_help_and_unknown_arguments(tmp_path):
    for module in ("mm_metrics_plugin", "mm_metrics_command.check"):
        text = succeeded(command("--help", cwd=tmp_path, script=("-m", module)))
        assert "mm-metrics --help" in text and "numpy" not in text
    assert "unrecognized arguments: x" in refused(command("x", cwd=tmp_path, script=("-m", "mm_metrics_command.check")))


def test_minimum_versions_are_those_of_the_requirements():
    lines = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in ("runtime", "report", "mmengine")]
    required = dict(re.findall(r"^([\w-]+)>=([\d.]+)$", "".join(lines), re.MULTILINE))
    for minimum, (name, *_) in LIBRARIES.values():
        assert required.get(name, minimum) == minimum


def test_old_versions_are_wrong(monkeypatch):
    monkeypatch.setattr(environment, "installed", lambda name: "2.28.2" if name == "mmdet" else None)
    text, works = environment.check()
    assert "2.28.2 (too old: 3.0 or newer is needed)" in text and not works
