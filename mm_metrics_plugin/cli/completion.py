"""``mm-metrics completion``: a completion script for bash or zsh, generated from the parser."""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh")
PARSER: dict[str, Any] = dict(
    help="print a completion script for bash or zsh",
    usage="%(prog)s bash|zsh",
    description="Prints a script that completes subcommands, options and their values.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics completion bash >> ~/.bashrc
  mm-metrics completion zsh >> ~/.zshrc""",
)
_SCRIPT = """\
_mm_metrics() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    if [[ $COMP_CWORD -eq 1 ]]; then
        words="{subcommands}"
    else
        case "${{COMP_WORDS[1]}} $previous" in
{values}
        *)
            if [[ $current == -* ]]; then
                case "${{COMP_WORDS[1]}}" in
{options}
                esac
            fi ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _mm_metrics mm-metrics
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    parser.set_defaults(quiet=False, debug=False)


def run(arguments: argparse.Namespace) -> None:
    """Print the script. The shell completes file names where no option or value fits."""
    from mm_metrics_plugin.cli import make_parser
    from mm_metrics_plugin.cli.streams import write_output

    (subcommands,) = (action for action in make_parser()._actions if action.dest == "subcommand")
    choices: Any = subcommands.choices
    values: list[str] = []
    options: list[str] = []
    for name, subparser in choices.items():
        flags: list[str] = []
        for action in subparser._actions:
            names = [flag for flag in action.option_strings if flag.startswith("--")]
            flags += [] if action.help == argparse.SUPPRESS else names
            if action.choices:
                patterns = [f'"{name} {flag}"' for flag in names] or [f'"{name} {name}"']
                values.append(f'        {"|".join(patterns)}) words="{" ".join(action.choices)}" ;;')
        options.append(f'                {name}) words="{" ".join(flags)}" ;;')
    script = _SCRIPT.format(
        subcommands=" ".join([*choices, "--help", "--version"]), values="\n".join(values), options="\n".join(options)
    )
    write_output(script if arguments.shell == "bash" else _ZSH + script)
