"""Runs every ``bench_*.py`` of this folder, or those named on the command line (``python -m benchmarks auc``)."""

from __future__ import annotations

import importlib
import platform
import sys
import warnings
from pathlib import Path

from mm_metrics_plugin.functional._arrays import usable_cores


def main() -> None:
    """Runs the benchmarks one after the other."""
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or sorted(path.stem[len("bench_") :] for path in Path(__file__).parent.glob("bench_*.py"))
    print(f"Python {platform.python_version()}, {usable_cores()} cores, {platform.machine()}")
    for name in names:
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main()
