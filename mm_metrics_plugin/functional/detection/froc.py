"""Free-response ROC (FROC) of a detector: sensitivity by false positives per image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mm_metrics_plugin.functional._arrays import Result
from mm_metrics_plugin.functional.classification.roc_curves import CountCurve
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.pr_curves import RankedScores, ranked_rows
from mm_metrics_plugin.settings import number_text

FPS_PER_IMAGE = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of LUNA16
SENSITIVITY_NAMES = tuple(f"sensitivity@{number_text(fps)}" for fps in FPS_PER_IMAGE)
FROC_NAMES = ("FROC", *SENSITIVITY_NAMES)


@dataclass(frozen=True, eq=False)
class FROCResult(Result):
    """The FROC curve of all classes pooled, and that of each class; NaN without ground truths."""

    iou_thr: float  # IoU threshold of a match
    num_images: int
    overall: CountCurve  # one score threshold and the false positives of all classes
    per_class: tuple[CountCurve, ...]
    overlap_name: str = "IoU"  # that ``iou_thr`` is a threshold of

    def sensitivity(self, curve: CountCurve, fps_per_image: np.ndarray) -> np.ndarray:
        """Sensitivity of a curve, linearly interpolated as in LUNA16, at numbers of false positives per image.

        Beyond the end of the curve it is that of the lowest score.
        """
        if not curve.positives:
            return np.full(len(fps_per_image), np.nan)
        fps = np.append(0.0, curve.fp / self.num_images)
        return np.asarray(np.interp(fps_per_image, fps, np.append(0.0, curve.recall)))

    def values(self) -> dict[str, float]:
        """The sensitivities of all classes pooled and their mean, by key."""
        return dict(zip(FROC_NAMES, self._row(self.overall)))

    def class_values(self) -> dict[str, np.ndarray]:
        """(classes,) the sensitivities and their mean, by key."""
        rows = np.array([self._row(curve) for curve in self.per_class]).reshape(-1, len(FROC_NAMES))
        return dict(zip(FROC_NAMES, rows.T))

    def _row(self, curve: CountCurve) -> list[float]:
        sensitivity = self.sensitivity(curve, np.array(FPS_PER_IMAGE))
        return [float(sensitivity.mean()), *sensitivity.tolist()]

    def __str__(self) -> str:
        return "\n".join(f"{name:<18}{value:7.4f}" for name, value in self.values().items())


def froc(table: MatchTable, *, iou_thr: float | None = None) -> FROCResult:
    """FROC curves of all detections: sensitivity (recall) by false positives per image.

    Args:
        table: Match table of :func:`match_images`.
        iou_thr: IoU threshold, one of the table's; that of its settings by default.

    References:
        Setio et al., "Validation, comparison, and combination of algorithms for automatic detection of pulmonary
        nodules in computed tomography images: the LUNA16 challenge", Medical Image Analysis 2017.

    Example:
        Two images with a ground truth each; there is one false positive between the true positives:

        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> boxes = [[0, 0, 9, 9], [50, 0, 59, 9], [20, 0, 29, 9]]
        >>> detections = Detections([0, 0, 1], boxes, [0.9, 0.8, 0.4], [0, 0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0, 1], boxes[::2], [0, 0]), 2)
        >>> print(froc(match_images(batch, num_classes=1, keep="scores").table))
        FROC               0.8571
        sensitivity@0.125  0.5000
        sensitivity@0.25   0.5000
        sensitivity@0.5    1.0000
        sensitivity@1      1.0000
        sensitivity@2      1.0000
        sensitivity@4      1.0000
        sensitivity@8      1.0000
    """
    settings = table.settings_with(iou_thr=iou_thr)
    rows, is_tp, classes = ranked_rows(table, settings.iou_thr)
    detections, num_gts = RankedScores.of_rows(table, rows, is_tp), table.num_gts("any")
    ranked = [detections.take(rows_of_class) for rows_of_class in classes]
    return FROCResult(
        iou_thr=settings.iou_thr,
        num_images=table.num_images,
        overall=RankedScores.pooled(ranked).curve(int(num_gts.sum())),
        per_class=tuple(scores.curve(int(number)) for scores, number in zip(ranked, num_gts)),
        overlap_name=geometry_of(settings.iou_type).overlap_name,
    )
