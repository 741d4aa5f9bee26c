"""The metrics mmengine can build from a config. Importing this package registers them."""

from mm_metrics_plugin.metrics.auc import SingleLabelAUC
from mm_metrics_plugin.metrics.base import StreamingMetric

__all__ = ["SingleLabelAUC", "StreamingMetric"]
