"""``functional/``, ``states/`` and ``io/`` on the oldest and on the newest Python, NumPy and SciPy, without torch.

``python -m campaign.versions`` (``make test-versions``) runs it alone and writes nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import List

from campaign.environments import ROOT, environment, interpreter, newest
from campaign.part import Figures, Part
from campaign.suites import pytest_counts

ROOMS = ("functional", "states", "io")
FEWEST_PASSED = 600  # so that a run in which nearly all was skipped is no success
# What only the tests use; pycocotools needs no torch, and is the peer of most of detection.
TOOLS = ["pytest", "hypothesis", "pycocotools", "scikit-learn"]


def oldest_requirements() -> List[str]:
    """Every runtime requirement that works without torch, at the oldest version it may have."""
    lines = [line for name in ("runtime", "report") for line in _requirements(name)]
    oldest = [line.replace(">=", "==") for line in lines if not line.startswith("mmengine")]
    return [*oldest, *(tool.replace("scikit-learn", "scikit-learn==1.0") for tool in TOOLS)]


def newest_requirements() -> List[str]:
    """The same, whatever version is the newest."""
    names = [re.split("[>=]", line)[0] for name in ("runtime", "report") for line in _requirements(name)]
    return ["--upgrade", *(name for name in names if name != "mmengine"), *TOOLS]


def _requirements(name: str) -> List[str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def run() -> Figures:
    """Tests and doctests of the three rooms on both."""
    figures = Figures()
    for name, python, requirements in (
        ("oldest", interpreter("3.8"), oldest_requirements()),
        ("newest", newest(), newest_requirements()),
    ):
        if python is None:
            figures.add(f"the {name} Python", f"{FEWEST_PASSED} tests pass", "there is no such Python here", False)
            continue
        inside = environment(name, python, requirements)
        counts = pytest_counts(
            [
                *("-c", "/dev/null", "--rootdir", str(ROOT), "-q", "-p", "no:cacheprovider"),
                *("-p", "campaign.without_stack", "--doctest-modules"),
                *("-o", "doctest_optionflags=NORMALIZE_WHITESPACE ELLIPSIS"),
                *(f"tests/{room}" for room in ROOMS),
                *(f"mm_metrics_plugin/{room}" for room in ROOMS),
            ],
            python=str(inside),
        )
        figures.add(
            _versions(inside),
            f"at least {FEWEST_PASSED} tests, none fails",
            f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} need the stack or a newer peer",
            counts.good and counts.passed >= FEWEST_PASSED,
        )
    return figures


def _versions(python: Path) -> str:
    script = (
        "import platform, numpy, scipy, sklearn, matplotlib\n"
        "print(f'Python {platform.python_version()}, NumPy {numpy.__version__}, SciPy {scipy.__version__},'"
        "f' scikit-learn {sklearn.__version__}, Matplotlib {matplotlib.__version__}')"
    )
    return subprocess.run([str(python), "-c", script], capture_output=True, text=True, check=True).stdout.strip()


PART = Part(
    "versions",
    "Versions",
    "The tests and examples of `functional/`, `states/` and `io/` that need neither torch nor OpenMMLab, on the oldest"
    " supported Python and packages and on the newest there are.",
    run,
)

if __name__ == "__main__":
    sys.exit(0 if run().good else 1)
