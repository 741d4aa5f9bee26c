"""A progress bar on stderr, if it is a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterable, Iterator, Optional, Sequence, TypeVar

from mm_metrics_plugin.cli.streams import is_terminal
from mm_metrics_plugin.evaluation.report import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

_T = TypeVar("_T")
AFTER = 1.0  # seconds before the bar appears


class Steps(Progress):
    """Shows the current step, how far its loop is, the elapsed time and an estimate of the remaining time.

    Args:
        visible: Show a bar. It appears only on a terminal, after a second.
    """

    def __init__(self, visible: bool) -> None:
        self._progress: Optional[RichProgress] = None
        if visible and is_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("elapsed,"),
                TimeRemainingColumn(),
                TextColumn("remaining"),
            )
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=None)

    @contextmanager
    def running(self) -> Iterator[Steps]:
        """Show the bar while the block runs."""
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
        """Start a step."""
        if self._progress is not None:
            self._progress.reset(self._task, total=None, description=description)

    def track(self, items: Sequence[_T]) -> Iterable[_T]:
        """Iterate over the items of the current step."""
        if self._progress is None:
            return items
        self._progress.update(self._task, total=len(items), completed=0)
        return self._advance(items, self._progress)

    def fraction(self, value: float) -> None:
        """Show the fraction of the current step that is done."""
        if self._progress is not None:
            self._progress.update(self._task, total=1.0, completed=value)

    def _advance(self, items: Sequence[_T], progress: RichProgress) -> Iterator[_T]:
        for item in items:
            yield item
            progress.advance(self._task)
