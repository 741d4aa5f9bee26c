"""The mean or the sum of any field."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Dict, Mapping, Optional, Sequence

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.flat import flat_fields
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.sums import ExactSumState


class _FieldMetric(StreamingMetric):
    """Adds up one number a sample, exactly."""

    default_prefix = "field"
    default_key = ""

    def __init__(
        self, field: str, key: Optional[str] = None, collect_device: str = "cpu", prefix: Optional[str] = None
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
        """Nothing added up."""
        return ExactSumState()

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """The numbers of a batch."""
        name = partial(self._name, samples)
        batch = flat_fields(samples, [self.field], name, keep_rest=True)
        for index, length in enumerate(batch.lengths.tolist()):
            if length != 1:
                raise MetricInputError(f"'{self.field}' of {name(index)} must be one number (found {length})")
        return batch

    def _name(self, samples: Sequence[Mapping], index: int) -> str:
        return self.sample_name(samples[index], index)

    @abstractmethod
    def results_of(self, state: ExactSumState) -> np.ndarray:
        """An array of the one number of interest."""

    def compute(self, state: ExactSumState) -> Dict[str, float]:  # type: ignore[override]
        """The number; NaN without samples."""
        if not state.count:
            self.warn_undefined(f"The {self.default_key}", "there were no samples", ["the data set"])
            return {self.key: float("nan")}
        return {self.key: self.results_of(state)[0]}


@METRICS.register_module()
class FieldMean(_FieldMetric):
    """The mean over all samples of a field that holds one number, correctly rounded.

    Keys: ``mean``, or what ``key`` says.

    Args:
        field: Where a sample has the number; a dotted path such as ``'scores.quality'`` looks inside.
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

    Keys: ``sum``, or what ``key`` says.

    Args:
        field: Where a sample has the number; a dotted path such as ``'counts.people'`` looks inside.
        key: The name of the result, as in :class:`FieldMean`.
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
