"""Samples of a distributed evaluation: padding is left out, and no real sample is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.dataset import DefaultSampler
from mmengine.dist import get_rank
from torch.utils.data import BatchSampler, DistributedSampler

from mm_metrics_plugin import FieldSum, MetricWarning
from mm_metrics_plugin.metrics.padding import Share, find_padding
from mm_metrics_plugin.testing import run_processes
from tests.helpers.ranks import on_ranks


def samples_of(size, *, named=True):
    """Sample i is worth 10^i, so that the digits of a sum tell how often each was counted."""
    return [dict(value=10.0**index, **({"img_id": index} if named else {})) for index in range(size)]


def digits(found, size):
    return f"{int(found['field/sum']):0{size}d}"[::-1]


def evaluated(shares, size, *, named=True, batch_size=2):
    """How often each sample is counted if the ranks see these, and what is said about it."""
    samples = samples_of(size, named=named)

    def rank_of(rank):
        metric = FieldSum(field="value")
        for start in range(0, len(shares[rank]), batch_size):
            metric.process(None, [samples[index] for index in shares[rank][start : start + batch_size]])
        return metric.evaluate(size)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        found = on_ranks(len(shares), rank_of)
    assert all(one == found[0] for one in found)
    return digits(found[0], size), [str(one.message) for one in caught]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "shares",
    [
        [[0, 1, 2], [3]],
        [[0, 1, 2, 3], []],
        [[], [0, 1, 2, 3]],
        [[0], [1, 2, 3]],
        [[0, 1], [2, 3]],
        [[0, 2], [1, 3]],
        [[0, 2, 4], [1, 3]],  # round_up=False
        [[0, 1, 2], [3, 4], []],
        [[0], [], [], [1, 2, 3, 4]],
        [[0], [], []],
    ],
    ids=str,
)
def test_real_samples_are_never_dropped(shares, named):
    size = sum(map(len, shares))
    for batch_size in (1, 2, 5):
        assert evaluated(shares, size, named=named, batch_size=batch_size) == ("1" * size, [])


@pytest.mark.parametrize(
    ("shares", "size"),
    [([[0, 2, 4], [1, 3, 0]], 5), ([[0, 3, 6], [1, 4, 0], [2, 5, 1]], 7), ([[0], [1], [0]], 2), ([[0], [0], [0]], 1)],
    ids=str,
)
def test_padding_with_ids_is_dropped(shares, size):
    for batch_size in (1, 2, 5):
        assert evaluated(shares, size, batch_size=batch_size) == ("1" * size, [])


def test_padding_without_ids_is_dropped_with_a_warning():
    found, (message,) = evaluated([[0, 2, 4], [1, 3, 0]], 5, named=False)
    assert found == "11111"
    assert "The last sample of process 1 was left out as padding" in message
    assert "this could not be verified, because the samples have none of sample_idx, img_id, img_path" in message


@pytest.mark.parametrize(
    ("shares", "size", "counted", "words"),
    [
        # A sampler that deals neighbors and pads at the end of the last process.
        ([[0, 1, 2], [3, 4, 5], [6, 0, 1]], 7, "2211111", "the last sample of process 1 (img_id 5) does not repeat"),
        # A batch sampler that reorders the samples of a process: its padding does not come last.
        ([[0, 2, 4], [0, 1, 3]], 5, "21111", "the last sample of process 1 (img_id 3) does not repeat"),
        # As many samples as no sampler gives.
        ([[0, 1, 2], [3, 0]], 4, "2111", "the processes read 3, 2 samples"),
        # Some samples were not shown, so that the number is right by chance.
        ([[0, 2, 4], [1, 0]], 5, "21101", "may be padding that is counted twice"),
        ([[0, 2], [1, 0]], 5, "21100", "Some of them may be padding that is counted twice"),
    ],
)
def test_unidentified_padding_gives_a_warning(shares, size, counted, words):
    found, (message,) = evaluated(shares, size)
    assert found == counted and words in message


def flat(batches):
    return [index for batch in batches for index in batch]


def dealt_by(sampler, size, world_size):
    """What each rank gets of a sampler."""
    indices = range(size)
    if sampler in ("default", "no round_up", "batches"):

        def own(rank):
            inner = DefaultSampler(indices, shuffle=False, round_up=sampler != "no round_up")
            return flat(BatchSampler(inner, 3, drop_last=False)) if sampler == "batches" else list(inner)

        return on_ranks(world_size, own)
    if sampler == "shuffled":
        return on_ranks(world_size, lambda rank: list(DefaultSampler(indices, shuffle=True, seed=1)))
    if sampler == "torch":
        ranks = range(world_size)
        return [list(DistributedSampler(indices, world_size, rank, shuffle=False)) for rank in ranks]
    if sampler == "torch, drop_last":
        ranks = range(world_size)
        return [list(DistributedSampler(indices, world_size, rank, shuffle=False, drop_last=True)) for rank in ranks]
    per_rank = -(-size // world_size)
    padded = [*indices, *indices, *indices][: per_rank * world_size] if sampler == "contiguous, padded" else [*indices]
    return [padded[rank * per_rank : (rank + 1) * per_rank] for rank in range(world_size)]


INTERLEAVED = ("default", "batches", "shuffled", "torch", "no round_up")


@pytest.mark.parametrize("sampler", [*INTERLEAVED, "contiguous", "contiguous, padded", "torch, drop_last"])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_samplers(sampler, world_size):
    for size in (4, 5, 7, 8, 9, 12):
        shares = dealt_by(sampler, size, world_size)
        found, said = evaluated(shares, size)
        if sampler in (*INTERLEAVED, "contiguous"):
            assert (found, said) == ("1" * size, []), (size, shares)
        elif found != "1" * size and sampler != "torch, drop_last":  # which leaves samples out on purpose
            assert len(said) == 1 and "could not be identified" in said[0], (size, shares)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 12), st.integers(2, 5), st.booleans(), st.randoms(use_true_random=False))
def test_every_sample_counts_once_or_there_is_a_warning(size, world_size, named, random):
    """Random partitions, with and without repeated samples."""
    dealt = [*range(size), *(random.randrange(size) for _ in range(random.choice((0, 0, 1, world_size - 1))))]
    random.shuffle(dealt)
    cuts = sorted(random.randint(0, len(dealt)) for _ in range(world_size - 1))
    shares = [dealt[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(dealt)])]
    padding = find_padding(
        [Share(len(one), *((str(one[0]), str(one[-1])) if named and one else (None, None))) for one in shares],
        size,
    )
    kept = flat(one[:-1] if rank in padding.ranks else one for rank, one in enumerate(shares))
    if padding.warning is None:
        assert sorted(kept) == list(range(size))
    if len(dealt) == size:
        assert padding.ranks == ()


def on_a_process(job):
    shares, size = job
    samples = samples_of(size)
    metric = FieldSum(field="value")
    metric.process(None, [samples[index] for index in shares[get_rank()]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        found = metric.evaluate(size)
    return digits(found, size), len(caught)


def test_real_processes():
    jobs = [
        ([[0, 1, 2], [3]], 4),
        ([[0, 1, 2, 3], []], 4),
        ([[0, 2, 4], [1, 3, 0]], 5),
        ([[0, 2, 4], [0, 1, 3]], 5),
        ([[0, 1], [2, 3]], 4),
    ]
    found = run_processes(2, on_a_process, jobs)
    assert [one[0][0] for one in found] == ["1111", "1111", "11111", "21111", "1111"]
    assert all(one[0][0] == one[1][0] for one in found)
    assert [[said for _, said in one] for one in found] == [[0, 0], [0, 0], [0, 0], [1, 0], [0, 0]]


def test_mmdets_aspect_ratio_batch_sampler_counts_once_or_warns():
    from mmdet.datasets.samplers import AspectRatioBatchSampler

    class Shapes:
        def __init__(self, wide):
            self.wide = wide

        def __len__(self):
            return len(self.wide)

        def get_data_info(self, index):
            return dict(width=3 if self.wide[index] else 1, height=2)

    generator = np.random.default_rng(0)
    told = 0
    for size in (4, 5, 6, 7):
        for _ in range(5):
            data = Shapes(generator.random(size) < 0.5)

            def own(rank, data=data):
                return flat(AspectRatioBatchSampler(DefaultSampler(data, shuffle=False), 2))

            found, said = evaluated(on_ranks(2, own), size)
            assert found == "1" * size or len(said) == 1
            told += len(said)
    assert told > 0
