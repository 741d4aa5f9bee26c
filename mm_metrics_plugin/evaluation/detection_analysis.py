"""Analysis of matched detections: average precision, curves, object sizes, error types, thresholds, intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

import numpy as np

from mm_metrics_plugin.evaluation.report import Progress, records
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
    """What a report contains beyond the confusion matrices."""

    classes: Sequence[str]
    average_precision: AveragePrecision  # COCO's, of at most ``max_dets`` detections per class and image
    max_dets: int  # limit of every average precision except in ``errors``
    most_detections: int  # maximum number of detections of one class in one image
    score_thr: float  # score threshold of precision and recall
    curves: DetectionCurves
    sizes: SizeReport  # results by object size
    errors: Optional[TideErrors]  # of detections of all scores; None if the IoU threshold leaves no room for them
    errors_at_threshold: Optional[Dict[str, np.ndarray]]  # (classes,) errors by type; they add up to FP and FN
    points: Optional[OperatingPoints]  # best score thresholds, if ``operating_point`` is given
    intervals: Optional[Intervals]  # confidence intervals, if ``ci`` is given

    @property
    def error_totals(self) -> Dict[str, int]:
        """Number of errors of all classes at the score threshold, by type."""
        return {name: int(count.sum()) for name, count in (self.errors_at_threshold or {}).items()}

    def ap_columns(self) -> Dict[str, Any]:
        """AP of each class, by the name of the column."""
        ap = self.average_precision
        return {"name": list(self.classes), "AP": ap.per_class, "AP_50": ap.at_iou(0.5), "AP_75": ap.at_iou(0.75)}

    def thresholds(self) -> Dict[str, Any]:
        """The best score thresholds, as in ``thresholds.json``."""
        points = self.points
        if points is None:
            return {}
        return {
            "rule": str(points.rule),
            "threshold": points.overall.threshold,
            "per_class": dict(zip(unique_names(self.classes), (point.threshold for point in points.per_class))),
            "in_sample": {"overall": points.overall.to_dict(), "per_class": self._by_class(points.per_class)},
            "cross_fitted": {
                "folds": points.folds,
                "overall": points.overall_cross_fitted.to_dict(),
                "per_class": self._by_class(points.per_class_cross_fitted),
            },
        }

    def _by_class(self, points: Sequence[OperatingPoint]) -> List[Dict[str, Any]]:
        return [{"name": name, **point.to_dict()} for name, point in zip(self.classes, points)]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        errors = None
        if self.errors is not None:
            counts = {name: count.tolist() for name, count in (self.errors_at_threshold or {}).items()}
            at_score_thr = {"score_thr": self.score_thr, "totals": self.error_totals, "counts": counts}
            errors = {**self.errors.to_dict(), "at_score_thr": at_score_thr}
        return {
            "average_precision": {
                **self.average_precision.to_dict(),
                "max_dets": self.max_dets,
                "most_detections_per_class_and_image": self.most_detections,
                "per_class": records(self.ap_columns()),
            },
            "sizes": self.sizes.to_dict(),
            "errors": errors,
            "operating_points": self.thresholds() or None,
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }


def analyze_detections(
    table: MatchTable, settings: DetectionSettings, *, classes: Sequence[str], progress: Optional[Progress] = None
) -> DetectionAnalysis:
    """Compute everything that follows from matched detections.

    Args:
        table: Every detection and ground truth, matched, with details.
        settings: What to compute.
        classes: Class names.
        progress: Receives the steps.
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
