"""Real gloo processes of which one goes wrong, and what became of each of them."""

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
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import torch
from mmengine.evaluator import Evaluator
from torch import distributed
from torch.distributed import distributed_c10d

from mm_metrics_plugin import DetectionPRF, SingleLabelAUC, SingleLabelPRF, testing
from tests.helpers.cases_detection import CLASSES, detections
from tests.helpers.cases_single_label import single_label

TIMEOUT = 60.0  # seconds after which a collective of the group gives up; on a busy machine a rank may wait for long
SHORT = 5.0  # the same where one rank lives on and never comes, so that the others must wait for so long
STUCK = 300.0  # seconds after which who has not ended never will
SIZE = 21  # samples: neither 2 nor 4 divide them, so there is padding
COLLECTIVES = ("all_gather", "all_reduce", "broadcast", "barrier")
DONE = "nothing more to wait for"
KILLED = -signal.SIGKILL


class Fault(NamedTuple):
    """What goes wrong.

    Attributes:
        kind: ``'kill'``, ``'raise'`` or ``'never'`` (the rank lives on, and does not evaluate).
        rank: Where.
        place: ``'process'`` (before the evaluation), ``'collective'`` (its ``number``-th, from 1), ``'update'`` and
            ``'compute'`` (inside the evaluation, off the network) or ``'after'`` (when the others have the number).
        number: See ``place``.
    """

    kind: str
    rank: int
    place: str = "process"
    number: int = 0

    def strike(self) -> None:
        """Go wrong, now."""
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(f"deliberate failure of rank {self.rank}")


class Ending(NamedTuple):
    """What became of a rank.

    Attributes:
        exit_code: Of the process; negative if a signal ended it.
        numbers: What ``evaluate`` returned, if it did.
        error: What it raised, if it did.
    """

    exit_code: int
    numbers: Optional[Dict[str, float]]
    error: Optional[str]


def evaluator(kind: str, prefix: Optional[str] = None) -> Evaluator:
    """Metrics whose states are counts, concatenated scores, or both with files to write."""
    if kind == "classification":
        return Evaluator([SingleLabelAUC(), SingleLabelPRF(counts=True)])
    made = Evaluator([DetectionPRF(ap=True, outfile_prefix=prefix)])
    made.dataset_meta = {"classes": CLASSES}
    return made


def samples(kind: str) -> list:
    """The dataset of a kind of evaluator."""
    return (single_label if kind == "classification" else detections)(np.random.default_rng(0), SIZE)


def run(world_size: int, kind: str, fault: Fault, folder: Path, *, delay: Optional[float] = None) -> Dict[int, Ending]:
    """Evaluate on a group in which something goes wrong.

    Args:
        world_size: How many processes.
        kind: ``'classification'`` or ``'detection'``.
        fault: What goes wrong.
        folder: Where the processes find ``tmp`` (their TMPDIR) and ``work`` (where they are), both empty.
        delay: Kill the rank from outside, so many seconds after all were ready to evaluate; ``fault`` says which.

    Raises:
        AssertionError: A rank never ended.
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
    ready: Optional[float] = None
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
    told = json.loads(note.read_text()) if note.exists() else {"numbers": None, "error": None}
    return Ending(process.exitcode, **told)


def left_over(folder: Path) -> list:
    """The files that are there after a run."""
    return sorted(str(path.relative_to(folder)) for name in ("tmp", "work") for path in (folder / name).rglob("*"))


def _main(rank: int, world_size: int, kind: str, fault: Optional[Fault], folder: str) -> None:
    """One rank. It ends as a training does: the error that stops it is its last word."""
    faulthandler.dump_traceback_later(2 * STUCK, exit=True)  # should who started it be gone
    tempfile.tempdir = os.environ["TMPDIR"] = str(Path(folder, "tmp"))
    os.chdir(Path(folder, "work"))
    torch.set_num_threads(1)
    notes = Path(folder, "notes")
    # On a busy machine they start seconds apart, and the group's timeout is for the fault alone.
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
    told: Dict[str, Any] = {"numbers": None, "error": None}
    try:
        told["numbers"] = _evaluate(rank, world_size, kind, mine, notes)
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
    whole = notes / f"{rank}.part"
    whole.write_text(json.dumps(told))
    os.replace(whole, notes / f"{rank}.json")
    if told["error"] is not None:
        os._exit(1)  # what an uncaught error comes to, without its traceback on the test's output
    distributed.destroy_process_group()


def _wait_for(notes: Path, names: List[str], limit: float = STUCK) -> None:
    end = time.monotonic() + limit
    while not all((notes / name).exists() for name in names):
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {names} were there after {limit} s")
        time.sleep(0.005)


def _evaluate(rank: int, world_size: int, kind: str, fault: Optional[Fault], notes: Path) -> Optional[Dict[str, float]]:
    made = evaluator(kind, "latest")
    share = samples(kind)
    share = [share[at % SIZE] for at in range(rank, -(-SIZE // world_size) * world_size, world_size)]
    made.process(share)
    distributed.barrier()  # so that the fault is the only thing that goes wrong
    (notes / f"ready{rank}").touch()
    place = None if fault is None else fault.place
    if fault is not None and fault.kind == "never":
        _wait_for(notes, [DONE])
        return None
    if place == "process":
        fault.strike()
    if place == "collective":
        _strike_in_collective(fault)
    if place in ("update", "compute"):
        metric = made.metrics[-1]
        name = {"update": "_local_state", "compute": "compute"}[place]
        assert hasattr(metric, name)
        setattr(metric, name, lambda *arguments, **options: fault.strike())
    found = made.evaluate(SIZE)
    if place == "after":
        _wait_for(notes, [f"{other}.json" for other in range(world_size) if other != rank])
        fault.strike()
    return found


def _strike_in_collective(fault: Fault) -> None:
    """Lets the fault happen when this rank comes to a collective while the others are in it."""
    calls = iter(range(1, 1000))
    for name in COLLECTIVES:
        original = getattr(distributed_c10d, name)

        def struck(*arguments: Any, _original: Any = original, **options: Any) -> Any:
            if next(calls) == fault.number:
                fault.strike()
            return _original(*arguments, **options)

        for module in (distributed, distributed_c10d):
            setattr(module, name, struck)
