"""Changes that no test notices, and why that is right: they alter nothing that is promised."""

from __future__ import annotations

import re
from typing import List, Tuple

# A module, a pattern for the line before, one for the line after, and the reason. The first that fits is taken.
REASONS: List[Tuple[str, str, str, str]] = []


def reason(module: str, before: str, after: str) -> str:
    """Why a change goes unnoticed, or nothing."""
    for where, old, new, why in REASONS:
        if where == module and re.search(old, before) and re.search(new, after):
            return why
    return ""
