"""``python -m mm_metrics_plugin`` in the real environment, and in the same one with real things taken away."""

from __future__ import annotations

import re

import pytest

from mm_metrics_plugin.cli.environment import KNOWN, advice, older
from mm_metrics_plugin.cli.probes import PROBES
from tests.helpers.result_files import ROOT, command

pytestmark = pytest.mark.usefixtures("shown_warnings")

# Loaded by every Python before anything else: what is named is found no more.
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
    lines = re.findall(r"^(ok|absent|warning|wrong) +(.+?): (.+)\n(?: +-> (.+)\n)?", done.stdout, re.MULTILINE)
    found = {subject: (status, said, fix) for status, subject, said, fix in lines if "PATH" not in said}
    assert done.returncode == any(status == "wrong" for status, _, _ in found.values())
    return done.stdout, found


def test_the_whole_stack_works(tmp_path):
    text, found = check(tmp_path)
    for name, (_, tested, _) in KNOWN.items():
        assert re.search(rf"^{name} +{re.escape(tested)}", text, re.MULTILINE)
    trap = found.pop("checkpoints")
    assert trap[0] == "warning" and "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1" in trap[2]
    assert len(found) == len(PROBES) - 1
    assert {status for status, _, _ in found.values()} == {"ok"}
    for library, metric in (("mmdet", "DetectionPRF"), ("mmpretrain", "SingleLabelAUC"), ("mmseg", "MeanIoU")):
        assert found[f"metrics in {library}"][1] == f"14 metrics built in its scope, {metric} right on its samples"


def test_what_can_be_missing_and_what_is_then_said(tmp_path):
    _, found = check(tmp_path, hidden=["mmcv._ext", "ftfy", "plotly"])
    assert found["metrics in mmdet"][0] == "wrong" and "mim install 'mmcv" in found["metrics in mmdet"][2]
    assert found["metrics in mmseg"] == ("wrong", "ModuleNotFoundError: No module named 'ftfy'", "pip install ftfy")
    assert found["metrics in mmpretrain"][0] == "ok"
    assert found["the page of --html"][0] == "absent" and "[report]" in found["the page of --html"][2]


def test_versions_that_do_not_go_together(tmp_path):
    files = {"mmcv/__init__.py": "__version__ = '2.2.0'\n", "mmseg/__init__.py": "import os\nos.abort()\n"}
    _, found = check(tmp_path, files=files)
    assert "MMCV==2.2.0 is used but incompatible" in found["metrics in mmdet"][1]
    assert found["metrics in mmdet"][2].startswith("the library does not take mmcv 2.2.0")
    assert found["metrics in mmseg"][0] == "wrong" and "exit code" in found["metrics in mmseg"][1]
    assert found["metrics in mmengine"][0] == "ok"


@pytest.mark.parametrize(
    ("hidden", "status"),
    [
        (["torch", "mmdet", "mmpretrain", "mmseg"], "absent"),  # a laptop that reports: nothing is wrong with that
        (["torch"], "warning"),  # the libraries are installed and cannot be used
        (["mmengine", "torch", "mmdet", "mmpretrain", "mmseg"], "absent"),
    ],
)
def test_without_torch_or_mmengine_reports_work(tmp_path, hidden, status):
    text, found = check(tmp_path, hidden)
    assert "wrong" not in text and text.endswith("Everything that was tried works.\n")
    assert found["the mm-metrics command"][0] == "ok"
    assert found["metrics in mmengine"][0] == status
    assert found["metrics in mmengine"][1].startswith(" and ".join(n for n in ("torch", "mmengine") if n in hidden))


def test_without_numpy_it_still_speaks(tmp_path):
    _, found = check(tmp_path, hidden=["numpy", "torch", "mmengine", "mmdet", "mmpretrain", "mmseg"])
    assert found["the mm-metrics command"][0] == "wrong"
    assert found["the mm-metrics command"][2] == "pip install numpy"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("ImportError: /x/mmcv/_ext.so: undefined symbol: _ZN2at4_ops", "another torch"),
        ("RuntimeError: operator torchvision::nms does not exist", "torchvision"),
        (
            "AssertionError: MMEngine==0.7.0 is used but incompatible. Please install mmengine>=0.7.1, <1.0.0.",
            "pip install 'mmengine>=0.7.1,<1.0.0'",
        ),
        ("ModuleNotFoundError: No module named 'sklearn'", "pip install scikit-learn"),
        ("ValueError: something nobody has seen", ""),
    ],
)
def test_advice(error, words):
    assert words in advice(error) and bool(advice(error)) == bool(words)


def test_versions_are_those_of_the_requirements():
    locked = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "requirements" / "lock.txt").read_text(), re.MULTILINE))
    locked = {name.lower(): version for name, version in locked.items()}
    lines = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in ("runtime", "report")]
    least = dict(re.findall(r"^([\w-]+)>=([\d.]+)$", "".join(lines), re.MULTILINE))
    for known_least, tested, (name, *_) in KNOWN.values():
        assert locked[name] == tested
        assert least.get(name, known_least) == known_least


def test_old_versions_are_told(monkeypatch):
    from mm_metrics_plugin.cli import environment

    versions = {name: tested for name, (_, tested, _) in KNOWN.items()}
    versions.update(mmdet="2.28.2", torch=None)
    monkeypatch.setattr(environment, "try_out", lambda probes: {})
    (old,) = [one for one in environment.findings(versions) if one.subject == "mmdet"]
    assert old == ("wrong", "mmdet", "2.28.2 is too old; 3.0 is the least that works", "pip install 'mmdet>=3.0'")
    assert older("1.9", "1.10")
