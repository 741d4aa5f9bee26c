"""Keys, tables and warnings in the log of a Runner."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator, Mapping, Sequence

import numpy as np
from mmengine.logging import MMLogger, print_log

from mm_metrics_plugin.exceptions import MetricWarning, UndefinedMetricWarning
from mm_metrics_plugin.functional.thresholding import threshold_text
from mm_metrics_plugin.render.tables import printable
from mm_metrics_plugin.settings import require

_python_only: ContextVar[bool] = ContextVar("python_only", default=False)


def class_table(metrics: Mapping[str, float]) -> str:
    """The values per class, one row per class and one column per name; empty if there are no such values."""
    rows: dict[str, dict[str, str]] = {}
    for key, value in metrics.items():
        name, slash, class_name = key.partition("/")
        if slash:
            rows.setdefault(class_name, {})[name] = _cell(name, value)
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [[printable(label), *(row.get(name, "") for name in names)] for label, row in rows.items()]
    return text_table([["class", *names], *cells]) if rows else ""


def _cell(name: str, value: float) -> str:
    if name.endswith("threshold"):
        return threshold_text(value)
    is_count = name.split("_")[0] in ("tp", "fp", "tn", "fn")
    return f"{value:.0f}" if is_count else f"{value:.4f}"


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


class NamedWarnings:
    """The warnings of a metric, with its name and each once."""

    _warned: frozenset[str] = frozenset()  # topics

    def warn(self, message: str, category: type[MetricWarning] = MetricWarning) -> None:
        """Warn with the name of the metric: in mmengine's log inside a Runner, else as Python does."""
        warn(f"{type(self).__name__}: {message}", category, stacklevel=4)

    def warn_once(self, topic: str, message: str, category: type[MetricWarning] = MetricWarning) -> None:
        """Warn unless this metric has warned of the topic before."""
        if topic not in self._warned:
            self._warned |= {topic}
            self.warn(message, category)

    def warn_undefined(
        self, what: str, reason: str, classes: Sequence[str], *, mean_of: int = 0, remedy: str = ""
    ) -> None:
        """Warn, once for each ``what``, that it is undefined for these classes (if there are any).

        Args:
            what: Name of the value.
            reason: Why it is undefined.
            classes: The classes, or what else it is undefined for.
            mean_of: Number of classes of the dataset, if a mean leaves out the undefined ones; 0 otherwise.
            remedy: What this means for ``save_best``, and what to do.
        """
        if not classes:
            return
        named = ", ".join(classes[:10]) + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")
        message = f"{what} is undefined for {named}: {reason}"
        if mean_of > len(classes):
            message += f". The mean is over {mean_of - len(classes)} of {mean_of} classes, also in save_best{remedy}"
        self.warn_once(what, message, UndefinedMetricWarning)

    def warn_undefined_classes(
        self, what: str, reason: str, names: Sequence[str], values: np.ndarray, *, skip: bool, remedy: str = ""
    ) -> None:
        """Warn of the classes whose value is NaN, which a mean leaves out if ``skip``; or that there are no classes."""
        undefined = [name for name, value in zip(names, values) if np.isnan(value)]
        self.warn_undefined(what, reason, undefined, mean_of=len(names) if skip else 0, remedy=remedy)
        if not len(names):
            self.warn_no_samples(what)

    def warn_no_samples(self, what: str) -> None:
        """Warn that a value is undefined because there were no samples."""
        self.warn_undefined(what, "there were no samples", ["the dataset"])


@contextmanager
def python_warnings() -> Iterator[None]:
    """Inside it, warnings are Python's, also after a Runner was built in this process."""
    token = _python_only.set(True)
    try:
        yield
    finally:
        _python_only.reset(token)
