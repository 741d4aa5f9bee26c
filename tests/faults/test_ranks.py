"""One of several processes fails: no process hangs, returns a wrong number or leaves incomplete files.

- The other processes end with an error, at the latest at the timeout of the process group.
- ``evaluate`` returns a number on no process before all processes have it. A process that fails later changes nothing.
- A returned number is that of one process. The files of ``outfile_prefix`` exist if the first process returns a number.
- No temporary file is left, unless the first process, which writes the files, is killed.
"""

from __future__ import annotations

import itertools
import random
from functools import lru_cache

import pytest

from mm_metrics_plugin.testing import PRELOAD
from tests.helpers.process_group import KILLED, Fault, evaluator, left_over, run, samples

PRELOAD.append("tests.helpers.process_group")
MAX_DELAY = 0.03  # seconds per process, about the duration of the evaluation
KINDS = ("classification", "detection")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The numbers and files of one process, by kind."""

    @lru_cache(maxsize=None)
    def reference(kind):
        folder = tmp_path_factory.mktemp(kind)
        made, data = evaluator(kind, str(folder / "latest")), samples(kind)
        made.process(data)
        return made.evaluate(len(data)), {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    return reference


def check(endings, kind, fault, folder, alone):
    """Check the result of every rank, and the files."""
    numbers, files = alone(kind)
    late = fault.place == "after"
    for rank, ending in endings.items():
        if rank == fault.rank:
            check_victim(ending, fault)
            continue
        if late:
            assert ending == (0, numbers, None)
            continue
        assert ending.exit_code == 1 and ending.numbers is None and ending.error
        if fault.kind == "raise" and fault.place != "process":
            assert ending.error == f"RuntimeError: deliberate failure of rank {fault.rank}"
    check_files(folder, files if late else {}, writer_killed=fault.kind == "kill" and fault.rank == 0)


def check_files(folder, files, writer_killed=False):
    """Exactly these files are left, except for temporary files of a killed process."""
    left = [name for name in left_over(folder) if not (writer_killed and name.startswith("work/.latest"))]
    assert {name: (folder / name).read_bytes() for name in left} == {
        f"work/{name}": content for name, content in files.items()
    }


def check_victim(ending, fault):
    if fault.kind == "kill":
        assert ending == (KILLED, None, None)
    elif fault.kind == "raise":
        assert ending == (1, None, f"RuntimeError: deliberate failure of rank {fault.rank}")
    else:
        assert ending == (0, None, None)


FAULTS = [
    ("classification", Fault("kill", 0)),
    ("detection", Fault("kill", -1)),
    ("detection", Fault("kill", 0, "after")),
    ("classification", Fault("kill", -1, "after")),
    ("detection", Fault("raise", 0)),
    ("classification", Fault("raise", 1)),
    ("classification", Fault("raise", 0, "update")),
    ("detection", Fault("raise", 1, "update")),
    ("detection", Fault("raise", 0, "compute")),
    ("classification", Fault("never", 0)),
    ("detection", Fault("never", 1)),
]


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize(
    ("kind", "fault"), FAULTS, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value))
)
def test_fault(world_size, kind, fault, tmp_path, alone):
    fault = fault._replace(rank=fault.rank % world_size)
    check(run(world_size, kind, fault, tmp_path), kind, fault, tmp_path, alone)


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_in_each_step_of_the_reduction(world_size, kind, tmp_path, alone):
    """Kill a process in each collective call of an evaluation, from the first to the last."""
    for number in itertools.count(1):
        fault = Fault("kill", (number % 2) * (world_size - 1), "collective", number)
        folder = tmp_path / str(number)
        folder.mkdir()
        endings = run(world_size, kind, fault, folder)
        if endings[fault.rank].exit_code == 0:  # there are fewer calls
            break
        check(endings, kind, fault, folder, alone)
    assert number - 1 >= 3 * 2 + 1  # three exchanges, each of sizes and contents, and the arrays before the last
    assert all(ending.numbers == alone(kind)[0] for ending in endings.values())


@pytest.mark.parametrize("runs", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments(runs, tmp_path, alone):
    """Kill any rank from outside; rank 0 only if it writes no files, which would be incomplete."""
    draw = random.Random(runs)
    killed = lost = 0
    for number in range(runs):
        world_size, kind = (2, 4)[number % 2], KINDS[number // 2 % 2]
        victim, delay = draw.randrange(kind == "detection", world_size), draw.uniform(0, MAX_DELAY * world_size)
        folder = tmp_path / str(number)
        folder.mkdir()
        endings = run(world_size, kind, Fault("kill", victim), folder, delay=delay)
        codes = [one.exit_code for one in endings.values()]
        print(f"{number}: {kind}, rank {victim} of {world_size} after {delay:.3f} s: {codes}")
        numbers, files = alone(kind)
        assert endings[victim].exit_code in (KILLED, 0)  # 0: it ended before
        failed = any(ending.error is not None for ending in endings.values())
        assert endings[victim].exit_code == KILLED or not failed
        for rank, ending in endings.items():
            assert ending.numbers in (None, numbers)
            assert rank == victim or (ending.numbers is None) != (ending.error is None)
        # The files exist if the first process has the number.
        check_files(folder, files if endings[0].numbers is not None else {})
        killed += endings[victim].exit_code == KILLED
        lost += failed
    print(f"{killed} killed, {lost} before all the others had the number")
    assert lost or runs < 50
