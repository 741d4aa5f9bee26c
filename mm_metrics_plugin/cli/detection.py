"""``mm-metrics detection``: what a detector gets right, what it misses, and what it takes for what."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from mm_metrics_plugin.cli.parsing import (
    add_input_arguments,
    add_output_arguments,
    class_names,
    fraction,
    number,
    positive_fraction,
)

if TYPE_CHECKING:
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.cli.progress import Steps
    from mm_metrics_plugin.functional.detection_report import DetectionReport
    from mm_metrics_plugin.io.ground_truth import GroundTruth
    from mm_metrics_plugin.io.joining import Joined
    from mm_metrics_plugin.io.results import DetectionResults

PROTOCOLS = ("coco", "mmdet", "agnostic")
INSIDE = "-"
PARSER: Dict[str, Any] = dict(
    help="report on a detector's results",
    description="Reports on the results of a detector: precision, recall and F1 per class, what is taken for what,\n"
    "and why two ways of counting differ. Reads RESULTS without running anything in it.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics detection annotations.json results.pkl            print a report
  mm-metrics detection annotations.json results.pkl report/    and write JSON, Markdown, CSV and figures
  mm-metrics detection configs/rtmdet.py results.pkl report/   the config's test set is the truth (needs mmdet)
  mm-metrics detection VOC2007/Annotations results.pkl --classes classes.txt
  mm-metrics detection - results.pkl --classes cat,dog         the truth is inside the results (mmyolo)
  mm-metrics detection annotations.json results.pkl --matching mmdet --score-thr 0.5 --format json

OUT_DIR receives report.json, report.md, per_class.csv, confusion_matrix.csv and confusion_matrix.png (of the first
protocol; those of the others have its name behind theirs).""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "truth",
        metavar="TRUTH",
        help="COCO annotations (.json), a folder of VOC .xml files, an mmdet config (.py), or - if the truth is inside "
        "RESULTS",
    )
    parser.add_argument(
        "results", metavar="RESULTS", help="results.pkl of tools/test.py --out, or COCO results (.json)"
    )
    parser.add_argument("out_dir", metavar="OUT_DIR", nargs="?", help="folder for the files of the report")
    group = parser.add_argument_group("matching")
    group.add_argument(
        "--matching",
        action="append",
        choices=PROTOCOLS,
        help="how detections are matched to objects; may be given several times (default: coco and mmdet)",
    )
    group.add_argument(
        "--score-thr", type=number, default=0.3, metavar="X", help="least score of a detection (default: 0.3)"
    )
    group.add_argument(
        "--tp-iou-thr", type=positive_fraction, default=0.5, metavar="X", help="least IoU of a match (default: 0.5)"
    )
    group.add_argument(
        "--nms-iou-thr", type=fraction, metavar="X", help="first remove detections that overlap a better one by more"
    )
    add_input_arguments(parser).add_argument(
        "--allow-missing", action="store_true", help="take images without results as without detections"
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Read, count, write and print."""
    from mm_metrics_plugin.cli.output import deliver

    deliver(arguments, lambda steps: _forms(make_report(arguments, steps)))


def make_report(arguments: argparse.Namespace, steps: Steps) -> DetectionReport:
    """Everything the report says, from the files named on the command line."""
    from mm_metrics_plugin.cli.output import input_entry, versions
    from mm_metrics_plugin.functional.detection_report import DetectionReport
    from mm_metrics_plugin.io.joining import join
    from mm_metrics_plugin.io.results import read_results

    classes = class_names(arguments.classes)
    inputs: Dict[str, Any] = {"results": input_entry(arguments.results)}
    if arguments.truth != INSIDE:
        inputs["truth"] = input_entry(arguments.truth)
    steps.step("reading the results")
    results = read_results(arguments.results, trust=arguments.trust)
    steps.step("reading the truth")
    truth = _read_truth(arguments, results, classes, steps)
    steps.step("joining")
    joined = join(truth, results, classes=classes, allow_missing=arguments.allow_missing)
    protocols = list(dict.fromkeys(arguments.matching or ("coco", "mmdet")))
    settings = {
        "score_thr": arguments.score_thr,
        "tp_iou_thr": arguments.tp_iou_thr,
        "nms_iou_thr": arguments.nms_iou_thr,
        "matching": protocols,
        "allow_missing": arguments.allow_missing,
    }
    inputs["versions"] = versions("mmengine", "mmdet")
    steps.step("matching")
    counts, reports = _count(joined, settings)
    return DetectionReport(joined.classes, settings, inputs, counts, reports)


