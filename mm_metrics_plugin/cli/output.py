"""Which files were read, and how a report leaves the command."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, Mapping, Sequence

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.writing import whole_file, write_text

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
    found.update({name: str(sys.modules[name].__version__) for name in modules if name in sys.modules})
    return found


def check_out_dir(out_dir: Any) -> None:
    """Refuse an OUT_DIR that is a file before anything is computed."""
    if out_dir is not None and Path(out_dir).exists() and not Path(out_dir).is_dir():
        raise ResultFileError(f"{Path(out_dir).name}: OUT_DIR must be a folder (found a file)")


def write_files(out_dir: str, texts: Mapping[str, str], figures: Mapping[str, Any]) -> None:
    """Write every file of a report, each whole or not at all."""
    from mm_metrics_plugin.report.figures import save_png

    for name, text in texts.items():
        write_text(Path(out_dir, name), text)
    for name, figure in figures.items():
        with whole_file(Path(out_dir, name)) as temporary:
            save_png(figure, temporary)


def show_figures(figures: Iterable[Any]) -> None:
    """Open the figures in windows, or say that there is nowhere to."""
    from mm_metrics_plugin.report.figures import show

    if not show(list(figures)):
        print("mm-metrics: warning: there is no display to show the figures on", file=sys.stderr)


def print_text(text: str) -> None:
    """Print to stdout; what its encoding cannot hold is written out, not an error."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def said(names: Sequence[str], out_dir: str) -> None:
    """Say on stderr, where it mixes with no report, what was written."""
    print(f"wrote {', '.join(names)} to {out_dir}", file=sys.stderr)
