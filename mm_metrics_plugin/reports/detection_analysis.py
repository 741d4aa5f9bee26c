"""What follows from the matched detections of a detector, beyond its confusion matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.functional.detection.average_precision import AveragePrecision, average_precision
from mm_metrics_plugin.functional.detection.cross_fitting import num_folds
from mm_metrics_plugin.functional.detection.federated import limited_model_message
from mm_metrics_plugin.functional.detection.froc import FROCResult, froc
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.olrp import OLRPResult, olrp
from mm_metrics_plugin.functional.detection.operating_points import OperatingPoint, OperatingPoints, operating_points
from mm_metrics_plugin.functional.detection.pr_curves import DetectionCurves, precision_recall_curves
from mm_metrics_plugin.functional.detection.results_by_size import SizeReport, results_by_size
from mm_metrics_plugin.functional.detection.tide import TideErrors, errors_at_threshold, tide_errors
from mm_metrics_plugin.reports.base import Progress, records
from mm_metrics_plugin.settings import DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.statistics.bootstrap import Intervals

POINTS = 201


@dataclass(frozen=True, eq=False)
class DetectionAnalysis:
    """What follows from matched detections, beyond the confusion matrices. A part is computed when it is first used."""

    classes: Sequence[str]
    table: MatchTable
    with_ap: bool = True  # whether intervals include those of average precision, which take longest
    progress: Progress = field(default_factory=Progress, repr=False)

    @property
    def settings(self) -> DetectionSettings:
        """The options of the matching."""
        return self.table.settings

    @property
    def overlap_name(self) -> str:
        """The name of the overlap of a detection and a ground truth: IoU, boundary IoU or OKS."""
        return str(geometry_of(self.settings.iou_type).overlap_name)

    @property
    def max_dets(self) -> int:
        """The limit of every average precision except in ``errors``."""
        return self.settings.max_dets

    @property
    def score_thr(self) -> float:
        """Score threshold of precision and recall."""
        return self.settings.score_thr

    @cached_property
    def most_detections(self) -> int:
        """Maximum number of detections in what ``max_dets`` limits: by default, of one class in one image."""
        return self.table.most_detections

    @property
    def limit_messages(self) -> list[str]:
        """Messages if a limit of the detections, of the convention or of the model, may lower average precision."""
        drops_some = self.most_detections > self.settings.max_dets
        truncated = self.settings.truncation_message(self.most_detections) if drops_some else ""
        return [message for message in (truncated, limited_model_message(self.table)) if message]

    @cached_property
    def average_precision(self) -> AveragePrecision:
        """By the convention of the settings, of at most ``max_dets`` detections per class and image."""
        return average_precision(self.table)

    @cached_property
    def curves(self) -> DetectionCurves:
        """Precision and recall of each class."""
        return precision_recall_curves(self.table, num_points=POINTS)

    @cached_property
    def sizes(self) -> SizeReport:
        """Results by object size."""
        return results_by_size(self.table)

    @property
    def _has_errors(self) -> bool:
        return self.settings.iou_thr > self.settings.background_iou_thr and self.table.details is not None

    @cached_property
    def errors(self) -> TideErrors | None:
        """Errors of detections of all scores; None if the IoU threshold leaves no room for them."""
        return tide_errors(self.table) if self._has_errors else None

    @cached_property
    def errors_at_threshold(self) -> dict[str, np.ndarray] | None:
        """(classes,) errors by type at the score threshold; they add up to FP and FN."""
        return errors_at_threshold(self.table) if self._has_errors else None

    @cached_property
    def olrp(self) -> OLRPResult | None:
        """oLRP, unless ``olrp`` is False."""
        return olrp(self.table) if self.settings.olrp and self.table.details is not None else None

    @cached_property
    def froc(self) -> FROCResult | None:
        """FROC curves, unless ``froc`` is False."""
        return froc(self.table) if self.settings.froc else None

    @cached_property
    def points(self) -> OperatingPoints | None:
        """Best score thresholds, if ``operating_point`` is given."""
        if self.settings.operating_point is None:
            return None
        return operating_points(self.table, folds=num_folds(self.table.num_images))

    @cached_property
    def intervals(self) -> Intervals | None:
        """Confidence intervals, if ``ci`` is given."""
        if self.settings.ci is None or not self.table.num_images:
            return None
        from mm_metrics_plugin.functional.statistics.bootstrap import bootstrap_ci  # imports SciPy

        return bootstrap_ci(self.table, average_precision=self.with_ap, track=self.progress.track)

    @property
    def error_totals(self) -> dict[str, int]:
        """Number of errors of all classes at the score threshold, by type."""
        return {name: int(count.sum()) for name, count in (self.errors_at_threshold or {}).items()}

    def ap_columns(self) -> dict[str, Any]:
        """AP of each class, by the name of the column."""
        return {"name": list(self.classes), **self.average_precision.by_name}

    def olrp_columns(self) -> dict[str, Any]:
        """oLRP, its components and the best score threshold of each class, by the name of the column."""
        return {"name": list(self.classes), **({} if self.olrp is None else self.olrp.per_class)}

    def froc_columns(self) -> dict[str, Any]:
        """Sensitivities of each class and their mean, by the name of the column."""
        return {"name": list(self.classes), **({} if self.froc is None else self.froc.class_values())}

    def thresholds(self) -> dict[str, Any]:
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

    def _by_class(self, points: Sequence[OperatingPoint]) -> list[dict[str, Any]]:
        return [{"name": name, **point.to_dict()} for name, point in zip(self.classes, points)]

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        errors = None
        if self.errors is not None:
            counts = {name: count.tolist() for name, count in (self.errors_at_threshold or {}).items()}
            at_score_thr = {"score_thr": self.score_thr, "totals": self.error_totals, "counts": counts}
            errors = {**self.errors.to_dict(), "at_score_thr": at_score_thr}
        limited = self.settings.ap_convention.max_dets_per.replace(" ", "_")
        return {
            "average_precision": {
                "convention": self.settings.convention,
                **self.average_precision.to_dict(),
                "max_dets": self.max_dets,
                f"most_detections_per_{limited}": self.most_detections,
                "per_class": records(self.ap_columns()),
            },
            "sizes": self.sizes.to_dict(),
            "errors": errors,
            "olrp": None if self.olrp is None else {**self.olrp.means(), "per_class": records(self.olrp_columns())},
            "froc": None if self.froc is None else {**self.froc.values(), "per_class": records(self.froc_columns())},
            "operating_points": self.thresholds() or None,
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }
