"""Tables and text of Markdown."""

from __future__ import annotations

from typing import Any, Iterable, List, Sequence

from mm_metrics_plugin.report.tables import cell, printable


def escape(text: str) -> str:
    r"""Text that means nothing to Markdown.

    Example:
        >>> print(escape("a|b *c*"))
        a\|b \*c\*
    """
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>#|" else sign for sign in printable(text))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> List[str]:
    """The lines of a table, numbers to the right.

    Example:
        >>> table(["class", "TP"], [["cat", 3]])
        ['| class | TP |', '| --- | ---: |', '| cat | 3 |']
    """
    rule = ["---"] + ["---:"] * (len(header) - 1)
    body = [[escape(cell(value)) for value in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in ([escape(name) for name in header], rule, *body)]
