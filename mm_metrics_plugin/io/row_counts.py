"""Nothing lost: how many were read, used, and dropped for which reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Mapping

import numpy as np

# In the order in which they are looked at, which is the order in which a report names them.
REASONS = (
    "image not in the file",
    "marked 'ignore'",
    "empty",
    "outside the image",
    "corners swapped",
    "category not in the file",
    "class not chosen",
    "image not in the test set",
    "left out by the dataset",
    "removed by NMS",
)


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

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """Several tallies as one.

        Examples:
            >>> parts = [Tally(3, 2, {"removed by NMS": 1}), Tally(2, 1, {"class not chosen": 1})]
            >>> Tally.total(parts).to_dict()
            {'read': 5, 'used': 3, 'dropped': {'class not chosen': 1, 'removed by NMS': 1}}
        """
        tallies = list(tallies)
        dropped: Dict[str, int] = dict.fromkeys(REASONS, 0)
        for one in tallies:
            for reason, number in one.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + number
        return cls(
            sum(one.read for one in tallies),
            sum(one.used for one in tallies),
            {reason: number for reason, number in dropped.items() if number},
        )

    def to_dict(self) -> Dict[str, Any]:
        """As a plain dict."""
        return {"read": self.read, "used": self.used, "dropped": dict(self.dropped)}
