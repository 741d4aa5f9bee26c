"""The processes that torchrun started, or this one alone. torch is imported only where there are several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional, Sequence, TypeVar

from mm_metrics_plugin.evaluation.shards import Shard, header_of, merge_shards, renumber, shard_of_header, with_state
from mm_metrics_plugin.states.distributed import launched_processes

_V = TypeVar("_V")


class ProcessGroup:
    """The rank of this process, and collective calls.

    Every process must call the same methods in the same order. An error on one of them is raised on all.

    Args:
        distributed: Use the processes that torchrun started; otherwise this process is alone.

    Example:
        >>> group = ProcessGroup(distributed=False)
        >>> group.is_first, group.all_gather("a"), group.share(["a.pkl", "b.pkl"])
        (True, ['a'], ['a.pkl', 'b.pkl'])
    """

    def __init__(self, *, distributed: bool) -> None:
        self.rank, self.world_size = launched_processes() if distributed else (0, 1)
        if self.world_size > 1:
            import torch.distributed

            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo")

    @property
    def is_first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def share(self, items: Sequence[_V]) -> List[_V]:
        """The items of this process."""
        return list(items[self.rank :: self.world_size])

    def all_gather(self, value: Any, error: Optional[Exception] = None) -> List[Any]:
        """The value of every process, in the order of ranks."""
        if self.world_size == 1:
            if error is not None:
                raise error
            return [value]
        from mm_metrics_plugin.states.distributed import all_gather_or_raise

        return all_gather_or_raise(value, error)

    def merge(self, shards: Sequence[Shard], error: Optional[Exception] = None) -> Shard:
        """The shard of all images of all processes."""
        own = None
        if error is None and shards:
            try:
                own = merge_shards(shards)
            except Exception as caught:  # raised on every process below
                error = caught
        headers = self.all_gather(None if own is None else (own.name, header_of(own)), error)
        if self.world_size == 1:
            return own  # type: ignore[return-value]
        from mm_metrics_plugin.states.distributed import all_reduce_state

        all_shards = [shard_of_header(*header) for header in headers if header is not None]
        image_ids, _ = renumber(all_shards)
        if own is None:  # more processes than files
            own = replace(all_shards[0], image_ids=())
        position = {image_id: index for index, image_id in enumerate(image_ids)}
        keyed = own.renumbered([position[image_id] for image_id in own.image_ids])
        state, _ = all_reduce_state(keyed.state, len(own.image_ids), None)
        return with_state(all_shards, image_ids, state)  # type: ignore[arg-type]

    def close(self) -> None:
        """Leave the process group."""
        if self.world_size > 1:
            import torch.distributed

            torch.distributed.destroy_process_group()
