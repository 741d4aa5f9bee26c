"""What is counted at each of many score thresholds, from the one matching pass that serves them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Sequence

import numpy as np

from mm_metrics_plugin.functional.confusion import counts_report
from mm_metrics_plugin.functional.curves import CountCurve, DetectionCurves


@dataclass(frozen=True, eq=False)
class ThresholdCounts:
    """Right and wrong detections of every class at every threshold, under the ``coco`` protocol.

    Attributes:
        thresholds: (points,) ascending.
        objects: (classes,) how many there are to be found.
        tp: (classes, points) how many detections at or above each threshold are right.
        fp: (classes, points) how many are wrong.
        best: The threshold at which the F1 of all classes' counts together is greatest; NaN if nothing is right.
        best_per_class: (classes,) the same of each class.
    """

    thresholds: np.ndarray
    objects: np.ndarray
    tp: np.ndarray
    fp: np.ndarray
    best: float
    best_per_class: np.ndarray

    def means(self) -> Dict[str, np.ndarray]:
        """(points,) each: the averages over classes, by the names they have in the JSON report."""
        missed = self.objects[:, None] - self.tp
        reports = [counts_report(tp, fp, fn, np.zeros_like(tp)) for tp, fp, fn in zip(self.tp.T, self.fp.T, missed.T)]
        return {
            "mean_precision": np.array([one.macro.precision for one in reports]),
            "mean_recall": np.array([one.macro.recall for one in reports]),
            "f1_of_means": np.array([one.f_of_means for one in reports]),
            "macro_f1": np.array([one.macro.f_score for one in reports]),
        }

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        found = {name: np.asarray(value).tolist() for name, value in vars(self).items()}
        return {**found, "means": {name: value.tolist() for name, value in self.means().items()}}

    def __str__(self) -> str:
        return f"{len(self.objects)} classes at {len(self.thresholds)} thresholds, best F1 at {self.best:g}"


def threshold_counts(curves: DetectionCurves, *, also: Sequence[float] = ()) -> ThresholdCounts:
    """Count at the thresholds of the curves' grid, at the best one, and at others.

    Args:
        curves: Of a detector.
        also: Thresholds that must be among them.

    Example:
        >>> from mm_metrics_plugin.functional.curves import detection_curves
        >>> from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
        >>> from mm_metrics_plugin.functional.scored_matches import match_scores
        >>> found = Detections([0, 0, 0], [[0, 0, 9, 9], [50, 0, 59, 9], [20, 0, 29, 9]], [0.9, 0.8, 0.4], [0, 0, 0])
        >>> there = Objects([0, 0], [[0, 0, 9, 9], [20, 0, 29, 9]], [0, 0])
        >>> curves = detection_curves(match_scores(DetectionBatch(found, there, 1), num_classes=1), num_points=3)
        >>> counts = threshold_counts(curves, also=[0.85])
        >>> counts.thresholds.tolist(), counts.tp.tolist(), counts.fp.tolist()
        ([0.0, 0.4, 0.5, 0.85, 1.0], [[2, 2, 1, 1, 0]], [[1, 1, 1, 0, 0]])
        >>> print(counts)
        1 classes at 5 thresholds, best F1 at 0.4
    """
    pooled = _pooled(curves.per_class)
    best = _best(pooled)
    wanted = [*curves.confidence.tolist(), *(float(value) for value in also)]
    thresholds = np.unique(wanted if best != best else [*wanted, best])
    counted = [ranked.counts_at(thresholds) for ranked in curves.ranked]
    both = np.array(counted, dtype=np.int64).reshape(-1, 2, len(thresholds))
    return ThresholdCounts(
        thresholds=thresholds,
        objects=np.array([curve.positives for curve in curves.per_class], dtype=np.int64),
        tp=both[:, 0],
        fp=both[:, 1],
        best=best,
        best_per_class=np.array([_best(curve) for curve in curves.per_class]),
    )


def _best(curve: CountCurve) -> float:
    """The threshold of the greatest F1; of several the highest. NaN if nothing is right."""
    if not len(curve.tp) or curve.tp[-1] == 0:
        return float("nan")
    return float(curve.thresholds[int(np.argmax(curve.f_score()))])


def _pooled(curves: Sequence[CountCurve]) -> CountCurve:
    """The curve of all classes' counts together."""
    scores = np.concatenate([curve.thresholds for curve in curves]) if curves else np.empty(0)
    distinct, place = np.unique(-scores, return_inverse=True)
    sums = []
    for name in ("tp", "fp"):
        steps = [np.diff(getattr(curve, name), prepend=0) for curve in curves]
        each = np.bincount(place.reshape(-1), weights=np.concatenate(steps) if steps else None, minlength=len(distinct))
        sums.append(np.cumsum(each.astype(np.int64)))
    return CountCurve(-distinct, sums[0], sums[1], sum(curve.positives for curve in curves))
