"""One of several processes goes wrong.

What is promised:

- Whoever is left ends with an error, at the latest at the group's timeout.
- ``evaluate`` returns on no process unless every process came to the end of it, so nobody reports a number while
  another is lost. Only a process that dies later, when everybody has the number, takes none of theirs away.
- A number that is returned is that of one process, and so are the files of ``outfile_prefix``, which are there if the
  first process has the number and not otherwise.
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
LONGEST_DELAY = 0.03  # seconds a process; the evaluation takes about as long
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
    """Holds what became of the ranks against the promise."""
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
    """These files are left, complete, and no others but temporary files of a killed process."""
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
    """Every collective of an evaluation is tried, the first to the last, until none is left to be struck in."""
    for number in itertools.count(1):
        fault = Fault("kill", (number % 2) * (world_size - 1), "collective", number)
        folder = tmp_path / str(number)
        folder.mkdir()
        endings = run(world_size, kind, fault, folder)
        if endings[fault.rank].exit_code == 0:  # there were fewer
            break
        check(endings, kind, fault, folder, alone)
    assert number - 1 >= 3 * 2 + 1  # three exchanges, each of sizes and contents, and the arrays before the last
    assert all(ending.numbers == alone(kind)[0] for ending in endings.values())


@pytest.mark.parametrize("runs", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments(runs, tmp_path, alone):
    """From outside, whatever the rank is doing. Rank 0 only where it writes no files, which could be cut off too."""
    draw = random.Random(runs)
    killed = lost = 0
    for number in range(runs):
        world_size, kind = (2, 4)[number % 2], KINDS[number // 2 % 2]
        victim, delay = draw.randrange(kind == "detection", world_size), draw.uniform(0, LONGEST_DELAY * world_size)
        folder = tmp_path / str(number)
        folder.mkdir()
        endings = run(world_size, kind, Fault("kill", victim), folder, delay=delay)
        codes = [one.exit_code for one in endings.values()]
        print(f"{number}: {kind}, rank {victim} of {world_size} after {delay:.3f} s: {codes}")
        numbers, files = alone(kind)
        assert endings[victim].exit_code in (KILLED, 0)  # 0: it was quicker
        failed = any(ending.error is not None for ending in endings.values())
        assert endings[victim].exit_code == KILLED or not failed
        for rank, ending in endings.items():
            assert ending.numbers in (None, numbers)
            assert rank == victim or (ending.numbers is None) != (ending.error is None)
        # The files are there if the first process, which is not struck where there are any, has the number.
        check_files(folder, files if endings[0].numbers is not None else {})
        killed += endings[victim].exit_code == KILLED
        lost += failed
    print(f"{killed} killed, {lost} before all the others had the number")
    assert lost or runs < 50
