"""``mm-metrics detection``: what a detector gets right, what it misses, and what it takes for what."""

from __future__ import annotations

import argparse
import os
import warnings
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from mm_metrics_plugin.cli.arguments import (
    ResultsAndFolder,
    add_gallery_arguments,
    add_input_arguments,
    add_interval_arguments,
    add_output_arguments,
    add_page_arguments,
    add_threshold_arguments,
    add_truth_arguments,
    areas,
    detection_settings,
    rule,
    state_file,
)
from mm_metrics_plugin.exceptions import MetricWarning
from mm_metrics_plugin.settings import COCO_AREA_EDGES, MATCHING_RULES

if TYPE_CHECKING:
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.cli.progress import Steps
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.evaluation.process_group import Ranks
    from mm_metrics_plugin.evaluation.shards import Part
    from mm_metrics_plugin.render.html.detection_lookup import PageOptions

PARSER: Dict[str, Any] = dict(
    help="report on a detector's results",
    usage="%(prog)s TRUTH RESULTS [RESULTS ...] [OUT_DIR] [options]",
    description="Reports on the results of a detector: TP, FP, FN, precision, recall, F1 and AP per class,\n"
    "the most frequent confusions and the error types. Reads RESULTS without running anything in it.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics detection annotations.json results.pkl            print a report of one screen
  mm-metrics detection annotations.json results.pkl --verbose  print everything
  mm-metrics detection annotations.json results.pkl report/    and write JSON, Markdown, CSV and figures
  mm-metrics detection configs/my_rtmdet.py results.pkl out/   ground truth: the config's test set (needs mmdet)
  mm-metrics detection VOC2007/Annotations results.pkl --classes classes.txt --image-set ImageSets/Main/test.txt
  mm-metrics detection - results.pkl --classes cat,dog         ground truth inside the results (mmyolo)
  mm-metrics detection annotations.json results.pkl --matching mmdet --score-thr 0.5 --format json
  mm-metrics detection annotations.json results.pkl report/ --operating-point f1 --ci 0.95
  mm-metrics detection annotations.json results.pkl report/ --html --images val2017/    and a page to look at
  torchrun --nproc-per-node 4 -m mm_metrics_plugin.cli detection annotations.json part*.pkl report/
  mm-metrics detection annotations.json part1.pkl --save-state part1.npz     see mm-metrics merge --help

OUT_DIR receives report.json, report.md, per_class.csv, confusion_matrix.csv, confusion_matrix.png (of the first
protocol; those of other protocols are named after them), curves.csv, pr_curves.png, confidence_curves.png, with
--operating-point thresholds.json, and with --html report.html.""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "truth",
        metavar="TRUTH",
        help="the ground truth: COCO annotations (.json), a folder of VOC .xml files, an mmdet config (.py), or - "
        "if it is inside RESULTS",
    )
    parser.add_argument(
        "results",
        metavar="RESULTS",
        nargs="+",
        action=ResultsAndFolder,
        help="results.pkl of tools/test.py --out, or COCO results (.json); several files are shards of one test set. "
        "Optionally followed by OUT_DIR, the folder for the files of the report",
    )
    parser.set_defaults(out_dir=None)
    group = add_threshold_arguments(parser)
    group.add_argument(
        "--matching",
        action="append",
        choices=MATCHING_RULES,
        help="count by this protocol only; may be given several times (default: coco is printed and drawn, and files "
        "hold coco and mmdet)",
    )
    group = parser.add_argument_group("analysis")
    group.add_argument(
        "--operating-point",
        type=rule,
        metavar="RULE",
        help="find the best score threshold, for all classes pooled and per class, by RULE: f1, f2, precision=0.9 "
        "(highest recall with at least that precision) or recall=0.95",
    )
    group.add_argument(
        "--area-edges",
        "--size-edges",
        type=areas,
        default=COCO_AREA_EDGES,
        metavar="A,B,...",
        help="areas in square pixels that separate small, medium and large objects (default: COCO's, 1024,9216)",
    )
    group.add_argument(
        "--matrix-only", action="store_true", help="leave out average precision, curves, object sizes and error types"
    )
    add_interval_arguments(parser)
    add_truth_arguments(add_input_arguments(parser))
    group = add_gallery_arguments(add_page_arguments(add_output_arguments(parser)))
    group.add_argument(
        "--save-state",
        metavar="FILE.npz",
        type=state_file,
        help="also save the state of this shard, for `mm-metrics merge`; RESULTS may then cover only some "
        "of the images",
    )


