"""Measurement of time and memory."""

from __future__ import annotations

import gc
import time
from typing import Any, Callable


def seconds(function: Callable[[], Any], repeat: int = 1) -> tuple[float, Any]:
    """The shortest time of ``repeat`` runs, and the value of the last."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        start = time.perf_counter()
        value = function()
        best = min(best, time.perf_counter() - start)
    return best, value


def heading(text: str) -> None:
    """Print the name of the next measurement."""
    print(f"\n## {text}\n", flush=True)


def versus(ours: float, theirs: float, peer: str, target: float, note: str = "") -> None:
    """Print the speed ratio to another tool, and whether it reaches the target."""
    ratio = theirs / ours
    verdict = "met" if ratio >= target else "MISSED"
    print(f"{peer:<44}{theirs:9.3f} s{ratio:9.1f}x (target {target:g}x: {verdict}) {note}", flush=True)


def reset_peak() -> None:
    """Reset the peak memory that :func:`peak_bytes` returns (Linux)."""
    with open("/proc/self/clear_refs", "w") as handle:
        handle.write("5")


def peak_bytes() -> int:
    """Peak memory of this process since :func:`reset_peak` (Linux)."""
    with open("/proc/self/status") as handle:
        return next(int(line.split()[1]) * 1024 for line in handle if line.startswith("VmHWM"))
