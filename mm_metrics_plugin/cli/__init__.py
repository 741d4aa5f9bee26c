"""The ``mm-metrics`` command: one file a subcommand. Nothing heavy is imported before it is known what to do."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from typing import Any, NoReturn, Optional, Sequence

from mm_metrics_plugin.cli import classification, compare, detection, merge
from mm_metrics_plugin.cli.parsing import Parser, one_line
from mm_metrics_plugin.version import __version__

PROGRAM = "mm-metrics"
SUBCOMMANDS = {"detection": detection, "classification": classification, "compare": compare, "merge": merge}
BAD_INPUT = 2
INTERRUPTED = 130  # as a shell says of a command that Ctrl-C ended


def make_parser() -> Parser:
    """The parser of the whole command.

    Example:
        >>> make_parser().parse_args(["detection", "truth.json", "results.pkl"]).score_thr
        0.3
    """
    parser = Parser(prog=PROGRAM, description="Reports from the result files of OpenMMLab's tools.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    choices = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True, parser_class=Parser)
    for name, module in SUBCOMMANDS.items():
        module.add_arguments(choices.add_parser(name, **module.PARSER))
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command.

    Args:
        arguments: What stands behind the program's name; taken from the command line by default.

    Returns:
        0; 2 if the input is bad or the output cannot be written, which one line on stderr explains; 130 after Ctrl-C.
    """
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: Optional[Sequence[str]]) -> int:
    parsed = make_parser().parse_args(arguments)
    collects = gc.isenabled()
    gc.disable()  # a report is over before anything worth collecting has gathered, and looking for it takes its time
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            SUBCOMMANDS[parsed.subcommand].run(parsed)
            sys.stdout.flush()
        except BrokenPipeError:  # who read our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as error:
            if parsed.debug:
                raise
            if os.environ.get("RANK", "0") == "0":  # of several processes one speaks for all
                print(f"{PROGRAM} {parsed.subcommand}: {_message(error)}", file=sys.stderr)
            return BAD_INPUT
        finally:
            if collects:
                gc.enable()
    return 0


def script(subcommand: str) -> NoReturn:
    """Run a subcommand as a script of its own, as those under tools/ do."""
    sys.exit(main([subcommand, *sys.argv[1:]]))


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(f"{error.filename}: {error.strerror}")
    if isinstance(error, ValueError):
        return one_line(str(error))
    return one_line(f"{type(error).__name__}: {error} (--debug shows where)")


def _show_warning(message: Any, category: Any, *place: Any, **more: Any) -> None:
    print(f"{PROGRAM}: warning: {one_line(str(message))}", file=sys.stderr)
