"""Curves over all thresholds: precision, recall and F of detectors; ROC and precision-recall of classifiers.

Every point is what is counted when the scores are cut there. Nothing is interpolated or made monotonous, which would
overstate precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.auc import map_classes, roc_points
from mm_metrics_plugin.functional.averaging import divide
from mm_metrics_plugin.functional.histogram import bin_edges
from mm_metrics_plugin.functional.image_counts import mean_of_defined
from mm_metrics_plugin.functional.score_precision import precision_of, round_thresholds
from mm_metrics_plugin.functional.scored_matches import ScoredMatches
from mm_metrics_plugin.functional.weighted_ap import WeightedAP


@dataclass(frozen=True, eq=False)
class CountCurve:
    """What is found when the scores are cut at each of them.

    Attributes:
        thresholds: Distinct scores, descending.
        tp: How many are right at or above each.
        fp: How many are wrong at or above each.
        positives: How many there are to be found.
        negatives: How many there are to be left alone; 0 where that cannot be counted.

    Example:
        >>> curve = CountCurve(np.array([0.8, 0.4]), np.array([1, 2]), np.array([0, 2]), positives=4, negatives=4)
        >>> curve.precision.tolist(), curve.recall.tolist(), curve.specificity.tolist()
        ([1.0, 0.5], [0.25, 0.5], [1.0, 0.5])
        >>> curve.youden()
        (0.25, 0.8)
        >>> curve.sensitivity_at(0.5), curve.specificity_at(0.25)
        ((0.5, 0.4), (1.0, 0.8))
        >>> print(curve)
        2 thresholds from 0.8 to 0.4, 4 positives, 4 negatives
    """

    thresholds: np.ndarray
    tp: np.ndarray
    fp: np.ndarray
    positives: int
    negatives: int = 0

    @property
    def precision(self) -> np.ndarray:
        """Of what is at or above the threshold, the share that is right."""
        return divide(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> np.ndarray:
        """Of what there is to be found, the share at or above the threshold: sensitivity, true positive rate."""
        return divide(self.tp, np.full(len(self.tp), self.positives))

    @property
    def false_positive_rate(self) -> np.ndarray:
        """Of what is to be left alone, the share at or above the threshold."""
        return divide(self.fp, np.full(len(self.fp), self.negatives))

    @property
    def specificity(self) -> np.ndarray:
        """Of what is to be left alone, the share below the threshold."""
        return divide(self.negatives - self.fp, np.full(len(self.fp), self.negatives))

    def f_score(self, *, beta: float = 1.0) -> np.ndarray:
        """The F-score at every threshold; 0 where nothing is right, NaN where there is nothing at all."""
        squared = beta**2
        return divide((1 + squared) * self.tp, self.tp + self.fp + squared * self.positives)

    def youden(self) -> Tuple[float, float]:
        """The greatest sensitivity + specificity - 1 (the KS statistic) and its threshold; of several the highest."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        height = self.tp.astype(np.int64) * self.negatives - self.fp.astype(np.int64) * self.positives
        best = int(height.argmax())
        return int(height[best]) / (self.positives * self.negatives), float(self.thresholds[best])

    def sensitivity_at(self, specificity: float) -> Tuple[float, float]:
        """The greatest sensitivity with at least this specificity, and its threshold (the highest that has it).

        The threshold is infinite if nothing may be kept.
        """
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        # Specificity falls and sensitivity rises from point to point, so the last point that is allowed is the best.
        allowed = _first(len(self.fp), lambda at: (self.negatives - int(self.fp[at])) / self.negatives < specificity)
        if not allowed:
            return 0.0, float("inf")
        best = int(np.searchsorted(self.tp, self.tp[allowed - 1], side="left"))
        return int(self.tp[best]) / self.positives, float(self.thresholds[best])

    def specificity_at(self, sensitivity: float) -> Tuple[float, float]:
        """The greatest specificity with at least this sensitivity, and its threshold (the highest that has it)."""
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        best = _first(len(self.tp), lambda at: int(self.tp[at]) / self.positives >= sensitivity)
        # Keeping nothing has sensitivity 0 and specificity 1.
        if sensitivity <= 0 or best == len(self.tp):
            return 1.0, float("inf")
        return (self.negatives - int(self.fp[best])) / self.negatives, float(self.thresholds[best])

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {name: np.asarray(value).tolist() for name, value in vars(self).items()}

    def __str__(self) -> str:
        span = f" from {self.thresholds[0]:g} to {self.thresholds[-1]:g}" if len(self.thresholds) else ""
        return f"{len(self.thresholds)} thresholds{span}, {self.positives} positives, {self.negatives} negatives"


