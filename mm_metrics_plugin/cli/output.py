"""Which files were read, and how a report leaves the command."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from argparse import Namespace
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from mm_metrics_plugin.cli.progress import Steps
from mm_metrics_plugin.cli.streams import write_error, write_output
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.io.writing import write_all
from mm_metrics_plugin.report.tables import printable

BLOCK = 8 << 20  # bytes


def input_entry(path: str) -> Dict[str, Any]:
    """Name and SHA-256 of a file; of a folder, of the names and contents of its XML files in order.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.json").write_text("{}")
        ...     input_entry(str(Path(folder, "a.json")))["sha256"][:8]
        '44136fa3'
    """
    place, digest = Path(path), hashlib.sha256()
    try:
        if place.is_dir():
            for file in sorted(place.rglob("*.xml")):
                digest.update(str(file.relative_to(place)).encode() + b"\0")
                _add(file, digest)
        else:
            _add(place, digest)
    except OSError as error:
        raise ResultFileError(f"{place.name}: cannot be read ({error.strerror})") from None
    return {"file": place.name, "sha256": digest.hexdigest()}


def _add(path: Path, digest: Any) -> None:
    if path.exists() and not path.is_file():  # a pipe or device need not end
        raise ResultFileError(f"{path.name}: cannot be read (not a file)")
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)


def versions(*modules: str) -> Dict[str, str]:
    """Versions of Python and of what was used."""
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


@dataclass(frozen=True)
class Forms:
    """A report in all its forms, each made when it is wanted.

    Args:
        formats: What ``--format`` chooses from.
        files: What is written to OUT_DIR, by file name.
        figures: From the name of a color map to functions that draw the figures, by file name.
    """

    formats: Mapping[str, Callable[[], str]]
    files: Mapping[str, Callable[[], str]]
    figures: Callable[[str], Dict[str, Callable[[], Any]]]


def deliver(arguments: Namespace, make: Callable[[Steps], Optional[Forms]]) -> None:
    """Make a report, write its files and print it; nothing if it is another's to print.

    The numbers are written first, all files or none. Figures follow; one that cannot be drawn is a warning.
    """
    out_dir = arguments.out_dir
    if out_dir is not None:
        check_folder(Path(out_dir))
    if vars(arguments).get("html"):
        _check_page(out_dir)
    figures: Dict[str, Any] = {}
    with Steps(not arguments.quiet).running() as steps:
        forms = make(steps)
        if forms is None:
            return
        drawings: Dict[str, Callable[[], Any]] = {}
        if out_dir is not None or arguments.show:
            drawings = forms.figures(arguments.color_theme)
        if drawings:
            from mm_metrics_plugin.report.figures import check_color_theme

            check_color_theme(arguments.color_theme)
        if out_dir is not None:
            steps.step("writing")
            written = _write(Path(out_dir), {name: make() for name, make in forms.files.items()})
        if drawings:
            steps.step("drawing")
            for name, draw in drawings.items():
                figure, image = _drawn(name, draw, out_dir)
                if image is not None and out_dir is not None:
                    written += _write(Path(out_dir), {name: image})
                if figure is not None and arguments.show:
                    figures[name] = figure
    if not arguments.quiet:
        write_output(forms.formats[arguments.format](), kind=arguments.format)
        if out_dir is not None:
            # On stderr, where it mixes with no report.
            write_error(f"wrote {', '.join(written)} to {printable(out_dir)}")
    if arguments.show:
        from mm_metrics_plugin.report.figures import show

        if not show(list(figures.values())):
            warnings.warn("there is no display to show the figures on", MetricWarning)


def check_folder(path: Path) -> None:
    """Say before anything is read that a folder cannot be made.

    Raises:
        ResultFileError: The path, or a folder on the way to it, is a file or a link that leads nowhere.

    Example:
        >>> check_folder(Path("a", "folder", "to", "make"))
    """
    # The first that is there, even as a link: what is below it is yet to be made.
    there = next((one for one in (path, *path.parents) if os.path.lexists(one)), None)
    if there is None or there.is_dir():
        return
    found = "a file" if there.exists() else f"a link to {os.readlink(there)!a}, which does not exist"
    which = "" if there == path else f", and so must {str(there)!a} on the way to it"
    raise ResultFileError(f"{printable(path)}: OUT_DIR must be a folder{which} (found {found})")


def _check_page(out_dir: Optional[str]) -> None:
    """Say before anything is read that no page can be made."""
    from mm_metrics_plugin.report.page import missing_libraries

    if out_dir is None:
        raise ResultFileError("--html: OUT_DIR must be given, the folder the page goes to")
    missing = missing_libraries()
    if missing:
        raise ResultFileError(f"--html: needs {' and '.join(missing)} (pip install mm_metrics_plugin[report])")


def _write(out_dir: Path, contents: Mapping[str, Union[str, bytes, memoryview]]) -> List[str]:
    write_all({str(out_dir / name): content for name, content in contents.items()})
    return list(contents)


def _drawn(name: str, draw: Callable[[], Any], out_dir: Optional[str]) -> Tuple[Any, Optional[memoryview]]:
    """A figure and its file; nothing and a warning if it cannot be drawn, for which the report is no worse."""
    from mm_metrics_plugin.report.figures import save_png

    image = BytesIO()
    try:
        figure = draw()
        save_png(figure, image)
    except Exception as error:
        older = "; the one in OUT_DIR is of an older report" if out_dir and Path(out_dir, name).exists() else ""
        warnings.warn(f"{name} cannot be drawn ({type(error).__name__}: {error}){older}", MetricWarning)
        return None, None
    return figure, image.getbuffer()
