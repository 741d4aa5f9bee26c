"""Writes the parts of pages that repeat the code: the metric table, the help texts, and the messages for invalid input.

    python -m docs.generate

A part is between ``<!-- generated: NAME -->`` and ``<!-- end of generated text -->``.
tests/test_docs_generated.py fails if a page is out of date.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
COMMAND = "python -m docs.generate"
PART = re.compile(r"(?<=<!-- generated: )([^>]+)( -->\n).*?(?=<!-- end of generated text -->)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Every page with a generated part, as it should be."""
    found = {}
    for path in sorted(DOCS.glob("*/**/*.md")):
        text = path.read_text(encoding="utf-8")
        if "<!-- generated: " in text:
            found[path] = PART.sub(lambda match: match.group(1) + match.group(2) + _part(*match.group(1).split()), text)
    return found


def _part(name: str, *arguments: str) -> str:
    return {"help": help_text, "metrics": metric_table, "invalid-input": invalid_input_table}[name](*arguments) + "\n"


def metric_table() -> str:
    """Every metric, in the order of the sections of its page, with the first line of its docstring and its prefix."""
    import mm_metrics_plugin

    rows = ["| metric | description | prefix |", "|---|---|---|"]
    page = (DOCS / "en" / "reference" / "metrics.md").read_text(encoding="utf-8")
    for name in re.findall(r"^### `(\w+)`$", page, re.MULTILINE):
        metric = getattr(mm_metrics_plugin, name)
        summary = (inspect.getdoc(metric) or "").splitlines()[0].rstrip(".")
        rows.append(f"| [`{name}`](#{name.lower()}) | {summary} | `{metric.default_prefix}` |")
    return "\n".join(rows)


def help_text(subcommand: str) -> str:
    """The output of ``mm-metrics SUBCOMMAND --help`` on a terminal of 110 columns."""
    from mm_metrics_command import load

    with mock.patch.dict(os.environ, {"COLUMNS": "110"}):
        module = load("mm_metrics_plugin.cli").SUBCOMMANDS[subcommand]
        options = {key: value for key, value in module.PARSER.items() if key != "help"}
        parser = load("mm_metrics_plugin.cli.arguments").Parser(prog=f"mm-metrics {subcommand}", **options)
        module.add_arguments(parser)
        text = parser.format_help()
    return f"<!-- not run: made from the parser of the command -->\n```text\n{text}```"


def invalid_input_table(of: str) -> str:
    """The message for each invalid input that tests/integration/test_bad_input.py tries, ``of`` metrics or commands."""
    from tests.integration import test_bad_input as tests

    rows = ["| input | message |", "|---|---|"]
    for what, run, _ in {"metrics": tests.METRICS, "commands": tests.COMMANDS}[of]:
        with tempfile.TemporaryDirectory() as folder:
            message = run(Path(folder)).replace("|", "\\|")
        rows.append(f"| {what} | `{message}` |")
    return "\n".join(dict.fromkeys(rows))


def main() -> int:
    """Write the pages that are out of date, and print their names."""
    for path, text in pages().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
