"""Output of a report: a progress bar, files in OUT_DIR, text on standard output, figures in windows."""

from __future__ import annotations

import sys
import warnings
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Callable, Iterable, Iterator, Sequence, TypeVar

from mm_metrics_plugin.cli.streams import is_terminal, with_flags, write_error, write_output
from mm_metrics_plugin.exceptions import ClassNamesError, MetricWarning, ResultFileError
from mm_metrics_plugin.render.outputs import (
    PageOptions,
    SavedOutputs,
    TextOptions,
    can_draw,
    check_folder,
    check_page,
    report_outputs,
    save_outputs,
)
from mm_metrics_plugin.render.tables import printable
from mm_metrics_plugin.reports.base import Progress, Report

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

_T = TypeVar("_T")
AFTER = 1.0  # seconds before the progress bar appears
SUGGESTIONS = {  # what the last line of a report suggests
    "--verbose": "--verbose (everything)",
    "--matching": "--matching mmdet",
    "OUT_DIR": "OUT_DIR (Markdown, JSON, CSV and figures)",
    "--html": "--html (a page)",
}


class ProgressBar(Progress):
    """Shows the current step, its progress, the elapsed and the estimated remaining time."""

    def __init__(self, bar: RichProgress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def step(self, description: str) -> None:
        """Start a step."""
        self._bar.reset(self._task, total=None, description=description)

    def track(self, items: Sequence[_T]) -> Iterable[_T]:
        """Iterate over the items of the current step."""
        self._bar.update(self._task, total=len(items), completed=0)
        for item in items:
            yield item
            self._bar.advance(self._task)

    def fraction(self, value: float) -> None:
        """The fraction of the current step that is done."""
        self._bar.update(self._task, total=1.0, completed=value)


@contextmanager
def shown_progress(visible: bool) -> Iterator[Progress]:
    """Show a progress bar while the block runs, on a terminal and after a second."""
    if not visible or not is_terminal(sys.stderr):
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("remaining"),
    )
    bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
    timer = Timer(AFTER, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield ProgressBar(bar)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


def deliver(arguments: Namespace, evaluate: Callable[[Progress], Report | None]) -> None:
    """Make a report, write its files and print it. Only the first process gets a report."""
    folder = None if arguments.out_dir is None else Path(arguments.out_dir)
    values = vars(arguments)
    if folder is not None:
        check_folder(folder, option="OUT_DIR")
        _check_not_a_class(arguments)
    if arguments.show and not can_draw():
        raise ResultFileError("--show: needs matplotlib (pip install matplotlib)")
    page = None
    if arguments.html:
        if folder is None:
            flag = "--html" if arguments.html is True else arguments.html
            raise ResultFileError(f"{flag}: OUT_DIR must be given, the folder of the page")
        check_page()
        page = PageOptions(images=values.get("images"), gallery=values.get("gallery", 0))
    saved = SavedOutputs()
    with shown_progress(not arguments.quiet) as progress:
        report = evaluate(progress)
        if report is None:
            return
        if folder is not None or arguments.show:
            saved = save_outputs(
                report,
                folder,
                page=page,
                color_theme=arguments.color_theme,
                keep_figures=arguments.show,
                progress=progress,
            )
    if not arguments.quiet:
        text = TextOptions(
            values.get("matching"),
            values.get("verbose", False),
            arguments.published,
            _suggested(arguments),
            "--verbose prints all" if folder is None else "report.md has all",
        )
        printed = report_outputs(report, text=text).formats[arguments.format]()
        if arguments.format == "text":
            printed = with_flags(printed, arguments.flags)
        write_output(printed, kind=arguments.format)
        if folder is not None:  # on stderr, separate from the report
            write_error(f"wrote {', '.join(saved.files)} to {printable(folder)}")
    if arguments.show:
        from mm_metrics_plugin.render.figures.confusion_matrix import show

        if not show(list(saved.figures.values())):
            warnings.warn("there is no display to show the figures on", MetricWarning)


def _suggested(arguments: Namespace) -> list[str]:
    """What would add to the report."""
    values = vars(arguments)
    verbose = values.get("verbose", True)
    present = {
        "--verbose": verbose,
        "--matching": verbose or values.get("matching", True),  # merge has no such option
        "OUT_DIR": arguments.out_dir,
        "--html": arguments.html,
    }
    return [SUGGESTIONS[name] for name, value in present.items() if not value]


def _check_not_a_class(arguments: Namespace) -> None:
    """Raises a ClassNamesError if OUT_DIR is a class: names of --classes were separated by blanks."""
    values, out_dir = vars(arguments), arguments.out_dir
    names, ground_truth = values.get("classes"), Path(values.get("ground_truth", ""))
    if names is None or Path(names).is_file() or ground_truth.suffix.lower() != ".json":
        return
    from mm_metrics_plugin.io.class_order import read_categories

    if out_dir in read_categories(str(ground_truth)).names and out_dir not in names.split(","):
        raise ClassNamesError(f"{ground_truth.name}: has class {out_dir!a}, which --classes does not name")
