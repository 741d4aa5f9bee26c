"""The metrics and hooks that mmengine can build from a config. Importing this package registers them."""

from typing import TYPE_CHECKING

from mm_metrics_plugin import _METRIC_NAMES
from mm_metrics_plugin.metrics.aggregation import FieldMean as FieldMean
from mm_metrics_plugin.metrics.aggregation import FieldSum as FieldSum
from mm_metrics_plugin.metrics.auc import MultiLabelAUC as MultiLabelAUC
from mm_metrics_plugin.metrics.auc import SingleLabelAUC as SingleLabelAUC
from mm_metrics_plugin.metrics.base import StreamingMetric as StreamingMetric
from mm_metrics_plugin.metrics.calibration_error import CalibrationError as CalibrationError
from mm_metrics_plugin.metrics.detection import DetectionPRF as DetectionPRF
from mm_metrics_plugin.metrics.hooks import EvaluationCheckHook as EvaluationCheckHook
from mm_metrics_plugin.metrics.hooks import MetricFigureHook as MetricFigureHook
from mm_metrics_plugin.metrics.ks import SingleLabelKS as SingleLabelKS
from mm_metrics_plugin.metrics.pck import PCK as PCK
from mm_metrics_plugin.metrics.prf import MultiLabelPRF as MultiLabelPRF
from mm_metrics_plugin.metrics.prf import SingleLabelPRF as SingleLabelPRF
from mm_metrics_plugin.metrics.ranking import PosNegRatio as PosNegRatio
from mm_metrics_plugin.metrics.ranking import RecallAtK as RecallAtK
from mm_metrics_plugin.metrics.regression import RegressionError as RegressionError
from mm_metrics_plugin.metrics.segmentation import DiceScore as DiceScore
from mm_metrics_plugin.metrics.segmentation import MeanIoU as MeanIoU

if not TYPE_CHECKING:  # type checkers read the imports above
    __all__ = list(_METRIC_NAMES)
