"""Report objects into text, Markdown, CSV, figures and HTML pages. Nothing is computed here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mm_metrics_plugin.render.figures import draw_figures
    from mm_metrics_plugin.render.outputs import PageOptions, ReportOutputs, TextOptions, report_outputs, save_outputs

__all__ = ["PageOptions", "ReportOutputs", "TextOptions", "draw_figures", "report_outputs", "save_outputs"]


def __getattr__(name: str) -> Any:
    """Import a name on first use: only figures need matplotlib."""
    if name in __all__:
        module = "figures" if name == "draw_figures" else "outputs"
        return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
