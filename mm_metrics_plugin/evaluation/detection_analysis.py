"""What a report says of a detector beyond one threshold: average precision, curves, sizes, error types, intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

import numpy as np

from mm_metrics_plugin.evaluation.report import Progress
from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.functional.detection.average_precision import AveragePrecision, average_precision
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.operating_points import OperatingPoint, OperatingPoints, operating_points
from mm_metrics_plugin.functional.detection.pr_curves import DetectionCurves, precision_recall_curves
from mm_metrics_plugin.functional.detection.results_by_size import SizeReport, results_by_size
from mm_metrics_plugin.functional.detection.tide import TideErrors, errors_at_threshold, tide_errors
from mm_metrics_plugin.settings import DetectionSettings, require

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.statistics.bootstrap import Intervals

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
        score_thr: Least score of a detection that counts for precision and recall.
        curves: Precision, recall and F1 against the score threshold and each other.
        sizes: Results by object size.
        errors: TIDE's error types, of all detections whatever their score; None where the IoU threshold leaves no room
            for them.
        errors_at_threshold: By type, (classes,) errors at the score threshold; they add up to FP and FN.
        points: The best thresholds, if they were asked for.
        intervals: Confidence intervals, if they were asked for.
    """

    classes: Sequence[str]
    average_precision: AveragePrecision
    max_dets: int
    most_detections: int
    score_thr: float
    curves: DetectionCurves
    sizes: SizeReport
    errors: Optional[TideErrors]
    errors_at_threshold: Optional[Dict[str, np.ndarray]]
    points: Optional[OperatingPoints]
    intervals: Optional[Intervals]

    @property
    def error_totals(self) -> Dict[str, int]:
        """By type, how many errors of all classes there are at the score threshold."""
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
        return {
            "rule": str(points.rule),
            "threshold": points.overall.threshold,
            "per_class": dict(zip(unique_names(self.classes), (point.threshold for point in points.per_class))),
            "in_sample": {
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
        return {"score_thr": self.score_thr, "totals": self.error_totals, "counts": counts}


def _rows(columns: Dict[str, Any]) -> List[Dict[str, Any]]:
    plain = [column if isinstance(column, list) else np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row)) for row in zip(*plain)]


def _by_class(classes: Sequence[str], points: Sequence[OperatingPoint]) -> List[Dict[str, Any]]:
    return [{"name": name, **point.to_dict()} for name, point in zip(classes, points)]


def analyze_detections(
    table: MatchTable, settings: DetectionSettings, *, classes: Sequence[str], progress: Optional[Progress] = None
) -> DetectionAnalysis:
    """Everything that follows from matched detections.

    Args:
        table: Every detection and ground truth, matched, with details.
        settings: What to compute.
        classes: Class names.
        progress: Receives the steps.

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
        >>> from mm_metrics_plugin.functional.detection.matching import match_images
        >>> ground_truths = GroundTruths([0, 1], [[0, 0, 10, 10], [0, 0, 10, 10]], [0, 0])
        >>> detections = Detections([0, 1], [[0, 0, 10, 10], [50, 50, 60, 60]], [0.9, 0.8], [0, 0])
        >>> settings = DetectionSettings(operating_point="f1")
        >>> table = match_images(DetectionBatch(detections, ground_truths, 2), settings, num_classes=1).table
        >>> analysis = analyze_detections(table, settings, classes=["cat"])
        >>> analysis.errors.totals["background"], analysis.points.overall.threshold
        (1, 0.9)
    """
    iou_thr, score_thr, max_dets = settings.iou_thr, settings.score_thr, settings.max_dets
    intervals, points, errors, counted = None, None, None, None
    if settings.ci is not None and table.num_images:
        from mm_metrics_plugin.functional.statistics.bootstrap import bootstrap_ci  # imports SciPy

        intervals = bootstrap_ci(
            table,
            score_thr=score_thr,
            iou_thr=iou_thr,
            max_dets=max_dets,
            ci=settings.ci,
            resamples=settings.resamples,
            seed=settings.seed,
            track=(progress or Progress()).track,
        )
    if settings.operating_point is not None:
        require(
            table.num_images > 1,
            "operating_point needs at least 2 images, because a threshold is judged on images it was not chosen on "
            f"(found {table.num_images})",
        )
        folds = min(FOLDS, table.num_images)
        points = operating_points(
            table, rule=settings.operating_point, iou_thr=iou_thr, folds=folds, seed=settings.seed
        )
    if iou_thr > settings.background_iou_thr:
        errors, counted = tide_errors(table), errors_at_threshold(table)
    return DetectionAnalysis(
        classes=tuple(classes),
        average_precision=average_precision(table, max_dets=max_dets),
        max_dets=max_dets,
        most_detections=table.most_detections,
        score_thr=score_thr,
        curves=precision_recall_curves(table, iou_thr=iou_thr, num_points=POINTS, max_dets=max_dets),
        sizes=results_by_size(
            table, area_edges=settings.area_edges, iou_thr=iou_thr, score_thr=score_thr, max_dets=max_dets
        ),
        errors=errors,
        errors_at_threshold=counted,
        points=points,
        intervals=intervals,
    )
