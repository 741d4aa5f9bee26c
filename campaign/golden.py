"""Golden files: ``python -m campaign.golden`` writes them with the releases they stand for; the part reads them.

Every file in ``tests/data`` was written by the real package of the release in its name. The old releases of torch
come with some gigabytes of CUDA libraries, so writing them again is not part of the campaign; reading them is.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Dict, List, Tuple

from campaign.environments import ROOT, environment, interpreter
from campaign.part import Figures, Part
from campaign.suites import pytest_counts

# By the name of the environment: the Python, and the packages.
WRITERS: Dict[str, Tuple[str, List[str]]] = {
    "torch-1.13": ("3.8", ["torch==1.13.1", "numpy==1.20.3"]),
    "torch-2.1": ("3.11", ["torch==2.1.2", "numpy==1.26.4"]),
    "torch-2.13": ("3.11", ["torch==2.13.0", "numpy==2.4.6"]),
    "numpy-1.20": ("3.8", ["numpy==1.20.3"]),
    "numpy-1.26": ("3.11", ["numpy==1.26.4"]),
    "numpy-2.0": ("3.11", ["numpy==2.0.2"]),
    "numpy-2.5": ("3.13", ["numpy==2.5.4"]),
}


def write(names: List[str]) -> int:
    """Writes the files of the writers named, or of all, each in an environment of its own."""
    for name in names or WRITERS:
        release, requirements = WRITERS[name]
        python = interpreter(release)
        if python is None:
            print(f"{name}: there is no Python {release} on this machine", file=sys.stderr)
            return 1
        inside = environment(name, python, requirements)
        subprocess.run([str(inside), str(ROOT / "tests" / "golden" / "write.py")], check=True)
    return 0


def run() -> Figures:
    """Reads every file, on the Python at hand; the part on versions reads them on the oldest and the newest."""
    figures = Figures()
    files = sorted((ROOT / "tests" / "golden").glob("*.pkl"))
    counts = pytest_counts(["tests/io/test_golden.py"])
    figures.add(
        f"{len(files)} files by {len(WRITERS)} writers read with equal values",
        f"{3 * len(WRITERS)} files, all",
        f"{counts.passed} tests passed, {counts.failed} failed, {counts.skipped} skipped",
        counts.good and len(files) == 3 * len(WRITERS) and counts.passed > len(files),
    )
    return figures


PART = Part(
    "golden",
    "Files of other releases",
    "Results written by the real torch 1.13.1, 2.1.2 and 2.13.0 and NumPy 1.20.3, 1.26.4, 2.0.2 and 2.5.4, each with"
    " pickle protocols 2, 4 and 5, read without torch and compared with the values they were given"
    " (`tests/data/contents.json`). `python -m campaign.golden` writes them again.",
    run,
)

if __name__ == "__main__":
    sys.exit(write(sys.argv[1:]))
