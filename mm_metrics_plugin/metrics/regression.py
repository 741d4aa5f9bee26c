"""Errors of predicted numbers."""

from __future__ import annotations

from typing import Mapping, Sequence

from mmengine.registry import METRICS

from mm_metrics_plugin.functional.regression import MAX_VALUE
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import flat_fields
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import Batch
from mm_metrics_plugin.states.sums import RegressionState


@METRICS.register_module()
class RegressionError(StreamingMetric):
    """Errors of predicted numbers of any shape; all values of all samples have the same weight.

    Sums are exact and rounded once, so means of 1e8 cost no digit and the number of processes changes none.

    Keys: ``mse``, ``rmse``, ``mae``, ``percentage_error`` (mean absolute error as a fraction of the target),
    ``max_error``: less is better; ``r2``: greater is better. ``zero_targets`` when some targets are 0 and so have
    no percentage error.

    Args:
        prediction_field: Field of the predicted numbers; a dotted path such as ``'pred_instances.depth'`` is a field
            inside a field.
        target_field: Field of the true numbers, of the same shape.
        percentage_floor: Targets smaller than this count as this large in the percentage error. With 0, targets of 0
            are left out of it and counted. Keras takes 1e-7, scikit-learn 2.2e-16.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'regression'`` by default.

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
        collect_device: str = "cpu",
        prefix: str | None = None,
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
        return flat_fields(samples, self.fields, self.namer(samples), largest=MAX_VALUE)

    def compute(self, state: RegressionState) -> dict[str, float]:  # type: ignore[override]
        """All errors by key."""
        metrics = state.result().to_dict()
        if not metrics.pop("count"):
            self.warn_undefined("The error", "there were no values", ["the data set"])
        elif metrics["r2"] != metrics["r2"]:
            self.warn_undefined("R²", "all targets are equal", ["the data set"])
        zeros = metrics.pop("zero_targets")
        if zeros:
            self.warn_undefined("The percentage error", "the targets are 0", [f"{zeros} values"])
            metrics["zero_targets"] = zeros
        return metrics
