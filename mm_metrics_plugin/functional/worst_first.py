"""The first few of each of many groups, the worst first: what a reader is shown of a crowded cell."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import position_in_group


def worst_first(
    group: np.ndarray, badness: np.ndarray, *ties: np.ndarray, per_group: int = 50, most: int = 20_000
) -> Tuple[np.ndarray, int]:
    """Rows in the order of their groups, in each group the worst first, and how many a group were let in.

    Args:
        group: (N,) the group of each row.
        badness: (N,) how bad each row is.
        *ties: (N,) each; what decides between equally bad rows, the lesser first.
        per_group: Give no more than so many of a group,
        most: and fewer if all groups together would give more than this; one of a group is always given.

    Example:
        >>> worst_first(np.array([1, 0, 1, 1]), np.array([0.1, 0.5, 0.9, 0.3]), per_group=2)
        (array([1, 2, 3]), 2)
    """
    counts = np.unique(group, return_counts=True)[1]
    limit = per_group
    while limit > 1 and int(np.minimum(counts, limit).sum()) > most:
        limit -= 1
    order = np.lexsort((*ties[::-1], -badness, group))
    return order[position_in_group(group[order]) < limit], limit
