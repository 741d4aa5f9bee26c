"""The page of ``mm-metrics compare``: the runs side by side, and the images on which they disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Tuple

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport
    from mm_metrics_plugin.evaluation.run_sets import RunSet
    from mm_metrics_plugin.render.outputs import PageOptions


def comparison_page(report: ComparisonReport, options: PageOptions) -> str:
    """The page as text."""
    from mm_metrics_plugin.io.writing import to_json
    from mm_metrics_plugin.render.html import render_page
    from mm_metrics_plugin.render.html.comparison import page_context, page_data

    side: Any = report.runs
    said = [_said(side, run, versus.disagreements.image) for run, versus in enumerate(report.versus, start=1)]
    pictures, remarks = _pictures(report, side, options)
    data = page_data(report, image_names=_names(side), said=said, pictures=pictures)
    return render_page("comparison.html", data=to_json(data, compact=True), **page_context(report, remarks))


def _pictures(report: ComparisonReport, side: RunSet, options: PageOptions) -> Tuple[Dict[int, str], List[str]]:
    """Images on which the runs disagree as ``data:`` addresses, by number, and remarks on those that are not there."""
    from mm_metrics_plugin.render.html.gallery import collect_thumbnails

    if not options.gallery or (options.images is None and not (side.kind == "detection" and side.image_folders)):
        return {}, []
    wanted: List[int] = []
    for versus in report.versus:
        found = versus.disagreements
        half = -(-options.gallery // (2 * len(report.versus)))
        for worse in (True, False):
            wanted += found.image[found.worse == worse][:half].tolist()
    names = [name if isinstance(name, str) else "" for name in side.image_names]
    found_images, remarks = collect_thumbnails(
        wanted[: options.gallery],
        names,
        folder=options.images,
        dataset_folders=side.image_folders,
        sizes=side.image_sizes,
    )
    return {image: small.uri for image, small in found_images.items()}, remarks


def _names(side: RunSet) -> List[str]:
    """What images are called: their file without the common folder, else their number."""
    from mm_metrics_plugin.render.html.names import without_common_folder

    what = "sample" if side.kind == "classification" else "image"
    files = iter(without_common_folder([name for name in side.image_names if isinstance(name, str)]))
    return [next(files) if isinstance(name, str) else f"{what} {name}" for name in side.image_names]


def _said(side: Any, run: int, images: Any) -> Dict[str, Any]:
    """What the first run and another decided for on some samples, and how sure they were; nothing of detectors."""
    if side.decisions(run) is None:
        return {}
    return {
        "truth": side.truth[images],
        "said": [side.decisions(one)[images] for one in (0, run)],
        "sure": [side.confidence(one)[images] for one in (0, run)],
    }
