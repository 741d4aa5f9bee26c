"""Groups of real gloo processes in which one process fails, and the outcome of each process."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import tempfile
import time
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.evaluator import Evaluator
from torch import distributed
from torch.distributed import distributed_c10d

from mm_metrics_plugin import DetectionPRF, SingleLabelAUC, SingleLabelPRF, testing
from tests.helpers.cases_detection import CLASSES, detections
from tests.helpers.cases_single_label import single_label

TIMEOUT = 60.0  # seconds after which a collective fails
SHORT = 5.0  # the same if one rank is alive and does not evaluate, so that the others wait for the timeout
STUCK = 300.0  # seconds after which a process is considered stuck
SIZE = 21  # samples: not divisible by 2 or 4, so there is padding
COLLECTIVES = ("all_gather", "all_reduce", "broadcast", "barrier")
DONE = "done"
KILLED = -signal.SIGKILL


class Fault(NamedTuple):
    """A failure of one rank."""

    kind: str  # 'kill', 'raise' or 'never' (the rank stays alive and does not evaluate)
    rank: int
    # 'process' (before the evaluation), 'collective' (the one with this number, from 1), 'update' and 'compute' (inside
    # the evaluation, outside of collectives) or 'after' (when the other ranks have returned)
    place: str = "process"
    number: int = 0

    def trigger(self) -> None:
        """Kill this process, or raise an error."""
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(f"deliberate failure of rank {self.rank}")


class Ending(NamedTuple):
    """The outcome of a rank: its exit code (negative after a signal), and what ``evaluate`` returned or raised."""

    exit_code: int
    numbers: dict[str, float] | None
    error: str | None


def evaluator(kind: str, prefix: str | None = None) -> Evaluator:
    """Metrics whose states are counts and concatenated scores, or both and files."""
    if kind == "classification":
        return Evaluator([SingleLabelAUC(), SingleLabelPRF(counts=True)])
    result = Evaluator([DetectionPRF(ap=True, outfile_prefix=prefix)])
    result.dataset_meta = {"classes": CLASSES}
    return result


def samples(kind: str) -> list:
    """The dataset of a kind of evaluator."""
    return (single_label if kind == "classification" else detections)(np.random.default_rng(0), SIZE)


def run(world_size: int, kind: str, fault: Fault, folder: Path, *, delay: float | None = None) -> dict[int, Ending]:
    """Evaluate on a group with a fault; ``folder`` gets ``tmp`` (TMPDIR) and ``work`` (the working directory).

    With ``delay`` the rank of the fault is killed from outside, this many seconds after all ranks are ready.
    """
    for name in ("tmp", "work", "notes"):
        (folder / name).mkdir()
    context = testing.processes.process_context()
    arguments = (world_size, kind, None if delay is not None else fault, str(folder))
    processes = [context.Process(target=_main, args=(rank, *arguments)) for rank in range(world_size)]
    for process in processes:
        process.start()
    notes = folder / "notes"
    deadline = time.monotonic() + STUCK
    ready: float | None = None
    killed = False
    running = set(range(world_size))
    while running and time.monotonic() < deadline:
        wait([processes[rank].sentinel for rank in running], 0.02)
        now = time.monotonic()
        if ready is None and len(list(notes.glob("ready*"))) == world_size:
            ready = now
        if ready is not None and delay is not None and not killed and now >= ready + delay:
            processes[fault.rank].kill()
            killed = True
        running = {rank for rank in running if processes[rank].exitcode is None}
        if fault.kind == "never" and running <= {fault.rank}:
            (notes / DONE).touch()
    for rank in running:
        processes[rank].kill()
        processes[rank].join()
    assert not running, f"ranks {running} had not ended after {STUCK} s"
    return {rank: _ending(process, notes / f"{rank}.json") for rank, process in enumerate(processes)}


def _ending(process: Any, note: Path) -> Ending:
    outcome = json.loads(note.read_text()) if note.exists() else {"numbers": None, "error": None}
    return Ending(process.exitcode, **outcome)


def left_over(folder: Path) -> list:
    """The files that exist after a run."""
    return sorted(str(path.relative_to(folder)) for name in ("tmp", "work") for path in (folder / name).rglob("*"))


def _main(rank: int, world_size: int, kind: str, fault: Fault | None, folder: str) -> None:
    """One rank, which ends after an error as a training does."""
    faulthandler.dump_traceback_later(2 * STUCK, exit=True)  # if the test is gone
    tempfile.tempdir = os.environ["TMPDIR"] = str(Path(folder, "tmp"))
    os.chdir(Path(folder, "work"))
    torch.set_num_threads(1)
    notes = Path(folder, "notes")
    # On a busy machine processes start seconds apart, which must not count for the timeout of the group.
    (notes / f"started{rank}").touch()
    _wait_for(notes, [f"started{other}" for other in range(world_size)])
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{notes}/rendezvous",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=SHORT if fault is not None and fault.kind == "never" else TIMEOUT),
    )
    mine = fault if fault is not None and fault.rank == rank else None
    outcome: dict[str, Any] = {"numbers": None, "error": None}
    try:
        outcome["numbers"] = _evaluate(rank, world_size, kind, mine, notes)
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"
    temporary = notes / f"{rank}.part"
    temporary.write_text(json.dumps(outcome))
    os.replace(temporary, notes / f"{rank}.json")
    if outcome["error"] is not None:
        os._exit(1)  # as after an uncaught error, without a traceback in the output of the test
    distributed.destroy_process_group()


def _wait_for(notes: Path, names: list[str], limit: float = STUCK) -> None:
    end = time.monotonic() + limit
    while not all((notes / name).exists() for name in names):
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {names} exist after {limit} s")
        time.sleep(0.005)


def _evaluate(rank: int, world_size: int, kind: str, fault: Fault | None, notes: Path) -> dict[str, float] | None:
    metrics_evaluator = evaluator(kind, "latest")
    share = samples(kind)
    share = [share[index % SIZE] for index in range(rank, -(-SIZE // world_size) * world_size, world_size)]
    metrics_evaluator.process(share)
    distributed.barrier()  # so that only the fault fails
    (notes / f"ready{rank}").touch()
    place = None if fault is None else fault.place
    if fault is not None and fault.kind == "never":
        _wait_for(notes, [DONE])
        return None
    if place == "process":
        fault.trigger()
    if place == "collective":
        _trigger_in_collective(fault)
    if place in ("update", "compute"):
        metric = metrics_evaluator.metrics[-1]
        name = {"update": "_local_state", "compute": "compute"}[place]
        assert hasattr(metric, name)
        setattr(metric, name, lambda *arguments, **options: fault.trigger())
    values = metrics_evaluator.evaluate(SIZE)
    if place == "after":
        _wait_for(notes, [f"{other}.json" for other in range(world_size) if other != rank])
        fault.trigger()
    return values


def _trigger_in_collective(fault: Fault) -> None:
    """Trigger the fault when this rank enters a collective that the others are in."""
    calls = iter(range(1, 1000))
    for name in COLLECTIVES:
        original = getattr(distributed_c10d, name)

        def triggered(*arguments: Any, _original: Any = original, **options: Any) -> Any:
            if next(calls) == fault.number:
                fault.trigger()
            return _original(*arguments, **options)

        for module in (distributed, distributed_c10d):
            setattr(module, name, triggered)
