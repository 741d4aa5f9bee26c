"""Several ranks in one process: they take turns, each until it waits for the others.

The metrics run as they are, ``states/distributed.py`` included; only mmengine's collectives are replaced. That real
processes agree is tested in ``tests/test_all_metrics.py``, for a few datasets; here it costs a millisecond.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager

import torch
from greenlet import getcurrent, greenlet
from mmengine import dist
from mmengine.dataset import DefaultSampler
from mmengine.dist import utils


class _Group:
    """The ranks of one call. ``rank`` is the one whose turn it is."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.rank = 0

    def exchange(self, call, value):
        """What every rank sends, by rank: waits until all have called the same."""
        sent = getcurrent().parent.switch((call, value))
        called = [name for name, _ in sent]
        assert called == [call] * self.world_size, f"the ranks called {called}"
        return [value for _, value in sent]

    def all_gather_object(self, value):
        return self.exchange("all_gather_object", pickle.loads(pickle.dumps(value)))

    def all_gather(self, tensor):
        return [sent.clone() for sent in self.exchange("all_gather", tensor.clone())]

    def all_reduce(self, tensor, op="sum"):
        sent = torch.stack(self.exchange(f"all_reduce {op}", tensor.clone()))
        tensor.copy_({"sum": sent.sum, "max": sent.amax}[op](dim=0))

    @contextmanager
    def installed(self):
        replaced = [
            (utils, "get_world_size", lambda group=None: self.world_size),
            (utils, "get_rank", lambda group=None: self.rank),
            (dist, "get_world_size", lambda group=None: self.world_size),
            (dist, "all_gather_object", self.all_gather_object),
            (dist, "all_gather", self.all_gather),
            (dist, "all_reduce", self.all_reduce),
        ]
        kept = [getattr(module, name) for module, name, _ in replaced]
        for module, name, function in replaced:
            setattr(module, name, function)
        try:
            yield
        finally:
            for (module, name, _), function in zip(replaced, kept):
                setattr(module, name, function)


def on_ranks(world_size, function):
    """``function(rank)`` on every rank of a group, side by side; what each gives. The first error is raised."""
    group = _Group(world_size)

    def turn(rank, message):
        group.rank = rank
        return ranks[rank].switch(message)

    with group.installed():
        ranks = [greenlet(function) for _ in range(world_size)]
        told = [turn(rank, rank) for rank in range(world_size)]
        while not all(rank.dead for rank in ranks):
            assert not any(rank.dead for rank in ranks), "some ranks wait for others that have ended"
            told = [turn(rank, told) for rank in range(world_size)]
    return told


def dealt(samples, *, padded):
    """What mmengine's sampler gives the rank that asks; padded to equal numbers or not."""
    if not samples:
        return []
    return [samples[place] for place in DefaultSampler(samples, shuffle=False, round_up=padded)]
