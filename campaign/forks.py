"""The integration tests on the maintained forks of OpenMMLab, in the environment that ``make test-forks`` makes."""

from __future__ import annotations

import subprocess

from campaign.environments import ROOT
from campaign.part import Figures, Part
from campaign.suites import pytest_counts

FEWEST_PASSED = 15


def run() -> Figures:
    """The tests, once the environment is there."""
    figures = Figures()
    subprocess.run(["make", "--no-print-directory", ".venv-forks/.stack"], cwd=ROOT, check=True)
    counts = pytest_counts(["tests/integration"], python=str(ROOT / ".venv-forks" / "bin" / "python"))
    figures.add(
        ", ".join(line.replace("==", " ") for line in _forks()),
        f"at least {FEWEST_PASSED} tests, none fails",
        f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped",
        counts.good and counts.passed >= FEWEST_PASSED,
    )
    return figures


def _forks():
    lines = (ROOT / "requirements" / "forks.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("onedl-")]


PART = Part("forks", "Forks", "The integration tests on the maintained forks: real training and real tools.", run)
