"""Regression errors."""

from __future__ import annotations

from typing import Any

from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.functional.regression import MAX_VALUE
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import Samples, flat_fields
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import Batch
from mm_metrics_plugin.states.sums import RegressionState


@METRICS.register_module()
class RegressionError(StreamingMetric):
    """Regression errors of predictions of any shape; all values of all samples have the same weight.

    Sums are exact and rounded once: they lose no digits to large values, and do not depend on the number of processes.

    Keys, with the prefix ``regression``; less is better except for ``r2``:

    - ``mse``, ``rmse``, ``mae``: mean squared error, its root, mean absolute error.
    - ``percentage_error``: mean absolute error as a fraction of the target.
    - ``max_error``: largest absolute error.
    - ``r2``: coefficient of determination.
    - ``zero_targets``: number of targets that are 0 and so have no percentage error, if there are any.

    Args:
        prediction_field: Field of the predictions; a dotted path such as ``'pred_instances.depth'`` is a field
            inside a field.
        target_field: Field of the targets, of the same shape.
        percentage_floor: Targets smaller than this count as this large in the percentage error. With 0, targets of 0
            are left out of it and counted. Keras takes 1e-7, scikit-learn 2.2e-16.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> metric = RegressionError()
        >>> pairs = zip([2.5, 0.0, 2.0, 8.0], [3.0, -0.5, 2.0, 7.0])
        >>> metric.process(None, [dict(pred_score=predicted, gt_score=true) for predicted, true in pairs])
        >>> metric.evaluate(size=4)["regression/mse"]
        0.375
    """

    default_prefix = "regression"

    def __init__(
        self,
        prediction_field: str = "pred_score",
        target_field: str = "gt_score",
        percentage_floor: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(0 <= percentage_floor < 1e149, f"percentage_floor must not be negative (found {percentage_floor})")
        self.fields = [prediction_field, target_field]
        self.percentage_floor = percentage_floor

    def empty_state(self) -> RegressionState:
        """No errors."""
        return RegressionState(self.percentage_floor)

    def read(self, samples: Samples) -> Batch:
        """Predictions and targets of a batch."""
        return flat_fields(samples, self.fields, self.sample_names(samples), largest=MAX_VALUE)

    def compute(self, state: RegressionState) -> dict[str, float]:
        """All errors by key."""
        metrics = state.result().to_dict()
        if not metrics.pop("count"):
            self.warn_undefined("The error", "there were no values", ["the dataset"])
        elif metrics["r2"] != metrics["r2"]:
            self.warn_undefined("R²", "all targets are equal", ["the dataset"])
        zeros = metrics.pop("zero_targets")
        if zeros:
            self.warn_undefined("The percentage error", "the targets are 0", [pluralize(zeros, "value")])
            metrics["zero_targets"] = zeros
        return metrics
