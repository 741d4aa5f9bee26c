"""Parts that are the suite's own tests, with more examples or more runs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

from campaign.environments import ROOT
from campaign.part import Figures, Part


@dataclass
class Counts:
    """How the tests of a run ended."""

    passed: int
    failed: int
    skipped: int
    told: Dict[str, str]  # what tests recorded of themselves, by its name

    @property
    def good(self) -> bool:
        """Whether something ran, and nothing failed."""
        return self.failed == 0 and self.passed > 0


def pytest_counts(
    arguments: List[str], *, python: str = sys.executable, variables: Optional[Dict[str, str]] = None
) -> Counts:
    """Runs pytest in a process of its own and counts, by its report, how the tests ended."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [python, "-m", "pytest", *arguments, f"--junitxml={report}"]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **(variables or {})}, capture_output=True, text=True
        )
        output = done.stdout + done.stderr
        if not report.exists():
            return Counts(0, 1, 0, {})
        suite = next(xml.etree.ElementTree.parse(report).getroot().iter("testsuite"))
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    skipped = int(suite.attrib["skipped"])
    if done.returncode:
        print(output[-6000:], flush=True)
        failed = max(failed, 1)  # whatever the report says, pytest was not content
    told = {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
    return Counts(int(suite.attrib["tests"]) - failed - skipped, failed, skipped, told)


def properties() -> Figures:
    """Every property with 10,000 new random examples."""
    figures = Figures()
    variables = {"HYPOTHESIS_PROFILE": "campaign", "MM_METRICS_EXAMPLES": "10000"}
    # Two processes, for two cores; a test whose examples take long does not hold up the rest.
    counts = pytest_counts(["tests/properties", "-n", str(len(os.sched_getaffinity(0)))], variables=variables)
    fewest = int(counts.told.get("fewest", 0))
    what = f"10,000 random examples of a metric or function, {fewest:,} or more of each of a metric's cases"
    _add(figures, what, counts, fewest=100)
    return figures


def faults() -> Figures:
    """All faults, with 50 kills at random moments."""
    figures = Figures()
    seed = _new_seed()
    counts = pytest_counts(["tests/faults"], variables={"FAULT_RUNS": "50", "FAULT_SEED": seed})
    _add(figures, f"faults; 50 times a rank is killed at a random moment (seed {seed})", counts, fewest=20)
    killed, lost = (int(counts.told.get(name, 0)) for name in ("killed", "lost"))
    figures.add(
        "of these 50",
        "some before the others had the number",
        f"{killed} were there to be killed, {lost} of them before the others had the number",
        lost > 0,
    )
    return figures


def fuzz() -> Figures:
    """Random damage to result files, with a seed of the day."""
    figures = Figures()
    seed = _new_seed()
    counts = pytest_counts(
        ["tests/io/test_safe_pickle.py", "tests/io/test_damaged_contents.py", "tests/io/test_hostile_pickles.py"],
        variables={"FUZZ_TRIALS": "200000", "FUZZ_SEED": seed},
    )
    _add(figures, f"200,000 damaged pickles (seed {seed}), hostile files, damaged contents", counts, fewest=50)
    return figures


def _new_seed() -> str:
    return str(random.SystemRandom().randrange(10**6))


def _add(figures: Figures, what: str, counts: Counts, *, fewest: int) -> None:
    figures.add(
        what,
        f"at least {fewest} tests, none fails or is skipped",
        f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped",
        counts.good and counts.passed >= fewest and not counts.skipped,
    )


PARTS = [
    Part(
        "properties",
        "Properties",
        "What must hold whatever the data (`tests/properties`): the suite tries 200 examples each, always the"
        " same ones; the campaign 10,000 new ones of every metric, shared by its cases (its settings, of which some"
        " have a dozen), and of every function.",
        properties,
    ),
    Part(
        "faults",
        "Faults",
        "Processes killed before, during and after the reduction, full disks, read-only folders, interrupts"
        " (`tests/faults`).",
        faults,
    ),
    Part(
        "fuzz",
        "Damaged and hostile files",
        "Result files with random damage either read or end in `ResultFileError` with the place; hostile ones run"
        " nothing.",
        fuzz,
    ),
]
