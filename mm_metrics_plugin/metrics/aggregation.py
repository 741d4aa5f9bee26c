"""The mean or the sum of any field."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import Samples, flat_fields
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import Batch
from mm_metrics_plugin.states.sums import ExactSumState


class _FieldMetric(StreamingMetric):
    """Sums one number per sample, exactly."""

    default_prefix = "field"
    default_key: str
    _totals: Callable[[ExactSumState], np.ndarray]

    def __init__(self, field: str, key: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.field = field
        self.key = self.default_key if key is None else key
        name = f"{self.prefix}/{self.key}"
        require(
            "loss" not in name and "time" not in name,
            f"key and prefix must not contain 'loss' or 'time', or mmengine logs a mean over a window (found {name!r})",
        )

    def empty_state(self) -> ExactSumState:
        """An empty sum."""
        return ExactSumState()

    def read(self, samples: Samples) -> Batch:
        """The values of a batch."""
        name = self.sample_names(samples)
        batch = flat_fields(samples, [self.field], name, keep_rest=True)
        for index, length in enumerate(batch.lengths.tolist()):
            if length != 1:
                raise MetricInputError(f"'{self.field}' of {name(index)} must be one number (found {length})")
        return batch

    def compute(self, state: ExactSumState) -> dict[str, float]:
        """The result; NaN without samples."""
        if not state.count:
            self.warn_no_samples(f"The {self.default_key}")
            return {self.key: float("nan")}
        return {self.key: self._totals(state)[0]}


@METRICS.register_module()
class FieldMean(_FieldMetric):
    """The mean over all samples of a field that holds one number, correctly rounded.

    Keys, with the prefix ``field``:

    - ``mean``, or the name given as ``key``.

    Args:
        field: The field of the number; a dotted path such as ``'scores.quality'`` is a field inside a field.
        key: The name of the result. It must not contain ``loss`` or ``time``: of such keys mmengine logs a mean over
            a window instead of the value.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> metric = FieldMean(field="loss", key="penalty")
        >>> metric.process(None, [dict(loss=0.1), dict(loss=0.2), dict(loss=0.3)])
        >>> metric.evaluate(size=3)
        {'field/penalty': 0.2}
    """

    default_key = "mean"
    _totals = staticmethod(ExactSumState.means)


@METRICS.register_module()
class FieldSum(_FieldMetric):
    """The sum over all samples of a field that holds one number, correctly rounded.

    Keys, with the prefix ``field``:

    - ``sum``, or the name given as ``key``.

    Args:
        field: As in :class:`FieldMean`.
        key: As in :class:`FieldMean`.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> metric = FieldSum(field="counts.people")
        >>> metric.process(None, [dict(counts=dict(people=3)), dict(counts=dict(people=4))])
        >>> metric.evaluate(size=2)
        {'field/sum': 7.0}
    """

    default_key = "sum"
    _totals = staticmethod(ExactSumState.sums)
