"""``mm-metrics compare``: is one run significantly better than another?"""

from __future__ import annotations

import argparse
from typing import Any

from mm_metrics_plugin.cli.arguments import (
    IN_RESULTS,
    FilesAndFolder,
    add_input_arguments,
    add_interval_arguments,
    add_operating_point_argument,
    add_option,
    add_output_arguments,
    add_shape_arguments,
    add_task_argument,
    add_threshold_arguments,
    given_options,
    reading_options,
)
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.settings import PERMUTATIONS, ClassificationSettings, ComparisonSettings, DetectionSettings

PARSER: dict[str, Any] = dict(
    help="say which differences between runs are significant",
    usage="%(prog)s [GROUND_TRUTH] A B [C ...] [OUT_DIR] [options]",
    description="Compares the results of two or more runs on the same images, each with the first: differences with\n"
    "confidence intervals and p-values, over all classes and per class, and the images that changed most.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics compare annotations.json old.pkl new.pkl              detectors
  mm-metrics compare annotations.json a.pkl b.pkl c.pkl report/    b and c, each with a
  mm-metrics compare annotations.json old.pkl new.pkl --operating-point f1    each at its own score threshold
  mm-metrics compare old.pkl new.pkl --classes classes.txt         classifiers: the results contain the ground truth
  mm-metrics compare annotations.json a.pkl b.pkl report/ --html --images val2017/    and an HTML page

OUT_DIR receives comparison.json, comparison.md, differences.csv, changed_images.csv and, with --html, report.html.""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "ground_truth",
        metavar="GROUND_TRUTH",
        help="ground truth of detectors, as in `mm-metrics detection`; omit it, or give -, if the results contain it, "
        "as those of classifiers do",
    )
    parser.add_argument(
        "results",
        metavar="RUN",
        nargs="+",
        action=FilesAndFolder,
        help="results of each run, the baseline first. Optionally followed by OUT_DIR",
    )
    parser.set_defaults(out_dir=None)
    group = add_interval_arguments(parser, ci="0.95", drawn="permutations")
    add_option(
        group,
        "--permutations",
        type=int,
        help=f"permutations of the paired permutation test (default: {PERMUTATIONS})",
    )
    add_shape_arguments(parser)
    add_operating_point_argument(
        add_threshold_arguments(parser, classifiers=True),
        "compare each run at its own best score threshold, for all classes pooled, by RULE: {rules}. The threshold of "
        "an image is selected on other images (5 folds)",
    )
    add_task_argument(add_input_arguments(parser))
    add_output_arguments(parser, verbose=False)


def run(arguments: argparse.Namespace) -> None:
    """Compare, write and print."""
    from mm_metrics_plugin.cli.output import deliver
    from mm_metrics_plugin.evaluation.comparison import compare_runs

    runs = arguments.results
    if arguments.ground_truth.lower().endswith((".pkl", ".pickle")):  # results: GROUND_TRUTH was omitted
        arguments.ground_truth, runs = IN_RESULTS, [arguments.ground_truth, *runs]
    elif len(runs) < 2 and arguments.ground_truth != IN_RESULTS:
        raise ResultFileError(
            f"a comparison needs the results of at least two runs (found 1: {runs[0]}; {arguments.ground_truth} is the "
            "ground truth, which COCO results do not contain)"
        )
    options = reading_options(arguments)
    for settings in (DetectionSettings, ClassificationSettings, ComparisonSettings):
        options.update(given_options(arguments, settings))
    deliver(arguments, lambda progress: compare_runs(runs=runs, progress=progress, **options))
