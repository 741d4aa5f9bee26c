"""Results of concatenated data sets, laid out so that an evaluator can take the part of one data set."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError

# The entry of a sample that is counted in the entry of another one. Not None: mmengine removes that.
ELSEWHERE = 0


class Entry:
    """A state or a batch in the place of one sample.

    Args:
        content: The state or the batch.
        samples: How many samples it holds, the one in whose place it stands and others after it.
    """

    __slots__ = ("content", "samples")

    def __init__(self, content: Any, samples: int) -> None:
        self.content = content
        self.samples = samples


def whole_entries(results: Sequence[Any], name: str) -> Optional[List[Entry]]:
    """The entries of a part of the results; None if the results are not laid out in entries.

    Args:
        results: A part of the results, one entry a sample.
        name: How a message speaks of the metric.

    Raises:
        MetricInputError: The part begins or ends inside of what one entry holds.

    Example:
        >>> [entry.samples for entry in whole_entries([Entry("state", 2), ELSEWHERE, Entry("batch", 1)], "a metric")]
        [2, 1]
    """
    if not any(isinstance(one, Entry) or one == ELSEWHERE for one in results):
        return None
    entries = [one for one in results if isinstance(one, Entry)]
    held = sum(entry.samples for entry in entries)
    if held != len(results):
        raise MetricInputError(
            f"{name} cannot give the numbers of a part of the samples: the part has {len(results)} samples, and what "
            f"was added up belongs to {held}. Use mmengine's Evaluator, or evaluate each data set in a run of its own"
        )
    return entries


def cumulative_sizes(meta: Any) -> Optional[List[int]]:
    """Where the data sets of mmdet's ConcatDataset end, from its metainfo; None for any other data set.

    Example:
        >>> cumulative_sizes({"classes": ("a",), "cumulative_sizes": [3, 5]}), cumulative_sizes({"classes": ("a",)})
        ([3, 5], None)
    """
    first = meta[0] if isinstance(meta, Sequence) and len(meta) else meta
    found = first.get("cumulative_sizes") if isinstance(first, Mapping) else None
    return [int(end) for end in found] if found and found[-1] else None


def split_places(ends: Sequence[int], places: np.ndarray) -> Iterator[Tuple[int, int, int]]:
    """The runs of samples of one data set, as (data set, start, stop).

    Args:
        ends: Where the data sets end.
        places: The places of the samples. Those behind the last data set are padding, which starts over.

    Example:
        >>> list(split_places([3, 5], np.array([1, 2, 3, 4, 5])))
        [(0, 0, 2), (1, 2, 4), (0, 4, 5)]
    """
    dataset = np.searchsorted(ends, places % ends[-1], side="right")
    borders = [0, *(np.flatnonzero(np.diff(dataset)) + 1).tolist(), len(places)]
    for start, stop in zip(borders, borders[1:]):
        yield int(dataset[start]), start, stop
