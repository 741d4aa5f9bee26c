"""``mm-metrics report``: a saved report in every format."""

from __future__ import annotations

import argparse
from typing import Any

from mm_metrics_plugin.cli.arguments import add_output_arguments

PARSER: dict[str, Any] = dict(
    help="a report that was saved with --save-state, in any format",
    usage="%(prog)s STATE.npz [OUT_DIR] [options]",
    description="Prints a saved report and writes its files, figures and page, without the inputs it was made from.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics detection annotations.json results.pkl --save-state saved.npz
  mm-metrics report saved.npz report/ --html""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("state", metavar="STATE.npz", help="a file that --save-state or report.save_state() wrote")
    parser.add_argument("out_dir", metavar="OUT_DIR", nargs="?", help="the folder for the files of the report")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Read, write and print."""
    from mm_metrics_plugin.cli.output import deliver
    from mm_metrics_plugin.evaluation.detection import merge_states

    deliver(arguments, lambda progress: merge_states([arguments.state], progress=progress))
