"""Several ranks in one process: every rank is a thread, and what they send each other goes through a list.

The metrics run as they are, ``metrics/distributed.py`` included; only mmengine's collectives are replaced. That real
processes agree is tested in ``tests/test_all_metrics.py``, for a few data sets; here it costs a millisecond.
"""

from __future__ import annotations

import pickle
import threading
from contextlib import contextmanager

import torch
from mmengine.dataset import DefaultSampler
from mmengine.dist import utils

from mm_metrics_plugin.metrics import distributed


class _Group:
    """The ranks of one call, and what they are exchanging."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.rank = threading.local()
        self.barrier = threading.Barrier(world_size, timeout=60)
        self.slots = [None] * world_size

    def exchange(self, value):
        """What every rank sends, by rank."""
        self.slots[self.rank.value] = value
        self.barrier.wait()
        sent = list(self.slots)
        self.barrier.wait()
        return sent

    def all_gather_object(self, value):
        return [pickle.loads(sent) for sent in self.exchange(pickle.dumps(value))]

    def all_gather(self, tensor):
        return [sent.clone() for sent in self.exchange(tensor.clone())]

    def all_reduce(self, tensor, op="sum"):
        sent = torch.stack(self.exchange(tensor.clone()))
        tensor.copy_({"sum": sent.sum, "max": sent.amax}[op](dim=0))

    @contextmanager
    def installed(self):
        replaced = [
            (utils, "get_world_size", lambda group=None: self.world_size),
            (utils, "get_rank", lambda group=None: self.rank.value),
            (distributed, "get_world_size", lambda group=None: self.world_size),
            (distributed, "all_gather_object", self.all_gather_object),
            (distributed, "all_gather", self.all_gather),
            (distributed, "all_reduce", self.all_reduce),
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
    group, values, errors = _Group(world_size), [None] * world_size, []

    def main(rank):
        group.rank.value = rank
        try:
            values[rank] = function(rank)
        except BaseException as error:
            errors.append(error)
            group.barrier.abort()

    with group.installed():
        threads = [threading.Thread(target=main, args=(rank,)) for rank in range(world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return values


def dealt(samples, *, padded):
    """What mmengine's sampler gives the rank that asks; padded to equal numbers or not."""
    if not samples:
        return []
    return [samples[place] for place in DefaultSampler(samples, shuffle=False, round_up=padded)]
