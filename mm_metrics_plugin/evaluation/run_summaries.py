"""What was read and used of each run of a comparison, its best score threshold, and reasons to doubt a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple

import numpy as np

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.functional._arrays import fbeta_score, mean_of_defined
from mm_metrics_plugin.functional.detection.cross_fitting import (
    cross_fitted_thresholds,
    image_folds,
    num_folds,
    reached_by_fold,
)
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.operating_points import OperatingPoint
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts, f1_gain, per_image_counts
from mm_metrics_plugin.settings import OperatingRule, number_text

MISSING_RESULTS, SCORE_THR = "missing_results", "score_thr"
_MIN_F1_GAIN = 0.02  # a smaller one is no reason to change the score threshold
_MIN_STANDARD_ERRORS = 2.0


class RunWarning(NamedTuple):
    """A reason to doubt the verdicts on a run."""

    code: str  # 'missing_results', or 'score_thr', which concerns precision, recall and F1
    run: str  # name of the run
    message: str

    def concerns(self, metric: str) -> bool:
        """Whether a metric depends on what the warning is about."""
        return self.code == MISSING_RESULTS or metric.startswith(("precision", "recall", "f1"))


@dataclass(frozen=True, eq=False)
class CrossFittedPoint:
    """The best score threshold of a detector, selected on other images than those it is evaluated on."""

    rule: OperatingRule
    thresholds: np.ndarray  # (folds,) threshold of each fold; NaN if none satisfies the rule
    reached: np.ndarray  # (N,) which detections of the match table reach the threshold of their image
    counts: PerImageCounts

    @classmethod
    def select(cls, table: MatchTable, rule: OperatingRule, *, seed: int) -> CrossFittedPoint:
        """Select the thresholds."""
        fold = image_folds(table.num_images, folds=num_folds(table.num_images), seed=seed)
        thresholds = cross_fitted_thresholds(table, fold, rule)
        reached = reached_by_fold(table, fold, thresholds)
        return cls(rule, thresholds, reached, per_image_counts(table, reached=reached))

    @property
    def point(self) -> OperatingPoint:
        """The pooled counts; the threshold is the mean over the folds."""
        tp, fp, fn = (int(count.sum()) for count in self.counts.totals())
        return OperatingPoint(float(mean_of_defined(self.thresholds)), tp, fp, fn, self.rule.beta)

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {"rule": str(self.rule), "thresholds": self.thresholds.tolist(), **self.point.to_dict()}


@dataclass(frozen=True, eq=False)
class RunSummary:
    """What was read and used of a run."""

    name: str
    counts: Mapping[str, Any]  # as in a report on this run alone
    cross_fitted: CrossFittedPoint | None = None  # of detectors with at least two images

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        cross_fitted = None if self.cross_fitted is None else self.cross_fitted.to_dict()
        return {"name": self.name, "counts": dict(self.counts), "cross_fitted": cross_fitted}


def missing_warnings(
    name: str, without_results: np.ndarray, *, lists_all_images: bool, other: MatchTable
) -> list[RunWarning]:
    """Images without results, except images of COCO results in which ``other`` has no detections either."""
    missing = without_results
    if not lists_all_images:
        missing = missing & (np.bincount(other.image, minlength=len(missing)) > 0)
    if not missing.any():
        return []
    message = f"no results for {int(np.count_nonzero(missing)):,} of {pluralize(len(missing), 'image')}"
    if not lists_all_images:
        message += (
            ", in which the other run has detections (COCO results and key points of mmpose do not list images without "
            "detections)"
        )
    return [RunWarning(MISSING_RESULTS, name, f"{message}; they are evaluated as having no detections")]


def threshold_warnings(
    name: str, counts: PerImageCounts, best: CrossFittedPoint, *, score_thr: float
) -> list[RunWarning]:
    """A score threshold that is far from the best of the run.

    The micro F1 at the best threshold, which is selected on other images, is higher by at least 2 percentage points and
    by two standard errors.
    """
    gain, standard_error = f1_gain(counts, best.counts)
    if not (gain >= _MIN_F1_GAIN and gain >= _MIN_STANDARD_ERRORS * standard_error):
        return []
    f1 = float(fbeta_score(*(float(count.sum()) for count in counts.totals())))
    message = (
        f"micro F1 is {100 * f1:.1f} % at score >= {number_text(score_thr)} and {100 * best.point.f_score:.1f} % at "
        f"its best threshold, about {best.point.threshold:.2g} (operating_point='f1')"
    )
    return [RunWarning(SCORE_THR, name, message)]
