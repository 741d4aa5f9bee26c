"""Find samples that are not of this evaluation: the padding of samplers, and samples of an interrupted evaluation."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from mm_metrics_plugin.exceptions import MetricInputError

# The fields that identify a sample in OpenMMLab.
_IDENTITY = ("sample_idx", "id", "img_id", "img_path")


class SamplesOfRank(NamedTuple):
    """The number of samples of a process, and the identities of its first and last one (None if unknown)."""

    samples: int
    first: str | None = None
    last: str | None = None
    earlier: int = 0  # number of samples that were read before the first batch came again


class Padding(NamedTuple):
    """The processes whose last sample is padding, and a warning if this could not be verified."""

    ranks: tuple[int, ...] = ()
    warning: str | None = None
    counts_earlier: bool = False  # whether the samples before the first batch came again belong to the evaluation


def sample_identity(sample: Mapping[str, Any]) -> str | None:
    """All of ``sample_idx``, ``id``, ``img_id`` and ``img_path`` that a sample has; None if it has none."""
    return ", ".join(f"{key} {sample.get(key)}" for key in _IDENTITY if sample.get(key) is not None) or None


def find_padding(shares: Sequence[SamplesOfRank], size: int) -> Padding:
    """Find the samples that a sampler repeats so that all processes have equally many.

    mmengine's ``DefaultSampler`` and torch's ``DistributedSampler`` give sample ``i`` of process ``r`` the index
    ``i * world_size + r`` and start over at index ``size``: padding is the last sample of a process, and it repeats the
    first sample of a process. If the numbers of samples fit this rule, the identities verify it.

    Raises:
        MetricInputError: A process read more samples than the dataset has for it.
    """
    if any(share.earlier for share in shares):
        current, whole = ([_with_earlier(share, counts) for share in shares] for counts in (False, True))
        # A dataset with the same samples twice is complete with the earlier ones, which are else of another evaluation.
        # That would have begun again on every process.
        began_again = all(share.earlier for share in shares) and _complete(current, size)
        if size <= 0 or (_complete(whole, size) and not began_again):
            return find_padding(whole, size)._replace(counts_earlier=True)
        return find_padding(current, size)
    world_size, total = len(shares), sum(share.samples for share in shares)
    if size <= 0:
        return Padding()
    per_rank, extra = -(-size // world_size), total - size
    numbers = ", ".join(str(share.samples) for share in shares)
    if extra > 0 and any(share.samples > per_rank for share in shares):
        raise too_many_samples(f"{numbers} samples" + f" on {world_size} processes" * (world_size > 1), f"{size}")
    if world_size == 1:
        return Padding()
    if total < size:  # a metric of some of the samples, such as one task of several
        return Padding(warning="Some of them may be padding that is counted twice" if size % world_size else None)
    if total == size:
        return Padding(warning=_repeated(shares) if size % world_size else None)
    counted = f"{extra} of them are padding, which was counted because it could not be identified"
    if any(share.samples != per_rank for share in shares):
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


def too_many_samples(found: str, expected: str) -> MetricInputError:
    """The error of a metric that read more samples than the dataset has."""
    return MetricInputError(
        f"read {found}, but the dataset has {expected}: samples of an interrupted evaluation may be among them. "
        "Evaluate again, which starts without them, as EvaluationCheckHook makes every evaluation do; "
        "evaluate(size=...) needs the number of samples"
    )


def _with_earlier(share: SamplesOfRank, counts: bool) -> SamplesOfRank:
    return share._replace(samples=share.samples + share.earlier * counts, earlier=0)


def _complete(shares: Sequence[SamplesOfRank], size: int) -> bool:
    """Whether the processes read the whole dataset, with padding or without."""
    samples = [share.samples for share in shares]
    return sum(samples) == size or set(samples) == {-(-size // len(samples))}


def _repeated(shares: Sequence[SamplesOfRank]) -> str | None:
    """A warning if the last sample of a process is the first of another."""
    first = {share.first: rank for rank, share in reversed(list(enumerate(shares))) if share.first is not None}
    for rank, share in enumerate(shares):
        if share.last is not None and first.get(share.last, rank) != rank:
            return (
                f"The last of process {rank} ({share.last}) is also the first of process {first[share.last]}: it may "
                "be padding that is counted twice"
            )
    return None
