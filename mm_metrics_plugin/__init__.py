"""Exact metrics for OpenMMLab: right by default, reproducible on request.

Importing this package registers every metric in mmengine's root registry. Without torch or mmengine, everything but the
registered metrics works.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, List

from mm_metrics_plugin.exceptions import (
    MetricInputError,
    MetricWarning,
    ResultFileError,
    UndefinedMetricWarning,
    UnsafePickleError,
)
from mm_metrics_plugin.settings import ClassificationSettings, ComparisonSettings, DetectionSettings
from mm_metrics_plugin.version import __version__

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation import (
        ClassificationEvaluator,
        DetectionEvaluator,
        compare_runs,
        evaluate_classification,
        evaluate_detection,
        merge_states,
    )
    from mm_metrics_plugin.metrics import *  # noqa: F403

_EVALUATION_NAMES = (
    "ClassificationEvaluator",
    "DetectionEvaluator",
    "compare_runs",
    "evaluate_classification",
    "evaluate_detection",
    "merge_states",
)
# The metrics and hooks of mm_metrics_plugin.metrics, which is imported only if torch and mmengine are installed.
_METRIC_NAMES = (
    "CalibrationError",
    "DetectionPRF",
    "DiceScore",
    "EvaluationCheckHook",
    "FieldMean",
    "FieldSum",
    "MeanIoU",
    "MetricFigureHook",
    "MultiLabelAUC",
    "MultiLabelPRF",
    "PCK",
    "PosNegRatio",
    "RecallAtK",
    "RegressionError",
    "SingleLabelAUC",
    "SingleLabelKS",
    "SingleLabelPRF",
    "StreamingMetric",
)

__all__ = [
    "ClassificationEvaluator",
    "ClassificationSettings",
    "ComparisonSettings",
    "DetectionEvaluator",
    "DetectionSettings",
    "MetricInputError",
    "MetricWarning",
    "ResultFileError",
    "UndefinedMetricWarning",
    "UnsafePickleError",
    "__version__",
    "compare_runs",
    "evaluate_classification",
    "evaluate_detection",
    "merge_states",
]
# Found, not imported: an error inside an installed torch or mmengine must be raised, not swallowed.
_missing = [name for name in ("torch", "mmengine") if find_spec(name) is None]
if not _missing:
    __all__ += _METRIC_NAMES


def register_metrics() -> None:
    """Register the metrics, if torch and mmengine are installed.

    Importing this package calls it. The ``mm-metrics`` command starts without torch and calls it before it runs code of
    the user.
    """
    if _missing:
        return
    try:
        metrics = import_module("mm_metrics_plugin.metrics")
    except Exception as error:
        raise ImportError(
            "mm_metrics_plugin cannot register its metrics: torch and mmengine are installed, but importing the "
            f"metrics failed with {type(error).__name__}: {error}. Check the environment with: "
            "python -m mm_metrics_command.check"
        ) from error
    globals().update({name: getattr(metrics, name) for name in _METRIC_NAMES})


# True only while the launcher of the command imports this package; see mm_metrics_command/__init__.py.
if not getattr(sys.modules.get("mm_metrics_command"), "loading", False):
    register_metrics()


def __getattr__(name: str) -> Any:
    """The evaluation functions, and in the command the metrics."""
    if name in _EVALUATION_NAMES:
        return getattr(import_module("mm_metrics_plugin.evaluation"), name)
    if name in _METRIC_NAMES:
        if not _missing:
            return getattr(import_module("mm_metrics_plugin.metrics"), name)
        raise ImportError(
            f"{name} needs torch and mmengine, and {' and '.join(_missing)} cannot be found: pip install "
            f"{' '.join(_missing)}. The mm-metrics command and mm_metrics_plugin.functional work without them."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted(__all__)
