"""Base class of the reports, progress, and provenance of the inputs."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import warnings
from collections import Counter
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.io.files import PathLike
from mm_metrics_plugin.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from mm_metrics_plugin.render.outputs import ReportOutputs

_T = TypeVar("_T")
SCHEMA_VERSION = 3
GALLERY = 48  # worst images that a page shows
IN_MEMORY = "in memory"
_BLOCK = 8 << 20  # bytes


class Report:
    """Base class of the reports. ``print(report)`` prints what the command prints; notebooks show a compact table."""

    def to_dict(self) -> Dict[str, Any]:
        """The report as plain Python values, as in ``report.json``."""
        raise NotImplementedError

    @property
    def _outputs(self) -> ReportOutputs:
        from mm_metrics_plugin.render.outputs import report_outputs

        return report_outputs(self)

    def __str__(self) -> str:
        return self._outputs.formats["text"]()

    def _repr_html_(self) -> str:
        from mm_metrics_plugin.render.outputs import summary_html

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

    def figures(self, *, color_theme: str = "plasma") -> Dict[str, Figure]:
        """The figures of the report by file name, drawn with matplotlib.

        Args:
            color_theme: Name of a matplotlib color map.
        """
        return {name: draw() for name, draw in self._outputs.figures(color_theme).items()}

    def save(
        self,
        folder: PathLike,
        *,
        html: bool = False,
        images: Optional[PathLike] = None,
        gallery: int = GALLERY,
        color_theme: str = "plasma",
    ) -> List[str]:
        """Write the files that the command writes to OUT_DIR.

        Args:
            folder: Receives the files; it is made if it does not exist.
            html: Also write ``report.html``, a page that works offline.
            images: Folder of the images that the page shows.
            gallery: Most images on the page.
            color_theme: Name of a matplotlib color map.

        Returns:
            The names of the files.
        """
        from mm_metrics_plugin.render.outputs import PageOptions, save_outputs

        if not str(folder):
            raise ResultFileError("folder must be the name of a folder (found an empty name)")
        page = PageOptions(images=None if images is None else str(images), gallery=gallery) if html else None
        return save_outputs(self, Path(folder), page=page, color_theme=color_theme).files


class Progress:
    """Receives the steps of an evaluation. This class ignores them."""

    def step(self, description: str) -> None:
        """Start a step."""

    def track(self, items: Sequence[_T]) -> Iterable[_T]:
        """Iterate over the items of the current step."""
        return items

    def fraction(self, value: float) -> None:
        """The fraction of the current step that is done."""


def input_entry(source: Any) -> Dict[str, Any]:
    """Name and SHA-256 of a file, or of the XML files in a folder; an input in memory has no checksum."""
    if not is_path(source):
        return {"file": IN_MEMORY, "sha256": None}
    path, digest = Path(source), hashlib.sha256()
    is_folder = path.is_dir()
    try:
        for file in sorted(path.rglob("*.xml")) if is_folder else [path]:
            if is_folder:
                digest.update(str(file.relative_to(path)).encode() + b"\0")
            _update(digest, file)
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        if isinstance(error, ResultFileError):
            raise
        raise ResultFileError(f"{path.name!a}: cannot be read (the name contains a null byte)") from None
    return {"file": path.name, "sha256": digest.hexdigest()}


def _update(digest: Any, path: Path) -> None:
    if path.exists() and not path.is_file():  # a pipe or device need not end
        raise ResultFileError(f"{path.name}: cannot be read (not a file)")
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            digest.update(block)


def is_path(source: Any) -> bool:
    """Whether an input is a path, not an object in memory."""
    return isinstance(source, (str, os.PathLike))


def keyword_names(function: Callable[..., Any]) -> List[str]:
    """Names of the keyword-only arguments of a function, for messages about unknown options."""
    parameters = signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def check_classes(classes: Any) -> None:
    """Raises a ResultFileError unless class names are None or a sequence of distinct names."""
    if classes is None:
        return
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Sequence):
        raise ResultFileError(f"classes must be a list of names (found {classes!r})")
    for name in classes:
        if not isinstance(name, str):
            raise ResultFileError(f"classes must be a list of names (found {name!r} among them)")
    repeated = [name for name, number in Counter(classes).items() if number > 1]
    if repeated:
        raise ResultFileError(f"--classes: classes must be distinct (found {repeated[0]!a} more than once)")


def versions(*modules: str) -> Dict[str, str]:
    """Versions of Python, of this package, and of those of the modules that are imported."""
    names = [name for name in ("numpy", *modules) if sys.modules.get(name)]
    return {
        "mm_metrics_plugin": __version__,
        "python": platform.python_version(),
        **{name: str(sys.modules[name].__version__) for name in names},
    }


def warn_unreached(what: str, score_thr: float, scores: Optional[np.ndarray]) -> None:
    """Warn that no score reaches the score threshold, and give the highest score if scores are given."""
    highest = "" if scores is None else f" (the highest score is {scores.max():.4g})"
    warnings.warn(f"no {what} reaches the score threshold {score_thr:g}{highest}", MetricWarning)


def records(columns: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """A table as one dict per row, in plain Python values."""
    plain = [column if isinstance(column, list) else np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row)) for row in zip(*plain)]


def common_folder(names: Sequence[str]) -> str:
    """The folder that all nonempty names are in, "" if there is none."""
    folders = {os.path.dirname(name) for name in names if name}
    try:
        return os.path.commonpath(folders) if folders and "" not in folders else ""
    except ValueError:  # some are absolute, some are not
        return ""
