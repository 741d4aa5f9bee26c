"""``mm-metrics detection``: TP, FP, FN, precision, recall, F1, AP and error types of a detector."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mm_metrics_plugin.cli.arguments import (
    FilesAndFolder,
    add_input_arguments,
    add_interval_arguments,
    add_operating_point_argument,
    add_option,
    add_output_arguments,
    add_shape_arguments,
    add_threshold_arguments,
    given_options,
    named_areas,
    numbers,
    reading_options,
    whole_numbers,
)
from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.settings import DetectionSettings

PARSER: dict[str, Any] = dict(
    help="report on a detector's results",
    usage="%(prog)s GROUND_TRUTH RESULTS [RESULTS ...] [OUT_DIR] [options]",
    description="Reports on the results of a detector: TP, FP, FN, precision, recall, F1 and AP per class,\n"
    "the most frequent confusions and the error types. Reads RESULTS without running anything in it.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics detection annotations.json results.pkl            print a report of one screen
  mm-metrics detection annotations.json results.pkl --verbose  print everything
  mm-metrics detection annotations.json results.pkl report/    and write JSON, Markdown, CSV and figures
  mm-metrics detection configs/my_rtmdet.py results.pkl out/   ground truth: the config's test set (needs mmdet)
  mm-metrics detection VOC2007/Annotations results.pkl --classes classes.txt --image-set ImageSets/Main/test.txt
  mm-metrics detection - results.pkl --classes cat,dog         the results contain the ground truth (mmyolo)
  mm-metrics detection annotations.json results.pkl --matching mmdet --score-thr 0.5 --format json
  mm-metrics detection annotations.json results.pkl report/ --operating-point f1 --ci 0.95
  mm-metrics detection annotations.json results.pkl report/ --html --images val2017/    and an HTML page
  torchrun --nproc-per-node 4 -m mm_metrics_plugin.cli detection annotations.json part*.pkl report/
  mm-metrics detection annotations.json results.pkl --iou-type bbox,segm      boxes and masks in one report
  mm-metrics detection person_keypoints.json results.pkl --iou-type keypoints      mmpose
  mm-metrics detection labelTxt/ results.pkl --iou-type rbox --classes classes.txt      mmrotate, DOTA
  mm-metrics detection annotations.json part1.pkl --save-state part1.npz     see mm-metrics merge --help

OUT_DIR receives report.json, report.md, per_class.csv, confusion_matrix.csv, confusion_matrix.png (of the first
matching rule; those of others are named after them), curves.csv, pr_curves.png, confidence_curves.png,
froc_curves.png, with --operating-point thresholds.json, and with --html report.html. Of more than 2,000 classes,
confusion_matrix.csv and report.json list the cells that are not 0.""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "ground_truth",
        metavar="GROUND_TRUTH",
        help="COCO annotations (.json), a folder of VOC .xml files or DOTA .txt files, an mmdet config (.py), or - if "
        "RESULTS contains the ground truth",
    )
    parser.add_argument(
        "results",
        metavar="RESULTS",
        nargs="+",
        action=FilesAndFolder,
        help="results.pkl of tools/test.py --out, or COCO results (.json); several files are shards of one test set. "
        "Optionally followed by OUT_DIR, the folder for the files of the report",
    )
    parser.set_defaults(out_dir=None)
    add_shape_arguments(parser, several=True)
    group = add_threshold_arguments(parser)
    group.add_argument(
        "--matching",
        action="append",
        choices=list(MATCHING_RULES),
        help="count by this matching rule only; may be given several times (default: coco is printed and drawn, and "
        "files hold coco and mmdet, or coco and agnostic of other types than bbox)",
    )
    group = parser.add_argument_group("analysis")
    add_operating_point_argument(
        group, "find the best score threshold, for all classes pooled and per class, by RULE: {rules}"
    )
    add_option(
        group,
        "--area-edges",
        "--size-edges",
        type=numbers,
        metavar="A,B,...",
        help="areas in square pixels that separate small, medium and large objects (default: COCO's, 1024,9216)",
    )
    add_option(
        group,
        "--area-ranges",
        type=named_areas,
        metavar="NAME=LOW-HIGH,...",
        help="named ranges of areas in square pixels instead, also for average precision, such as tiny=0-400",
    )
    add_option(
        group,
        "--recall-max-dets",
        type=whole_numbers,
        metavar="A,B,...",
        help="smaller numbers of detections per class and image for average recall, ascending (default: those of the "
        "convention, of coco 1,10)",
    )
    group.add_argument(
        "--matrix-only", action="store_true", help="leave out average precision, curves, object sizes and error types"
    )
    add_interval_arguments(parser, drawn="resamples")
    add_input_arguments(parser)
    add_output_arguments(parser).add_argument(
        "--save-state",
        metavar="FILE.npz",
        help="also save the state of this shard, for `mm-metrics merge`; RESULTS may then cover only some "
        "of the images",
    )


def run(arguments: argparse.Namespace) -> None:
    """Evaluate, write and print."""
    from mm_metrics_plugin.cli.output import deliver
    from mm_metrics_plugin.evaluation.detection import evaluate_detection
    from mm_metrics_plugin.render.outputs import check_folder

    options = {**reading_options(arguments), **given_options(arguments, DetectionSettings)}
    if arguments.matching:
        options["matching"] = tuple(dict.fromkeys(arguments.matching))
    else:
        options.pop("matching", None)
    if arguments.save_state is not None:
        check_folder(Path(arguments.save_state).parent, option="the folder of --save-state")
    keep_examples = arguments.html or arguments.save_state is not None
    options.update(
        gallery=arguments.gallery if keep_examples else None, save_state=arguments.save_state, distributed=True
    )
    deliver(arguments, lambda progress: evaluate_detection(results=arguments.results, progress=progress, **options))
