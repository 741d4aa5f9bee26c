"""A metric of your own, outside the package: the angle between predicted and true directions."""

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin import StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import check_finite, stack_fields
from mm_metrics_plugin.states.base import Batch
from mm_metrics_plugin.states.sums import ExactSumState


def angle_between(first, second):
    """The angle between two directions in degrees, 0 to 180."""
    return np.abs((first - second + 180) % 360 - 180)


@METRICS.register_module()
class AngleError(StreamingMetric):
    """Key: ``degrees``, the mean error; less is better."""

    default_prefix = "angle"

    def empty_state(self):
        """The state before the first batch: sums without rounding, merged exactly over processes."""
        return ExactSumState()

    def read(self, samples):
        """Convert a batch of samples to arrays, one row per sample; an error names the invalid sample."""
        names = self.sample_names(samples)
        predicted, target = stack_fields(samples, ["pred_angle", "gt_angle"], names)
        check_finite(predicted, "pred_angle", names)
        check_finite(target, "gt_angle", names)
        return Batch(angle_between(predicted.astype(float), target.astype(float)).reshape(-1))

    def compute(self, state):
        """The values by key, from the state of the whole dataset."""
        if not state.count:
            self.warn_no_samples("The error")
        return {"degrees": state.means()[0] if state.count else float("nan")}
