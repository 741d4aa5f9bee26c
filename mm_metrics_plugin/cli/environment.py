"""The environment check: installed versions, whether this package works with them, and how to fix what does not."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple, Sequence

from mm_metrics_plugin.cli.arguments import Parser
from mm_metrics_plugin.cli.streams import write_error, write_output
from mm_metrics_plugin.version import __version__

# By import name: minimum version, and distribution names (the original, then forks).
LIBRARIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "numpy": ("1.20", ("numpy",)),
    "scipy": ("1.6", ("scipy",)),
    "rich": ("10.0", ("rich",)),
    "matplotlib": ("3.5", ("matplotlib",)),
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
# By the launcher, because the command must work without torch.
COMMAND = "from mm_metrics_command import load; load('mm_metrics_plugin.cli.detection'); import scipy.stats, rich.table"
REGISTERED = """
import torch  # first: its own error is the clearest
from importlib import import_module
from inspect import isabstract
from mm_metrics_plugin import metrics
from mmengine.evaluator import BaseMetric
from mmengine.utils import is_installed
is_installed("{0}")  # imports pkg_resources, as configs with _base_ = '{0}::...' do
registry = import_module("{0}.registry").METRICS
if "{0}" != "mmengine":  # import what a training run imports: models, data sets and transforms
    import_module("{0}.utils").register_all_modules(init_default_scope=False)
for metric in (getattr(metrics, name) for name in metrics.__all__):
    if issubclass(metric, BaseMetric) and not isabstract(metric) and registry.get(metric.__name__) is not metric:
        raise LookupError(metric.__name__ + " is not registered")
"""
# Name, required libraries, program, and result if it works.
CHECKS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("the mm-metrics command", ("numpy", "scipy", "rich"), COMMAND, "starts"),
    ("figures", ("matplotlib",), "import matplotlib.figure", "library imports"),
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


# What to install for a module that is missing, if its name is another.
DISTRIBUTIONS = {"pkg_resources": "'setuptools<81'", "PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn"}


class Finding(NamedTuple):
    """One line of the check."""

    status: str  # 'ok', 'absent' (not installed) or 'wrong'
    subject: str
    detail: str
    fix: str = ""


def installed(name: str) -> str | None:
    """The version of an importable module, ``'?'`` if it is unknown, or None."""
    if find_spec(name) is None:
        return None
    for distribution in LIBRARIES[name][1]:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "?"


def older(version: str, minimum: str) -> bool:
    """Whether a version is below another, by its leading numbers; an unknown version is not."""
    leading = [re.findall(r"^[\d.]*", text)[0].split(".") for text in (version, minimum)]
    numbers, minimum_numbers = ([int(part) for part in parts if part] for parts in leading)
    return bool(numbers) and numbers < minimum_numbers


def findings(versions: dict[str, str | None]) -> list[Finding]:
    """What works with these versions. Each program runs in its own process, which a library may crash."""
    return [_finding(versions, *check) for check in CHECKS]


def _finding(versions: dict[str, str | None], subject: str, needs: Sequence[str], program: str, works: str) -> Finding:
    missing = [name for name in needs if versions[name] is None]
    old = [name for name in needs if older(versions[name] or "?", LIBRARIES[name][0])]
    if missing or old:
        status = "wrong" if old or subject == CHECKS[0][0] else "absent"
        details = [f"{name} {versions[name]} is older than {LIBRARIES[name][0]}" for name in old]
        details += [f"{name} is not installed" for name in missing]
        return Finding(status, subject, ", ".join(details), install(missing + old))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True)
    if done.returncode == 0:
        return Finding("ok", subject, works)
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    module = re.search(r"No module named '(\w+)'", last)
    fix = f"install versions that go together: {install(needs)}"
    if module:
        fix = f"pip install {DISTRIBUTIONS.get(module[1], module[1])}"
    return Finding("wrong", subject, last[:300], fix)


def install(names: Sequence[str]) -> str:
    """The command that installs libraries, given their import names."""
    requirements = {name: f"'{LIBRARIES[name][1][0]}>={LIBRARIES[name][0]}'" for name in names}
    mmcv = requirements.pop("mmcv", None)  # pip has no mmcv with operators
    line = " ".join(["pip install", *requirements.values(), *(["openmim"] if mmcv else [])])
    return f"{line} && mim install {mmcv}" if mmcv else line


def report(versions: dict[str, str | None], found: list[Finding]) -> str:
    """The check as text."""
    lines = [f"mm_metrics_plugin {__version__}, Python {platform.python_version()}, {platform.platform()}", ""]
    lines += [f"{name:<12} {installed_version or '-'}" for name, installed_version in versions.items()]
    lines.append("")
    for status, subject, detail, fix in found:
        lines.append(f"{status:<8} {subject}: {detail}")
        if fix:
            lines.append(f"{'':<8} -> {fix}")
    wrong = sum(finding.status == "wrong" for finding in found)
    lines += ["", f"{wrong} of these are wrong." if wrong else "Everything that was tried works."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the check.

    Returns:
        0 if everything that was tried works, 1 if not, 2 if the output cannot be written. What is not installed is not
        tried.
    """
    parser = Parser(
        prog="python -m mm_metrics_plugin",
        description="Prints the versions of the libraries that mm_metrics_plugin uses, and checks whether the "
        "mm-metrics command starts and the metrics are registered in mmengine, mmdet, mmpretrain and mmseg.",
        epilog="Reports are made by the command mm-metrics: see mm-metrics --help.",
    )
    try:
        parser.parse_args()
        versions = {name: installed(name) for name in LIBRARIES}
        found = findings(versions)
        write_output(report(versions, found))
    except OSError as error:
        write_error(f"{parser.prog}: {error.filename}: {error.strerror}")
        return 2
    return int(any(finding.status == "wrong" for finding in found))
