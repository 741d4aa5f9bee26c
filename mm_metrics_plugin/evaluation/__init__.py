"""From files or arrays to report objects: what the ``mm-metrics`` command does, in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport, evaluate_classification
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport, compare_runs
    from mm_metrics_plugin.evaluation.detection import DetectionReport, evaluate_detection, merge_states

__all__ = [
    "ClassificationReport",
    "ComparisonReport",
    "DetectionReport",
    "compare_runs",
    "evaluate_classification",
    "evaluate_detection",
    "merge_states",
]

_MODULES = {
    "ClassificationReport": "classification",
    "ComparisonReport": "comparison",
    "DetectionReport": "detection",
    "compare_runs": "comparison",
    "evaluate_classification": "classification",
    "evaluate_detection": "detection",
    "merge_states": "detection",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: each evaluation imports only what it needs."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
