"""A pytest plugin for environments without the OpenMMLab stack: tests that import a part of it are skipped.

Without the plugin such an import fails, so that no test is skipped because a package is missing by mistake. On macOS
and Windows the plugin also skips tests that need /proc or POSIX functions.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from pathlib import Path

import pytest

STACK = (
    *("mmcv", "mmdet", "mmengine", "mmpose", "mmpretrain", "mmseg", "torch"),
    *("faster_coco_eval", "hotcoco", "lvis", "shapely", "supervision", "tidecv", "torchmetrics"),
)
ROOT = Path(__file__).resolve().parent.parent
TESTS = (str(ROOT / "tests"), str(ROOT / "benchmarks"))  # tests use inputs of the benchmarks


class _SkippingFinder:
    """The last finder, for modules that are not installed: it skips tests that import them."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in STACK and _importing_file().startswith(TESTS):
            pytest.skip(f"needs {name.split('.')[0]}", allow_module_level=True)


def _importing_file() -> str:
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""


def pytest_configure(config) -> None:
    """Add the finder, and register the markers that pyproject.toml would."""
    sys.meta_path.append(_SkippingFinder())
    config.addinivalue_line("markers", "slow: takes minutes")


def pytest_collection_modifyitems(items) -> None:
    """Skip tests of files that read /proc and tests that call a missing function."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if not Path("/proc/self").exists() and "/proc/self" in inspect.getsource(item.module):
            item.add_marker(pytest.mark.skip(reason="needs /proc"))
        for module, name in ((os, "mkfifo"), (signal, "SIGKILL")):
            if not hasattr(module, name) and f".{name}" in inspect.getsource(item.function):
                item.add_marker(pytest.mark.skip(reason=f"needs {module.__name__}.{name}"))