def run(arguments: argparse.Namespace) -> None:
    """Read, count, write and print."""
    from mm_metrics_plugin.cli.output import deliver
    from mm_metrics_plugin.evaluation.process_group import Ranks

    ranks = Ranks()
    page = page_options(arguments)
    deliver(arguments, lambda steps: _make(arguments, page, ranks, steps))


def _make(arguments: argparse.Namespace, page: Optional[PageOptions], ranks: Ranks, steps: Steps) -> Optional[Forms]:
    """The report, on the process that prints it."""
    from mm_metrics_plugin.evaluation.loading import make_part
    from mm_metrics_plugin.evaluation.shards import save_part
    from mm_metrics_plugin.io.files import trim_memory

    gallery = arguments.gallery if page is not None or arguments.save_state is not None else None
    settings = detection_settings(arguments, matching=arguments.matching or DEFAULT_MATCHING)
    part = make_part(arguments, settings, ranks, steps, worst_images=gallery)
    trim_memory()  # that of the input, which is matched by now
    ranks.leave()
    if not ranks.is_first:
        return None
    if arguments.save_state is not None:
        save_part(arguments.save_state, part)
    return forms_of(part, steps, page=page, options=TextOptions.of(arguments))


def page_options(arguments: argparse.Namespace) -> Optional[PageOptions]:
    """What was asked for of the page; None if none was."""
    from mm_metrics_plugin.exceptions import ResultFileError
    from mm_metrics_plugin.render.html.detection_lookup import PageOptions

    if not arguments.html:
        return None
    if arguments.images is not None and not os.path.isdir(arguments.images):
        raise ResultFileError(f"--images: must be a folder (found {arguments.images!a})")
    is_config = str(vars(arguments).get("truth", "")).endswith(".py")
    return PageOptions(images=arguments.images, gallery=arguments.gallery, names_are_paths=is_config)


@dataclass(frozen=True)
class TextOptions:
    """What of the report is printed.

    Attributes:
        protocols: The protocols that were asked for; None: ``coco``, or what the report has instead.
        verbose: Everything.
        published: The lines of the published recipe at the end, even if they were not asked for.
    """

    protocols: Optional[Sequence[str]] = None
    verbose: bool = False
    published: bool = False

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> TextOptions:
        """Those of a command line."""
        return cls(vars(arguments).get("matching"), arguments.verbose, arguments.published)


def forms_of(
    part: Part, steps: Steps, *, page: Optional[PageOptions] = None, options: Optional[TextOptions] = None
) -> Forms:
    """The report of all images, in all its forms."""
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.io.writing import to_csv, to_json
    from mm_metrics_plugin.render.markdown import detection_markdown
    from mm_metrics_plugin.render.tables import curve_rows, detection_class_rows, detection_matrix_rows

    steps.step("counting")
    report = make_report(part)
    analysis = report.analysis
    formats = {
        "text": lambda: _text(report, options or TextOptions()),
        "json": lambda: to_json(report.to_dict()),
        "md": lambda: detection_markdown(report),
        "csv": lambda: to_csv(*detection_class_rows(report)),
    }
    files = {
        "report.json": formats["json"],
        "report.md": formats["md"],
        "per_class.csv": formats["csv"],
        "confusion_matrix.csv": lambda: to_csv(*detection_matrix_rows(report)),
    }
    if analysis is not None:
        files["curves.csv"] = lambda: to_csv(*curve_rows(analysis))
        if analysis.points is not None:
            files["thresholds.json"] = lambda: to_json(analysis.thresholds())
    if page is not None:
        from mm_metrics_plugin.render.html.detection_lookup import detection_page

        files["report.html"] = lambda: detection_page(report, part, page)
    return Forms(formats, files, lambda color_theme: _figures(report, color_theme))


