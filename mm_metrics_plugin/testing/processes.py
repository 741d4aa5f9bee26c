"""Functions on every rank of a group of real processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import forkserver
from typing import Any, Callable, Sequence
from unittest import mock

import torch
from torch import distributed

# Imported once, by the server from which the processes are forked. Add the modules of your cases to save time.
PRELOAD = ["mm_metrics_plugin.testing"]


def run_processes(
    world_size: int, function: Callable[[Any], Any], jobs: Sequence[Any], *, timeout: float = 60.0
) -> list[list[Any]]:
    """Run ``function(job)`` for each job on every rank of a gloo group; returns, for each job, the values of the ranks.

    ``function`` must be importable. A collective fails after ``timeout`` seconds.

    Raises:
        RuntimeError: A rank failed; the message contains its traceback.
    """
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(world_size, process_context()) as pool:
        arguments = (world_size, f"file://{folder}/rendezvous", timedelta(seconds=timeout), function, list(jobs))
        ranks = [pool.submit(_run_rank, rank, *arguments) for rank in range(world_size)]
        errors = {rank: future.exception() for rank, future in enumerate(ranks)}
    failures = [f"rank {rank} failed:\n{error.__cause__ or error}" for rank, error in errors.items() if error]
    if failures:
        raise RuntimeError("\n".join(failures))
    return [list(values) for values in zip(*(future.result() for future in ranks))]


def process_context() -> Any:
    """The multiprocessing context: processes are forked from a server that has imported ``PRELOAD``, if possible."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    # The server of Python 3.11 and earlier does not inherit sys.path, and could import other modules of the same name.
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    with mock.patch.dict(os.environ, {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}):
        forkserver.ensure_running()
    return context


def _run_rank(
    rank: int, world_size: int, rendezvous: str, timeout: timedelta, function: Callable[[Any], Any], jobs: list[Any]
) -> list[Any]:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world_size, timeout=timeout)
    try:
        values = [function(job) for job in jobs]
        distributed.barrier()
        return values
    finally:  # also after an error, so that no other rank waits for this one
        distributed.destroy_process_group()
