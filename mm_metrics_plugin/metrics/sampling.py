"""Which samples of a process are padding, and to which of several concatenated datasets they belong."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError

# The fields that identify a sample in OpenMMLab.
_IDENTITY = ("sample_idx", "img_id", "img_path")


class Share(NamedTuple):
    """The number of samples of a process, and the identities of its first and last one (None if unknown)."""

    samples: int
    first: str | None = None
    last: str | None = None


class Padding(NamedTuple):
    """The processes whose last sample is padding, and a warning if this could not be verified."""

    ranks: tuple[int, ...] = ()
    warning: str | None = None


def sample_identity(sample: Any) -> str | None:
    """All of ``sample_idx``, ``img_id`` and ``img_path`` that a sample has; None if it has none.

    Example:
        >>> sample_identity({"img_id": 7, "img_path": "a.jpg"}), sample_identity({"gt_label": 0})
        ('img_id 7, img_path a.jpg', None)
    """
    get = getattr(sample, "get", None)
    if get is None:
        return None
    return ", ".join(f"{key} {get(key)}" for key in _IDENTITY if get(key) is not None) or None


def find_padding(shares: Sequence[Share], size: int) -> Padding:
    """Find the samples that a sampler repeats so that all processes have equally many.

    mmengine's ``DefaultSampler`` and torch's ``DistributedSampler`` give sample ``i`` of process ``r`` the index
    ``i * world_size + r`` and start over at index ``size``: padding is the last sample of a process, and it repeats the
    first sample of a process. If the numbers of samples fit this rule, the identities verify it.

    Args:
        shares: The samples of each process, in rank order.
        size: Number of samples of the dataset.

    Example:
        >>> find_padding([Share(3, "img_id 0", "img_id 4"), Share(3, "img_id 1", "img_id 0")], 5)
        Padding(ranks=(1,), warning=None)
        >>> find_padding([Share(3), Share(1)], 4)
        Padding(ranks=(), warning=None)
    """
    world_size, total = len(shares), sum(share.samples for share in shares)
    if world_size == 1 or size <= 0:
        return Padding()
    if total < size:  # a metric of some of the samples, such as one task of several
        return Padding(warning="Some of them may be padding that is counted twice" if size % world_size else None)
    if total == size:
        return Padding(warning=_repeated(shares) if size % world_size else None)
    per_rank, extra = -(-size // world_size), total - size
    counted = f"{extra} of them are padding, which was counted because it could not be identified"
    if any(share.samples != per_rank for share in shares):
        numbers = ", ".join(str(share.samples) for share in shares)
        return Padding(
            warning=f"{counted}: the processes read {numbers} samples, while mmengine's DefaultSampler gives each "
            f"{per_rank}"
        )
    ranks = tuple(range(world_size - extra, world_size))
    verified = True
    for rank in ranks:
        origin = ((per_rank - 1) * world_size + rank) % size  # the process whose first sample is repeated
        last, first = shares[rank].last, shares[origin].first
        if last is None or first is None:
            verified = False
        elif last != first:
            return Padding(
                warning=f"{counted}: the last sample of process {rank} ({last}) does not repeat the first of process "
                f"{origin} ({first}), as the padding of mmengine's DefaultSampler does"
            )
    if verified:
        return Padding(ranks)
    return Padding(
        ranks,
        f"The last sample of process {', '.join(map(str, ranks))} was left out as padding, because mmengine's "
        f"DefaultSampler adds it there; this could not be verified, because the samples have none of "
        f"{', '.join(_IDENTITY)}",
    )


def _repeated(shares: Sequence[Share]) -> str | None:
    """A warning if the last sample of a process is the first of another."""
    first = {share.first: rank for rank, share in reversed(list(enumerate(shares))) if share.first is not None}
    for rank, share in enumerate(shares):
        if share.last is not None and first.get(share.last, rank) != rank:
            return (
                f"The last of process {rank} ({share.last}) is also the first of process {first[share.last]}: it may "
                "be padding that is counted twice"
            )
    return None


# --- concatenated datasets -------------------------------------------------------------------------------------------

# The entry of a sample that is counted in another entry. Not None: mmengine removes None.
PLACEHOLDER = 0


class Entry:
    """A state or a batch in the place of one sample; it holds ``samples`` samples, this one and others after it."""

    __slots__ = ("content", "samples")

    def __init__(self, content: Any, samples: int) -> None:
        self.content = content
        self.samples = samples


def whole_entries(results: Sequence[Any], name: str) -> list[Entry] | None:
    """The entries of a slice of the results of the metric ``name``; None if the results have no entries.

    Raises:
        MetricInputError: The slice begins or ends inside an entry.

    Example:
        >>> [entry.samples for entry in whole_entries([Entry("state", 2), PLACEHOLDER, Entry("batch", 1)], "a metric")]
        [2, 1]
    """
    if not any(isinstance(result, Entry) or result == PLACEHOLDER for result in results):
        return None
    entries = [result for result in results if isinstance(result, Entry)]
    counted = sum(entry.samples for entry in entries)
    if counted != len(results):
        raise MetricInputError(
            f"{name} cannot evaluate a part of the samples: the part has {len(results)} samples, but its states hold "
            f"{counted}. Use mmengine's Evaluator, or evaluate each dataset in a separate run"
        )
    return entries


def cumulative_sizes(meta: Any) -> list[int] | None:
    """Where the datasets of mmdet's ConcatDataset end, from its metainfo; None for any other dataset.

    Example:
        >>> cumulative_sizes({"classes": ("a",), "cumulative_sizes": [3, 5]}), cumulative_sizes({"classes": ("a",)})
        ([3, 5], None)
    """
    first = meta[0] if isinstance(meta, Sequence) and len(meta) else meta
    sizes = first.get("cumulative_sizes") if isinstance(first, Mapping) else None
    return [int(end) for end in sizes] if sizes and sizes[-1] else None


def split_by_dataset(ends: Sequence[int], indices: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Runs of samples of one dataset, as (dataset, start, stop).

    Args:
        ends: Where the datasets end.
        indices: The indices of the samples. Those after the last dataset are padding, which starts over.

    Example:
        >>> list(split_by_dataset([3, 5], np.array([1, 2, 3, 4, 5])))
        [(0, 0, 2), (1, 2, 4), (0, 4, 5)]
    """
    dataset = np.searchsorted(ends, indices % ends[-1], side="right")
    borders = [0, *(np.flatnonzero(np.diff(dataset)) + 1).tolist(), len(indices)]
    for start, stop in zip(borders, borders[1:]):
        yield int(dataset[start]), start, stop
