"""Checks of the arguments of the public functions, and the provenance of their inputs."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections import Counter
from inspect import signature
from pathlib import Path
from typing import Any, Callable, Sequence

from mm_metrics_plugin.exceptions import ResultFileError, shortened
from mm_metrics_plugin.io.files import read_bytes
from mm_metrics_plugin.io.formats import is_path
from mm_metrics_plugin.version import __version__

IN_MEMORY = "in memory"


def input_entry(source: Any, sha256: str | None = None) -> dict[str, Any]:
    """Name and SHA-256 of an input; one in memory has no checksum.

    The file is read unless ``sha256`` is known.
    """
    if not is_path(source):
        return {"file": IN_MEMORY, "sha256": None}
    return {"file": Path(source).name, "sha256": sha256 or hashlib.sha256(read_bytes(source)).hexdigest()}


def keyword_names(function: Callable[..., Any]) -> list[str]:
    """Names of the keyword-only arguments of a function, for messages about unknown options."""
    parameters = signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def check_classes(classes: object) -> None:
    """Raises a ResultFileError unless class names are None or a sequence of distinct names."""
    if classes is None:
        return
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Sequence):
        raise ResultFileError(f"classes must be a list of names (found {shortened(classes)})")
    for name in classes:
        if not isinstance(name, str):
            raise ResultFileError(f"classes must be a list of names (found {shortened(name)} among them)")
    repeated = [name for name, number in Counter(classes).items() if number > 1]
    if repeated:
        raise ResultFileError(f"classes=[...] must be distinct (found {repeated[0]!a} more than once)")


def check_cfg_options(options: object) -> None:
    """Raises a ResultFileError unless overrides of a config are None or a list of text."""
    is_list = isinstance(options, (list, tuple)) and all(isinstance(option, str) for option in options)
    if options is not None and not is_list:
        raise ResultFileError(f"cfg_options must be a list of 'KEY=VALUE' (found {shortened(options)})")


def check_path(name: str, path: object) -> None:
    """Raises a ResultFileError unless an argument is a path or None."""
    if path is not None and not is_path(path):
        raise ResultFileError(f"{name} must be a path (found {shortened(path)})")


def versions(*modules: str) -> dict[str, str]:
    """Versions of Python, of this package, and of those of the modules that are imported."""
    names = [name for name in ("numpy", *modules) if sys.modules.get(name)]
    return {
        "mm_metrics_plugin": __version__,
        "python": platform.python_version(),
        **{name: str(sys.modules[name].__version__) for name in names},
    }


def common_folder(names: Sequence[str]) -> str:
    """The folder that all nonempty names are in, "" if there is none."""
    folders = {os.path.dirname(name) for name in names if name}
    try:
        return os.path.commonpath(folders) if folders and "" not in folders else ""
    except ValueError:  # some are absolute, some are not
        return ""
