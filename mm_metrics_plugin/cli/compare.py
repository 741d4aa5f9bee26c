"""``mm-metrics compare``: is one run significantly better than another?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Dict

from mm_metrics_plugin.cli.arguments import (
    INSIDE,
    ResultsAndFolder,
    add_gallery_arguments,
    add_input_arguments,
    add_interval_arguments,
    add_option,
    add_output_arguments,
    add_page_arguments,
    add_task_argument,
    add_threshold_arguments,
    add_truth_arguments,
    class_names,
    given_options,
)
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.settings import PERMUTATIONS, ClassificationSettings, ComparisonSettings, DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.cli.progress import Steps
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport

PARSER: Dict[str, Any] = dict(
    help="say which differences between runs are significant",
    usage="%(prog)s [TRUTH] A B [C ...] [OUT_DIR] [options]",
    description="Compares the results of two or more runs on the same images, each with the first: differences with\n"
    "confidence intervals and p-values, over all classes and per class, and the images that changed most.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics compare annotations.json old.pkl new.pkl              detectors
  mm-metrics compare annotations.json a.pkl b.pkl c.pkl report/    b and c, each with a
  mm-metrics compare old.pkl new.pkl --classes classes.txt         classifiers: the ground truth is in the results
  mm-metrics compare annotations.json a.pkl b.pkl report/ --html --images val2017/    and a page to look at

OUT_DIR receives comparison.json, comparison.md, differences.csv, changed_images.csv and, with --html, report.html.""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "truth",
        metavar="TRUTH",
        help="the ground truth of detectors, as in `mm-metrics detection`; left out, or -, if it is inside the "
        "results, as it is for classifiers",
    )
    parser.add_argument(
        "results",
        metavar="RUN",
        nargs="+",
        action=ResultsAndFolder,
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
    add_threshold_arguments(parser, classifiers=True)
    add_task_argument(add_truth_arguments(add_input_arguments(parser)))
    add_gallery_arguments(add_page_arguments(add_output_arguments(parser, verbose=False)))


def run(arguments: argparse.Namespace) -> None:
    """Compare, write and print."""
    from mm_metrics_plugin.cli.output import deliver
    from mm_metrics_plugin.evaluation.comparison import compare_runs

    truth, runs = arguments.truth, arguments.results
    if truth.lower().endswith((".pkl", ".pickle")):  # a pickle holds results: TRUTH was left out
        truth, runs = INSIDE, [truth, *runs]
    elif len(runs) < 2 and truth != INSIDE:
        raise ResultFileError(
            f"a comparison needs the results of at least two runs (found 1: {runs[0]}; {truth} is taken as the ground "
            "truth, which COCO results do not contain)"
        )
    options: Dict[str, Any] = {}
    for settings in (DetectionSettings, ClassificationSettings, ComparisonSettings):
        options.update(given_options(arguments, settings))

    def evaluate(progress: Steps) -> ComparisonReport:
        return compare_runs(
            None if truth == INSIDE else truth,
            runs,
            classes=class_names(arguments.classes),
            class_order=arguments.class_order,
            image_set=arguments.image_set,
            cfg_options=arguments.cfg_options,
            trust=arguments.trust,
            allow_missing=arguments.allow_missing,
            progress=progress,
            **options,
        )

    deliver(arguments, evaluate)
