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
    "classification": ("ClassificationReport", "evaluate_classification"),
    "comparison": ("ComparisonReport", "compare_runs"),
    "detection": ("DetectionReport", "evaluate_detection", "merge_states"),
}


def __getattr__(name: str) -> Any:
    """Import a module when one of its names is used: each evaluation imports only what it needs."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
