"""COCO's average precision and recall, and results by object size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, map_in_order, mean_of_defined, rates_from_counts
from mm_metrics_plugin.functional.detection.ap_curves import RangeCurves, ap_iou_thrs
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.settings import COCO_AREA_EDGES, COCO_AREA_RANGES, COCO_MAX_DETS, area_ranges

if TYPE_CHECKING:
    pass

_SHORT = {"small": "s", "medium": "m", "large": "l"}


@dataclass(frozen=True, eq=False)
class AveragePrecision:
    """COCO's average precision and recall. Undefined values are NaN."""

    iou_thrs: tuple[float, ...]
    areas: tuple[str, ...]  # names of the area ranges; the first is that of the headline numbers
    max_dets: tuple[int, ...]  # detections per class and image, the best first; average precision uses the last number
    ap: np.ndarray  # (areas, thresholds, classes) average precision
    recall: np.ndarray  # (areas, max_dets, thresholds, classes) recall reached
    num_gts: np.ndarray  # (areas, classes) ground truths that count

    @property
    def per_class(self) -> np.ndarray:
        """(classes,) AP over all IoU thresholds, in the first area range."""
        return self.ap[0].mean(axis=0)

    def at_iou(self, iou_thr: float) -> np.ndarray:
        """(classes,) AP at one of the IoU thresholds, in the first area range; NaN if it is not among them."""
        near = np.flatnonzero(np.isclose(self.iou_thrs, iou_thr, rtol=0, atol=1e-9))
        return self.ap[0, near[0]] if len(near) else np.full(self.ap.shape[-1], np.nan)

    def to_dict(self) -> dict[str, float]:
        """COCO's numbers, named as mmdet names them."""
        most, ranges = self.max_dets[-1], list(enumerate(self.areas))[1:]
        values = {"mAP": self.per_class, "mAP_50": self.at_iou(0.5), "mAP_75": self.at_iou(0.75)}
        for index, name in ranges:
            values[f"mAP_{_SHORT.get(name, name)}"] = self.ap[index].mean(axis=0)
        for index, number in enumerate(self.max_dets):
            values[f"AR@{number}"] = self.recall[0, index].mean(axis=0)
        for index, name in ranges:
            values[f"AR_{_SHORT.get(name, name)}@{most}"] = self.recall[index, -1].mean(axis=0)
        return {name: float(mean_of_defined(value)) for name, value in values.items()}

    def __str__(self) -> str:
        lines = [f"{name:<10}{value:7.4f}" for name, value in self.to_dict().items()]
        lines.append(f"AP of the {self.ap.shape[-1]} classes: " + " ".join(f"{v:.4f}" for v in self.per_class))
        return "\n".join(lines)


