"""``docs/campaign.md``: one section a part, rewritten when the part is run, kept with its date when it is not."""

from __future__ import annotations

import datetime
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Dict, List

from campaign.part import Figures, Part

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "campaign.md"
HEAD = """# The campaign

Written by `make campaign`; `make campaign PARTS="memory golden"` runs some parts and keeps the figures of the others,
each with the date and the versions it was measured with. A figure that misses what is asked makes the command fail.
"""


def sections_of(text: str) -> Dict[str, str]:
    """The sections of a document by their heading, in order."""
    pieces = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)[1:]
    return {heading: body.strip("\n") for heading, body in zip(pieces[::2], pieces[1::2])}


def section(part: Part, figures: Figures, seconds: float) -> str:
    """The text of a part's section."""
    lines = [part.about, "", f"Measured {datetime.date.today()}, in {duration(seconds)}, with {versions()}.", ""]
    lines += ["| | asked | found | |", "|---|---|---|---|"]
    for row in figures.rows:
        cells = [cell.replace("|", "\\|") for cell in (row.what, row.asked, row.found)]
        lines.append(f"| {' | '.join(cells)} | {'yes' if row.good else '**no**'} |")
    for note in figures.notes:
        lines += ["", note]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """A span of time as people say it."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def versions() -> str:
    """What the figures depend on, in one line."""
    found: List[str] = [f"Python {platform.python_version()}"]
    for name in ("numpy", "scipy", "scikit-learn", "torch", "mmengine", "mmdet", "mmpretrain", "hypothesis"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def write(parts: List[Part], texts: Dict[str, str], path: Path = DOCUMENT) -> None:
    """Writes the document: new texts by the name of their part, the old text of every other part that had one."""
    old = sections_of(path.read_text(encoding="utf-8")) if path.exists() else {}
    pieces = [HEAD]
    for part in parts:
        text = texts.get(part.name, old.get(part.title))
        if text is not None:
            pieces.append(f"## {part.title}\n\n{text}\n")
    path.write_text("\n".join(pieces), encoding="utf-8")
