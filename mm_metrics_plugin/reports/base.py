"""Base class of the reports, and the progress of an evaluation."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence, TypeVar, Union

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, pluralize
from mm_metrics_plugin.functional._arrays import json_values
from mm_metrics_plugin.settings import number_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from mm_metrics_plugin.render.outputs import ReportOutputs

_T = TypeVar("_T")
PathLike = Union[str, "os.PathLike[str]"]
SCHEMA_VERSION = 3
GALLERY = 48  # worst images that a page shows


class Report:
    """Base class of the reports. ``print(report)`` prints what the command prints; notebooks show the main table."""

    def to_dict(self) -> dict[str, Any]:
        """The content of ``report.json``: plain Python values, in which undefined numbers are None."""
        content: dict[str, Any] = json_values(self._content())
        return content

    def _content(self) -> dict[str, Any]:
        """The parts of ``report.json``, in its order."""
        raise NotImplementedError

    @property
    def _outputs(self) -> ReportOutputs:
        from mm_metrics_plugin.render.outputs import report_outputs

        return report_outputs(self)

    def __str__(self) -> str:
        return self._outputs.formats["text"]()

    def __repr__(self) -> str:
        from mm_metrics_plugin.render.notebook import summary_line

        return f"<{type(self).__name__}: {summary_line(self)}>"

    def _repr_html_(self) -> str:
        from mm_metrics_plugin.render.notebook import summary_html

        return summary_html(self)

    def to_markdown(self) -> str:
        """The report as Markdown, as in ``report.md``."""
        return self._outputs.formats["md"]()

    def to_dataframe(self, table: str = "") -> DataFrame:
        """One table of the report as a pandas DataFrame.

        Args:
            table: ``'per_class'`` (of a comparison ``'differences'``), which is the default, or another table that the
                report writes as a CSV file, such as ``'confusion_matrix'``.

        Raises:
            ImportError: pandas is not installed.
            ValueError: The report has no such table.
        """
        tables = self._outputs.tables
        name = table or next(iter(tables))
        if name not in tables:
            raise ValueError(f"table must be one of {', '.join(tables)} (found {table!r})")
        try:
            import pandas
        except ImportError:
            raise ImportError("to_dataframe() needs pandas: pip install pandas") from None
        header, rows = tables[name]()
        return pandas.DataFrame(rows, columns=header)

    def figures(self, *, color_theme: str = "plasma") -> dict[str, Figure]:
        """The figures of the report by file name, drawn with matplotlib.

        Args:
            color_theme: Name of a matplotlib color map.

        Raises:
            ImportError: matplotlib is not installed.
        """
        from mm_metrics_plugin.render.outputs import can_draw

        if not can_draw():
            raise ImportError("figures() needs matplotlib: pip install matplotlib")
        return {name: draw() for name, draw in self._outputs.figures(color_theme).items()}

    def save(
        self,
        folder: PathLike,
        *,
        html: bool = False,
        images: PathLike | None = None,
        gallery: int = GALLERY,
        color_theme: str = "plasma",
    ) -> list[str]:
        """Write the files that the command writes to its output folder.

        Args:
            folder: Receives the files; it is made if it does not exist.
            html: Also write ``report.html``, a page that works offline; ``images`` implies it.
            images: Folder of the images that the page shows.
            gallery: Most images on the page.
            color_theme: Name of a matplotlib color map.

        Returns:
            The names of the files.
        """
        from mm_metrics_plugin.render.outputs import PageOptions, save_outputs

        if not str(folder):
            raise ResultFileError("folder must be the name of a folder (found an empty name)")
        page = None
        if html or images is not None:
            page = PageOptions(images=None if images is None else str(images), gallery=gallery)
        return save_outputs(self, Path(folder), page=page, color_theme=color_theme).files

    def save_state(self, path: PathLike) -> None:
        """Save what the report was computed from, for ``mm-metrics report`` and :func:`merge_states`.

        Args:
            path: The ``.npz`` file.

        Raises:
            ResultFileError: The report has no state, such as a comparison.
        """
        from mm_metrics_plugin.evaluation.saved_states import save_report

        save_report(path, self)


class Progress:
    """Receives the steps of an evaluation. This class ignores them."""

    def step(self, description: str) -> None:
        """Start a step."""

    def track(self, items: Sequence[_T]) -> Iterable[_T]:
        """Iterate over the items of the current step."""
        return items

    def fraction(self, value: float) -> None:
        """The fraction of the current step that is done."""


def warn_unreached(what: str, score_thr: float, scores: np.ndarray | None) -> None:
    """Warn that no score reaches the score threshold, and give the highest score if scores are given."""
    highest = "" if scores is None else f" (the highest score is {scores.max()!s})"
    warnings.warn(f"no {what} reaches the score threshold {number_text(score_thr)}{highest}", MetricWarning)


def missing_results_lines(counts: Mapping[str, Any]) -> list[str]:
    """The number of images without results, if any."""
    missing = counts.get("images", {}).get("without_results", 0)
    return [f"{pluralize(missing, 'image')} without results, evaluated as having no detections"] if missing else []


def records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A table as one dict per row, in plain Python values."""
    plain = [column if isinstance(column, list) else np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row)) for row in zip(*plain)]


def class_key(name: str, class_name: str) -> str:
    """The key of a value of one class, ``<name>/<class>``. Names and other keys have no slash."""
    return f"{name}/{class_name}"


def class_values(name: str, classes: Sequence[str], values: Iterable[Any]) -> dict[str, Any]:
    """The values of all classes by key."""
    return {class_key(name, class_name): value for class_name, value in zip(classes, np.asarray(values).tolist())}
