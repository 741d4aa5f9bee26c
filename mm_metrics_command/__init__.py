"""Starts the ``mm-metrics`` command without importing torch and mmengine.

``import mm_metrics_plugin`` registers the metrics, which imports torch and takes seconds. The command does not need
them: ``mm_metrics_plugin`` skips the registration while :func:`load` runs. Nothing else has this effect, neither the
name of a program nor an environment variable, and child processes do not inherit it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import NoReturn

__all__ = ["load", "main", "script"]

# Read by mm_metrics_plugin/__init__.py.
loading = False


def load(name: str) -> ModuleType:
    """Import a module of ``mm_metrics_plugin`` without registering the metrics.

    If ``mm_metrics_plugin`` is imported already, the metrics stay registered.

    Args:
        name: The full name of the module.

    Example:
        >>> load("mm_metrics_plugin.version").__name__
        'mm_metrics_plugin.version'
    """
    global loading
    loading = True
    try:
        return import_module(name)
    finally:
        loading = False


def main() -> int:
    """Run ``mm-metrics`` with the arguments of the command line; returns the exit code."""
    return int(load("mm_metrics_plugin.cli").main())


def script(subcommand: str) -> NoReturn:
    """Run one subcommand as a script in tools/. A detection report ends with the lines of the published recipe."""
    sys.exit(load("mm_metrics_plugin.cli").main([subcommand, *sys.argv[1:]], published=True))
