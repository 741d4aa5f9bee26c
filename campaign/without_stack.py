"""A pytest plugin for environments without the OpenMMLab stack: a test that imports a part of it is skipped, by name.

Elsewhere the same import fails, as it should: a test must not step aside because its peer went missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

STACK = ("mmcv", "mmdet", "mmengine", "mmpretrain", "mmseg", "supervision", "tidecv", "torch", "torchmetrics")
TESTS = str(Path(__file__).resolve().parent.parent / "tests")


class _Absent:
    """Asked last, when nobody else knows a module; the package's own optional imports are none of its business."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in STACK and _importing_file().startswith(TESTS):
            pytest.skip(f"needs {name.split('.')[0]}", allow_module_level=True)


def _importing_file() -> str:
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""


def pytest_configure(config) -> None:
    """Begin to listen."""
    sys.meta_path.append(_Absent())
