"""From values per class to one value, with a written rule for the classes that have none."""

from __future__ import annotations

from typing import Optional

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError

ABSENT_RULES = ("skip", "nan", "error")


def divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """``numerator / denominator`` in float64, NaN where the denominator is 0.

    Example:
        >>> divide(np.array([1, 0]), np.array([2, 0]))
        array([0.5, nan])
    """
    numerator, denominator = np.broadcast_arrays(
        np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    )
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


def mean_over_classes(values: np.ndarray, *, weights: Optional[np.ndarray] = None, absent: str = "skip") -> float:
    """The mean of the values per class; NaN stands for a class that has none.

    Args:
        values: One value a class.
        weights: One weight a class; equal ones by default.
        absent: ``'skip'`` takes the mean over the defined classes, ``'nan'`` makes it NaN if a class is
            undefined, ``'error'`` raises.

    Raises:
        MetricInputError: A class is undefined and ``absent`` is ``'error'``.

    Example:
        >>> mean_over_classes(np.array([0.5, np.nan, 1.0]))
        0.75
        >>> mean_over_classes(np.array([0.5, np.nan, 1.0]), weights=np.array([3, 1, 1]))
        0.625
    """
    defined = ~np.isnan(values)
    if absent == "error" and not defined.all():
        undefined = ", ".join(str(index) for index in np.flatnonzero(~defined)[:10])
        raise MetricInputError(
            f"{int((~defined).sum())} of {len(values)} classes have no value on this data (classes {undefined}) "
            "and absent='error'"
        )
    if not defined.any() or (absent == "nan" and not defined.all()):
        return float("nan")
    used = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    total = used[defined].sum()
    return float((values[defined] * used[defined]).sum() / total) if total > 0 else float("nan")
