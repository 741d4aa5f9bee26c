"""Several ranks in one process, which take turns: each runs until it waits for the others.

Only the collectives of mmengine are replaced. An evaluation takes a millisecond; ``tests/test_all_metrics.py`` tests
real processes.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from unittest import mock

import torch
from greenlet import getcurrent, greenlet
from mmengine import dist
from mmengine.dataset import DefaultSampler
from mmengine.dist import utils


class _Group:
    """The ranks of one call; ``rank`` is the current one."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.rank = 0

    def exchange(self, call, value):
        """The values of all ranks, when all have called the same function."""
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
        functions = {name: getattr(self, name) for name in ("all_gather_object", "all_gather", "all_reduce")}
        sizes = dict(get_world_size=lambda group=None: self.world_size, get_rank=lambda group=None: self.rank)
        with mock.patch.multiple(utils, **sizes), mock.patch.multiple(dist, **functions, **sizes):
            yield


def on_ranks(world_size, function):
    """The values of ``function(rank)`` on every rank of a group. The first error is raised."""
    group = _Group(world_size)

    def turn(rank, message):
        group.rank = rank
        return ranks[rank].switch(message)

    with group.installed():
        ranks = [greenlet(function) for _ in range(world_size)]
        values = [turn(rank, rank) for rank in range(world_size)]
        while not all(rank.dead for rank in ranks):
            assert not any(rank.dead for rank in ranks), "some ranks wait for others that have ended"
            values = [turn(rank, values) for rank in range(world_size)]
    return values


def dealt(samples, *, padded):
    """The samples of the current rank from mmengine's sampler, padded to equal numbers or not."""
    if not samples:
        return []
    return [samples[index] for index in DefaultSampler(samples, shuffle=False, round_up=padded)]
