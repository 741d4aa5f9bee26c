"""What the suite reaches of the package: ``make coverage``, which fails below what is asked."""

from __future__ import annotations

import json
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
    told = subprocess.run(
        [sys.executable, "-m", "coverage", "json", "--fail-under=0", "--quiet", "-o", "-"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if told.returncode:
        figures.add("the package", f"at least {asked:g} %, no test fails", "nothing was measured: a test failed", False)
        return figures
    totals = json.loads(told.stdout)["totals"]
    for what, covered, all_there in (
        ("lines", totals["covered_lines"], totals["num_statements"]),
        ("branches", totals["covered_branches"], totals["num_branches"]),
    ):
        figures.add(
            f"{what} of the package that the tests run",
            f"at least {asked:g} %, no test fails",
            f"{covered / all_there:.1%} of {all_there:,}" + ("" if done.returncode == 0 else ", and it failed"),
            done.returncode == 0 and covered >= asked / 100 * all_there,
        )
    return figures


PART = Part(
    "coverage",
    "Coverage",
    "Lines and branches of `mm_metrics_plugin` that the suite runs, in all its processes (`make coverage`), without the"
    " property tests, the training runs, the browser and the faults: what only they reach does not count.",
    run,
)
