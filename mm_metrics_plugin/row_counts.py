"""How many rows of an input were read, used, and dropped for which reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

import numpy as np

# In the order in which rows are checked, which is the order in reports.
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
class RowCounts:
    """How many rows were read, used, and dropped for which reason. ``read`` is the sum of the others.

    Args:
        read: Rows in the file.
        used: Rows that are evaluated.
        dropped: Dropped rows by reason.
    """

    read: int
    used: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def select(cls, reasons: Mapping[str, np.ndarray]) -> tuple[np.ndarray, RowCounts]:
        """Which rows no reason to drop them applies to, and the counts, with each dropped row under its first reason.

        Args:
            reasons: For each reason, a mask of the rows it applies to.
        """
        masks = np.stack(list(reasons.values()))
        drop: np.ndarray = np.logical_or.reduce(masks)
        first = np.bincount(masks.argmax(axis=0)[drop], minlength=len(masks)).tolist()
        dropped = {reason: number for reason, number in zip(reasons, first) if number}
        return ~drop, cls(len(drop), int(np.count_nonzero(~drop)), dropped)

    def drop(self, reason: str, dropped: int) -> RowCounts:
        """The counts after a later step dropped more rows."""
        if not dropped:
            return self
        return RowCounts(self.read, self.used - dropped, {**self.dropped, reason: dropped})

    @classmethod
    def total(cls, counts: Iterable[RowCounts]) -> RowCounts:
        """The sum of several counts, with the reasons in the order of reports."""
        counts = list(counts)
        dropped: dict[str, int] = dict.fromkeys(REASONS, 0)
        for part in counts:
            for reason, number in part.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + number
        return cls(
            sum(part.read for part in counts),
            sum(part.used for part in counts),
            {reason: number for reason, number in dropped.items() if number},
        )

    def to_dict(self) -> dict[str, Any]:
        """As a plain dict."""
        return {"read": self.read, "used": self.used, "dropped": dict(self.dropped)}
