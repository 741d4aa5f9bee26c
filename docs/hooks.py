"""What MkDocs does to the pages while it builds them; see mkdocs.yml.

Pages that would only repeat what stands elsewhere are made from there: the home pages from the READMEs, the options of
the command from its parser, the list of messages from the code that raises them.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mm_metrics_plugin"
# How errors are made in the code, and what reaches the user.
RAISED = {
    "MetricInputError": "MetricInputError",
    "ResultFileError": "ResultFileError",
    "Damaged": "ResultFileError",
    "UnsafePickleError": "UnsafePickleError",
    "Forbidden": "UnsafePickleError",
    "ValueError": "ValueError",
    "check_together": "ValueError",
    "ArgumentTypeError": "the command line",
}


def on_page_markdown(markdown: str, page, config, files) -> str:
    """The text of a page before it becomes HTML."""
    markdown = re.sub(
        r"^<!-- include: (\S+) -->$", lambda match: included(match.group(1)), markdown, flags=re.MULTILINE
    )
    markdown = re.sub(r"^<!-- help: (\w+) -->$", lambda match: help_text(match.group(1)), markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^<!-- messages -->$", lambda match: message_lists(), markdown, flags=re.MULTILINE)
    return without_outer_links(markdown, Path(page.file.src_uri).parent)


def included(name: str) -> str:
    """A document of the project's folder, its links as seen from docs/."""
    pages = {"README.md": "index.md", "README_zh-CN.md": "zh.md"}

    def seen_from_docs(match: re.Match) -> str:
        target = match.group(1)
        if target.startswith("docs/"):
            return f"]({target[len('docs/') :]}"
        return f"]({pages.get(target, '../' + target)}"

    text = (ROOT / name).read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?://|#)([^)#\s]+)", seen_from_docs, text)


def without_outer_links(markdown: str, folder: Path) -> str:
    """Links to files of the project that are no pages become their names: the site stands without the project."""

    def name(match: re.Match) -> str:
        text, target = match.groups()
        path = os.path.normpath(os.path.join("docs", folder, target))
        if path.startswith("docs" + os.sep):
            return match.group()
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)#\s]+)\)", name, markdown)


def help_text(subcommand: str) -> str:
    """What ``mm-metrics SUBCOMMAND --help`` prints."""
    from mm_metrics_plugin.cli import SUBCOMMANDS
    from mm_metrics_plugin.cli.parsing import Parser

    os.environ["COLUMNS"] = "110"
    module = SUBCOMMANDS[subcommand]
    options = {key: value for key, value in module.PARSER.items() if key != "help"}
    parser = Parser(prog=f"mm-metrics {subcommand}", **options)
    module.add_arguments(parser)
    return f"```text\n{parser.format_help()}```"


def message_lists() -> str:
    """Every message this package raises, by class, with the file it comes from."""
    found: Dict[str, List[str]] = {kind: [] for kind in RAISED.values()}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        for kind, message in messages(path.read_text(encoding="utf-8")):
            found[kind].append(f"| `{message.replace('|', chr(92) + '|').replace('`', chr(39))}` | `{place}` |")
    head = ["", "| message | from |", "|---|---|"]
    return "\n\n".join("\n".join([f"### {kind}", *head, *dict.fromkeys(rows)]) for kind, rows in found.items())


def messages(source: str) -> Iterator[Tuple[str, str]]:
    """The class and the wording of every message in a source; what is filled in stands in braces."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            at = 1 if name == "check_together" else 0
            text = wording(node.args[at]) if name in RAISED and len(node.args) > at else ""
            if len(text.split()) > 2:
                yield RAISED[name], text


def wording(node: ast.expr) -> str:
    """A message as it is written, with the names of what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
            for part in node.values
        )
    return ""
