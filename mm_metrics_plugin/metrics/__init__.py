"""The metrics mmengine can build from a config. Importing this package registers them."""

from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.single_label import SingleLabelAUC

__all__ = ["SingleLabelAUC", "StreamingMetric"]
