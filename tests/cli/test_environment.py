"""The environment check, with all libraries and with some of them hidden or replaced."""

from __future__ import annotations

import re

import pytest

from mm_metrics_plugin.cli import environment
from mm_metrics_plugin.cli.environment import CHECKS, LIBRARIES
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
    lines = re.findall(r"^(ok|absent|wrong) +(.+?): (.+)\n(?: +-> (.+)\n)?", done.stdout, re.MULTILINE)
    found = {subject: (status, detail, fix) for status, subject, detail, fix in lines}
    assert list(found) == [subject for subject, *_ in CHECKS]
    assert done.returncode == any(status == "wrong" for status, _, _ in found.values())
    return done.stdout, found


def test_the_whole_stack_works(tmp_path):
    text, found = check(tmp_path)
    assert {status for status, _, _ in found.values()} == {"ok"}
    locked = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "requirements" / "lock.txt").read_text(), re.MULTILINE))
    locked = {name.lower(): version for name, version in locked.items()}
    for name, (_, (distribution, *_)) in LIBRARIES.items():
        assert re.search(rf"^{name} +{re.escape(locked[distribution])}", text, re.MULTILINE)


def test_missing_and_crashing_libraries(tmp_path):
    crash = {"mmpretrain/__init__.py": "import os\nos._exit(3)\n"}
    _, found = check(tmp_path, ["mmcv._ext", "ftfy", "plotly"], crash)
    assert found["metrics in mmengine"][0] == "ok"
    assert found["metrics in mmdet"][0] == "wrong" and "mim install 'mmcv" in found["metrics in mmdet"][2]
    assert found["the page of --html"] == ("absent", "plotly is not installed", "pip install 'plotly>=5.0'")
    assert found["metrics in mmpretrain"][:2] == ("wrong", "exit code 3")
    assert found["metrics in mmseg"] == ("wrong", "ModuleNotFoundError: No module named 'ftfy'", "pip install ftfy")


def test_reports_work_without_torch(tmp_path):
    text, found = check(tmp_path, ["torch"])
    assert text.endswith("Everything that was tried works.\n")
    assert found["the mm-metrics command"][0] == "ok"
    assert {found[f"metrics in {name}"][0] for name in ("mmengine", "mmdet", "mmpretrain", "mmseg")} == {"absent"}


def test_without_numpy_and_pkg_resources(tmp_path):
    _, found = check(tmp_path, ["numpy", "torch", "matplotlib"])
    assert found["figures"] == ("absent", "matplotlib is not installed", "pip install 'matplotlib>=3.5'")
    assert found["the mm-metrics command"] == ("wrong", "numpy is not installed", "pip install 'numpy>=1.20'")
    _, found = check(tmp_path, ["pkg_resources"])  # as with setuptools >= 81
    for name in ("mmengine", "mmdet", "mmpretrain"):
        assert found[f"metrics in {name}"][0] == "wrong"
        assert found[f"metrics in {name}"][2] == "pip install 'setuptools<81'"


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


def test_old_versions_are_wrong():
    found = environment.findings({**dict.fromkeys(LIBRARIES), "mmdet": "2.28.2"})
    (old,) = [finding for finding in found if finding.subject == "metrics in mmdet"]
    assert old.status == "wrong" and old.detail.startswith("mmdet 2.28.2 is older than 3.0") and "mmdet>=3.0" in old.fix
