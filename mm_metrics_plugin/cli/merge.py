"""``mm-metrics merge``: one report from states that were saved shard by shard."""

from __future__ import annotations

import argparse
from typing import Any

from mm_metrics_plugin.cli.arguments import FilesAndFolder, add_output_arguments

PARSER: dict[str, Any] = dict(
    help="one report from states saved with --save-state",
    usage="%(prog)s STATE.npz [STATE.npz ...] [OUT_DIR] [options]",
    description="Makes one report from states that were saved shard by shard, with exactly the numbers of one run on\n"
    "all images. The shards must have the same classes and settings, share no image, and together hold every image\n"
    "of the ground truth.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics detection annotations.json part1.pkl --save-state part1.npz
  mm-metrics detection annotations.json part2.pkl --save-state part2.npz
  mm-metrics merge part1.npz part2.npz report/ --html""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "states",
        metavar="STATE.npz",
        nargs="+",
        action=FilesAndFolder,
        suffixes=(".npz",),
        help="files that --save-state wrote. Optionally followed by OUT_DIR, the folder for the files",
    )
    parser.set_defaults(out_dir=None)
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Merge, write and print."""
    from mm_metrics_plugin.cli.output import deliver
    from mm_metrics_plugin.evaluation.detection import merge_states

    deliver(arguments, lambda progress: merge_states(arguments.states, progress=progress))
