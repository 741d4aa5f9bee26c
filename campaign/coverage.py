"""What the suite reaches of the package: ``make coverage``, which fails below what is asked."""

from __future__ import annotations

import subprocess
import sys

from coverage import Coverage

from campaign.environments import ROOT
from campaign.part import Figures, Part


def run() -> Figures:
    """The suite but for its longest parts, which could only add to it."""
    figures = Figures()
    asked = Coverage().get_option("report:fail_under")
    done = subprocess.run(["make", "--no-print-directory", "coverage"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print((done.stdout + done.stderr)[-6000:], flush=True)
    total = subprocess.run(
        [sys.executable, "-m", "coverage", "report", "--format=total", "--fail-under=0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    figures.add(
        "lines and branches of the package that the tests run",
        f"at least {asked:g} %, no test fails",
        f"{total.stdout.strip() or 'nothing'} %" + ("" if done.returncode == 0 else ", and `make coverage` failed"),
        done.returncode == 0,
    )
    return figures


PART = Part(
    "coverage",
    "Coverage",
    "Lines and branches of `mm_metrics_plugin` that the suite runs, in all its processes (`make coverage`), without the"
    " property tests, the training runs, the browser and the faults: what only they reach does not count.",
    run,
)
