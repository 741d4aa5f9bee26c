"""Exact metrics for OpenMMLab: right by default, reproducible on request.

Importing this package registers every metric in mmengine's root registry. Where torch or mmengine is not installed,
everything but the registered metrics is still there.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, List

from mm_metrics_plugin.exceptions import (
    MetricInputError,
    MetricWarning,
    ResultFileError,
    UndefinedMetricWarning,
    UnsafePickleError,
)
from mm_metrics_plugin.version import __version__

__all__ = [
    "MetricInputError",
    "MetricWarning",
    "ResultFileError",
    "UndefinedMetricWarning",
    "UnsafePickleError",
    "__version__",
]

if TYPE_CHECKING:
    from mm_metrics_plugin.metrics import *  # noqa: F403

# Looked for, not tried: an error inside an installed torch or mmengine must be seen, not swallowed.
_has_metrics = find_spec("torch") is not None and find_spec("mmengine") is not None


def register_metrics() -> None:
    """Register the metrics, if torch and mmengine are installed.

    Importing this package does it. Only the ``mm-metrics`` command, which starts without torch, calls this function:
    before it runs code of the user.

    Raises:
        ImportError: torch and mmengine are installed, but importing the metrics failed.

    Example:
        >>> register_metrics()
        >>> from mmengine.registry import METRICS
        >>> METRICS.get("DetectionPRF").__name__
        'DetectionPRF'
    """
    if not _has_metrics:
        return
    try:
        metrics = import_module("mm_metrics_plugin.metrics")
    except Exception as error:
        raise ImportError(
            "mm_metrics_plugin cannot register its metrics: torch and mmengine are installed, but importing the "
            f"metrics failed with {type(error).__name__}: {error}. What is wrong with the environment is shown by: "
            "python -m mm_metrics_command.check"
        ) from error
    for name in metrics.__all__:
        globals()[name] = getattr(metrics, name)
        if name not in __all__:
            __all__.append(name)


# True only while the launcher of the command imports this package; see mm_metrics_command/__init__.py.
if not getattr(sys.modules.get("mm_metrics_command"), "loading", False):
    register_metrics()


def __getattr__(name: str) -> Any:
    """The metrics where they were not imported above: in the command, for a config that names one."""
    if _has_metrics and not name.startswith("_"):
        found = import_module("mm_metrics_plugin.metrics")
        if name in found.__all__:
            return getattr(found, name)
    if not _has_metrics and name in _metric_names():
        missing = [module for module in ("torch", "mmengine") if find_spec(module) is None]
        raise ImportError(
            f"{name} needs torch and mmengine, and {' and '.join(missing)} cannot be found: pip install "
            f"{' '.join(missing)}. The mm-metrics command and mm_metrics_plugin.functional work without."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _metric_names() -> List[str]:
    """The list in ``metrics/__init__.py``, read without importing it."""
    import ast

    source = (Path(__file__).parent / "metrics" / "__init__.py").read_text(encoding="utf-8")
    lists = [node.value for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return list(ast.literal_eval(lists[0]))
