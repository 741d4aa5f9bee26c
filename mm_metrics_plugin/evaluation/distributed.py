"""Evaluation on the processes that torchrun started."""

from __future__ import annotations

from typing import Any

from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
from mm_metrics_plugin.states.distributed import all_gather_or_raise, all_reduce_state, launched_processes


class ProcessGroup:
    """The processes that torchrun started, or this process alone. torch is imported only if there are several.

    Every process must call the same methods in the same order. An error on one of them is raised on all.
    """

    def __init__(self, *, distributed: bool) -> None:
        self.rank, self.world_size = launched_processes() if distributed else (0, 1)
        if self.world_size > 1:
            import torch.distributed

            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo")

    def all_gather(self, value: Any, error: Exception | None = None) -> list[Any]:
        """The value of every process, in the order of ranks."""
        if self.world_size > 1:
            return all_gather_or_raise(value, error)
        if error is not None:
            raise error
        return [value]

    def merge(self, evaluator: DetectionEvaluator | None, error: Exception | None = None) -> DetectionEvaluator:
        """The merged evaluator of all processes; None on a process without images."""
        if self.world_size == 1 and evaluator is not None:
            return evaluator
        headers = self.all_gather(None if evaluator is None else evaluator.header(), error)
        parts = [DetectionEvaluator.from_header(header) for header in headers if header is not None]
        rank = sum(header is not None for header in headers[: self.rank])
        merged, numbered = parts[0].merged_images(*parts[1:])
        own = parts[0].state.empty() if evaluator is None else evaluator.state.renumbered(numbered[rank])
        images = 0 if evaluator is None else len(evaluator.provenance.image_ids)
        merged.state, _ = all_reduce_state(own, images, None)  # type: ignore[assignment]
        return merged

    def close(self) -> None:
        """Leave the process group."""
        if self.world_size > 1:
            import torch.distributed

            torch.distributed.destroy_process_group()
