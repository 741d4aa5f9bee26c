"""The page of ``mm-metrics detection``: what is behind the numbers is looked up, and everything goes into one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

if TYPE_CHECKING:
    from mm_metrics_plugin.cli.parts import Part
    from mm_metrics_plugin.functional.detection_report import DetectionReport
    from mm_metrics_plugin.functional.worst_images import WorstImages
    from mm_metrics_plugin.report.detection_page import Gallery

MOST_LISTED = 48_000  # members of cells over all protocols: some 4 MB of the page
MOST_PICTURE_BYTES = 5_000_000


@dataclass(frozen=True)
class PageOptions:
    """What was asked for on the command line.

    Attributes:
        images: The folder of the pictures, None if none was given.
        gallery: How many of them to show at the most.
        names_are_paths: Whether image names are paths of the user's own, as a config's are.
    """

    images: Optional[str] = None
    gallery: int = 48
    names_are_paths: bool = False


def detection_page(report: DetectionReport, part: Part, options: PageOptions) -> str:
    """The page as text."""
    from mm_metrics_plugin.cli.names import without_common_folder
    from mm_metrics_plugin.functional.cell_members import cell_members
    from mm_metrics_plugin.functional.matching import match
    from mm_metrics_plugin.functional.threshold_counts import threshold_counts
    from mm_metrics_plugin.functional.worst_images import worst_images
    from mm_metrics_plugin.io.writing import to_json
    from mm_metrics_plugin.report.detection_page import page_context, page_data
    from mm_metrics_plugin.report.page import render_page

    settings, batch, size = part.settings, part.batch(), len(part.classes)
    rules: Dict[str, Any] = dict(
        num_classes=size, iou_threshold=settings["tp_iou_thr"], score_threshold=settings["score_thr"]
    )
    protocols = settings["matching"]
    members = {
        protocol: cell_members(batch, protocol=protocol, most=MOST_LISTED // len(protocols), **rules)
        for protocol in protocols
    }
    thresholds = None
    if report.analysis is not None:
        thresholds = threshold_counts(report.analysis.curves, also=[settings["score_thr"]])
    worst = worst_images(batch, match(batch.detections, batch.objects, protocol="coco", **rules))
    names = [part.image_names[image_id] for image_id in part.image_ids]
    shown = [name or str(image_id) for name, image_id in zip(without_common_folder(names), part.image_ids)]
    gallery = make_gallery(worst, names, options)
    data = page_data(report, batch, members=members, thresholds=thresholds, image_names=shown)
    context = page_context(report, batch, worst=worst, thresholds=thresholds, gallery=gallery, image_names=shown)
    return render_page("detection.html", data=to_json(data, compact=True), **context)


def make_gallery(worst: WorstImages, names: Sequence[str], options: PageOptions) -> Optional[Gallery]:
    """The pictures of the worst images; None where it is not known where they are, or none are wanted."""
    from mm_metrics_plugin.io.pictures import find_picture, thumbnail
    from mm_metrics_plugin.report.detection_page import Gallery

    if not options.gallery or (options.images is None and not options.names_are_paths):
        return None
    half = options.gallery // 2
    by_missed = worst.most_missed[: options.gallery - half].tolist()
    by_confidence = worst.most_confident[:half].tolist()
    pictures: Dict[int, Any] = {}
    absent: List[str] = []
    unreadable: List[str] = []
    size, left_out = 0, 0
    for image in dict.fromkeys([*by_missed, *by_confidence]):
        if size > MOST_PICTURE_BYTES:
            left_out += 1
            continue
        path = find_picture(names[image], options.images)
        small = None if path is None else thumbnail(path)
        if small is None:
            (absent if path is None else unreadable).append(names[image])
            continue
        pictures[image] = small
        size += len(small.uri)
    remarks = [
        f"{number} of the pictures {what}"
        for number, what in (
            (len(absent), "were not found"),
            (len(unreadable), "could not be read"),
            (left_out, "were left out, to keep the page small"),
        )
        if number
    ]
    return Gallery(pictures, by_missed, by_confidence, remarks)
