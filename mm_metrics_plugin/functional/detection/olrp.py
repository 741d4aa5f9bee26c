"""The oLRP of a detector: its localization recall precision (LRP) error at the best score threshold of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, mean_of_defined
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.pr_curves import RankedScores, ranked_rows
from mm_metrics_plugin.functional.thresholding import Threshold, count_reaching

OLRP_NAMES = ("oLRP", "oLRP_Loc", "oLRP_FP", "oLRP_FN")
_ROUNDING = 1e-7  # LRP errors that differ by less are equal: IoUs have single precision
_NO_THRESHOLD = Threshold(float("nan"), "nan")


@dataclass(frozen=True, eq=False)
class OLRPResult(Result):
    """The oLRP of each class and its components at the best score threshold; NaN where undefined.

    Lower is better. oLRP weights the localization error by 1 / (1 - ``iou_thr``), its components do not, so they do not
    add up to it.
    """

    iou_thr: float  # IoU threshold of a match
    olrp: np.ndarray  # (classes,) NaN without ground truths, 1 without TP
    localization: np.ndarray  # (classes,) mean of 1 - IoU over the TP; NaN without TP
    false_positive: np.ndarray  # (classes,) 1 - precision; NaN without TP
    false_negative: np.ndarray  # (classes,) 1 - recall; NaN without ground truths
    thresholds: list[Threshold]  # (classes,) the best score thresholds; NaN without TP

    @property
    def per_class(self) -> dict[str, Any]:
        """Values of the classes by key."""
        values = self.olrp, self.localization, self.false_positive, self.false_negative
        return {**dict(zip(OLRP_NAMES, values)), "oLRP_threshold": self.thresholds}

    def means(self) -> dict[str, float]:
        """Means over the classes that have a value, by key."""
        return {name: float(mean_of_defined(self.per_class[name])) for name in OLRP_NAMES}

    def __str__(self) -> str:
        return "\n".join(f"{name:<10}{value:7.4f}" for name, value in self.means().items())


def olrp(table: MatchTable) -> OLRPResult:
    """The oLRP of all detections at the IoU threshold of the table, over the distinct scores of each class.

    LRP = (S + FP + FN) / (TP + FP + FN), where S is the sum of (1 - IoU) / (1 - ``iou_thr``) over the TP. The IoUs of
    the table have single precision.

    Args:
        table: Match table of :func:`match_images` with ``keep='full'``.

    Raises:
        ValueError: The table has no details.

    References:
        Oksuz et al., "Localization Recall Precision (LRP): A New Performance Metric for Object Detection", ECCV 2018.

    Example:
        The threshold 0.8 adds a TP of IoU 0.9, the threshold 0.3 an FP:

        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> boxes = [[0, 0, 10, 10], [20, 0, 30, 9], [50, 0, 60, 10]]
        >>> detections = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.3], [0, 0, 0])
        >>> ground_truths = GroundTruths([0, 0], [[0, 0, 10, 10], [20, 0, 30, 10]], [0, 0])
        >>> result = olrp(match_images(DetectionBatch(detections, ground_truths, 1), num_classes=1).table)
        >>> print(result)
        oLRP       0.1000
        oLRP_Loc   0.0500
        oLRP_FP    0.0000
        oLRP_FN    0.0000
        >>> result.thresholds[0].text
        '0.8000'
    """
    if table.details is None:
        raise ValueError("oLRP needs a table with details (keep='full')")
    iou_thr = table.settings.iou_thr
    rows, is_tp, classes = ranked_rows(table, iou_thr)
    scores, tp_rows = RankedScores(table.score[rows], is_tp, table.precision_codes[rows]), rows[is_tp]
    # Rounded to single precision, the overlap of a TP may be below the threshold.
    error = 1 - np.maximum(table.details.overlap[tp_rows].astype(np.float64), iou_thr)
    tp_starts = np.searchsorted(table.label[tp_rows], np.arange(table.num_classes + 1))
    num_gts = table.num_gts("any")
    values = np.full((len(OLRP_NAMES), table.num_classes), np.nan)
    values[0, num_gts > 0] = values[3, num_gts > 0] = 1.0
    thresholds = [_NO_THRESHOLD] * table.num_classes
    for index in np.flatnonzero(np.diff(tp_starts)).tolist():
        own, own_error = scores.take(classes[index]), error[tp_starts[index] : tp_starts[index + 1]]
        values[:, index], threshold = _best(own, own_error, int(num_gts[index]), iou_thr)
        thresholds[index] = own.decimal_thresholds([threshold])[0]
    loss, localization, false_positive, false_negative = values
    return OLRPResult(iou_thr, loss, localization, false_positive, false_negative, thresholds)


def _best(scores: RankedScores, error: np.ndarray, num_gts: int, iou_thr: float) -> tuple[np.ndarray, float]:
    """The oLRP and its components of a class with TP, and the highest of the best thresholds; ``error`` of the TP."""
    curve = scores.curve(num_gts)
    new_tp = np.flatnonzero(np.diff(curve.tp, prepend=0))  # FP alone never lower the LRP error
    thresholds, tp, fp = curve.thresholds[new_tp], curve.tp[new_tp].astype(np.int64), curve.fp[new_tp]
    total = _error_sums(scores.take(scores.is_tp), error, thresholds)
    weight = 1 / (1 - iou_thr) if iou_thr < 1 else 0.0
    lrp = (total * weight + fp + num_gts - tp) / (num_gts + fp)
    best = int(np.argmax(lrp <= lrp.min() + _ROUNDING))
    rates = total[best] / tp[best], fp[best] / (tp[best] + fp[best]), (num_gts - tp[best]) / num_gts
    return np.array([lrp[best], *rates]), float(thresholds[best])


def _error_sums(tp: RankedScores, error: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(points,) sums of the errors of the TP that reach each threshold."""
    codes: Any = tp.precision
    sums = np.zeros(len(thresholds))
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        reached = count_reaching([(code, tp.score[rows][::-1])], thresholds)
        sums += np.append(0.0, np.cumsum(error[rows]))[reached]
    return sums
