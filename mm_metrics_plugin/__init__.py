"""Exact metrics for OpenMMLab: right by default, reproducible on request.

Importing this package registers every metric in mmengine's root registry. Where torch or mmengine is not installed,
everything but the registered metrics is still there.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mm_metrics_plugin.exceptions import (
    MetricInputError,
    ResultFileError,
    UndefinedMetricWarning,
    UnsafePickleError,
)
from mm_metrics_plugin.version import __version__

__all__ = ["MetricInputError", "ResultFileError", "UndefinedMetricWarning", "UnsafePickleError", "__version__"]

# Looked for, not tried: an error inside an installed torch or mmengine must be seen, not swallowed.
_has_metrics = find_spec("torch") is not None and find_spec("mmengine") is not None
# The command needs neither and starts seconds sooner without. "-m" is what Python calls a program while it imports the
# package of `python -m mm_metrics_plugin.cli`.
_is_command = os.path.basename((getattr(sys, "argv", None) or [""])[0]) in (
    "-m",
    "mm-metrics",
    "detection_report.py",
    "classification_report.py",
)

if _has_metrics and not _is_command:
    from mm_metrics_plugin import metrics
    from mm_metrics_plugin.metrics import *  # noqa: F403  # exactly the names of metrics.__all__, which is one list

    __all__ += metrics.__all__


def __getattr__(name: str) -> Any:
    """The metrics where they were not imported above: in the command, for a config that names one."""
    if _has_metrics and not name.startswith("_"):
        found = import_module("mm_metrics_plugin.metrics")
        if name in found.__all__:
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
