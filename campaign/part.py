"""A part of the campaign, and the figures it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, List


@dataclass
class Figure:
    """One thing that was measured, beside what is asked of it."""

    what: str
    asked: str
    found: str
    good: bool


@dataclass
class Figures:
    """What a part found: a row for each thing measured, and text to stand below the table."""

    rows: List[Figure] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)

    def add(self, what: str, asked: str, found: str, good: bool) -> None:
        """Keeps a row, and prints it at once: a part can take long."""
        self.rows.append(Figure(what, asked, found, good))
        print(f"  {'ok  ' if good else 'FAIL'} {what}: {found} (asked: {asked})", flush=True)

    @property
    def good(self) -> bool:
        """Whether everything asked was found, and anything was measured at all."""
        return bool(self.rows) and all(row.good for row in self.rows)


@dataclass
class Part:
    """A part: its name on the command line, its heading in the document, what it shows, and how it is run."""

    name: str
    title: str
    about: str
    run: Callable[[], Figures]
