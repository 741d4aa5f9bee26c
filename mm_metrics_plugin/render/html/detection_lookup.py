"""The page of ``mm-metrics detection``: what is behind the numbers is looked up, and everything goes into one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.functional.detection.examples import WorstImages
    from mm_metrics_plugin.render.html.detection import Gallery
    from mm_metrics_plugin.render.outputs import PageOptions


def detection_page(report: DetectionReport, options: PageOptions) -> str:
    """The page as text."""
    from mm_metrics_plugin.functional.detection.pr_curves import threshold_sweep
    from mm_metrics_plugin.io.writing import to_json
    from mm_metrics_plugin.render.html import render_page
    from mm_metrics_plugin.render.html.detection import page_context, page_data
    from mm_metrics_plugin.render.html.names import without_common_folder

    part: Any = report.shard
    examples = part.state.examples()
    thresholds = None
    if report.analysis is not None:
        thresholds = threshold_sweep(report.analysis.curves, also=[part.settings.score_thr])
    names = [part.image_names[image_id] for image_id in part.image_ids]
    shown = [name or str(image_id) for name, image_id in zip(without_common_folder(names), part.image_ids)]
    folders = [one for truth in part.truths for one in truth.get("image_folders", ())]
    sizes = [part.image_sizes.get(image_id, (0, 0)) for image_id in part.image_ids]
    gallery = None if examples is None else make_gallery(examples.images, names, options, folders=folders, sizes=sizes)
    data = page_data(report, examples, thresholds=thresholds, image_names=shown)
    context = page_context(report, examples, thresholds=thresholds, gallery=gallery, image_names=shown)
    return render_page("detection.html", data=to_json(data, compact=True), **context)


def make_gallery(
    worst: WorstImages,
    names: Sequence[str],
    options: PageOptions,
    *,
    folders: Sequence[str] = (),
    sizes: Sequence[Tuple[int, int]] = (),
) -> Optional[Gallery]:
    """The worst images; None where it is not known where they are, or none are wanted.

    Args:
        worst: The worst images.
        names: Their names in the ground truth.
        options: What was asked for on the command line.
        folders: The image folders of the config.
        sizes: Height and width of the images, 0 where unknown.
    """
    from mm_metrics_plugin.render.html.detection import Gallery
    from mm_metrics_plugin.render.html.gallery import collect_thumbnails

    if not options.gallery or (options.images is None and not folders):
        return None
    half = options.gallery // 2
    by_missed = worst.image[worst.most_missed()[: options.gallery - half]].tolist()
    by_confidence = worst.image[worst.most_confident()[:half]].tolist()
    pictures, remarks = collect_thumbnails(
        [*by_missed, *by_confidence], names, folder=options.images, dataset_folders=folders, sizes=sizes
    )
    return Gallery(pictures, by_missed, by_confidence, remarks)
