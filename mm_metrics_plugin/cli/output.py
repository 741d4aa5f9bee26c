"""Output of a report: files in OUT_DIR, text on standard output, figures in windows."""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import Callable, List, Optional

from mm_metrics_plugin.cli.progress import Steps
from mm_metrics_plugin.cli.streams import write_error, write_output
from mm_metrics_plugin.evaluation.report import Report
from mm_metrics_plugin.exceptions import ClassNamesError, MetricWarning
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
    """Make a report, write its files and print it. Only the first process gets a report.

    Args:
        arguments: Of the command line.
        evaluate: Makes the report.
    """
    folder = None if arguments.out_dir is None else Path(arguments.out_dir)
    given = vars(arguments)
    if folder is not None:
        check_folder(folder)
        _check_not_a_class(arguments)
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
                progress=steps,
            )
    if not arguments.quiet:
        text = TextOptions(
            given.get("matching"), given.get("verbose", False), arguments.published, _suggested(arguments)
        )
        write_output(report_outputs(report, text=text).formats[arguments.format](), kind=arguments.format)
        if folder is not None:
            # On stderr, where it mixes with no report.
            write_error(f"wrote {', '.join(saved.files)} to {printable(folder)}")
    if arguments.show:
        from mm_metrics_plugin.render.figures.confusion_matrix import show

        if not show(list(saved.figures.values())):
            warnings.warn("there is no display to show the figures on", MetricWarning)


def _suggested(arguments: Namespace) -> List[str]:
    """The arguments that were not given and add to the report."""
    given = vars(arguments)
    verbose = given.get("verbose", True)
    present = {
        "--verbose": verbose,
        "--matching": verbose or given.get("matching", True),  # merge has no such option
        "OUT_DIR": arguments.out_dir,
        "--html": arguments.html,
    }
    return [name for name, value in present.items() if not value]


def _check_not_a_class(arguments: Namespace) -> None:
    """Raises a ClassNamesError if OUT_DIR is a class: names of --classes were separated by blanks."""
    given, out_dir = vars(arguments), arguments.out_dir
    names, ground_truth = given.get("classes"), Path(given.get("ground_truth", ""))
    if names is None or Path(names).is_file() or ground_truth.suffix.lower() != ".json":
        return
    from mm_metrics_plugin.io.class_order import read_categories

    if out_dir in read_categories(str(ground_truth)).names and out_dir not in names.split(","):
        raise ClassNamesError(f"{ground_truth.name}: has class {out_dir!a}, which --classes does not name")
