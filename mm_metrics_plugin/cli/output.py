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
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from mm_metrics_plugin.cli.progress import Steps
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.writing import write_all

BLOCK = 1 << 20


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
        figures: From the name of a colour map to figures by file name.
    """

    formats: Mapping[str, Callable[[], str]]
    files: Mapping[str, Callable[[], str]]
    figures: Callable[[str], Dict[str, Any]]


def deliver(arguments: Namespace, make: Callable[[Steps], Optional[Forms]]) -> None:
    """Make a report, write its files, all of them or none, and print it; nothing if it is another's to print."""
    out_dir = arguments.out_dir
    if out_dir is not None and Path(out_dir).exists() and not Path(out_dir).is_dir():
        raise ResultFileError(f"{Path(out_dir).name}: OUT_DIR must be a folder (found a file)")
    if vars(arguments).get("html"):
        _check_page(out_dir)
    figures: Dict[str, Any] = {}
    with Steps(not arguments.quiet).running() as steps:
        forms = make(steps)
        if forms is None:
            return
        if out_dir is not None or arguments.show:
            steps.step("drawing")
            figures = forms.figures(arguments.color_theme)
        if out_dir is not None:
            steps.step("writing")
            written = _write(Path(out_dir), forms, figures)
    if not arguments.quiet:
        _print(forms.formats[arguments.format])
        if out_dir is not None:
            # On stderr, where it mixes with no report.
            print(f"wrote {', '.join(written)} to {out_dir}", file=sys.stderr)
    if arguments.show:
        from mm_metrics_plugin.report.figures import show

        if not show(list(figures.values())):
            warnings.warn("there is no display to show the figures on")


def _check_page(out_dir: Optional[str]) -> None:
    """Say before anything is read that no page can be made."""
    from mm_metrics_plugin.report.page import missing_libraries

    if out_dir is None:
        raise ResultFileError("--html: OUT_DIR must be given, the folder the page goes to")
    missing = missing_libraries()
    if missing:
        raise ResultFileError(f"--html: needs {' and '.join(missing)} (pip install mm_metrics_plugin[report])")


def _write(out_dir: Path, forms: Forms, figures: Mapping[str, Any]) -> List[str]:
    from mm_metrics_plugin.report.figures import save_png

    contents: Dict[str, Union[str, bytes, memoryview]] = {name: make() for name, make in forms.files.items()}
    for name, figure in figures.items():
        image = BytesIO()
        save_png(figure, image)
        contents[name] = image.getbuffer()
    write_all({str(out_dir / name): content for name, content in contents.items()})
    return list(contents)


def _print(make: Callable[[], str]) -> None:
    """Print to stdout; what its encoding cannot hold is written out, not an error."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(make().encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # what it still holds would be tried again at the end, and fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from error
