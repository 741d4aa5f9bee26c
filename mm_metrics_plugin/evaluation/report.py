"""The base class of the reports; provenance of their inputs; progress."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Sequence, TypeVar

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_T = TypeVar("_T")
SCHEMA_VERSION = 3
GALLERY = 48  # worst images that a page shows
IN_MEMORY = "in memory"
_BLOCK = 8 << 20  # bytes


class Report:
    """Base of the reports: ``to_dict`` is the content of ``report.json``, everything else is made from the same object.

    ``print(report)`` shows what the command prints, and a notebook shows a table of the key figures.
    """

    def to_dict(self) -> Dict[str, Any]:
        """The report as plain Python values, as in the JSON file."""
        raise NotImplementedError

    def __str__(self) -> str:
        from mm_metrics_plugin.render.outputs import report_outputs

        return report_outputs(self).formats["text"]()

    def _repr_html_(self) -> str:
        from mm_metrics_plugin.render.outputs import summary_html

        return summary_html(self)

    def to_markdown(self) -> str:
        """The report as Markdown, as in ``report.md``."""
        from mm_metrics_plugin.render.outputs import report_outputs

        return report_outputs(self).formats["md"]()

    def to_dataframe(self, table: str = "") -> DataFrame:
        """One table of the report as a pandas DataFrame.

        Args:
            table: ``'per_class'`` (of a comparison ``'differences'``), which is the default, or another table that the
                report writes as a CSV file, such as ``'confusion_matrix'``.

        Raises:
            ImportError: pandas is not installed.
            ValueError: The report has no such table.
        """
        from mm_metrics_plugin.render.outputs import report_outputs

        tables = report_outputs(self).tables
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
        from mm_metrics_plugin.render.outputs import report_outputs

        return {name: draw() for name, draw in report_outputs(self).figures(color_theme).items()}

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
    """Receives the steps of an evaluation. This one shows nothing."""

    def step(self, description: str) -> None:
        """Start a step."""

    def track(self, items: Sequence[_T]) -> Iterable[_T]:
        """Iterate over the items of the current step, such as images, files or figures."""
        return items

    def fraction(self, value: float) -> None:
        """The fraction of the current step that is done."""


def input_entry(source: Any) -> Dict[str, Any]:
    """Name and SHA-256 of a file; of a folder, of the names and contents of its XML files in order.

    Args:
        source: A path; or something in memory, which has no checksum.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.json").write_text("{}")
        ...     input_entry(str(Path(folder, "a.json")))["sha256"][:8]
        '44136fa3'
    """
    if not is_path(source):
        return {"file": IN_MEMORY, "sha256": None}
    path, digest = Path(source), hashlib.sha256()
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.xml")):
                digest.update(str(file.relative_to(path)).encode() + b"\0")
                _add(file, digest)
        else:
            _add(path, digest)
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        if isinstance(error, ResultFileError):
            raise
        raise ResultFileError(f"{path.name!a}: cannot be read (the name contains a null byte)") from None
    return {"file": path.name, "sha256": digest.hexdigest()}


def is_path(source: Any) -> bool:
    """Whether an input is a path, not something in memory."""
    return isinstance(source, (str, Path)) or hasattr(source, "__fspath__")


def keyword_names(function: Callable[..., Any]) -> List[str]:
    """Names of the keyword-only arguments of a function, for messages about unknown options."""
    parameters = signature(function).parameters.values()
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]


def check_classes(classes: Any) -> None:
    """Raises a ResultFileError unless class names are None or a sequence of distinct names.

    Example:
        >>> check_classes("cat,dog")
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: classes must be a list of names (found 'cat,dog')
    """
    if classes is None:
        return
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Sequence):
        raise ResultFileError(f"classes must be a list of names (found {classes!r})")
    for name in classes:
        if not isinstance(name, str):
            raise ResultFileError(f"classes must be a list of names (found {name!r} among them)")
    repeated = [name for name, number in Counter(classes).items() if number > 1]
    if repeated:
        raise ResultFileError(f"classes must be distinct (found {repeated[0]!a} more than once)")


def is_config(source: Any) -> bool:
    """Whether an input is an OpenMMLab config."""
    return is_path(source) and str(source).endswith(".py")


def _add(path: Path, digest: Any) -> None:
    if path.exists() and not path.is_file():  # a pipe or device need not end
        raise ResultFileError(f"{path.name}: cannot be read (not a file)")
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            digest.update(block)


def versions(*modules: str) -> Dict[str, str]:
    """Versions of Python, of this package, and of modules that were used."""
    import platform

    import numpy

    from mm_metrics_plugin.version import __version__

    found = {
        "mm_metrics_plugin": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }
    found.update({name: str(sys.modules[name].__version__) for name in modules if sys.modules.get(name)})
    return found


def common_folder(names: Sequence[str]) -> str:
    """The folder that all names but empty ones are in, "" where there is none.

    Example:
        >>> common_folder(["data/val/a/1.png", "", "data/val/b/1.png"]), common_folder(["1.png"])
        ('data/val', '')
    """
    folders = {os.path.dirname(name) for name in names if name}
    try:
        return os.path.commonpath(folders) if folders and "" not in folders else ""
    except ValueError:  # some are absolute, some are not
        return ""
