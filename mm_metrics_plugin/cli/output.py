"""How a report leaves the command: files in OUT_DIR, text on standard output, windows."""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import Callable, Optional

from mm_metrics_plugin.cli.progress import Steps
from mm_metrics_plugin.cli.streams import write_error, write_output
from mm_metrics_plugin.evaluation.report import Report
from mm_metrics_plugin.exceptions import MetricWarning
from mm_metrics_plugin.render.outputs import (
    PageOptions,
    SavedOutputs,
    TextOptions,
    check_folder,
    check_page,
    report_outputs,
    save_outputs,
)
from mm_metrics_plugin.render.tables import printable


def deliver(arguments: Namespace, evaluate: Callable[[Steps], Optional[Report]]) -> None:
    """Make a report, write its files and print it; nothing on processes that get no report.

    Args:
        arguments: Of the command line.
        evaluate: Makes the report.
    """
    folder = None if arguments.out_dir is None else Path(arguments.out_dir)
    given = vars(arguments)
    if folder is not None:
        check_folder(folder)
    page = None
    if arguments.html:
        check_page(folder)
        page = PageOptions(images=given.get("images"), gallery=given.get("gallery", 0))
    saved = SavedOutputs()
    with Steps(not arguments.quiet).running() as steps:
        report = evaluate(steps)
        if report is None:
            return
        if folder is not None or arguments.show:
            saved = save_outputs(
                report,
                folder,
                page=page,
                color_theme=arguments.color_theme,
                keep_figures=arguments.show,
                step=steps.step,
            )
    if not arguments.quiet:
        text = TextOptions(given.get("matching"), given.get("verbose", False), arguments.published)
        write_output(report_outputs(report, text=text).formats[arguments.format](), kind=arguments.format)
        if folder is not None:
            # On stderr, where it mixes with no report.
            write_error(f"wrote {', '.join(saved.files)} to {printable(folder)}")
    if arguments.show:
        from mm_metrics_plugin.render.figures.confusion_matrix import show

        if not show(list(saved.figures.values())):
            warnings.warn("there is no display to show the figures on", MetricWarning)
