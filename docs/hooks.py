"""What MkDocs does to the pages while it builds them; see mkdocs.yml. Pages made from other files: docs/generate.py."""

from __future__ import annotations

import os
import re
from pathlib import Path


def on_page_markdown(markdown: str, page, config, files) -> str:
    """The text of a page before it becomes HTML."""
    return without_outer_links(markdown, Path(page.file.src_uri).parent)


def without_outer_links(markdown: str, folder: Path) -> str:
    """Links to files of the project that are no pages become their names: the site stands without the project."""

    def name(match: re.Match) -> str:
        text, target = match.groups()
        path = os.path.normpath(os.path.join("docs", folder, target))
        if path.startswith("docs" + os.sep):
            return match.group()
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)#\s]+)\)", name, markdown)
