"""Parts that are the suite's own tests, with more examples or more runs."""

from __future__ import annotations

import os
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
    seconds: float
    output: str

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
            return Counts(0, 1, 0, 0.0, output)
        suite = next(xml.etree.ElementTree.parse(report).getroot().iter("testsuite")).attrib
    failed = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    if done.returncode:
        print(output[-6000:], flush=True)
        failed = max(failed, 1)  # whatever the report says, pytest was not content
    return Counts(int(suite["tests"]) - failed - skipped, failed, skipped, float(suite["time"]), output)