def _first(length: int, holds: Callable[[int], bool]) -> int:
    """The first place from which on something holds; the length if it never does."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


# --- detection --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RankedScores:
    """The detections of one class, to be counted at any threshold.

    Attributes:
        score: (N,) descending.
        right: (N,) whether each is a true positive.
        precision: (N,) code of the precision in which each score was given; None: that of the dtype of ``score``.

    Example:
        >>> ranked = RankedScores(np.array([0.9, 0.4], dtype=np.float32), np.array([True, False]))
        >>> ranked.counts_at(np.array([0.0, 0.4, 0.5])).tolist()
        [[1, 1, 1], [1, 1, 0]]
    """

    score: np.ndarray
    right: np.ndarray
    precision: Optional[np.ndarray] = None

    def counts_at(self, thresholds: np.ndarray) -> np.ndarray:
        """(2, points) true and false positives with a score of at least each threshold, in the score's precision."""
        counts = np.zeros((2, len(thresholds)), dtype=np.int64)
        rounded = round_thresholds(thresholds)
        codes = [precision_of(self.score.dtype)] if self.precision is None else np.unique(self.precision).tolist()
        for code in codes:
            same = np.ones(len(self.score), dtype=bool) if self.precision is None else self.precision == code
            for row, chosen in zip(counts, (self.right & same, ~self.right & same)):
                ascending = self.score[chosen][::-1]
                row += len(ascending) - np.searchsorted(ascending, rounded[code], side="left")
        return counts


@dataclass(frozen=True, eq=False)
class DetectionCurves:
    """The curves of a detector.

    Attributes:
        iou_threshold: Least overlap of a pair.
        beta: Of the F-scores on the grid.
        per_class: The exact curve of each class: one point for every distinct score.
        average_precision: (classes,) COCO's AP at the IoU threshold, of at most ``max_dets`` detections per class and
            image; NaN for classes without objects.
        max_dets: The limit of ``average_precision``. The curves are of all detections.
        confidence: (points,) a grid of thresholds, ascending, the same for all classes.
        precision: (classes, points) at each of these; NaN where nothing is left.
        recall: (classes, points); NaN for classes without objects.
        f_score: (classes, points).
        ranked: The detections of each class, to be counted at other thresholds.
    """

    iou_threshold: float
    beta: float
    per_class: Tuple[CountCurve, ...]
    average_precision: np.ndarray
    max_dets: int
    confidence: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f_score: np.ndarray
    ranked: Tuple[RankedScores, ...]

    @property
    def mean_precision(self) -> np.ndarray:
        """(points,) mean over the classes that have one."""
        return mean_of_defined(self.precision.T)

    @property
    def mean_recall(self) -> np.ndarray:
        """(points,) mean over the classes that have one."""
        return mean_of_defined(self.recall.T)

    @property
    def mean_f_score(self) -> np.ndarray:
        """(points,) mean over the classes that have one."""
        return mean_of_defined(self.f_score.T)

    def to_dict(self) -> Dict[str, Any]:
        """The grid and the APs as plain Python values; the exact curves, which may be long, are left out."""
        names = ("average_precision", "confidence", "precision", "recall", "f_score")
        means = ("mean_precision", "mean_recall", "mean_f_score")
        return {
            "iou_threshold": self.iou_threshold,
            "beta": self.beta,
            "max_dets": self.max_dets,
            **{name: getattr(self, name).tolist() for name in names + means},
        }

    def __str__(self) -> str:
        points = sum(len(curve.thresholds) for curve in self.per_class)
        mean = float(mean_of_defined(self.average_precision))
        return f"{len(self.per_class)} classes, {points} points, mean AP {mean:.4f} at IoU {self.iou_threshold:g}"


