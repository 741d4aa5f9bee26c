"""The outputs of a report: text, files, tables, figures and the page, and how they are written.

Numbers are written first, all files or none. A figure that cannot be drawn causes a warning.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, pluralize
from mm_metrics_plugin.io.writing import to_csv, to_json, write_all
from mm_metrics_plugin.render.tables import Table, cell, printable

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.evaluation.report import Progress, Report

Content = Union[str, bytes, memoryview]


@dataclass(frozen=True)
class TextOptions:
    """Options of the printed report.

    Attributes:
        protocols: The protocols to print; None: ``coco``, or those of the report.
        verbose: Print all sections and rows.
        published: End with the lines of the published recipe.
        suggested: Arguments to suggest in the last line.
    """

    protocols: Optional[Sequence[str]] = None
    verbose: bool = False
    published: bool = False
    suggested: Sequence[str] = ()


@dataclass(frozen=True)
class PageOptions:
    """Options of the HTML page.

    Attributes:
        images: Folder of the images; None: the folders of the config, if any.
        gallery: Maximum number of images.
    """

    images: Optional[str] = None
    gallery: int = 48

    def __post_init__(self) -> None:
        if self.images is not None and not os.path.isdir(self.images):
            raise ResultFileError(f"--images: must be a folder (found {self.images!a})")


@dataclass(frozen=True)
class ReportOutputs:
    """The outputs of a report, each made by a function.

    Attributes:
        formats: The formats of the printed report.
        files: The text files by name.
        tables: The CSV tables by name without suffix.
        figures: Maps a colormap to functions that draw the figures, by file name.
    """

    formats: Mapping[str, Callable[[], str]]
    files: Mapping[str, Callable[[], str]]
    tables: Mapping[str, Callable[[], Table]]
    figures: Callable[[str], Dict[str, Callable[[], Any]]]


@dataclass(frozen=True)
class SavedOutputs:
    """Names of the written files, and the figures by name."""

    files: List[str] = field(default_factory=list)
    figures: Dict[str, Any] = field(default_factory=dict)


def report_outputs(
    report: Report, *, text: Optional[TextOptions] = None, page: Optional[PageOptions] = None
) -> ReportOutputs:
    """All outputs of a report.

    Args:
        report: The report.
        text: Options of the printed report.
        page: Options of the page; None makes no page.
    """
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport

    if isinstance(report, DetectionReport):
        return _detection_outputs(report, text or TextOptions(), page)
    if isinstance(report, ClassificationReport):
        return _classification_outputs(report, text or TextOptions(), page)
    return _comparison_outputs(report, page)  # type: ignore[arg-type]


def save_outputs(
    report: Report,
    folder: Optional[Path],
    *,
    page: Optional[PageOptions] = None,
    color_theme: str = "plasma",
    keep_figures: bool = False,
    progress: Optional[Progress] = None,
) -> SavedOutputs:
    """Write the files of a report.

    Args:
        report: The report.
        folder: Receives the files; None writes nothing, for figures that are only shown.
        page: Options of ``report.html``; None writes no page.
        color_theme: Name of a matplotlib colormap.
        keep_figures: Whether to return the figures.
        progress: Receives the steps.
    """
    from mm_metrics_plugin.evaluation.report import Progress

    progress = progress or Progress()
    if folder is not None:
        check_folder(folder)
    if page is not None:
        check_page(folder)
    outputs, saved = report_outputs(report, page=page), SavedOutputs()
    figures = outputs.figures(color_theme)
    if figures:
        from mm_metrics_plugin.render.figures.confusion_matrix import check_color_theme

        check_color_theme(color_theme)
    if folder is not None:
        progress.step("writing")
        _write(folder, {name: outputs.files[name]() for name in progress.track(list(outputs.files))}, saved)
    if figures:
        progress.step("drawing")
    for name in progress.track(list(figures)):
        figure, image = _drawn(name, figures[name], folder)
        if image is not None and folder is not None:
            _write(folder, {name: image}, saved)
        if figure is not None and keep_figures:
            saved.figures[name] = figure
    return saved


def check_folder(path: Path, *, option: str = "OUT_DIR") -> None:
    """Raise a ResultFileError if a folder cannot be made, before anything is read.

    Args:
        path: The folder.
        option: The argument that gives it.

    Example:
        >>> check_folder(Path("a", "folder", "to", "make"))
    """
    # The first part of the path that exists, even as a broken link.
    existing = next((one for one in (path, *path.parents) if os.path.lexists(one)), None)
    if existing is None or existing.is_dir():
        return
    found = "a file" if existing.exists() else f"a link to {os.readlink(existing)!a}, which does not exist"
    which = "" if existing == path else f", and so must {str(existing)!a} on the way to it"
    raise ResultFileError(f"{printable(path)}: {option} must be a folder{which} (found {found})")


def check_page(folder: Optional[Path]) -> None:
    """Raise a ResultFileError if no page can be made, before anything is read."""
    from mm_metrics_plugin.render.html import missing_libraries

    if folder is None:
        raise ResultFileError("--html: OUT_DIR must be given, the folder the page goes to")
    missing = missing_libraries()
    if missing:
        raise ResultFileError(f"--html: needs {' and '.join(missing)} (pip install {' '.join(missing)})")


def _write(folder: Path, contents: Mapping[str, Content], saved: SavedOutputs) -> None:
    write_all({str(folder / name): content for name, content in contents.items()})
    saved.files.extend(contents)


def _drawn(name: str, draw: Callable[[], Any], folder: Optional[Path]) -> Tuple[Any, Optional[bytes]]:
    """A figure and its PNG; a warning if it cannot be drawn."""
    from mm_metrics_plugin.render.figures.confusion_matrix import save_png

    image = BytesIO()
    try:
        figure = draw()
        save_png(figure, image)
    except Exception as error:
        older = "; the one in OUT_DIR is of an older report" if folder and (folder / name).exists() else ""
        warnings.warn(f"{name} cannot be drawn ({type(error).__name__}: {error}){older}", MetricWarning)
        return None, None
    return figure, image.getvalue()


def _make_outputs(
    report: Report,
    name: str,
    *,
    text: Callable[[], str],
    markdown: Callable[[], str],
    tables: Mapping[str, Callable[[], Table]],
    page: Optional[Callable[[], str]],
    figures: Callable[[str], Dict[str, Callable[[], Any]]],
) -> ReportOutputs:
    """The outputs of a report whose JSON and Markdown files have this name."""
    main_table = next(iter(tables))
    csv: Dict[str, Callable[[], str]] = {
        table: lambda make=make: to_csv(*make())  # type: ignore[misc]  # the default binds the loop variable
        for table, make in tables.items()
    }
    formats = {"text": text, "json": lambda: to_json(report.to_dict()), "md": markdown, "csv": csv[main_table]}
    files = {f"{name}.json": formats["json"], f"{name}.md": markdown}
    files.update({f"{table}.csv": make for table, make in csv.items()})
    if page is not None:
        files["report.html"] = page
    return ReportOutputs(formats, files, tables, figures)


def _detection_outputs(report: DetectionReport, text: TextOptions, page: Optional[PageOptions]) -> ReportOutputs:
    from mm_metrics_plugin.render.markdown import detection_markdown
    from mm_metrics_plugin.render.tables import curve_rows, detection_class_rows, detection_matrix_rows

    analysis = report.analysis
    tables: Dict[str, Callable[[], Table]] = {
        "per_class": lambda: detection_class_rows(report),
        "confusion_matrix": lambda: detection_matrix_rows(report),
    }
    if analysis is not None:
        tables["curves"] = lambda: curve_rows(analysis)

    def make_text() -> str:
        from mm_metrics_plugin.evaluation.detection import DEFAULT_MATCHING
        from mm_metrics_plugin.render.text import detection_text  # imports rich

        protocols = text.protocols
        if protocols is None and report.settings.matching == DEFAULT_MATCHING:
            protocols = DEFAULT_MATCHING[:1]
        return detection_text(
            report, protocols=protocols, verbose=text.verbose, published=text.published, suggested=text.suggested
        )

    def make_page() -> str:
        from mm_metrics_plugin.render.html.detection import detection_page

        return detection_page(report, page or PageOptions())

    outputs = _make_outputs(
        report,
        "report",
        text=make_text,
        markdown=lambda: detection_markdown(report),
        tables=tables,
        page=None if page is None else make_page,
        figures=lambda color_theme: _detection_figures(report, color_theme),
    )
    if analysis is None or analysis.points is None:
        return outputs
    return replace(outputs, files={**outputs.files, "thresholds.json": lambda: to_json(analysis.thresholds())})


def _detection_figures(report: DetectionReport, color_theme: str) -> Dict[str, Callable[[], Any]]:
    """The matrix of the first protocol, those of others if they are not there by default, and the curves."""
    from mm_metrics_plugin.evaluation.detection import DEFAULT_MATCHING
    from mm_metrics_plugin.render.figures.confusion_matrix import confusion_figure

    settings = report.settings
    figures: Dict[str, Callable[[], Any]] = {}
    for protocol in report.protocols[:1] if settings.matching == DEFAULT_MATCHING else report.protocols:
        name = "confusion_matrix.png" if not figures else f"confusion_matrix_{protocol.protocol}.png"
        title = f"{protocol.protocol}, score >= {settings.score_thr:g}, IoU >= {settings.iou_thr:g}"
        figures[name] = partial(
            confusion_figure, protocol.result.matrix, None, report.labels, title=title, color_theme=color_theme
        )
    if report.analysis is not None:
        from mm_metrics_plugin.render.figures.curves import detection_curve_figures

        curves = report.analysis.curves

        @lru_cache(maxsize=None)
        def both() -> List[Any]:
            return detection_curve_figures(curves, report.classes, color_theme)

        figures["pr_curves.png"] = lambda: both()[0]
        figures["confidence_curves.png"] = lambda: both()[1]
    return figures


def _classification_outputs(
    report: ClassificationReport, text: TextOptions, page: Optional[PageOptions]
) -> ReportOutputs:
    from mm_metrics_plugin.render.markdown import classification_markdown
    from mm_metrics_plugin.render.tables import classification_class_rows, classification_matrix_rows

    tables: Dict[str, Callable[[], Table]] = {"per_class": lambda: classification_class_rows(report)}
    if report.matrix is not None:
        tables["confusion_matrix"] = lambda: classification_matrix_rows(report)

    def make_text() -> str:
        from mm_metrics_plugin.render.text import classification_text  # imports rich

        return classification_text(report, verbose=text.verbose)

    def make_page() -> str:
        from mm_metrics_plugin.render.html.classification import classification_page

        return classification_page(report)

    return _make_outputs(
        report,
        "report",
        text=make_text,
        markdown=lambda: classification_markdown(report),
        tables=tables,
        page=None if page is None else make_page,
        figures=lambda color_theme: _classification_figures(report, color_theme),
    )


def _classification_figures(report: ClassificationReport, color_theme: str) -> Dict[str, Callable[[], Any]]:
    from mm_metrics_plugin.render.figures.confusion_matrix import confusion_figure
    from mm_metrics_plugin.render.figures.curves import classification_curve_figure

    figures: Dict[str, Callable[[], Any]] = {}
    matrix, curves = report.matrix, report.curves
    if matrix is not None:
        title = f"accuracy {report.accuracy:.4f}"
        figures["confusion_matrix.png"] = lambda: confusion_figure(
            matrix, None, report.classes, title=title, color_theme=color_theme
        )
    if curves is not None:
        figures["curves.png"] = lambda: classification_curve_figure(curves, report.classes, color_theme)
    return figures


def _comparison_outputs(report: ComparisonReport, page: Optional[PageOptions]) -> ReportOutputs:
    from mm_metrics_plugin.render.comparison import changed_rows, comparison_sections, difference_rows
    from mm_metrics_plugin.render.markdown import comparison_markdown

    def make_text() -> str:
        from mm_metrics_plugin.render.text import sections_text  # imports rich

        return sections_text(comparison_sections(report))

    def make_page() -> str:
        from mm_metrics_plugin.render.html.comparison import comparison_page

        return comparison_page(report, page or PageOptions())

    return _make_outputs(
        report,
        "comparison",
        text=make_text,
        markdown=lambda: comparison_markdown(report),
        tables={"differences": lambda: difference_rows(report), "changed_images": lambda: changed_rows(report)},
        page=None if page is None else make_page,
        figures=lambda color_theme: {},
    )


MAX_SUMMARY_ROWS = 20


def summary_html(report: Report) -> str:
    """A compact table for a notebook: one row per class, or per difference over all classes.

    Example:
        >>> import numpy as np
        >>> from mm_metrics_plugin.evaluation.classification import evaluate_classification
        >>> scores, labels = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1])
        >>> report = evaluate_classification((scores, labels), classes=["a<b", "c"])
        >>> "a&lt;b" in summary_html(report), "accuracy" in summary_html(report)
        (True, True)
    """
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport

    outputs = report_outputs(report)
    header, rows = next(iter(outputs.tables.values()))()
    if isinstance(report, ComparisonReport):
        title = f"{pluralize(report.images, 'image')}, confidence level {report.settings.ci:g}"
        rows = [row for row in rows if row[header.index("class")] in (None, "")] if "class" in header else rows
    elif isinstance(report, DetectionReport):
        first = report.protocols[0]
        figures = dict(first.means)
        if report.analysis is not None:
            figures = {"mAP": report.analysis.average_precision.to_dict()["mAP"], **figures}
        title = ", ".join(f"{name} {cell(value)}" for name, value in figures.items())
        rows = [row[1:] for row in rows if row[0] == first.protocol]
        header = header[1:]
    else:
        title = ", ".join(f"{name} {cell(value)}" for name, value in report.means.items())  # type: ignore[attr-defined]
    more = f"<p>{len(rows) - MAX_SUMMARY_ROWS} more rows</p>" if len(rows) > MAX_SUMMARY_ROWS else ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape('' if value is None else cell(value))}</td>" for value in row) + "</tr>"
        for row in rows[:MAX_SUMMARY_ROWS]
    )
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
