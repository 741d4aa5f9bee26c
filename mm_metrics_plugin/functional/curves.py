"""Curves over all thresholds: precision, recall and F of detectors; ROC and precision-recall of classifiers.

Every point is what is counted when the scores are cut there. Nothing is interpolated or made monotonous, which would
overstate precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.auc import map_classes, roc_points
from mm_metrics_plugin.functional.averaging import divide
from mm_metrics_plugin.functional.histogram import bin_edges
from mm_metrics_plugin.functional.image_counts import mean_of_defined
from mm_metrics_plugin.functional.scored_matches import ScoredMatches
from mm_metrics_plugin.functional.weighted_ap import WeightedAP

_CLASSES_AT_ONCE = 16


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
        return self._best(self.recall, self.specificity, specificity)

    def specificity_at(self, sensitivity: float) -> Tuple[float, float]:
        """The greatest specificity with at least this sensitivity, and its threshold (the highest that has it)."""
        return self._best(self.specificity, self.recall, sensitivity, nothing=1.0)

    def _best(self, wanted: np.ndarray, held: np.ndarray, floor: float, nothing: float = 0.0) -> Tuple[float, float]:
        if not self.positives or not self.negatives:
            return float("nan"), float("nan")
        allowed = np.flatnonzero(held >= floor)
        # Keeping nothing has sensitivity 0 and specificity 1.
        if not len(allowed) or (nothing == 1.0 and floor <= 0):
            return nothing, float("inf")
        best = allowed[wanted[allowed].argmax()]
        return float(wanted[best]), float(self.thresholds[best])

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {name: np.asarray(value).tolist() for name, value in vars(self).items()}

    def __str__(self) -> str:
        span = f" from {self.thresholds[0]:g} to {self.thresholds[-1]:g}" if len(self.thresholds) else ""
        return f"{len(self.thresholds)} thresholds{span}, {self.positives} positives, {self.negatives} negatives"


# --- detection --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DetectionCurves:
    """The curves of a detector.

    Attributes:
        iou_threshold: Least overlap of a pair.
        beta: Of the F-scores on the grid.
        per_class: The exact curve of each class: one point for every distinct score.
        average_precision: (classes,) COCO's AP at the IoU threshold; NaN for classes without objects.
        confidence: (points,) a grid of thresholds, ascending, the same for all classes.
        precision: (classes, points) at each of these; NaN where nothing is left.
        recall: (classes, points); NaN for classes without objects.
        f_score: (classes, points).
    """

    iou_threshold: float
    beta: float
    per_class: Tuple[CountCurve, ...]
    average_precision: np.ndarray
    confidence: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f_score: np.ndarray

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
    label, score, right = matches.records.label[used], matches.records.score[used], tp[used]
    edges = np.searchsorted(label, np.arange(matches.num_classes + 1)).tolist()
    objects = np.bincount(matches.object_label, minlength=matches.num_classes)
    low, high = (float(score.min()), float(score.max())) if len(score) else (0.0, 1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    grid = np.linspace(low, high, num_points)
    curves: List[CountCurve] = []
    on_grid = np.zeros((2, matches.num_classes, num_points), dtype=np.int64)
    for index, (start, stop) in enumerate(zip(edges[:-1], edges[1:])):
        descending, hits = score[start:stop], np.cumsum(right[start:stop])
        cut = np.flatnonzero(np.append(descending[1:] != descending[:-1], True)[: len(descending)])
        curves.append(CountCurve(descending[cut], hits[cut], cut + 1 - hits[cut], int(objects[index])))
        kept = len(descending) - np.searchsorted(descending[::-1], grid.astype(score.dtype), side="left")
        on_grid[0, index] = np.concatenate([[0], hits])[kept]
        on_grid[1, index] = kept - on_grid[0, index]
    found, wrong = on_grid
    there = objects[:, None]
    return DetectionCurves(
        iou_threshold=float(iou_threshold),
        beta=beta,
        per_class=tuple(curves),
        average_precision=WeightedAP(matches, iou_thresholds=[iou_threshold])(np.ones((matches.num_images, 1)))[0, 0],
        confidence=grid,
        precision=divide(found, found + wrong),
        recall=divide(found, np.broadcast_to(there, found.shape)),
        f_score=divide((1 + beta**2) * found, found + wrong + beta**2 * there),
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

    def curve(ranked: np.ndarray, positives: np.ndarray) -> CountCurve:
        thresholds, fp, tp = roc_points(ranked, positives)
        return CountCurve(thresholds, tp, fp, len(positives), len(ranked) - len(positives))

    return ClassificationCurves(tuple(map_classes(curve, blocks, labels)))


def class_blocks(scores: np.ndarray, labels: np.ndarray) -> Iterator[ClassificationCurves]:
    """The curves of each class against the rest, a few classes at a time: they have a point for every distinct score.

    Args:
        scores: (samples, classes).
        labels: As in :func:`classification_curves`.

    Example:
        >>> [len(block.per_class) for block in class_blocks(np.eye(20), np.arange(20))]
        [16, 4]
    """
    for start in range(0, scores.shape[1], _CLASSES_AT_ONCE):
        block = scores[:, start : start + _CLASSES_AT_ONCE]
        if labels.ndim == 2:
            own = labels[:, start : start + _CLASSES_AT_ONCE]
        else:
            own = (labels[:, None] == np.arange(start, start + block.shape[1])).astype(np.int8)
        yield classification_curves([block], own)


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
