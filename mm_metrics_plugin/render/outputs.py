"""The outputs of a report: text, files, tables, figures and the page, and how they are written.

Numbers are written first, all files or none. A figure that cannot be drawn causes a warning.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Sequence

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.io.writing import to_csv, to_json, write_all
from mm_metrics_plugin.render.tables import Table, matrix_csv, printable
from mm_metrics_plugin.settings import number_text, require_int

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport
    from mm_metrics_plugin.render.sections import Section
    from mm_metrics_plugin.reports.base import Progress, Report
    from mm_metrics_plugin.reports.classification import ClassificationReport
    from mm_metrics_plugin.reports.detection import DetectionReport
    from mm_metrics_plugin.reports.detection_reports import DetectionReports

Draw = Callable[[], Any]


@dataclass(frozen=True)
class TextOptions:
    """Options of the printed report.

    Attributes:
        matching_rules: The matching rules to print; None: ``coco``, or those of the report.
        verbose: Print all sections and rows, not only one screen.
        published: End with the published summary of mmdet's counting.
        suggested: What the last line suggests.
        everything: Where to find what one screen leaves out.
    """

    matching_rules: Sequence[str] | None = None
    verbose: bool = False
    published: bool = False
    suggested: Sequence[str] = ()
    everything: str = "to_markdown() has all"


@dataclass(frozen=True)
class PageOptions:
    """Options of the HTML page.

    Attributes:
        images: Folder of the images; None: the folders of the config, if any.
        gallery: Maximum number of images.
    """

    images: str | None = None
    gallery: int = 48

    def __post_init__(self) -> None:
        require_int("gallery", self.gallery, low=0)
        if self.images is not None and not os.path.isdir(self.images):
            raise ResultFileError(f"images={self.images!a} must be a folder")


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
    figures: Callable[[str], dict[str, Callable[[], Any]]]


@dataclass(frozen=True)
class SavedOutputs:
    """Names of the written files, and the figures by name."""

    files: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def report_outputs(
    report: Report, *, text: TextOptions | None = None, page: PageOptions | None = None
) -> ReportOutputs:
    """All outputs of a report.

    Args:
        report: The report.
        text: Options of the printed report.
        page: Options of the page; None makes no page.
    """
    from mm_metrics_plugin.render.markdown import to_markdown
    from mm_metrics_plugin.reports.detection_reports import DetectionReports

    if isinstance(report, DetectionReports):
        return _outputs_by_iou_type(report, text, page)
    parts = report_parts(report)

    def make_text() -> str:
        from mm_metrics_plugin.render.text import to_screen, to_text  # imports rich

        options = text or TextOptions()
        sections = parts.sections(options)
        return to_text(sections) if options.verbose else to_screen(sections, options.everything)

    csv: dict[str, Callable[[], str]] = {name: partial(_to_csv, make) for name, make in parts.tables.items()}
    formats: dict[str, Callable[[], str]] = {
        "text": make_text,
        "json": lambda: to_json(report.to_dict()),
        "md": lambda: to_markdown(parts.title, parts.sections(None)),
        "csv": next(iter(csv.values())),
    }
    files = {f"{parts.name}.json": formats["json"], f"{parts.name}.md": formats["md"]}
    files.update({f"{name}.csv": make for name, make in csv.items()})
    if page is not None:
        files["report.html"] = partial(parts.page, page)
    files.update(parts.files)
    return ReportOutputs(formats, files, parts.tables, parts.figures)


def _outputs_by_iou_type(
    reports: DetectionReports, text: TextOptions | None, page: PageOptions | None
) -> ReportOutputs:
    """JSON, text, the table per class and an index page of all IoU types, and everything of each in its folder."""
    from mm_metrics_plugin.render.html.detection_reports import detection_reports_page
    from mm_metrics_plugin.render.markdown import to_markdown

    text, last = text or TextOptions(), list(reports.reports)[-1]
    texts = {name: text if name == last else replace(text, suggested=()) for name in reports.reports}
    outputs = {name: report_outputs(each, text=texts[name], page=page) for name, each in reports.reports.items()}
    titles = {name: f"{each.shapes[0].upper()}{each.shapes[1:]} ({name})" for name, each in reports.reports.items()}

    def make_text() -> str:
        return "\n".join(f"== {titles[name]} ==\n\n{each.formats['text']()}" for name, each in outputs.items())

    def make_markdown() -> str:
        sections = {name: report_parts(each).sections(None) for name, each in reports.reports.items()}
        documents = (to_markdown(titles[name], each, level=2) for name, each in sections.items())
        return "\n".join(["# Detection report\n", *documents])

    def per_class() -> Table:
        tables = {name: each.tables["per_class"]() for name, each in outputs.items()}
        header = ["iou_type", *tables[last][0]]
        return header, [[name, *row] for name, (_, rows) in tables.items() for row in rows]

    def by_folder(kind: str) -> dict[str, Any]:
        return {f"{name}/{key}": make for name, each in outputs.items() for key, make in getattr(each, kind).items()}

    formats: dict[str, Callable[[], str]] = {
        "text": make_text,
        "json": lambda: to_json(reports.to_dict()),
        "md": make_markdown,
        "csv": partial(_to_csv, per_class),
    }
    files = {"report.json": formats["json"], "report.md": formats["md"], "per_class.csv": formats["csv"]}
    if page is not None:
        files["report.html"] = partial(detection_reports_page, reports, titles)
    return ReportOutputs(
        formats,
        {**files, **by_folder("files")},
        {"per_class": per_class, **by_folder("tables")},
        lambda color_theme: {
            f"{name}/{key}": draw for name, each in outputs.items() for key, draw in each.figures(color_theme).items()
        },
    )


def _to_csv(make: Callable[[], Table]) -> str:
    return to_csv(*make())


class ReportParts(NamedTuple):
    """What reports of different kinds have in common."""

    title: str
    name: str  # of the JSON and Markdown files
    sections: Callable[[TextOptions | None], list[Section]]  # None: all, for Markdown
    tables: Mapping[str, Callable[[], Table]]
    page: Callable[[PageOptions], str]
    figures: Callable[[str], dict[str, Draw]]
    files: Mapping[str, Callable[[], str]]  # further ones


def report_parts(report: Report) -> ReportParts:
    """The parts of a report by its kind."""
    from mm_metrics_plugin.reports.classification import ClassificationReport
    from mm_metrics_plugin.reports.detection import DetectionReport

    if isinstance(report, DetectionReport):
        return _detection_parts(report)
    if isinstance(report, ClassificationReport):
        return _classification_parts(report)
    return _comparison_parts(report)  # type: ignore[arg-type]


def _detection_parts(report: DetectionReport) -> ReportParts:
    from mm_metrics_plugin.render.detection import class_csv, curve_csv, detection_sections
    from mm_metrics_plugin.render.html.detection import detection_page

    analysis = report.analysis
    matrices = {rule.name: rule.result.matrix for rule in report.matching_rules}
    tables: dict[str, Callable[[], Table]] = {
        "per_class": partial(class_csv, report),
        "confusion_matrix": partial(matrix_csv, matrices, report.labels),
    }
    files: dict[str, Callable[[], str]] = {}
    if analysis is not None:
        tables["curves"] = partial(curve_csv, analysis)
        if analysis.points is not None:
            files["thresholds.json"] = lambda: to_json(analysis.thresholds())
    sections, page = partial(detection_sections, report), partial(detection_page, report)
    return ReportParts("Detection report", "report", sections, tables, page, partial(_detection_figures, report), files)


def _detection_figures(report: DetectionReport, color_theme: str) -> dict[str, Draw]:
    """The matrix of the first matching rule, those of others unless they are there by default, and the curves."""
    from mm_metrics_plugin.render.detection import default_rules
    from mm_metrics_plugin.render.figures.confusion_matrix import confusion_figure
    from mm_metrics_plugin.render.figures.curves import froc_curve_figure, pr_curve_figure, threshold_curve_figure

    settings = report.settings
    figures: dict[str, Draw] = {}
    for rule in default_rules(report):
        name = f"confusion_matrix_{rule.name}.png" if figures else "confusion_matrix.png"
        match = f"{report.overlap_name} >= {number_text(settings.iou_thr)}"
        title = f"{rule.name}, score >= {number_text(settings.score_thr)}, {match}"
        matrix = rule.result.matrix
        figures[name] = partial(confusion_figure, matrix, report.labels, title=title, color_theme=color_theme)
    if report.analysis is not None:
        arguments = report.analysis.curves, report.classes, color_theme
        figures["pr_curves.png"] = partial(pr_curve_figure, *arguments)
        figures["confidence_curves.png"] = partial(threshold_curve_figure, *arguments)
        if report.analysis.froc is not None:
            figures["froc_curves.png"] = partial(froc_curve_figure, report.analysis.froc, report.classes, color_theme)
    return figures


def _classification_parts(report: ClassificationReport) -> ReportParts:
    from mm_metrics_plugin.render.classification import class_csv, classification_sections
    from mm_metrics_plugin.render.html.classification import classification_page

    matrix = report.matrix
    tables: dict[str, Callable[[], Table]] = {"per_class": partial(class_csv, report)}
    if matrix is not None:
        tables["confusion_matrix"] = partial(matrix_csv, {"": matrix}, report.classes)
    sections, page = partial(classification_sections, report), partial(classification_page, report)
    figures = partial(_classification_figures, report)
    return ReportParts("Classification report", "report", sections, tables, page, figures, {})


def _classification_figures(report: ClassificationReport, color_theme: str) -> dict[str, Draw]:
    from mm_metrics_plugin.render.figures.confusion_matrix import confusion_figure
    from mm_metrics_plugin.render.figures.curves import classification_curve_figure

    figures: dict[str, Draw] = {}
    if report.matrix is not None:
        title = f"accuracy {report.accuracy:.4f}"
        figures["confusion_matrix.png"] = partial(
            confusion_figure, report.matrix, report.classes, title=title, color_theme=color_theme
        )
    if report.curves is not None:
        figures["curves.png"] = partial(classification_curve_figure, report.curves, report.classes, color_theme)
    return figures


def _comparison_parts(report: ComparisonReport) -> ReportParts:
    from mm_metrics_plugin.render.comparison import changed_csv, comparison_sections, difference_csv
    from mm_metrics_plugin.render.html.comparison import comparison_page

    tables = {"differences": partial(difference_csv, report), "changed_images": partial(changed_csv, report)}
    sections, page = (lambda text: comparison_sections(report)), partial(comparison_page, report)
    return ReportParts("Comparison", "comparison", sections, tables, page, lambda color_theme: {}, {})


def save_outputs(
    report: Report,
    folder: Path | None,
    *,
    page: PageOptions | None = None,
    color_theme: str = "plasma",
    keep_figures: bool = False,
    progress: Progress | None = None,
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
    from mm_metrics_plugin.reports.base import Progress

    progress = progress or Progress()
    if folder is not None:
        check_folder(folder)
    if page is not None:
        check_page()
    outputs, saved = report_outputs(report, page=page), SavedOutputs()
    figures = outputs.figures(color_theme)
    if figures and not can_draw():
        _warn_not_drawn(list(figures), "matplotlib is not installed: pip install matplotlib", folder)
        figures = {}
    if figures:
        from mm_metrics_plugin.render.figures.confusion_matrix import check_color_theme, save_png

        check_color_theme(color_theme)
    if folder is not None:
        progress.step("writing")
        contents = {name: outputs.files[name]() for name in progress.track(list(outputs.files))}
        write_all({str(folder / name): content for name, content in contents.items()})
        saved.files.extend(contents)
    if figures:
        progress.step("drawing")
    for name in progress.track(list(figures)):
        image = BytesIO()
        try:
            figure = figures[name]()
            save_png(figure, image)
        except Exception as error:
            _warn_not_drawn([name], f"{type(error).__name__}: {error}", folder)
            continue
        if folder is not None:
            write_all({str(folder / name): image.getvalue()})
            saved.files.append(name)
        if keep_figures:
            saved.figures[name] = figure
    return saved


def _warn_not_drawn(names: Sequence[str], reason: str, folder: Path | None) -> None:
    older = [name for name in names if folder is not None and (folder / name).exists()]
    found = f"; the folder has {', '.join(older)} of an older report" if older else ""
    warnings.warn(f"{', '.join(names)} cannot be drawn ({reason}){found}", MetricWarning)


def check_folder(path: Path, *, option: str = "folder") -> None:
    """Raise a ResultFileError if the folder of an option cannot be made, before anything is read."""
    # The first part of the path that exists, even as a broken link.
    existing = next((part for part in (path, *path.parents) if os.path.lexists(part)), None)
    if existing is None or existing.is_dir():
        return
    kind = "a file" if existing.exists() else f"a link to {os.readlink(existing)!a}, which does not exist"
    parent = "" if existing == path else f", and so must {str(existing)!a} on the way to it"
    raise ResultFileError(f"{printable(path)}: {option} must be a folder{parent} (found {kind})")


def can_draw() -> bool:
    """Whether matplotlib, which draws the figures, is installed."""
    return find_spec("matplotlib") is not None


def check_page() -> None:
    """Raise a ResultFileError if a library that pages need is missing, before anything is read."""
    from mm_metrics_plugin.render.html import missing_libraries

    missing = missing_libraries()
    if missing:
        raise ResultFileError(f"html=True: needs {', '.join(missing)} (pip install {' '.join(missing)})")
