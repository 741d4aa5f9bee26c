"""Results of a detector by object size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, mean_of_defined, rates_from_counts
from mm_metrics_plugin.functional.detection.average_precision import ap_curves
from mm_metrics_plugin.functional.detection.match_table import MatchTable


@dataclass(frozen=True, eq=False)
class SizeReport(Result):
    """Results by the area of the ground truths; NaN where undefined.

    As in COCO, every range is matched separately: ground truths outside the range and detections matched to them are
    ignored, and an unmatched detection is an FP in every range that contains its area. So TP and FP of the ranges need
    not add up to those of ``all``, which are the counts of the ``coco`` confusion matrix.
    """

    ranges: dict[str, tuple[float, float]]  # minimum and maximum area; the first is ``all``
    max_dets: int  # maximum number of detections per class and image for average precision
    iou_thr: float  # IoU threshold of precision and recall
    score_thr: float  # score threshold of precision and recall
    ground_truths: np.ndarray  # (ranges, classes) number of ground truths
    tp: np.ndarray  # (ranges, classes) true positives
    fp: np.ndarray  # (ranges, classes) false positives
    average_precision: np.ndarray  # (ranges, classes) over the IoU thresholds of average precision
    average_precision_50: np.ndarray | None  # (ranges, classes) at IoU 0.5; None if it is not among the thresholds

    def metrics(self) -> dict[str, dict[str, float]]:
        """By range: ground truths, TP, FP, macro and micro averages, and mAP."""
        _, overall = rates_from_counts(self.tp, self.fp, self.ground_truths - self.tp)
        columns: dict[str, np.ndarray] = {
            "ground_truths": self.ground_truths.sum(axis=1),
            "tp": self.tp.sum(axis=1),
            "fp": self.fp.sum(axis=1),
            **overall,
            "mAP": mean_of_defined(self.average_precision),
        }
        if self.average_precision_50 is not None:
            columns["mAP_50"] = mean_of_defined(self.average_precision_50)
        return {
            name: {key: column[index].item() for key, column in columns.items()}
            for index, name in enumerate(self.ranges)
        }

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        return {"overall": self.metrics(), **super().to_dict()}

    def __str__(self) -> str:
        rows = self.metrics()
        rates = [name for name in ("precision", "recall", "mAP", "mAP_50") if name in rows["all"]]
        lines = [f"{'':<16}{'gts':>9}{'precision':>11}" + "".join(f"{name:>9}" for name in rates[1:])]
        for name, row in rows.items():
            values = "".join(f"{row[rate]:>9.4f}" for rate in rates[1:])
            lines.append(f"{name:<16}{row['ground_truths']:>9}{row['precision']:>11.4f}{values}")
        return "\n".join(lines)


def results_by_size(
    table: MatchTable,
    *,
    area_edges: Sequence[float] | None = None,
    iou_thr: float | None = None,
    score_thr: float | None = None,
    max_dets: int | None = None,
    iou_thrs: Sequence[float] | None = None,
) -> SizeReport:
    """Precision and recall at a score threshold, and average precision, by the area of the ground truths.

    Args:
        table: Match table of :func:`match_images`. Its settings are the defaults of the other arguments.
        area_edges: Boundaries between the area ranges in square pixels, ascending.
        iou_thr: IoU threshold of precision and recall.
        score_thr: Score threshold of precision and recall.
        max_dets: Maximum number of detections per class and image for average precision.
        iou_thrs: IoU thresholds of average precision.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> ground_truths = GroundTruths([0, 0], [[0, 0, 10, 10], [100, 100, 300, 300]], [0, 0])
        >>> batch = DetectionBatch(Detections([0], [[100, 100, 300, 290]], [0.9], [0]), ground_truths, 1)
        >>> print(results_by_size(match_images(batch, num_classes=1, keep="scores").table))
                              gts  precision   recall      mAP   mAP_50
        all                     2     1.0000   0.5000   0.5050   0.5050
        small                   1        nan   0.0000   0.0000   0.0000
        medium                  0        nan      nan      nan      nan
        large                   1     1.0000   1.0000   1.0000   1.0000
    """
    settings = table.settings_with(
        area_edges=area_edges,
        area_ranges=None if area_edges is None else (),
        iou_thr=iou_thr,
        score_thr=score_thr,
        max_dets=max_dets,
        iou_thrs=iou_thrs,
    )
    ranges, thresholds, max_dets = settings.size_ranges, settings.iou_thrs, settings.max_dets
    for area_range in ranges:
        key = area_range.name, max_dets, thresholds
        if key not in table.ap_values:
            table.ap_values[key] = ap_curves(table, settings, area_range.name).average_precision()[..., 0]
    values = [table.ap_values[area_range.name, max_dets, thresholds] for area_range in ranges]
    at_50 = np.flatnonzero(np.isclose(thresholds, 0.5, rtol=0, atol=1e-9))
    reached = np.flatnonzero(table.reach(settings.score_thr))
    label = table.label[reached]
    tp, fp, num_gts = [], [], []
    # The confusion matrix includes boxes of negative or huge area, which COCO's range ``all`` does not.
    for area in ("any", *(area_range.name for area_range in ranges[1:])):
        is_tp, is_tp_or_fp = (flag[reached] for flag in table.tp_fp_masks(settings.iou_thr, area))
        tp.append(np.bincount(label[is_tp], minlength=table.num_classes))
        fp.append(np.bincount(label[is_tp_or_fp & ~is_tp], minlength=table.num_classes))
        num_gts.append(table.num_gts(area))
    return SizeReport(
        ranges={area_range.name: (area_range.low, area_range.high) for area_range in ranges},
        max_dets=max_dets,
        iou_thr=settings.iou_thr,
        score_thr=settings.score_thr,
        ground_truths=np.stack(num_gts),
        tp=np.stack(tp),
        fp=np.stack(fp),
        average_precision=np.stack([value[-len(thresholds) :].mean(axis=0) for value in values]),
        average_precision_50=np.stack([value[at_50[0]] for value in values]) if len(at_50) else None,
    )
