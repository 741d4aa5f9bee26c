"""From files or arrays to report objects: what the ``mm-metrics`` command does, in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import evaluate_classification
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport, compare_runs
    from mm_metrics_plugin.evaluation.detection import evaluate_detection, merge_states
    from mm_metrics_plugin.reports.classification import ClassificationReport
    from mm_metrics_plugin.reports.classification_evaluator import ClassificationEvaluator
    from mm_metrics_plugin.reports.detection import DetectionReport
    from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
    from mm_metrics_plugin.reports.detection_reports import DetectionReports

__all__ = [
    "ClassificationEvaluator",
    "ClassificationReport",
    "ComparisonReport",
    "DetectionEvaluator",
    "DetectionReport",
    "DetectionReports",
    "compare_runs",
    "evaluate_classification",
    "evaluate_detection",
    "merge_states",
]

_MODULES = {
    "evaluation.classification": ("evaluate_classification",),
    "evaluation.comparison": ("ComparisonReport", "compare_runs"),
    "evaluation.detection": ("evaluate_detection", "merge_states"),
    "reports.classification": ("ClassificationReport",),
    "reports.classification_evaluator": ("ClassificationEvaluator",),
    "reports.detection": ("DetectionReport",),
    "reports.detection_reports": ("DetectionReports",),
    "reports.detection_evaluator": ("DetectionEvaluator",),
}


def __getattr__(name: str) -> Any:
    """Import a module when one of its names is used: each evaluation imports only what it needs."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"mm_metrics_plugin.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
