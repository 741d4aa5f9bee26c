"""Padding of distributed samplers is left out, and no other sample is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.dataset import DefaultSampler
from torch.utils.data import DistributedSampler

from mm_metrics_plugin import FieldSum, MetricInputError, MetricWarning
from mm_metrics_plugin.metrics.padding import SamplesOfRank, find_padding
from tests.helpers.ranks import on_ranks


def evaluated(shares, size, *, named=True, batch_size=2):
    """How often each sample is counted if the ranks read these, and the warnings.

    Sample i has the value 10^i, so that the digits of the sum are the counts.
    """
    samples = [dict(value=10.0**index, **({"img_id": index} if named else {})) for index in range(size)]

    def evaluate(rank):
        metric = FieldSum(field="value")
        for start in range(0, len(shares[rank]), batch_size):
            metric.process(None, [samples[index] for index in shares[rank][start : start + batch_size]])
        return metric.evaluate(size)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # such as files that other tests left open
        warnings.simplefilter("always", MetricWarning)
        results = on_ranks(len(shares), evaluate)
    assert all(result == results[0] for result in results)
    return f"{int(results[0]['field/sum']):0{size}d}"[::-1], [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("shares", "size"),
    [
        ([[0, 1, 2], [3]], 4),
        ([[0, 1, 2, 3], []], 4),
        ([[0, 1], [2, 3]], 4),
        ([[0, 2, 4], [1, 3]], 5),  # round_up=False
        ([[0], [], [], [1, 2, 3, 4]], 5),
        ([[0], [], []], 1),
        ([[0, 2, 4], [1, 3, 0]], 5),  # the last sample is padding
        ([[0, 3, 6], [1, 4, 0], [2, 5, 1]], 7),
        ([[0], [1], [0]], 2),
        ([[0], [0], [0]], 1),
    ],
    ids=str,
)
def test_every_sample_is_counted_once(shares, size):
    for batch_size in (1, 2, 5):
        assert evaluated(shares, size, batch_size=batch_size) == ("1" * size, [])
        counts, messages = evaluated(shares, size, named=False, batch_size=batch_size)
        assert counts == "1" * size and len(messages) == (sum(map(len, shares)) > size)


UNVERIFIED = (
    "The last sample of process 1 was left out as padding, because mmengine's DefaultSampler adds it there; this could "
    "not be verified, because the samples have none of sample_idx, id, img_id, img_path"
)


@pytest.mark.parametrize(
    ("shares", "size", "named", "counts", "words"),
    [
        ([[0, 2, 4], [1, 3, 0]], 5, False, "11111", UNVERIFIED),
        # A sampler of contiguous shares that pads the last process.
        ([[0, 1, 2], [3, 4, 5], [6, 0, 1]], 7, True, "2211111", "process 1 (img_id 5) does not repeat the first of"),
        # A batch sampler that reorders the samples of a process: its padding is not the last sample.
        ([[0, 2, 4], [0, 1, 3]], 5, True, "21111", "the last sample of process 1 (img_id 3) does not repeat"),
        # Numbers of samples that no sampler gives.
        ([[0, 1, 2], [3, 4, 5], [6, 0]], 7, True, "2111111", "the processes read 3, 3, 2 samples"),
        # Some samples were not evaluated, so that the total is that of the dataset by chance.
        ([[0, 2, 4], [1, 0]], 5, True, "21101", "may be padding that is counted twice"),
        ([[0, 2], [1, 0]], 5, True, "21100", "read 4 samples of a dataset of 5 on 2 processes. Some of them may be"),
    ],
)
def test_unidentified_padding_gives_a_warning(shares, size, named, counts, words):
    actual, (message,) = evaluated(shares, size, named=named)
    assert actual == counts and words in message


def shares_of(sampler, size, world_size):
    """The indices that each rank gets from a sampler."""
    indices, ranks = range(size), range(world_size)
    options = {"default": {}, "shuffled": dict(shuffle=True, seed=1), "no round_up": dict(round_up=False)}
    if sampler in options:
        arguments = {"shuffle": False, **options[sampler]}
        return on_ranks(world_size, lambda rank: list(DefaultSampler(indices, **arguments)))
    if sampler.startswith("torch"):
        drop_last = sampler == "torch, drop_last"
        return [list(DistributedSampler(indices, world_size, r, shuffle=False, drop_last=drop_last)) for r in ranks]
    per_rank = -(-size // world_size)
    padded = [*indices, *indices, *indices][: per_rank * world_size] if sampler == "contiguous, padded" else [*indices]
    return [padded[rank * per_rank : (rank + 1) * per_rank] for rank in ranks]


EXACT = ("default", "shuffled", "torch", "no round_up", "contiguous")


@pytest.mark.parametrize("sampler", [*EXACT, "contiguous, padded", "torch, drop_last"])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_samplers(sampler, world_size):
    for size in (4, 5, 7, 8, 9, 12):
        shares = shares_of(sampler, size, world_size)
        counts, messages = evaluated(shares, size)
        if sampler in EXACT:
            assert (counts, messages) == ("1" * size, []), (size, shares)
        elif counts != "1" * size and sampler != "torch, drop_last":  # which leaves samples out on purpose
            assert len(messages) == 1 and "could not be identified" in messages[0], (size, shares)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 12), st.integers(2, 5), st.booleans(), st.randoms(use_true_random=False))
def test_random_shares_are_counted_once_or_give_a_warning_or_an_error(size, world_size, named, random):
    indices = [*range(size), *(random.randrange(size) for _ in range(random.choice((0, 0, 1, world_size - 1))))]
    random.shuffle(indices)
    cuts = sorted(random.randint(0, len(indices)) for _ in range(world_size - 1))
    shares = [indices[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(indices)])]
    identities = [(str(share[0]), str(share[-1])) if named and share else (None, None) for share in shares]
    given = [SamplesOfRank(len(share), *ends) for share, ends in zip(shares, identities)]
    if len(indices) > size and max(map(len, shares)) > -(-size // world_size):
        with pytest.raises(MetricInputError, match="but the dataset has"):
            find_padding(given, size)
        return
    padding = find_padding(given, size)
    counted = [index for rank, share in enumerate(shares) for index in share[: len(share) - (rank in padding.ranks)]]
    if padding.warning is None:
        assert sorted(counted) == list(range(size))
    if len(indices) == size:
        assert padding.ranks == ()


def test_aspect_ratio_batches_are_counted_once_or_give_a_warning():
    from mmdet.datasets.samplers import AspectRatioBatchSampler

    class Shapes(list):
        def get_data_info(self, index):
            return dict(width=3 if self[index] else 1, height=2)

    generator, warned = np.random.default_rng(0), 0
    for size in (4, 5, 6, 7) * 5:
        shapes = Shapes(generator.random(size) < 0.5)
        batches = on_ranks(2, lambda rank, s=shapes: list(AspectRatioBatchSampler(DefaultSampler(s, shuffle=False), 2)))
        counts, messages = evaluated([[index for batch in share for index in batch] for share in batches], size)
        assert counts == "1" * size or len(messages) == 1
        warned += len(messages)
    assert warned > 0