def average_precision(
    table: MatchTable,
    *,
    max_dets: int = COCO_MAX_DETS,
    iou_thrs: Sequence[float] | None = None,
    weights: np.ndarray | None = None,
) -> AveragePrecision:
    """COCO's average precision and recall. The numbers equal those of ``pycocotools``; NaN where it prints -1.

    Args:
        table: Every detection and ground truth, matched.
        max_dets: Number of detections per class and image that count, those with the highest scores. Average recall is
            also given for 1 and 10 of them.
        iou_thrs: Some of the IoU thresholds of the table. None: COCO's ten, or all of a table without them.
        weights: (images,) whole numbers, how often each image counts. None: once.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> detections = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0], [[0, 0, 10, 9]], [0]), 1)
        >>> table = match_images(batch, num_classes=1, table="ap").table
        >>> round(average_precision(table).to_dict()["mAP"], 6)
        0.95
    """
    thresholds = ap_iou_thrs(table, iou_thrs)
    known = {one.name for one in table.grid.area_ranges}
    areas = tuple(one.name for one in COCO_AREA_RANGES if one.name in known)
    numbers = tuple(sorted({1, max_dets} | ({10} if max_dets > 10 else set())))
    columns = None if weights is None else np.asarray(weights)[:, None]

    def of_range(area: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        curves = RangeCurves(table, area, max_dets, thresholds)
        recall = np.stack([curves.recall(number, weights) for number in numbers])
        return curves.average_precision(columns)[..., 0], recall, curves.num_gts(weights)

    _ = table.ranked  # sorted once, not by each thread
    ap, recall, num_gts = map(np.stack, zip(*map_in_order(of_range, areas)))
    if weights is None:
        table.ap_values.update({(area, max_dets, thresholds): values for area, values in zip(areas, ap)})
    return AveragePrecision(iou_thrs=thresholds, areas=areas, max_dets=numbers, ap=ap, recall=recall, num_gts=num_gts)


@dataclass(frozen=True, eq=False)
class SizeReport(Result):
    """Results by the area of the ground truths; undefined ones are NaN.

    Every range is matched separately. Ground truths outside a range, and detections that match them, are ignored. A
    detection without a match is an FP in every range that holds its area. Both ends belong to a range. TP and FP of the
    ranges need not add up to those of the row ``all``, which has the counts of the ``coco`` confusion matrix and COCO's
    AP.
    """

    ranges: dict[str, tuple[float, float]]  # least and greatest area; the first is ``all``, any area for the counts
    max_dets: int  # number of detections per class and image that average precision uses
    iou_thr: float  # least overlap of a match that counts for precision and recall
    score_thr: float  # least score of a detection that counts for precision and recall
    ground_truths: np.ndarray  # (ranges, classes) ground truths
    tp: np.ndarray  # (ranges, classes) true positives
    fp: np.ndarray  # (ranges, classes) false positives
    average_precision: np.ndarray  # (ranges, classes) over the IoU thresholds of average precision
    average_precision_50: np.ndarray  # (ranges, classes) at IoU 0.5

    def figures(self) -> dict[str, dict[str, float]]:
        """By range: ground truths, TP, FP, the means over classes, and the mAPs."""
        _, overall = rates_from_counts(self.tp, self.fp, self.ground_truths - self.tp)
        columns: dict[str, np.ndarray] = {
            "ground_truths": self.ground_truths.sum(axis=1),
            "tp": self.tp.sum(axis=1),
            "fp": self.fp.sum(axis=1),
            **overall,
            "mAP": mean_of_defined(self.average_precision),
            "mAP_50": mean_of_defined(self.average_precision_50),
        }
        return {
            name: {key: column[index].item() for key, column in columns.items()}
            for index, name in enumerate(self.ranges)
        }

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {"overall": self.figures(), **super().to_dict()}

    def __str__(self) -> str:
        lines = [f"{'':<16}{'gts':>9}{'precision':>11}{'recall':>9}{'mAP':>9}{'mAP_50':>9}"]
        for name, row in self.figures().items():
            lines.append(
                f"{name:<16}{row['ground_truths']:>9}{row['precision']:>11.4f}{row['recall']:>9.4f}"
                f"{row['mAP']:>9.4f}{row['mAP_50']:>9.4f}"
            )
        return "\n".join(lines)


def results_by_size(
    table: MatchTable,
    *,
    area_edges: Sequence[float] = COCO_AREA_EDGES,
    iou_thr: float = 0.5,
    score_thr: float = 0.3,
    max_dets: int = COCO_MAX_DETS,
    iou_thrs: Sequence[float] | None = None,
) -> SizeReport:
    """Precision and recall at a score threshold, and average precision, by the area of the ground truths.

    Args:
        table: Every detection and ground truth, matched, with the area ranges between these edges.
        area_edges: Areas between the ranges, ascending, in square pixels.
        iou_thr: IoU threshold of precision and recall.
        score_thr: Score threshold of precision and recall, which count all detections that reach it.
        max_dets: Number of detections per class and image that average precision uses.
        iou_thrs: IoU thresholds of average precision, as in :func:`average_precision`.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> ground_truths = GroundTruths([0, 0], [[0, 0, 10, 10], [100, 100, 300, 300]], [0, 0])
        >>> batch = DetectionBatch(Detections([0], [[100, 100, 300, 290]], [0.9], [0]), ground_truths, 1)
        >>> print(results_by_size(match_images(batch, num_classes=1, table="ap").table))
                              gts  precision   recall      mAP   mAP_50
        all                     2     1.0000   0.5000   0.5050   0.5050
        small                   1        nan   0.0000   0.0000   0.0000
        medium                  0        nan      nan      nan      nan
        large                   1     1.0000   1.0000   1.0000   1.0000
    """
    ranges, thresholds = area_ranges(area_edges), ap_iou_thrs(table, iou_thrs)
    for one in ranges:
        key = one.name, max_dets, thresholds
        if key not in table.ap_values:
            table.ap_values[key] = RangeCurves(table, *key).average_precision()[..., 0]
    ap = np.stack([table.ap_values[one.name, max_dets, thresholds] for one in ranges])
    at_50 = np.flatnonzero(np.isclose(thresholds, 0.5, rtol=0, atol=1e-9))
    reached = np.flatnonzero(table.reach(score_thr))
    label = table.label[reached]
    tp, fp, num_gts = [], [], []
    # COCO leaves boxes of negative or enormous area out of the range of all areas. The confusion matrix does not.
    for area in ("any", *(one.name for one in ranges[1:])):
        is_tp, is_tp_or_fp = (flag[reached] for flag in table.flags(iou_thr, area))
        tp.append(np.bincount(label[is_tp], minlength=table.num_classes))
        fp.append(np.bincount(label[is_tp_or_fp & ~is_tp], minlength=table.num_classes))
        num_gts.append(table.num_gts(area))
    return SizeReport(
        ranges={one.name: (one.low, one.high) for one in ranges},
        max_dets=max_dets,
        iou_thr=float(iou_thr),
        score_thr=float(score_thr),
        ground_truths=np.stack(num_gts),
        tp=np.stack(tp),
        fp=np.stack(fp),
        average_precision=ap.mean(axis=1),
        average_precision_50=ap[:, at_50[0]] if len(at_50) else np.full(ap.shape[::2], np.nan),
    )
