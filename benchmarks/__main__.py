"""Run all benchmarks (``bench_*.py``), or those named on the command line: ``python -m benchmarks auc``."""

from __future__ import annotations

import argparse
import importlib
import platform
import warnings
from pathlib import Path

from mm_metrics_plugin.functional._arrays import usable_cores


def main() -> None:
    """Run the benchmarks one after the other."""
    known = sorted(path.stem[len("bench_") :] for path in Path(__file__).parent.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Runs the benchmarks, all by default.")
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"a benchmark to run: {', '.join(known)}")
    names = parser.parse_args().names or known
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!a}; there are {', '.join(known)}")
    warnings.simplefilter("ignore")
    print(f"Python {platform.python_version()}, {usable_cores()} cores, {platform.machine()}")
    for name in names:
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main()
