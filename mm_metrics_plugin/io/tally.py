"""Nothing lost: how many were read, used, and dropped for which reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping

import numpy as np


@dataclass(frozen=True)
class Tally:
    """How many rows were read, how many used, and why the others were not. ``read`` is always the sum of the rest.

    Args:
        read (int): Rows in the file.
        used (int): Rows that are handed on.
        dropped (Mapping[str, int]): Rows left out, by reason.

    Examples:
        >>> Tally.of(np.array([True, True, True]), {"too small": np.array([False, True, False])}).to_dict()
        {'read': 3, 'used': 2, 'dropped': {'too small': 1}}
    """

    read: int
    used: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: np.ndarray, reasons: Mapping[str, np.ndarray]) -> Tally:
        """Count rows by the first reason that holds for each."""
        left = np.ones(len(rows), dtype=bool)
        dropped: Dict[str, int] = {}
        for reason, holds in reasons.items():
            dropped[reason] = int(np.count_nonzero(left & holds))
            left &= ~holds
        return cls(len(rows), int(np.count_nonzero(left)), {reason: n for reason, n in dropped.items() if n})

    def then(self, reason: str, dropped: int) -> Tally:
        """The tally after a later step dropped more of the rows used so far."""
        if not dropped:
            return self
        return Tally(self.read, self.used - dropped, {**self.dropped, reason: dropped})

    def to_dict(self) -> Dict[str, Any]:
        """As a plain dict."""
        return {"read": self.read, "used": self.used, "dropped": dict(self.dropped)}
