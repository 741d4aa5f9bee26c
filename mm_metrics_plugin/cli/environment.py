"""The environment check: installed versions, what works with them, and how to fix what does not."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from mm_metrics_plugin.cli.streams import write_error, write_output
from mm_metrics_plugin.version import __version__

# By import name: the minimum version, and the names it is installed under (the first, or forks that keep the import).
LIBRARIES: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "numpy": ("1.20", ("numpy",)),
    "scipy": ("1.6", ("scipy",)),
    "matplotlib": ("3.5", ("matplotlib",)),
    "rich": ("10.0", ("rich",)),
    "jinja2": ("3.0", ("jinja2",)),
    "plotly": ("5.0", ("plotly",)),
    "PIL": ("8.0", ("pillow",)),
    "torch": ("1.8", ("torch",)),
    "mmengine": ("0.8", ("mmengine", "mmengine-lite", "onedl-mmengine")),
    "mmcv": ("2.0.0", ("mmcv", "mmcv-lite", "onedl-mmcv")),
    "mmdet": ("3.0", ("mmdet", "onedl-mmdetection")),
    "mmpretrain": ("1.0", ("mmpretrain", "onedl-mmpretrain")),
    "mmseg": ("1.0", ("mmsegmentation", "onedl-mmsegmentation")),
}
# Through the launcher: the command must work where torch cannot be imported.
COMMAND = "from mm_metrics_command import load; load('mm_metrics_plugin.cli.detection'); import scipy.stats, rich.table"
REGISTERED = """
import torch  # first: its own error is the clearest
from importlib import import_module
from inspect import isabstract
from mm_metrics_plugin import metrics
from mmengine.evaluator import BaseMetric
classes = [getattr(metrics, name) for name in metrics.__all__]
registry = import_module("{0}.registry").METRICS
if "{0}" != "mmengine":  # import what a training run imports: models, data sets and transforms
    import_module("{0}.utils").register_all_modules(init_default_scope=False)
for one in classes:
    if issubclass(one, BaseMetric) and not isabstract(one) and registry.get(one.__name__) is not one:
        raise LookupError(one.__name__ + " is not registered")
"""
# What is tried: the name, the libraries it needs, the program, and what is said if it works.
CHECKS: Tuple[Tuple[str, Tuple[str, ...], str, str], ...] = (
    ("the mm-metrics command", ("numpy", "scipy", "matplotlib", "rich"), f"{COMMAND}, matplotlib.figure", "starts"),
    ("the page of --html", ("jinja2", "plotly", "PIL"), "import jinja2, plotly, PIL.Image", "libraries import"),
    *(
        (f"metrics in {name}", (*needs, name), REGISTERED.format(name), "all registered")
        for name, needs in (
            ("mmengine", ("torch",)),
            ("mmdet", ("torch", "mmengine", "mmcv")),
            ("mmpretrain", ("torch", "mmengine", "mmcv")),
            ("mmseg", ("torch", "mmengine", "mmcv")),
        )
    ),
)


class Finding(NamedTuple):
    """One line of the check: ``'ok'``, ``'absent'`` (not installed) or ``'wrong'``, of what, why, and how to fix it."""

    status: str
    subject: str
    said: str
    fix: str = ""


def installed(name: str) -> Optional[str]:
    """The version of an importable module, ``'?'`` where it does not say, or None.

    Example:
        >>> installed("numpy") is None
        False
    """
    if find_spec(name) is None:
        return None
    for distribution in LIBRARIES[name][1]:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "?"


def older(found: str, minimum: str) -> bool:
    """Whether a version is below another, by its leading numbers.

    Example:
        >>> older("0.7.4", "0.8"), older("0.10.7", "0.8"), older("2.0.0rc4", "2.0.0"), older("?", "1.0")
        (True, False, False, False)
    """

    def numbers(text: str) -> List[int]:
        leading = re.match(r"\d+(\.\d+)*", text)
        return [int(part) for part in leading.group().split(".")] if leading else [sys.maxsize]

    return numbers(found) < numbers(minimum)


def findings(versions: Dict[str, Optional[str]]) -> List[Finding]:
    """What works with these versions. Programs run in other processes: a library that crashes ends none but its own."""
    found = []
    for subject, needs, program, works in CHECKS:
        missing = [name for name in needs if versions[name] is None]
        old = [name for name in needs if older(versions[name] or "?", LIBRARIES[name][0])]
        if missing or old:
            status = "wrong" if old or subject == CHECKS[0][0] else "absent"
            said = [f"{name} {versions[name]} is older than {LIBRARIES[name][0]}" for name in old]
            said += [f"{name} is not installed" for name in missing]
            found.append(Finding(status, subject, ", ".join(said), install(missing + old)))
            continue
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True)
        if done.returncode == 0:
            found.append(Finding("ok", subject, works))
            continue
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        module = re.search(r"No module named '(\w+)'", last)
        fix = f"pip install {module.group(1)}" if module else f"install versions that go together: {install(needs)}"
        found.append(Finding("wrong", subject, last[:300], fix))
    return found


def install(names: Sequence[str]) -> str:
    """How to install libraries, given their import names.

    Example:
        >>> install(["PIL", "mmcv"])
        "pip install 'pillow>=8.0' openmim && mim install 'mmcv>=2.0.0'"
    """
    wanted = {name: f"'{LIBRARIES[name][1][0]}>={LIBRARIES[name][0]}'" for name in names}
    compiled = wanted.pop("mmcv", None)  # pip finds no mmcv with operators
    line = " ".join(["pip install", *wanted.values(), *(["openmim"] if compiled else [])])
    return f"{line} && mim install {compiled}" if compiled else line


def report(versions: Dict[str, Optional[str]], found: List[Finding]) -> str:
    """The check as text."""
    lines = [f"mm_metrics_plugin {__version__}, Python {platform.python_version()}, {platform.platform()}", ""]
    lines += [f"{name:<12} {have or '-'}" for name, have in versions.items()]
    lines.append("")
    for status, subject, said, fix in found:
        lines.append(f"{status:<8} {subject}: {said}")
        if fix:
            lines.append(f"{'':<8} -> {fix}")
    wrong = sum(one.status == "wrong" for one in found)
    lines += ["", f"{wrong} of these are wrong." if wrong else "Everything that was tried works."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the check.

    Returns:
        0 if everything that was tried works, else 1. What is not installed is not tried.
    """
    versions = {name: installed(name) for name in LIBRARIES}
    found = findings(versions)
    try:
        write_output(report(versions, found))
    except OSError as error:
        write_error(f"python -m mm_metrics_plugin: {error.filename}: {error.strerror}")
        return 2
    return int(any(one.status == "wrong" for one in found))
