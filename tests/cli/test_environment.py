"""``python -m mm_metrics_plugin`` in the real environment, and in the same one with libraries hidden or replaced."""

from __future__ import annotations

import re

import pytest

from mm_metrics_plugin.cli import environment
from mm_metrics_plugin.cli.environment import CHECKS, LIBRARIES
from tests.helpers.result_files import ROOT, command

pytestmark = pytest.mark.usefixtures("shown_warnings")

# Loaded by every Python before anything else: these modules are not found.
HIDE = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in {names!r} else find(name, *rest)
"""


def check(folder, hidden=(), files=()):
    """Runs the check where some modules are hidden and others are shadowed by the files given."""
    (folder / "sitecustomize.py").write_text(HIDE.format(names=list(hidden)))
    for name, text in dict(files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    done = command(cwd=folder, script=("-m", "mm_metrics_plugin"), env={"PYTHONPATH": str(folder)})
    assert done.returncode in (0, 1) and done.stderr == "" and "Traceback" not in done.stdout, done.stderr
    lines = re.findall(r"^(ok|absent|wrong) +(.+?): (.+)\n(?: +-> (.+)\n)?", done.stdout, re.MULTILINE)
    found = {subject: (status, said, fix) for status, subject, said, fix in lines}
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


def test_without_numpy_the_command_is_wrong(tmp_path):
    _, found = check(tmp_path, ["numpy", "torch"])
    assert found["the mm-metrics command"] == ("wrong", "numpy is not installed", "pip install 'numpy>=1.20'")


def test_minimum_versions_are_those_of_the_requirements():
    lines = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in ("runtime", "report")]
    required = dict(re.findall(r"^([\w-]+)>=([\d.]+)$", "".join(lines), re.MULTILINE))
    for minimum, (name, *_) in LIBRARIES.values():
        assert required.get(name, minimum) == minimum


def test_old_versions_are_wrong():
    found = environment.findings({**dict.fromkeys(LIBRARIES), "mmdet": "2.28.2"})
    (old,) = [one for one in found if one.subject == "metrics in mmdet"]
    assert old.status == "wrong" and old.said.startswith("mmdet 2.28.2 is older than 3.0") and "mmdet>=3.0" in old.fix
