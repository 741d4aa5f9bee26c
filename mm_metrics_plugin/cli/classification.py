"""``mm-metrics classification``: metrics and confusions of a classifier."""

from __future__ import annotations

import argparse
from typing import Any

from mm_metrics_plugin.cli.arguments import (
    add_input_arguments,
    add_interval_arguments,
    add_option,
    add_output_arguments,
    add_task_argument,
    given_options,
    reading_options,
)
from mm_metrics_plugin.settings import MULTI_LABEL_SCORE_THR, ClassificationSettings

PARSER: dict[str, Any] = dict(
    help="report on a classifier's results",
    usage="%(prog)s RESULTS [OUT_DIR] [options]",
    description="Reports on the results of a classifier: accuracy, top-5 accuracy, AUC, average precision, precision,\n"
    "recall and F1 per class, and the most frequent confusions. Reads RESULTS without running anything in it.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics classification results.pkl                                 print a report
  mm-metrics classification results.pkl report/ --classes classes.txt   and write JSON, Markdown, CSV and a figure
  mm-metrics classification results.pkl --config configs/my_resnet.py   class names from the config (needs mmpretrain)
  mm-metrics classification results.pkl report/ --html                  and an HTML page
  mm-metrics classification results.pkl --format json

OUT_DIR receives report.json, report.md, per_class.csv, curves.png (ROC and precision-recall, of up to 100 classes)
and, where every sample has one class, confusion_matrix.csv and confusion_matrix.png (of more than 100 classes the 40
most confused ones; of more than 2,000, confusion_matrix.csv and report.json list the cells that are not 0); with --html
also report.html.""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("results", metavar="RESULTS", help="results.pkl of mmpretrain's tools/test.py --out")
    parser.add_argument("out_dir", metavar="OUT_DIR", nargs="?", help="folder for the files of the report")
    group = add_input_arguments(parser, detectors=False)
    group.add_argument("--config", metavar="FILE", help="mmpretrain config whose test dataset names the classes")
    add_option(
        group,
        "--score-thr",
        type=float,
        help=f"score threshold of a multi-label task (default: {MULTI_LABEL_SCORE_THR})",
    )
    add_task_argument(group)
    group = parser.add_argument_group("thresholds")
    add_option(
        group,
        "--at-specificity",
        type=float,
        help="report the sensitivity at a specificity of at least X (default: 0.95)",
    )
    add_option(
        group,
        "--at-sensitivity",
        type=float,
        help="report the specificity at a sensitivity of at least X (default: 0.95)",
    )
    add_interval_arguments(parser)
    add_output_arguments(parser, gallery=False)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate, write and print."""
    from mm_metrics_plugin.cli.output import deliver
    from mm_metrics_plugin.evaluation.classification import evaluate_classification

    options = {**reading_options(arguments), **given_options(arguments, ClassificationSettings)}
    deliver(arguments, lambda progress: evaluate_classification(arguments.results, progress=progress, **options))
