"""Warnings and tables of the metrics: through mmengine's logger inside a Runner, as Python warnings elsewhere."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator, Type

from mmengine.logging import MMLogger, print_log

from mm_metrics_plugin.exceptions import MetricWarning

_python_only: ContextVar[bool] = ContextVar("python_only", default=False)


def in_runner() -> bool:
    """Whether a Runner has set up mmengine's logger in this process.

    A Runner names its logger after the experiment. The logger that mmengine makes by itself, for whoever logs without
    a Runner, is called ``mmengine`` and has no file.

    Example:
        >>> in_runner()
        False
    """
    # Not get_current_instance alone: it would make a logger where there is none.
    return bool(MMLogger._instance_dict) and MMLogger.get_current_instance().instance_name != "mmengine"


def warn(message: str, category: Type[MetricWarning] = MetricWarning, *, stacklevel: int = 3) -> None:
    """Warn in the log file and on the console of a Runner, which only its main process does; else as Python does.

    Args:
        message: One sentence.
        category: Of the Python warning.
        stacklevel: Of the Python warning; 3 is the caller of who calls this.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn("the mean is over 2 of 3 classes")
        >>> [str(warning.message) for warning in caught]
        ['the mean is over 2 of 3 classes']
    """
    if in_runner() and not _python_only.get():
        print_log(message, logger="current", level=logging.WARNING)
    else:
        warnings.warn(message, category, stacklevel=stacklevel)


@contextmanager
def python_warnings() -> Iterator[None]:
    """While it lasts, warnings are Python's, also after a Runner was built in this process."""
    token = _python_only.set(True)
    try:
        yield
    finally:
        _python_only.reset(token)
