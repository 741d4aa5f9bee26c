"""The processes that torchrun started, or this one alone. torch is imported only where there are several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional, Sequence, TypeVar

from mm_metrics_plugin.cli.streams import launched_processes
from mm_metrics_plugin.evaluation.shards import Part, header_of, merge_parts, part_of_header, renumber, with_state

_V = TypeVar("_V")


class Ranks:
    """Which process this is, and how it talks to the others.

    Every process must call the same methods in the same order. An error on one of them is raised on all.

    Example:
        >>> ranks = Ranks()
        >>> ranks.is_first, ranks.exchange("a"), ranks.share(["a.pkl", "b.pkl"])
        (True, ['a'], ['a.pkl', 'b.pkl'])
    """

    def __init__(self) -> None:
        self.rank, self.world_size = launched_processes()
        if self.world_size > 1:
            import torch.distributed

            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo")

    @property
    def is_first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def share(self, things: Sequence[_V]) -> List[_V]:
        """Those of the things that are this process' own."""
        return list(things[self.rank :: self.world_size])

    def exchange(self, value: Any, error: Optional[Exception] = None) -> List[Any]:
        """What every process gave, in the order of the processes."""
        if self.world_size == 1:
            if error is not None:
                raise error
            return [value]
        from mm_metrics_plugin.states.distributed import all_gather_or_raise

        return all_gather_or_raise(value, error)

    def add_up(self, parts: Sequence[Part], error: Optional[Exception] = None) -> Part:
        """The part of everybody's images. On other processes than the first it need not be looked at."""
        own = None
        if error is None and parts:
            try:
                own = merge_parts(parts)
            except Exception as caught:  # it is raised on every process below
                error = caught
        headers = self.exchange(None if own is None else (own.name, header_of(own)), error)
        if self.world_size == 1:
            return own  # type: ignore[return-value]
        from mm_metrics_plugin.states.distributed import all_reduce_state

        told = [part_of_header(*header) for header in headers if header is not None]
        image_ids, _ = renumber(told)
        if own is None:  # more processes than files
            own = replace(told[0], image_ids=())
        place = {image_id: at for at, image_id in enumerate(image_ids)}
        state, _ = all_reduce_state(own.keyed([place[one] for one in own.image_ids]).state, len(own.image_ids), None)
        return with_state(told, image_ids, state)  # type: ignore[arg-type]

    def leave(self) -> None:
        """Says good-bye to the others."""
        if self.world_size > 1:
            import torch.distributed

            torch.distributed.destroy_process_group()
