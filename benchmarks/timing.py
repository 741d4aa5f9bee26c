"""Measuring time and memory the same way everywhere."""

from __future__ import annotations

import gc
import time
from typing import Any, Callable, Tuple


def seconds(function: Callable[[], Any], repeat: int = 1) -> Tuple[float, Any]:
    """The best of ``repeat`` runs, and the value of the last."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        start = time.perf_counter()
        value = function()
        best = min(best, time.perf_counter() - start)
    return best, value


def heading(text: str) -> None:
    """Prints what is measured next."""
    print(f"\n## {text}\n", flush=True)


def versus(ours: float, theirs: float, peer: str, wanted: float, note: str = "") -> None:
    """Prints a ratio beside the one that was promised."""
    ratio = theirs / ours
    verdict = "met" if ratio >= wanted else "MISSED"
    print(f"{peer:<44}{theirs:9.3f} s{ratio:9.1f}x (promised {wanted:g}x: {verdict}) {note}", flush=True)


def reset_peak() -> None:
    """Forgets the most memory held so far, so that :func:`peak_bytes` speaks of what comes next (Linux)."""
    with open("/proc/self/clear_refs", "w") as handle:
        handle.write("5")


def peak_bytes() -> int:
    """The most memory this process has held since :func:`reset_peak` (Linux)."""
    with open("/proc/self/status") as handle:
        return next(int(line.split()[1]) * 1024 for line in handle if line.startswith("VmHWM"))