def detection_curves(
    matches: ScoredMatches, *, iou_threshold: float = 0.5, beta: float = 1.0, num_points: int = 1001
) -> DetectionCurves:
    """Precision, recall and F of a detector against each other and against confidence.

    The curves count all detections. Only the average precision beside them has the limit ``matches.max_dets``.

    Args:
        matches: Every detection, matched.
        iou_threshold: One of those it was matched at.
        beta: How many times as much recall weighs as precision in the F-score.
        num_points: Of the grid of thresholds, from 0 to 1 (or from the least to the greatest score, where scores
            lie outside).

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
        >>> from mm_metrics_plugin.functional.scored_matches import match_scores
        >>> found = Detections([0, 0, 0], [[0, 0, 9, 9], [50, 0, 59, 9], [20, 0, 29, 9]], [0.9, 0.8, 0.4], [0, 0, 0])
        >>> there = Objects([0, 0], [[0, 0, 9, 9], [20, 0, 29, 9]], [0, 0])
        >>> curves = detection_curves(match_scores(DetectionBatch(found, there, 1), num_classes=1), num_points=3)
        >>> curves.per_class[0].precision.round(4).tolist(), curves.per_class[0].recall.tolist()
        ([1.0, 0.5, 0.6667], [0.5, 0.5, 1.0])
        >>> curves.confidence.tolist(), curves.precision.round(4).tolist()
        ([0.0, 0.5, 1.0], [[0.6667, 0.5, nan]])
        >>> print(curves)
        1 classes, 3 points, mean AP 0.8350 at IoU 0.5
    """
    tp, used = matches.flags(iou_threshold)
    records = matches.records
    label, score, right = records.label[used], records.score[used], tp[used]
    precision = None if records.precision is None else records.precision[used]
    edges = np.searchsorted(label, np.arange(matches.num_classes + 1)).tolist()
    objects = np.bincount(matches.object_label, minlength=matches.num_classes)
    low, high = (float(score.min()), float(score.max())) if len(score) else (0.0, 1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    grid = np.linspace(low, high, num_points)
    curves: List[CountCurve] = []
    ranked: List[RankedScores] = []
    on_grid = np.zeros((2, matches.num_classes, num_points), dtype=np.int64)
    for index, (start, stop) in enumerate(zip(edges[:-1], edges[1:])):
        descending, hits = score[start:stop], np.cumsum(right[start:stop])
        cut = np.flatnonzero(np.append(descending[1:] != descending[:-1], True)[: len(descending)])
        curves.append(CountCurve(descending[cut], hits[cut], cut + 1 - hits[cut], int(objects[index])))
        of_class = None if precision is None else precision[start:stop]
        ranked.append(RankedScores(descending, right[start:stop], of_class))
        on_grid[:, index] = ranked[-1].counts_at(grid)
    found, wrong = on_grid
    there = objects[:, None]
    return DetectionCurves(
        iou_threshold=float(iou_threshold),
        beta=beta,
        per_class=tuple(curves),
        average_precision=WeightedAP(matches, iou_thresholds=[iou_threshold])(np.ones((matches.num_images, 1)))[0, 0],
        max_dets=matches.max_dets,
        confidence=grid,
        precision=divide(found, found + wrong),
        recall=divide(found, np.broadcast_to(there, found.shape)),
        f_score=divide((1 + beta**2) * found, found + wrong + beta**2 * there),
        ranked=tuple(ranked),
    )


# --- classification ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassificationCurves:
    """The curves of a classifier, each class against the rest.

    Attributes:
        per_class: One curve a class.
    """

    per_class: Tuple[CountCurve, ...]

    def youden(self) -> Tuple[np.ndarray, np.ndarray]:
        """The greatest sensitivity + specificity - 1 of each class, and the thresholds."""
        return self._each([curve.youden() for curve in self.per_class])

    def sensitivity_at(self, specificity: float) -> Tuple[np.ndarray, np.ndarray]:
        """The greatest sensitivity of each class with at least this specificity, and the thresholds."""
        return self._each([curve.sensitivity_at(specificity) for curve in self.per_class])

    def specificity_at(self, sensitivity: float) -> Tuple[np.ndarray, np.ndarray]:
        """The greatest specificity of each class with at least this sensitivity, and the thresholds."""
        return self._each([curve.specificity_at(sensitivity) for curve in self.per_class])

    @staticmethod
    def _each(pairs: List[Tuple[float, float]]) -> Tuple[np.ndarray, np.ndarray]:
        values, thresholds = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return values, thresholds

    def to_dict(self) -> Dict[str, Any]:
        """The curves as plain Python values."""
        return {"per_class": [curve.to_dict() for curve in self.per_class]}

    def __str__(self) -> str:
        value, threshold = self.youden()
        rows = zip(value.tolist(), threshold.tolist())
        return "\n".join(f"class {index}: Youden {a:.4f} at {b:g}" for index, (a, b) in enumerate(rows))


def classification_curves(blocks: Sequence[np.ndarray], labels: np.ndarray) -> ClassificationCurves:
    """ROC and precision-recall curves of each class against the rest.

    Args:
        blocks: The scores as consecutive blocks of rows (one block for a plain matrix), one column a class.
        labels: The class of each row, or (rows, classes) of 1, 0 and -1, where samples with -1 do not count.

    Example:
        >>> curves = classification_curves([np.array([[0.1], [0.4], [0.35], [0.8]])], np.array([[0], [0], [1], [1]]))
        >>> curves.per_class[0].false_positive_rate.tolist(), curves.per_class[0].recall.tolist()
        ([0.0, 0.5, 0.5, 1.0], [0.5, 0.5, 1.0, 1.0])
        >>> print(curves)
        class 0: Youden 0.5000 at 0.8
    """
    return ClassificationCurves(tuple(map_classes(count_curve, blocks, labels)))


def count_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The curve of one class against the rest.

    Args:
        ranked: The scores of all samples, ascending.
        positives: Those of the samples of the class, ascending.

    Example:
        >>> print(count_curve(np.array([0.1, 0.35, 0.4, 0.8]), np.array([0.35, 0.8])))
        4 thresholds from 0.8 to 0.1, 2 positives, 2 negatives
    """
    thresholds, fp, tp = roc_points(ranked, positives)
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def corner_curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
    """The points of :func:`count_curve` at the scores of positives, and the first point.

    Only there the true positives change, so these have the best thresholds: ``youden``, ``sensitivity_at`` and
    ``specificity_at`` of this curve are those of the whole one, and it takes a small part of the time.

    Args:
        ranked: The scores of all samples, ascending.
        positives: Those of the samples of the class, ascending.

    Example:
        >>> print(corner_curve(np.array([0.1, 0.35, 0.4, 0.8]), np.array([0.35, 0.8])))
        2 thresholds from 0.8 to 0.35, 2 positives, 2 negatives
    """
    thresholds = np.unique(np.append(positives, ranked[-1:]))[::-1]
    tp = len(positives) - np.searchsorted(positives, thresholds, side="left")
    fp = len(ranked) - np.searchsorted(ranked, thresholds, side="left") - tp
    return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))


def histogram_curves(positives: np.ndarray, totals: np.ndarray) -> ClassificationCurves:
    """The curves of scores that were counted in bins: the exact ones, at the lowest score of every bin.

    Args:
        positives: (classes, bins) how many scores of samples of the class lie in each bin of
            :func:`~mm_metrics_plugin.functional.histogram.bin_scores`.
        totals: (classes, bins) how many scores of all samples do.

    Example:
        >>> curves = histogram_curves(np.array([[0, 0, 2]]), np.array([[1, 0, 3]]))
        >>> curves.per_class[0].recall.tolist(), curves.per_class[0].false_positive_rate.tolist()
        ([1.0, 1.0], [0.5, 1.0])
    """
    edges = bin_edges(totals.shape[1])
    curves = []
    for mine, everything in zip(positives[:, ::-1], totals[:, ::-1]):
        used = np.flatnonzero(everything)
        tp, kept = np.cumsum(mine)[used], np.cumsum(everything)[used]
        curves.append(CountCurve(edges[::-1][used], tp, kept - tp, int(mine.sum()), int(everything.sum() - mine.sum())))
    return ClassificationCurves(tuple(curves))
