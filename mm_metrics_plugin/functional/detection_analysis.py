"""What more can be said about a detector than at one threshold: average precision, curves, errors, sizes, how sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from mm_metrics_plugin.functional.class_names import unique_names
from mm_metrics_plugin.functional.coco_ap import APSettings, AveragePrecision, average_precision, match_for_ap
from mm_metrics_plugin.functional.curves import DetectionCurves, detection_curves
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.error_types import ErrorTypes, error_types
from mm_metrics_plugin.functional.false_positives import count_errors
from mm_metrics_plugin.functional.intervals import Intervals, bootstrap_detection
from mm_metrics_plugin.functional.matching import match
from mm_metrics_plugin.functional.operating_points import OperatingPoint, OperatingPoints, operating_points
from mm_metrics_plugin.functional.scored_matches import COCO_IOU_THRESHOLDS, COCO_MAX_DETS, match_scores
from mm_metrics_plugin.functional.sizes import COCO_EDGES, SizeReport, size_report

BACKGROUND_THRESHOLD = 0.1
FOLDS = 5
POINTS = 201


@dataclass(frozen=True, eq=False)
class DetectionAnalysis:
    """Everything a report says of a detector beyond the confusion matrices.

    Attributes:
        classes: Class names.
        average_precision: COCO's, of at most ``max_dets`` detections per class and image.
        max_dets: The limit of every average precision but that of ``errors``. Nothing else is limited.
        most_detections: The largest number of detections of one class in one image. If it is above ``max_dets``, the
            limit leaves detections out.
        score_threshold: Least score of a detection that counts for precision and recall.
        curves: Precision, recall and F1 against confidence and each other.
        sizes: By the area of the objects.
        errors: What kind of errors it makes, of all detections whatever their score; None where the IoU threshold
            leaves no room for them.
        errors_at_threshold: By kind, (classes,) errors at the score threshold, as
            :func:`~mm_metrics_plugin.functional.false_positives.count_errors` counts them: they add up to FP and FN.
        points: The best thresholds, if they were asked for.
        intervals: Confidence intervals, if they were asked for.
    """

    classes: Sequence[str]
    average_precision: AveragePrecision
    max_dets: int
    most_detections: int
    score_threshold: float
    curves: DetectionCurves
    sizes: SizeReport
    errors: Optional[ErrorTypes]
    errors_at_threshold: Optional[Dict[str, np.ndarray]]
    points: Optional[OperatingPoints]
    intervals: Optional[Intervals]

    @property
    def error_totals(self) -> Dict[str, int]:
        """By kind, how many errors of all classes there are at the score threshold."""
        return {name: int(count.sum()) for name, count in (self.errors_at_threshold or {}).items()}

    def ap_columns(self) -> Dict[str, Any]:
        """AP of each class, by the name of the column."""
        found = self.average_precision
        columns = {"AP": found.per_class, "AP_50": found.at_iou(0.5), "AP_75": found.at_iou(0.75)}
        return {"name": list(self.classes), **columns}

    def thresholds(self) -> Dict[str, Any]:
        """The best thresholds, as ``thresholds.json`` has them."""
        points = self.points
        if points is None:
            return {}
        each = [point.to_dict() for point in (points.per_class, points.per_class_cross_fitted)]
        return {
            "rule": str(points.rule),
            "threshold": points.overall.threshold,
            "per_class": dict(zip(unique_names(self.classes), each[0]["threshold"])),
            "chosen_on_the_same_data": {
                "overall": points.overall.to_dict(),
                "per_class": _by_class(self.classes, points.per_class),
            },
            "cross_fitted": {
                "folds": points.folds,
                "overall": points.overall_cross_fitted.to_dict(),
                "per_class": _by_class(self.classes, points.per_class_cross_fitted),
            },
        }

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        columns = self.ap_columns()
        return {
            "average_precision": {
                **self.average_precision.to_dict(),
                "max_dets": self.max_dets,
                "most_detections_per_class_and_image": self.most_detections,
                "per_class": _rows(columns),
            },
            "sizes": self.sizes.to_dict(),
            "errors": None if self.errors is None else {**self.errors.to_dict(), "at_score_thr": self._at_threshold()},
            "operating_points": self.thresholds() or None,
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }

    def _at_threshold(self) -> Dict[str, Any]:
        counts = {name: count.tolist() for name, count in (self.errors_at_threshold or {}).items()}
        return {"score_thr": self.score_threshold, "totals": self.error_totals, "counts": counts}


def _rows(columns: Dict[str, Any]) -> List[Dict[str, Any]]:
    plain = [column if isinstance(column, list) else np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row)) for row in zip(*plain)]


def _by_class(classes: Sequence[str], point: OperatingPoint) -> List[Dict[str, Any]]:
    return _rows({"name": list(classes), **point.to_dict()})


def analyse_detections(
    batch: DetectionBatch,
    *,
    classes: Sequence[str],
    score_threshold: float = 0.3,
    iou_threshold: float = 0.5,
    size_edges: Optional[Sequence[float]] = None,
    operating_point: Optional[str] = None,
    level: Optional[float] = None,
    resamples: int = 1000,
    seed: int = 0,
    max_dets: int = COCO_MAX_DETS,
) -> DetectionAnalysis:
    """Look at detections from every side.

    Args:
        batch: Detections and objects of all images, in the order that decides between equal scores.
        classes: Class names.
        score_threshold: Least score of a detection that counts for precision and recall.
        iou_threshold: Least overlap of a pair.
        size_edges: Areas between the ranges of sizes; COCO's by default.
        operating_point: The rule by which a threshold is the best, such as ``'f1'``; None: none is looked for.
        level: Confidence level of the intervals; None: none are made.
        resamples: Bootstrap resamples over images, for the intervals of average precision.
        seed: Of the resamples and of the folds.
        max_dets: Number of detections per class and image that average precision uses. Everything else uses all.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> there = Objects([0, 1], [[0, 0, 10, 10], [0, 0, 10, 10]], [0, 0])
        >>> found = Detections([0, 1], [[0, 0, 10, 10], [50, 50, 60, 60]], [0.9, 0.8], [0, 0])
        >>> analysis = analyse_detections(DetectionBatch(found, there, 2), classes=["cat"], operating_point="f1")
        >>> analysis.errors.totals["background"], analysis.points.overall.threshold
        (1, 0.9)
    """
    size = len(classes)
    settings = APSettings(size, max_detections=sorted({1, 10, max_dets} if max_dets > 10 else {1, max_dets}))
    thresholds = sorted({*COCO_IOU_THRESHOLDS, float(iou_threshold)})
    matches = match_scores(batch, num_classes=size, iou_thresholds=thresholds, max_dets=max_dets)
    ten = matches
    if len(matches.iou_thresholds) != len(COCO_IOU_THRESHOLDS):
        ten = match_scores(batch, num_classes=size, iou_thresholds=COCO_IOU_THRESHOLDS, max_dets=max_dets)
    intervals = None
    if level is not None and batch.num_images:
        counts = matches.image_counts(score_threshold=score_threshold, iou_threshold=iou_threshold)
        intervals = bootstrap_detection(ten, counts=counts, level=level, resamples=resamples, seed=seed)
    points = None
    if operating_point is not None:
        folds = max(2, min(FOLDS, batch.num_images))
        points = operating_points(matches, rule=operating_point, iou_threshold=iou_threshold, folds=folds, seed=seed)
    errors, errors_at_threshold = None, None
    if iou_threshold > BACKGROUND_THRESHOLD:
        matched = match(
            batch.detections,
            batch.objects,
            num_classes=size,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
        )
        errors_at_threshold = count_errors(batch, matched, background_threshold=BACKGROUND_THRESHOLD)
        errors = error_types(
            batch, num_classes=size, iou_threshold=iou_threshold, background_threshold=BACKGROUND_THRESHOLD
        )
    return DetectionAnalysis(
        classes=tuple(classes),
        average_precision=average_precision(match_for_ap(batch.detections, batch.objects, settings), settings),
        max_dets=max_dets,
        most_detections=matches.records.most_detections,
        score_threshold=score_threshold,
        curves=detection_curves(matches, iou_threshold=iou_threshold, num_points=POINTS),
        sizes=size_report(
            batch,
            num_classes=size,
            edges=COCO_EDGES if size_edges is None else size_edges,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
            max_dets=max_dets,
        ),
        errors=errors,
        errors_at_threshold=errors_at_threshold,
        points=points,
        intervals=intervals,
    )
