"""Where to cut the scores of a detector: the best threshold for all classes or for each, and what it is worth.

A threshold is always one of the scores, and what is counted at it is what
:func:`~mm_metrics_plugin.functional.matching.match` counts there; nothing is interpolated. A threshold that was chosen
on the data it is then judged by looks better than it is. The cross-fitted figures beside it come from thresholds that
were chosen on other images: the images are dealt into folds, the threshold for each fold is chosen on all the others,
and the counts of all folds are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, NamedTuple, Tuple

import numpy as np

from mm_metrics_plugin.functional.averaging import divide
from mm_metrics_plugin.functional.boxes import stable_order
from mm_metrics_plugin.functional.image_counts import mean_of_defined
from mm_metrics_plugin.functional.scored_matches import ScoredMatches


@dataclass(frozen=True)
class Rule:
    """What makes a threshold the best: the greatest F-score, or the other rate where one has a floor.

    Attributes:
        kind: ``'f'``, ``'precision'`` or ``'recall'``.
        value: Beta, or the floor.

    Example:
        >>> print(Rule.parse("f2"), "|", Rule.parse("precision=0.9"))
        greatest F2 | greatest recall with precision >= 0.9
    """

    kind: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Reads ``f1``, ``f2``, ``f0.5``, ``precision=0.9`` or ``recall=0.95``.

        Raises:
            ValueError: It is none of these.
        """
        kind, _, floor = str(text).strip().lower().partition("=")
        try:
            if kind in ("precision", "recall") and 0 < float(floor) <= 1:
                return cls(kind, float(floor))
            if kind.startswith("f") and not floor and 0 < float(kind[1:]) < float("inf"):
                return cls("f", float(kind[1:]))
        except ValueError:
            pass
        raise ValueError(
            f"an operating point must be like 'f1', 'f2', 'precision=0.9' or 'recall=0.95' (found {text!r})"
        )

    @property
    def beta(self) -> float:
        """Of the F-score that is reported: 1 unless another one is maximised."""
        return self.value if self.kind == "f" else 1.0

    def __str__(self) -> str:
        if self.kind == "f":
            return f"greatest F{self.value:g}"
        other = "recall" if self.kind == "precision" else "precision"
        return f"greatest {other} with {self.kind} >= {self.value:g}"


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold and what it gives: floats and whole numbers, or arrays with one value a class.

    Attributes:
        threshold: Detections with at least this score are kept; NaN where no threshold meets the rule.
        tp: Detections that are right.
        fp: Detections that are wrong.
        fn: Objects that are missed.
        beta: Of the F-score.

    Example:
        >>> print(OperatingPoint(0.4, 8, 2, 8))
        threshold 0.4000: precision 0.8000, recall 0.5000, F1 0.6154
    """

    threshold: Any
    tp: Any
    fp: Any
    fn: Any
    beta: float = 1.0

    @property
    def precision(self) -> Any:
        """Of what is kept, the share that is right."""
        return _plain(divide(self.tp, np.add(self.tp, self.fp)))

    @property
    def recall(self) -> Any:
        """Of what is there, the share that is found."""
        return _plain(divide(self.tp, np.add(self.tp, self.fn)))

    @property
    def f_score(self) -> Any:
        """The F-score of the two."""
        return _plain(_f_score(np.asarray(self.tp), np.asarray(self.fp), np.asarray(self.fn), self.beta))

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        names = ("threshold", "precision", "recall", "f_score", "tp", "fp", "fn")
        return {name: np.asarray(getattr(self, name)).tolist() for name in names}

    def __str__(self) -> str:
        if np.ndim(self.threshold):
            rows = zip(self.threshold, self.tp, self.fp, self.fn)
            return "\n".join(str(OperatingPoint(*row, beta=self.beta)) for row in rows)
        return (
            f"threshold {self.threshold:.4f}: precision {self.precision:.4f}, recall {self.recall:.4f}, "
            f"F{self.beta:g} {self.f_score:.4f}"
        )


@dataclass(frozen=True, eq=False)
class OperatingPoints:
    """The best thresholds by a rule.

    Attributes:
        rule: What makes them the best.
        folds: How many folds the cross-fitted figures are of.
        overall: One threshold for all classes, by their counts added up.
        overall_cross_fitted: The same judged on images it was not chosen on; its threshold is the mean of the folds'.
        per_class: One threshold a class.
        per_class_cross_fitted: The same judged on images they were not chosen on.
    """

    rule: Rule
    folds: int
    overall: OperatingPoint
    overall_cross_fitted: OperatingPoint
    per_class: OperatingPoint
    per_class_cross_fitted: OperatingPoint

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        names = ("overall", "overall_cross_fitted", "per_class", "per_class_cross_fitted")
        return {"rule": str(self.rule), "folds": self.folds, **{name: getattr(self, name).to_dict() for name in names}}

    def __str__(self) -> str:
        return (
            f"{self.rule}, all classes: {self.overall}\n"
            f"cross-fitted over {self.folds} folds: {self.overall_cross_fitted}"
        )


class _Ranked(NamedTuple):
    """Detections by group and descending score; groups are classes, or one for all."""

    group: np.ndarray
    score: np.ndarray
    tp: np.ndarray
    image: np.ndarray


def _plain(value: np.ndarray) -> Any:
    return value if np.ndim(value) else float(value)


def _f_score(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, beta: float) -> np.ndarray:
    squared = beta**2
    return divide((1 + squared) * tp, (1 + squared) * tp + squared * fn + fp)


def _choose(rows: _Ranked, objects: np.ndarray, rule: Rule) -> np.ndarray:
    """(groups,) thresholds by the rule; of equally good ones the highest. NaN where none meets it."""
    thresholds = np.full(len(objects), np.nan)
    if not len(rows.score):
        return thresholds
    starts = np.searchsorted(rows.group, np.arange(len(objects)))
    found = np.concatenate([[0], np.cumsum(rows.tp)])
    # A threshold takes all detections of equal score: only the last of a run is a place to cut.
    last = np.append((rows.group[1:] != rows.group[:-1]) | (rows.score[1:] != rows.score[:-1]), True)
    cut = np.flatnonzero(last)
    group = rows.group[cut]
    tp = found[cut + 1] - found[starts[group]]
    fp = cut + 1 - starts[group] - tp
    fn = objects[group] - tp
    if rule.kind == "f":
        value = np.nan_to_num(_f_score(tp, fp, fn, rule.value))
        value[tp == 0] = -1  # nothing right: no threshold is better than any other
    else:
        precision, recall = divide(tp, tp + fp), np.nan_to_num(divide(tp, tp + fn))
        held, wanted = (precision, recall) if rule.kind == "precision" else (recall, precision)
        value = np.where((held >= rule.value) & (tp > 0), wanted, -1.0)
    best = np.full(len(objects), -1.0)
    np.maximum.at(best, group, value)
    rows_of_best = np.flatnonzero((value == best[group]) & (value >= 0))
    groups, first = np.unique(group[rows_of_best], return_index=True)
    thresholds[groups] = rows.score[cut[rows_of_best[first]]]
    return thresholds


def _count(rows: _Ranked, objects: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(3, groups) true positives, false positives and false negatives; nothing is kept where there is no threshold."""
    # In the precision of the scores, in which the threshold is one of them.
    limits = np.where(np.isnan(thresholds), np.inf, thresholds).astype(rows.score.dtype)
    kept = rows.score >= limits[rows.group]
    tp = np.bincount(rows.group[kept & rows.tp], minlength=len(objects))
    fp = np.bincount(rows.group[kept & ~rows.tp], minlength=len(objects))
    return np.stack([tp, fp, objects - tp])


