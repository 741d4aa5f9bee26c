"""The mean or the sum of any field."""

from __future__ import annotations

from abc import abstractmethod
from typing import Mapping, Sequence

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import flat_fields
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import Batch
from mm_metrics_plugin.states.sums import ExactSumState


class _FieldMetric(StreamingMetric):
    """Adds up one number per sample, exactly."""

    default_prefix = "field"
    default_key = ""

    def __init__(
        self, field: str, key: str | None = None, collect_device: str = "cpu", prefix: str | None = None
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.field = field
        self.key = self.default_key if key is None else key
        name = f"{self.prefix}/{self.key}"
        require(
            "loss" not in name and "time" not in name,
            f"key and prefix must not contain 'loss' or 'time', or mmengine logs a mean over a window (found {name!r})",
        )

    def empty_state(self) -> ExactSumState:
        """A sum of nothing."""
        return ExactSumState()

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """The numbers of a batch."""
        name = self.namer(samples)
        batch = flat_fields(samples, [self.field], name, keep_rest=True)
        for index, length in enumerate(batch.lengths.tolist()):
            if length != 1:
                raise MetricInputError(f"'{self.field}' of {name(index)} must be one number (found {length})")
        return batch

    @abstractmethod
    def results_of(self, state: ExactSumState) -> np.ndarray:
        """An array of the one result."""

    def compute(self, state: ExactSumState) -> dict[str, float]:  # type: ignore[override]
        """The result; NaN without samples."""
        if not state.count:
            self.warn_undefined(f"The {self.default_key}", "there were no samples", ["the data set"])
            return {self.key: float("nan")}
        return {self.key: self.results_of(state)[0]}


@METRICS.register_module()
class FieldMean(_FieldMetric):
    """The mean over all samples of a field that holds one number, correctly rounded.

    Keys: ``mean``, or ``key``.

    Args:
        field: The field of the number; a dotted path such as ``'scores.quality'`` is a field inside a field.
        key: The name of the result. It must not contain ``loss`` or ``time``: of such keys mmengine logs a mean over
            a window instead of the value.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'field'`` by default.

    Example:
        >>> metric = FieldMean(field="loss", key="penalty")
        >>> metric.process(None, [dict(loss=0.1), dict(loss=0.2), dict(loss=0.3)])
        >>> metric.evaluate(size=3)
        {'field/penalty': 0.2}
    """

    default_key = "mean"

    def results_of(self, state: ExactSumState) -> np.ndarray:
        """The mean."""
        return state.means()


@METRICS.register_module()
class FieldSum(_FieldMetric):
    """The sum over all samples of a field that holds one number, correctly rounded.

    Keys: ``sum``, or ``key``.

    Args:
        field: As in :class:`FieldMean`.
        key: As in :class:`FieldMean`.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'field'`` by default.

    Example:
        >>> metric = FieldSum(field="counts.people")
        >>> metric.process(None, [dict(counts=dict(people=3)), dict(counts=dict(people=4))])
        >>> metric.evaluate(size=2)
        {'field/sum': 7.0}
    """

    default_key = "sum"

    def results_of(self, state: ExactSumState) -> np.ndarray:
        """The sum."""
        return state.sums()
