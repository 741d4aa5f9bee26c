"""Checks of the options a metric is built with."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

import numpy as np

from mm_metrics_plugin.settings import require


def check_choice(option: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raises ValueError, listing the choices, if the value is none of them."""
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{option} must be one of {choices} (found {value!r})")


def check_num_thresholds(num_thresholds: Optional[int]) -> None:
    """Raises ValueError if a histogram would have fewer than two bins."""
    require(
        num_thresholds is None or num_thresholds >= 2, f"num_thresholds must be at least 2 (found {num_thresholds})"
    )


def check_num_classes(num_classes: Optional[int]) -> None:
    """Raises ValueError unless it is a whole number of at least 1, or None."""
    good = num_classes is None or (isinstance(num_classes, (int, np.integer)) and num_classes >= 1)
    require(good, f"num_classes must be a whole number of at least 1 (found {num_classes!r})")


def zero_division_value(zero_division: Union[str, float]) -> float:
    """The value of 0/0 that an option ``zero_division`` asks for, NaN for ``'skip'``.

    Raises:
        ValueError: It is none of ``'skip'``, 0 and 1.

    Example:
        >>> zero_division_value("skip"), zero_division_value(0)
        (nan, 0.0)
    """
    check_choice("zero_division", zero_division, ("skip", 0, 1))
    return float("nan") if isinstance(zero_division, str) else float(zero_division)


def threshold_suffixes(thrs: Sequence[Optional[float]]) -> List[str]:
    """What stands behind the keys of each threshold, as mmpretrain writes it; nothing if there is only one.

    Raises:
        ValueError: Two thresholds would give the same keys.

    Example:
        >>> threshold_suffixes([0.3, None]), threshold_suffixes([0.5])
        (['_thr-0.30', '_no-thr'], [''])
    """
    if len(thrs) == 1:
        return [""]
    suffixes = ["_no-thr" if thr is None else f"_thr-{thr:.2f}" for thr in thrs]
    require(len(set(suffixes)) == len(suffixes), f"thrs must differ in two digits (found {list(thrs)})")
    return suffixes