def _read_truth(
    arguments: argparse.Namespace, results: DetectionResults, classes: Optional[List[str]], steps: Steps
) -> GroundTruth:
    from mm_metrics_plugin.exceptions import ResultFileError
    from mm_metrics_plugin.io.ground_truth import read_ground_truth
    from mm_metrics_plugin.io.test_sets import read_test_set

    if arguments.truth == INSIDE:
        if results.truth is None:
            raise ResultFileError(f"{results.source}: holds no ground truth; give it as TRUTH instead of -")
        return results.truth
    if arguments.truth.endswith(".py"):
        return read_test_set(arguments.truth, classes=classes, options=arguments.cfg_options, track=steps.track)
    if arguments.cfg_options:
        raise ResultFileError("--cfg-options: TRUTH is no config whose settings could be overridden")
    return read_ground_truth(arguments.truth, classes=classes)


def _count(joined: Joined, settings: Dict[str, Any]) -> Tuple[Dict[str, Any], Tuple[Any, ...]]:
    """What was used, and what each protocol says of it. Counted by the state that DetectionPRF counts with."""
    from dataclasses import replace

    import numpy as np

    from mm_metrics_plugin.functional.detection_report import protocol_report
    from mm_metrics_plugin.states.detection import DetectionState, suppress

    batch, size = joined.batch, len(joined.classes)
    tally = joined.detections
    if settings["nms_iou_thr"] is not None:
        kept = suppress(batch.detections, num_classes=size, iou_threshold=settings["nms_iou_thr"])
        tally = tally.then("removed by NMS", len(batch.detections) - len(kept))
        batch = replace(batch, detections=kept)
    detections, objects = batch.detections, batch.objects
    chosen = detections.scores >= detections.scores.dtype.type(settings["score_thr"])
    tally = tally.then(f"score below {settings['score_thr']:g}", int(np.count_nonzero(~chosen)))
    reports = []
    for protocol in settings["matching"]:
        state = DetectionState(
            size,
            protocol=protocol,
            iou_threshold=settings["tp_iou_thr"],
            score_threshold=settings["score_thr"],
        ).update(batch, np.arange(batch.num_images))
        if protocol == "mmdet":  # the matrix counts some of them again
            each = np.bincount(objects.labels, minlength=size), np.bincount(detections.labels[chosen], minlength=size)
        else:
            each = state.matrix.sum(axis=1)[:-1], state.matrix.sum(axis=0)[:-1]
        counted = {name: number for name, number in state.tally.items() if name not in _COUNTED_FOR_ALL}
        reports.append(
            protocol_report(
                protocol,
                state.matrix,
                classes=joined.classes,
                objects=each[0],
                detections=each[1],
                counts=counted,
            )
        )
    images = batch.num_images
    counts = {
        "images": {"read": images, "used": images, "dropped": {}, "without_results": joined.missing_images},
        "detections": tally.to_dict(),
        "objects": joined.objects.to_dict(),
    }
    return counts, tuple(reports)


_COUNTED_FOR_ALL = ("images", "detections_suppressed", "detections_below_threshold")


def _forms(report: DetectionReport) -> Forms:
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.io.writing import to_csv, to_json
    from mm_metrics_plugin.report.markdown import detection_markdown
    from mm_metrics_plugin.report.tables import detection_class_rows, detection_matrix_rows

    return Forms(
        formats={
            "text": lambda: _text(report),
            "json": lambda: to_json(report.to_dict()),
            "md": lambda: detection_markdown(report),
            "csv": lambda: to_csv(*detection_class_rows(report)),
        },
        matrix=lambda: to_csv(*detection_matrix_rows(report)),
        figures=lambda color_theme: _figures(report, color_theme),
    )


def _figures(report: DetectionReport, color_theme: str) -> Dict[str, Any]:
    """The first protocol's figure under the plain name, the others' with theirs behind it."""
    from mm_metrics_plugin.report.figures import confusion_figure

    settings = report.settings
    figures: Dict[str, Any] = {}
    for one in report.protocols:
        name = "confusion_matrix.png" if not figures else f"confusion_matrix_{one.protocol}.png"
        title = f"{one.protocol}, score >= {settings['score_thr']:g}, IoU >= {settings['tp_iou_thr']:g}"
        figures[name] = confusion_figure(
            one.result.matrix, one.shares, report.labels, title=title, color_theme=color_theme
        )
    return figures


def _text(report: DetectionReport) -> str:
    from mm_metrics_plugin.report.text import detection_text  # imports rich, which only this format needs

    return detection_text(report)
