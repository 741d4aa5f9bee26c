"""How far the command got, on stderr, if somebody is looking."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Iterable, Iterator, Sequence

from mm_metrics_plugin.cli.streams import is_terminal
from mm_metrics_plugin.evaluation.report import Progress

AFTER = 1.0  # seconds; what takes less needs no bar


class Steps(Progress):
    """The steps of a command, one after the other.

    Args:
        visible: Whether a bar is wanted. It is shown only on a terminal, and only once a second has passed.
    """

    def __init__(self, visible: bool) -> None:
        self._progress = None
        if visible and is_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._whole = self._progress.add_task("", total=None)

    @contextmanager
    def running(self) -> Iterator[Steps]:
        """Shows the bar while the block runs, if it runs for long."""
        if self._progress is None:
            yield self
            return
        from threading import Timer

        timer = Timer(AFTER, self._progress.start)
        timer.daemon = True
        timer.start()
        try:
            yield self
        finally:
            timer.cancel()
            timer.join()
            if self._progress.live.is_started:
                self._progress.stop()

    def step(self, description: str) -> None:
        """Says what is done next."""
        if self._progress is not None:
            self._progress.update(self._whole, description=description)

    def track(self, numbers: Sequence[int]) -> Iterable[int]:
        """Shows how far a loop got."""
        if self._progress is None:
            return numbers
        return self._progress.track(numbers, total=len(numbers), description="images")
