"""Tables and text of Markdown."""

from __future__ import annotations

import re
from typing import Any, Iterable, List, Sequence

from mm_metrics_plugin.render.tables import cell, printable


def escape(text: str) -> str:
    r"""Text that means nothing to Markdown.

    Example:
        >>> print(escape("a|b *c*"))
        a\|b \*c\*
    """
    return "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in printable(text))


_SIGNS = frozenset("\\`*_{}[]<>#|&~$")


def item(text: str) -> str:
    r"""A line of a list. A dash, or a number and a dot, at its beginning would make a list inside.

    Example:
        >>> print(item("1. cat"), item("- dog"), item("0.5 or more"), sep=chr(10))
        - 1\. cat
        - \- dog
        - 0.5 or more
    """
    return "- " + re.sub(r"^( *)(\d+(?=[.)](?: |$))|(?=[-+=]))", r"\1\2\\", escape(text))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> List[str]:
    """The lines of a table, numbers to the right.

    Example:
        >>> table(["class", "TP"], [["cat", 3]])
        ['| class | TP |', '| --- | ---: |', '| cat | 3 |']
    """
    rule = ["---"] + ["---:"] * (len(header) - 1)
    body = [[escape(cell(value)) for value in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in ([escape(name) for name in header], rule, *body)]