def make_report(part: Part) -> DetectionReport:
    """Everything the report says."""
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.functional.detection.confusion_report import protocol_report
    from mm_metrics_plugin.io.row_counts import Tally
    from mm_metrics_plugin.render.sentences import truncation_message

    settings, state = part.settings, part.state
    counted, reports = state.tally, []
    for name in settings.matching:
        rule = state.rule(name)
        objects, detections = rule.used_per_class
        counts = {**rule.tally, **{key: counted[key] for key in ("detections_without_area", "objects_without_area")}}
        if name == "mmdet":
            counts["crowds"] = counted["crowds"]
        reports.append(
            protocol_report(
                name,
                rule.matrix,
                classes=part.classes,
                objects=objects,
                detections=detections,
                counts=counts,
                background_types=rule.false_positives,
            )
        )
    used = part.detections.then("removed by NMS", counted["detections_suppressed"])
    used = used.then(f"score below {settings.score_thr:g}", counted["detections_below_threshold"])
    objects = Tally.total(Tally(**one["objects"]) for one in part.truths)
    objects = objects.then("in an image of another shard", objects.used - counted["objects"])
    images = len(part.image_ids)
    totals: Dict[str, Any] = {
        "images": {"read": images, "used": images, "dropped": {}, "without_results": part.missing_images},
        "detections": used.to_dict(),
        "objects": objects.to_dict(),
    }
    analysis, table = None, state.table()
    if table is not None:
        from mm_metrics_plugin.evaluation.detection_analysis import analyze_detections  # imports SciPy

        analysis = analyze_detections(table, settings, classes=part.classes)
        message = truncation_message(settings.max_dets, analysis.most_detections)
        if message:
            warnings.warn(message, MetricWarning)
    return DetectionReport(part.classes, settings, part.inputs(), totals, tuple(reports), analysis)


DEFAULT_MATCHING = ("coco", "mmdet")


def _figures(report: DetectionReport, color_theme: str) -> Dict[str, Callable[[], Any]]:
    """The first protocol's figure under the plain name, the others' with theirs behind it if they were asked for."""
    from mm_metrics_plugin.render.figures.confusion_matrix import confusion_figure

    settings = report.settings
    figures: Dict[str, Callable[[], Any]] = {}
    # A figure of many classes costs more time than all the counting, so what nobody asked for is not drawn.
    drawn = report.protocols[:1] if settings.matching == DEFAULT_MATCHING else report.protocols
    for one in drawn:
        name = "confusion_matrix.png" if not figures else f"confusion_matrix_{one.protocol}.png"
        title = f"{one.protocol}, score >= {settings.score_thr:g}, IoU >= {settings.iou_thr:g}"
        figures[name] = partial(
            confusion_figure, one.result.matrix, None, report.labels, title=title, color_theme=color_theme
        )
    if report.analysis is not None:
        from mm_metrics_plugin.render.figures.curves import detection_curve_figures

        curves = report.analysis.curves

        @lru_cache(maxsize=None)
        def both() -> List[Any]:
            return detection_curve_figures(curves, report.classes, color_theme)

        figures["pr_curves.png"] = lambda: both()[0]
        figures["confidence_curves.png"] = lambda: both()[1]
    return figures


def _text(report: DetectionReport, options: TextOptions) -> str:
    from mm_metrics_plugin.render.text import detection_text  # imports rich, which only this format needs

    protocols = options.protocols
    if protocols is None and report.settings.matching == DEFAULT_MATCHING:
        protocols = DEFAULT_MATCHING[:1]
    return detection_text(report, protocols=protocols, verbose=options.verbose, published=options.published)
