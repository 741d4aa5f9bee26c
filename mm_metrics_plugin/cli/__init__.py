"""The ``mm-metrics`` command: one file per subcommand. Nothing heavy is imported before the arguments are parsed."""

from __future__ import annotations

import argparse
import gc
import traceback
from functools import partial
from typing import Mapping, Sequence

from mm_metrics_plugin.cli import classification, compare, completion, detection, merge, report
from mm_metrics_plugin.cli.arguments import Parser, classes_hint
from mm_metrics_plugin.cli.streams import (
    discard_output,
    escape_control_characters,
    one_line,
    warnings_shown_by,
    with_flags,
    write_error,
    write_output,
)
from mm_metrics_plugin.exceptions import ClassNamesError
from mm_metrics_plugin.version import __version__

PROGRAM = "mm-metrics"
SUBCOMMANDS = {
    "detection": detection,
    "classification": classification,
    "compare": compare,
    "merge": merge,
    "report": report,
    "completion": completion,
}
EXAMPLES = """examples:
  mm-metrics detection annotations.json results.pkl report/ --html
  mm-metrics classification results.pkl report/ --html
  mm-metrics compare annotations.json old.pkl new.pkl
  mm-metrics merge part1.npz part2.npz report/
  mm-metrics report saved.npz report/ --html
  mm-metrics completion bash >> ~/.bashrc

mm-metrics SUBCOMMAND --help lists the options. python -m mm_metrics_plugin checks the installation."""
BAD_INPUT = 2
INTERRUPTED = 130  # as shells report a command that Ctrl-C ended


def make_parser() -> Parser:
    """The parser of the whole command."""
    parser = Parser(
        prog=PROGRAM,
        description="Evaluates result files of OpenMMLab's test tools.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    choices = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", parser_class=Parser)
    subparsers = {name: choices.add_parser(name, **module.PARSER) for name, module in SUBCOMMANDS.items()}
    for name, module in SUBCOMMANDS.items():
        module.add_arguments(subparsers[name])
    flags: dict[str, str] = {}
    for subparser in subparsers.values():
        flags.update(subparser.flags)
    for subparser in subparsers.values():
        subparser.set_defaults(flags={**flags, **subparser.flags})  # a message may name what another subcommand has
    return parser


def main(arguments: Sequence[str] | None = None, *, published: bool = False) -> int:
    """Run the command with the words after its name, by default those of the command line.

    With ``published``, a detection report ends with the lines of the published recipe.

    Returns:
        0; 2 if the input is invalid or the output cannot be written, with one line on stderr; 130 after Ctrl-C.
    """
    try:
        return _run(arguments, published)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return 0
    except OSError as error:  # help or version on a full device
        write_error(f"{PROGRAM}: {_message(error, {})}")
        return BAD_INPUT


def _run(arguments: Sequence[str] | None, published: bool) -> int:
    parser = make_parser()
    parsed = parser.parse_args(arguments)
    if parsed.subcommand is None:
        parser.print_help()
        return 0
    parsed.published = published
    module = SUBCOMMANDS[parsed.subcommand]
    from mm_metrics_plugin.states.distributed import launched_processes  # imports NumPy

    rank, world_size = launched_processes()
    if rank and module is not detection:  # only detection divides its work among processes
        return 0
    parsed.quiet = parsed.quiet or rank > 0
    collects = gc.isenabled()
    gc.disable()  # a report creates no cycles worth collecting, and collections take time
    with warnings_shown_by(None if parsed.quiet else partial(_show_warning, parsed.flags)):
        try:
            module.run(parsed)
            write_output("")  # raises here, not at exit, if the reader closed the pipe
        except BrokenPipeError:  # by a reader such as head
            discard_output()
        except Exception as error:
            if parsed.debug:
                write_error(escape_control_characters(traceback.format_exc()))
            # Invalid input is an error on every process; only the first prints it.
            if not rank or not isinstance(error, (ValueError, OSError)):
                hint = classes_hint(parsed) if isinstance(error, ClassNamesError) else ""
                place = f" (process {rank} of {world_size})" if rank else ""
                message = _message(error, parsed.flags, debug=parsed.debug)
                write_error(f"{PROGRAM} {parsed.subcommand}{place}: {message}{hint}")
            return BAD_INPUT
        finally:
            if collects:
                gc.enable()
    return 0


def _message(error: Exception, flags: Mapping[str, str], *, debug: bool = False) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(f"{error.filename}: {error.strerror}")
    if isinstance(error, ValueError):
        return one_line(with_flags(str(error), flags))
    return one_line(f"{type(error).__name__}: {error}{'' if debug else ' (--debug shows where)'}")


def _show_warning(flags: Mapping[str, str], message: str) -> None:
    write_error(f"{PROGRAM}: warning: {one_line(with_flags(message, flags))}")
