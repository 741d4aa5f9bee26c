"""The math: NumPy arrays in, NumPy arrays or small result objects out. No torch, no mmengine.

The names below are public; everything else may change. SciPy is imported by the functions that need it.
"""

from mm_metrics_plugin.functional._arrays import fbeta_score
from mm_metrics_plugin.functional.classification.auc import roc_auc
from mm_metrics_plugin.functional.classification.calibration_error import calibration_error
from mm_metrics_plugin.functional.classification.confusion_matrix import confusion_matrix_report, stat_scores_report
from mm_metrics_plugin.functional.classification.delong import delong_ci, delong_test
from mm_metrics_plugin.functional.classification.roc_curves import ks_statistic, roc_curves
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.froc import froc
from mm_metrics_plugin.functional.detection.geometry import nms
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes, box_iou
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.olrp import olrp
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.detection.pr_curves import precision_recall_curves
from mm_metrics_plugin.functional.detection.results_by_size import results_by_size
from mm_metrics_plugin.functional.detection.tide import tide_errors
from mm_metrics_plugin.functional.keypoints import pck
from mm_metrics_plugin.functional.ranking import pos_neg_ratio, recall_at_k, top_k_decisions
from mm_metrics_plugin.functional.regression import regression_error
from mm_metrics_plugin.functional.segmentation import dice_score, mean_iou_report
from mm_metrics_plugin.functional.statistics.bootstrap import bootstrap_ci
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts, per_image_counts
from mm_metrics_plugin.functional.thresholding import hard_decisions

__all__ = [
    "Boxes",
    "DetectionBatch",
    "Detections",
    "GroundTruths",
    "MatchTable",
    "PerImageCounts",
    "average_precision",
    "bootstrap_ci",
    "box_iou",
    "calibration_error",
    "confusion_matrix_report",
    "delong_ci",
    "delong_test",
    "dice_score",
    "fbeta_score",
    "froc",
    "hard_decisions",
    "ks_statistic",
    "match_images",
    "mean_iou_report",
    "nms",
    "olrp",
    "operating_points",
    "paired_permutation_test",
    "pck",
    "per_image_counts",
    "pos_neg_ratio",
    "precision_recall_curves",
    "recall_at_k",
    "regression_error",
    "results_by_size",
    "roc_auc",
    "roc_curves",
    "stat_scores_report",
    "tide_errors",
    "top_k_decisions",
]
