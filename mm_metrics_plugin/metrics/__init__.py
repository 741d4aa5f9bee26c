"""The metrics and hooks that mmengine can build from a config. Importing this package registers them."""

from mm_metrics_plugin.metrics.aggregation import FieldMean, FieldSum
from mm_metrics_plugin.metrics.auc import MultiLabelAUC, SingleLabelAUC
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.calibration_error import CalibrationError
from mm_metrics_plugin.metrics.check_hook import EvaluationCheckHook
from mm_metrics_plugin.metrics.detection import DetectionPRF
from mm_metrics_plugin.metrics.figure_hook import MetricFigureHook
from mm_metrics_plugin.metrics.ks import SingleLabelKS
from mm_metrics_plugin.metrics.prf import MultiLabelPRF, SingleLabelPRF
from mm_metrics_plugin.metrics.ranking import PosNegRatio, RecallAtK
from mm_metrics_plugin.metrics.regression import RegressionError
from mm_metrics_plugin.metrics.segmentation import DiceScore, MeanIoU

__all__ = [
    "CalibrationError",
    "DetectionPRF",
    "DiceScore",
    "EvaluationCheckHook",
    "FieldMean",
    "FieldSum",
    "MeanIoU",
    "MetricFigureHook",
    "MultiLabelAUC",
    "MultiLabelPRF",
    "PosNegRatio",
    "RecallAtK",
    "RegressionError",
    "SingleLabelAUC",
    "SingleLabelKS",
    "SingleLabelPRF",
    "StreamingMetric",
]
