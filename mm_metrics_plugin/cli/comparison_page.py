"""The page of ``mm-metrics compare``: the runs side by side, and the images on which they disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    from mm_metrics_plugin.cli.compare import Side
    from mm_metrics_plugin.functional.comparison_report import ComparisonReport


def comparison_page(report: ComparisonReport, side: Side) -> str:
    """The page as text."""
    from mm_metrics_plugin.io.writing import to_json
    from mm_metrics_plugin.report.comparison_page import page_context, page_data
    from mm_metrics_plugin.report.page import render_page

    said = [_said(side, run, versus.disagreements.image) for run, versus in enumerate(report.versus, start=1)]
    data = page_data(report, image_names=_names(side), said=said)
    return render_page("comparison.html", data=to_json(data, compact=True), **page_context(report))


def _names(side: Side) -> List[str]:
    """What images are called: their file without the common folder, else their number."""
    from mm_metrics_plugin.cli.names import without_common_folder

    what = "sample" if side.kind == "classification" else "image"
    files = iter(without_common_folder([name for name in side.image_names if isinstance(name, str)]))
    return [next(files) if isinstance(name, str) else f"{what} {name}" for name in side.image_names]


def _said(side: Side, run: int, images: Any) -> Dict[str, Any]:
    """What the first run and another decided for on some samples, and how sure they were; nothing of detectors."""
    if side.decisions(run) is None:
        return {}
    return {
        "truth": side.truth[images],
        "said": [side.decisions(one)[images] for one in (0, run)],
        "sure": [side.confidence(one)[images] for one in (0, run)],
    }
