"""Keys, tables and warnings in the log of a Runner."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Iterable, Iterator, Mapping, Sequence

from mmengine.logging import MMLogger, print_log

from mm_metrics_plugin.exceptions import MetricWarning
from mm_metrics_plugin.render.tables import printable
from mm_metrics_plugin.settings import require

_python_only: ContextVar[bool] = ContextVar("python_only", default=False)


def class_key(name: str, class_name: str) -> str:
    """The key of a value of one class, ``<name>/<class>``. Names and other keys have no slash."""
    return f"{name}/{class_name}"


def class_values(name: str, classes: Sequence[str], values: Iterable[Any]) -> dict[str, Any]:
    """The values of all classes by key."""
    return {class_key(name, class_name): value for class_name, value in zip(classes, values)}


def class_table(metrics: Mapping[str, float]) -> str:
    """The values per class, one row per class and one column per name; empty if there are no such values."""
    rows: dict[str, dict[str, str]] = {}
    for key, value in metrics.items():
        name, slash, class_name = key.partition("/")
        if slash:
            is_count = name.split("_")[0] in ("tp", "fp", "tn", "fn")
            rows.setdefault(class_name, {})[name] = f"{value:.0f}" if is_count else f"{value:.4f}"
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [[printable(label), *(row.get(name, "") for name in names)] for label, row in rows.items()]
    return text_table([["class", *names], *cells]) if rows else ""


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as aligned lines; the first column is aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in rows
    )


def threshold_suffixes(thrs: Sequence[float | None]) -> list[str]:
    """The suffix of the keys of each threshold, as in mmpretrain; empty for a single threshold."""
    if len(thrs) == 1:
        return [""]
    suffixes = ["_no-thr" if thr is None else f"_thr-{thr:.2f}" for thr in thrs]
    require(len(set(suffixes)) == len(suffixes), f"thrs must differ in two digits (found {list(thrs)})")
    return suffixes


def in_runner() -> bool:
    """Whether a Runner has set up mmengine's logger in this process.

    A Runner names its logger after the experiment. The logger that mmengine makes without a Runner is ``mmengine``.
    """
    # Not get_current_instance alone, which would create a logger.
    return bool(MMLogger._instance_dict) and MMLogger.get_current_instance().instance_name != "mmengine"


def warn(message: str, category: type[MetricWarning] = MetricWarning, *, stacklevel: int = 3) -> None:
    """Warn in the log of a Runner (on its main process only); without a Runner as Python does."""
    if in_runner() and not _python_only.get():
        print_log(message, logger="current", level=logging.WARNING)
    else:
        warnings.warn(message, category, stacklevel=stacklevel)


@contextmanager
def python_warnings() -> Iterator[None]:
    """Inside it, warnings are Python's, also after a Runner was built in this process."""
    token = _python_only.set(True)
    try:
        yield
    finally:
        _python_only.reset(token)