def _cross_fit(
    rows: _Ranked,
    object_group: np.ndarray,
    object_fold: np.ndarray,
    fold: np.ndarray,
    folds: int,
    groups: int,
    rule: Rule,
) -> Tuple[np.ndarray, np.ndarray]:
    """Mean thresholds of the folds, and the counts of all folds added up."""
    total = np.zeros((3, groups), dtype=np.int64)
    chosen = []
    row_fold = fold[rows.image]
    for number in range(folds):
        inside = row_fold == number
        objects = [
            np.bincount(object_group[mask], minlength=groups) for mask in (object_fold != number, object_fold == number)
        ]
        chosen.append(_choose(_Ranked(*(column[~inside] for column in rows)), objects[0], rule))
        total += _count(_Ranked(*(column[inside] for column in rows)), objects[1], chosen[-1])
    return mean_of_defined(np.stack(chosen, axis=-1)), total


def operating_points(
    matches: ScoredMatches, *, rule: str = "f1", iou_threshold: float = 0.5, folds: int = 5, seed: int = 0
) -> OperatingPoints:
    """The best threshold for all classes and for each class.

    Args:
        matches: Every detection, matched.
        rule: ``'f1'``, ``'f2'`` and the like for the greatest F-score; ``'precision=0.9'`` for the greatest recall with
            at least this precision; ``'recall=0.95'`` for the greatest precision with at least this recall.
        iou_threshold: One of those it was matched at.
        folds: Into how many parts the images are dealt for the cross-fitted figures.
        seed: Of the dealing.

    Raises:
        ValueError: The rule cannot be read, or there are fewer images than folds.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
        >>> from mm_metrics_plugin.functional.scored_matches import match_scores
        >>> image, box = np.arange(8), np.tile([0.0, 0.0, 10.0, 10.0], (8, 1))
        >>> found = Detections(image, box + 30 * (image > 3)[:, None], 0.9 - image / 10, np.zeros(8))
        >>> there = Objects(image[:6], box[:6], np.zeros(6))
        >>> matches = match_scores(DetectionBatch(found, there, 8), num_classes=1)
        >>> print(operating_points(matches, folds=4).overall)
        threshold 0.6000: precision 1.0000, recall 0.6667, F1 0.8000
        >>> operating_points(matches, rule="recall=0.9", folds=4).overall.threshold
        nan
    """
    parsed = Rule.parse(rule)
    if not 2 <= folds <= matches.num_images:
        raise ValueError(f"'folds' must be between 2 and the number of images, {matches.num_images} (found {folds})")
    tp, used = matches.flags(iou_threshold)
    records = matches.records
    classes = _Ranked(
        records.label[used].astype(np.int64), records.score[used], tp[used], records.image[used].astype(np.int64)
    )
    order = stable_order(-classes.score)
    pooled = _Ranked(
        np.zeros(len(order), dtype=np.int64), classes.score[order], classes.tp[order], classes.image[order]
    )
    dealt = np.random.default_rng(seed).permutation(matches.num_images)
    fold = np.empty(matches.num_images, dtype=np.int64)
    fold[dealt] = np.arange(matches.num_images) % folds
    object_fold = fold[matches.object_image]
    points = []
    for rows, object_group, groups in (
        (pooled, np.zeros_like(matches.object_label), 1),
        (classes, matches.object_label, matches.num_classes),
    ):
        objects = np.bincount(object_group, minlength=groups)
        thresholds = _choose(rows, objects, parsed)
        counts = _count(rows, objects, thresholds)
        fitted, fitted_counts = _cross_fit(rows, object_group, object_fold, fold, folds, groups, parsed)
        pairs: Any = ((thresholds, counts), (fitted, fitted_counts))
        for threshold, number in pairs:
            tp_fp_fn: Any = number
            if rows is pooled:
                threshold, tp_fp_fn = float(threshold[0]), [int(part[0]) for part in number]
            points.append(OperatingPoint(threshold, tp_fp_fn[0], tp_fp_fn[1], tp_fp_fn[2], parsed.beta))
    return OperatingPoints(parsed, folds, *points)
