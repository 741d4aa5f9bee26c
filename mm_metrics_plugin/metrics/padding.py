"""Which samples of a distributed evaluation are padding."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple

# What names a sample, as OpenMMLab's data samples have it.
_IDENTITY = ("sample_idx", "img_id", "img_path")


class Share(NamedTuple):
    """What a process tells the others of its samples.

    Attributes:
        samples: How many samples it has seen.
        first: What names the first of them; None if nothing does.
        last: What names the last of them.
    """

    samples: int
    first: Optional[str] = None
    last: Optional[str] = None


class Padding(NamedTuple):
    """What is known of the padding.

    Attributes:
        ranks: The processes whose last sample is padding.
        doubt: What could not be verified; None if nothing is in doubt.
    """

    ranks: Tuple[int, ...] = ()
    doubt: Optional[str] = None


def sample_identity(sample: Any) -> Optional[str]:
    """What names a sample: all of ``sample_idx``, ``img_id`` and ``img_path`` that it has; None if it has none.

    Example:
        >>> sample_identity({"img_id": 7, "img_path": "a.jpg"}), sample_identity({"gt_label": 0})
        ('img_id 7, img_path a.jpg', None)
    """
    get = getattr(sample, "get", None)
    if get is None:
        return None
    return ", ".join(f"{key} {get(key)}" for key in _IDENTITY if get(key) is not None) or None


def find_padding(shares: Sequence[Share], size: int) -> Padding:
    """Find the samples by which the processes exceed the data set.

    Only what exceeds ``size`` can be padding. mmengine's ``DefaultSampler`` and torch's ``DistributedSampler`` give
    sample ``i`` of process ``r`` the place ``i * world_size + r`` and start over at place ``size``, so that all
    processes have equally many samples: a process has at most one sample of padding, its last, and it repeats the first
    sample of a process. Where the numbers of samples fit this rule, the names of the samples verify it.

    Args:
        shares: What each process has seen, in rank order.
        size: How many samples the data set has.

    Example:
        >>> find_padding([Share(3, "img_id 0", "img_id 4"), Share(3, "img_id 1", "img_id 0")], 5)
        Padding(ranks=(1,), doubt=None)
        >>> find_padding([Share(3), Share(1)], 4)
        Padding(ranks=(), doubt=None)
    """
    world_size, total = len(shares), sum(share.samples for share in shares)
    if world_size == 1 or size <= 0:
        return Padding()
    if total < size:
        # A metric that is shown some of the samples only, such as one task of several.
        return Padding(doubt="Some of them may be padding that is counted twice" if size % world_size else None)
    if total == size:
        return Padding(doubt=_repeated(shares) if size % world_size else None)
    per_rank, extra = -(-size // world_size), total - size
    if any(share.samples != per_rank for share in shares):
        numbers = ", ".join(str(share.samples) for share in shares)
        return Padding(
            doubt=f"{extra} of them are padding, which was counted because it could not be identified: the processes "
            f"saw {numbers} samples, where mmengine's DefaultSampler gives each {per_rank}"
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
                doubt=f"{extra} of them are padding, which was counted because it could not be identified: the last "
                f"sample of process {rank} ({last}) does not repeat the first of process {origin} ({first}), as the "
                "padding of mmengine's DefaultSampler does"
            )
    if verified:
        return Padding(ranks)
    return Padding(
        ranks,
        f"The last sample of process {', '.join(map(str, ranks))} was left out as padding, because mmengine's "
        f"DefaultSampler adds it there; this could not be verified, because the samples have none of "
        f"{', '.join(_IDENTITY)}",
    )


def _repeated(shares: Sequence[Share]) -> Optional[str]:
    """A doubt if the last sample of a process is the first of another, as padding is."""
    first = {share.first: rank for rank, share in reversed(list(enumerate(shares))) if share.first is not None}
    for rank, share in enumerate(shares):
        if share.last is not None and first.get(share.last, rank) != rank:
            return (
                f"The last of process {rank} ({share.last}) is also the first of process {first[share.last]}: it may "
                "be padding that is counted twice"
            )
    return None
