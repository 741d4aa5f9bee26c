"""The environment check: installed versions, and whether the metrics are registered in each library."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

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
WITH_METRICS = ("mmengine", "mmdet", "mmpretrain", "mmseg")
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
# How to install a module that is missing, if pip has it under another name.
INSTALL = {
    "mmcv._ext": "pip install openmim && mim install 'mmcv>=2.0.0'",
    "pkg_resources": "pip install 'setuptools<81'",
    "cv2": "pip install opencv-python",
    "sklearn": "pip install scikit-learn",
}


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


def registration_error(name: str) -> str:
    """Why the metrics are not registered in a library, with what to install; "" if they are.

    The library is imported in a process of its own, which it may crash.
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", REGISTERED.format(name)], capture_output=True)
    if done.returncode == 0:
        return ""
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    module = re.search(r"No module named '([\w.]+)'", last)
    fix = "" if module is None else f" -> {INSTALL.get(module[1], f'pip install {module[1]}')}"
    return f"{last[:300]}{fix}"


def check() -> tuple[str, bool]:
    """The check as text, and whether nothing is wrong. What is not installed is not checked."""
    lines = [f"mm_metrics_plugin {__version__}, Python {platform.python_version()}, {platform.platform()}", ""]
    versions = {name: installed(name) for name in LIBRARIES}
    too_old = [name for name, found in versions.items() if found and older(found, LIBRARIES[name][0])]
    for name, found in versions.items():
        needed = f" (too old: {LIBRARIES[name][0]} or newer is needed)" if name in too_old else ""
        lines.append(f"{name:<12} {found or '-'}{needed}")
    checked = [name for name in WITH_METRICS if versions[name] and versions["torch"] and name not in too_old]
    errors = {name: registration_error(name) for name in checked}
    lines += ["", *(f"metrics in {name}: {error or 'registered'}" for name, error in errors.items())]
    return "\n".join(lines).rstrip() + "\n", not too_old and not any(errors.values())


def main() -> int:
    """Print the check.

    Returns:
        0; 1 if something that is installed does not work, 2 if the output cannot be written.
    """
    parser = Parser(
        prog="python -m mm_metrics_plugin",
        description="Prints the versions of the libraries that mm_metrics_plugin uses, and checks whether the metrics "
        "are registered in mmengine, mmdet, mmpretrain and mmseg.",
        epilog="Reports are made by the command mm-metrics: see mm-metrics --help.",
    )
    try:
        parser.parse_args()
        text, works = check()
        write_output(text)
    except OSError as error:
        write_error(f"{parser.prog}: {error.filename}: {error.strerror}")
        return 2
    return int(not works)
