"""Metrics of predicted numbers."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence

from mmengine.registry import METRICS

from mm_metrics_plugin.functional.regression import LARGEST_VALUE
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.flat import flat_fields
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.regression import RegressionState


@METRICS.register_module()
class RegressionError(StreamingMetric):
    """How far predicted numbers are from the true ones, whatever their shape; all values of all samples weigh the same.

    Sums are exact and rounded once, so means of 1e8 cost no digit and the number of processes changes none.

    Keys: ``mse``, ``rmse``, ``mae``, ``percentage_error`` (mean absolute error as a fraction of the target),
    ``max_error``: less is better; ``r2``: greater is better. ``zero_targets`` when some targets are 0 and so have
    no percentage error.

    Args:
        prediction_field: Where a sample has the predicted numbers; a dotted path such as ``'pred_instances.depth'``
            looks inside.
        target_field: Where it has the true numbers, of the same shape.
        percentage_floor: Targets smaller than this count as this large in the percentage error. With 0, targets of 0
            are left out of it and counted. Keras takes 1e-7, scikit-learn 2.2e-16.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'regression'`` by default.

    Example:
        >>> metric = RegressionError()
        >>> pairs = zip([2.5, 0.0, 2.0, 8.0], [3.0, -0.5, 2.0, 7.0])
        >>> metric.process(None, [dict(pred_score=found, gt_score=true) for found, true in pairs])
        >>> {key: round(value, 6) for key, value in metric.evaluate(size=4).items()}
        {'regression/mse': 0.375, 'regression/rmse': 0.612372, 'regression/mae': 0.5,
         'regression/percentage_error': 0.327381, 'regression/r2': 0.948608, 'regression/max_error': 1.0}
    """

    default_prefix = "regression"

    def __init__(
        self,
        prediction_field: str = "pred_score",
        target_field: str = "gt_score",
        percentage_floor: float = 0.0,
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        require(0 <= percentage_floor < 1e149, f"percentage_floor must not be negative (found {percentage_floor})")
        self.fields = [prediction_field, target_field]
        self.percentage_floor = percentage_floor

    def empty_state(self) -> RegressionState:
        """No errors."""
        return RegressionState(self.percentage_floor)

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """The numbers of a batch."""
        return flat_fields(
            samples, self.fields, lambda index: self.sample_name(samples[index], index), largest=LARGEST_VALUE
        )

    def compute(self, state: RegressionState) -> Dict[str, float]:  # type: ignore[override]
        """All errors by key."""
        found = state.result().to_dict()
        if not found.pop("count"):
            self.warn_undefined("The error", "there were no values", ["the data set"])
        elif found["r2"] != found["r2"]:
            self.warn_undefined("R²", "all targets are equal", ["the data set"])
        zeros = found.pop("zero_targets")
        if zeros:
            self.warn_undefined("The percentage error", "the targets are 0", [f"{zeros} values"])
            found["zero_targets"] = zeros
        return found
