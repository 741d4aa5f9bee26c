"""COCO's average precision with a weight for every image, for many sets of weights at once.

An image of weight 2 counts as if it were there twice, one of weight 0 as if it were not there: the value is that of
:func:`~mm_metrics_plugin.functional.coco_ap.average_precision` for such a data set, but nothing is matched or sorted
again. Precision is looked at only at true positives, and what stands between two of them is added up by one
product of a sparse matrix with the weights.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from mm_metrics_plugin.functional.boxes import group_starts
from mm_metrics_plugin.functional.ratio_intervals import shrink
from mm_metrics_plugin.functional.scored_matches import ScoredMatches

_CELLS_AT_ONCE = 1 << 21  # of hits x draws: a few arrays of 16 MB


class _ClassHits(NamedTuple):
    """One class at one IoU threshold."""

    label: int
    hits: np.ndarray  # among those of all thresholds of the class
    image: np.ndarray  # of the hits
    ignored_image: np.ndarray  # of the rows this threshold ignores and others count
    ignored_before: np.ndarray  # how many of these stand before each hit


class WeightedAP:
    """Average precision of a detector whose images have weights.

    Args:
        matches: Every detection, matched.
        iou_thresholds: Those wanted; all that it was matched at by default.
        max_dets: Number of detections per class and image that count, those with the highest scores. By default that
            of ``matches``.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
        >>> from mm_metrics_plugin.functional.scored_matches import match_scores
        >>> found = Detections([0, 1], [[0, 0, 10, 10], [50, 50, 60, 60]], [0.5, 0.9], [0, 0])
        >>> there = Objects([0, 1], [[0, 0, 10, 10], [0, 0, 10, 10]], [0, 0])
        >>> matches = match_scores(DetectionBatch(found, there, 2), num_classes=1)
        >>> WeightedAP(matches)(np.array([[1.0, 1.0], [1.0, 0.0]])).round(4).tolist()
        [[[0.2525], [1.0]]]
    """

    def __init__(
        self,
        matches: ScoredMatches,
        *,
        iou_thresholds: Optional[Sequence[float]] = None,
        max_dets: Optional[int] = None,
    ) -> None:
        self.num_classes, self.num_images = matches.num_classes, matches.num_images
        self.iou_thresholds = tuple(matches.iou_thresholds if iou_thresholds is None else iou_thresholds)
        records = matches.records
        within = records.rank < (matches.max_dets if max_dets is None else max_dets)
        flags = [matches.flags(value, coco_areas=True) for value in self.iou_thresholds]
        tp = np.stack([right & within for right, _ in flags])
        used = np.stack([counted & within for _, counted in flags])
        hit, counts = tp.any(axis=0), used.any(axis=0)
        hits = np.flatnonzero(hit)
        # The hit at or after each row. What comes after the last hit of a class changes nothing.
        following: np.ndarray = np.cumsum(hit) - hit
        alive = counts & (following < len(hits))
        rows = np.flatnonzero(alive)
        rows = rows[records.label[hits[following[rows]]] == records.label[rows]]
        following, image = following[rows], records.image[rows]
        self._seen = _ones(following, image, (len(hits), self.num_images))
        label = records.label[hits]
        starts = group_starts(label)
        self._spans = list(zip(starts.tolist(), [*starts[1:].tolist(), len(hits)]))
        first_row = np.searchsorted(records.label[rows], label[starts]).tolist()
        last_row = np.searchsorted(records.label[rows], label[starts], side="right").tolist()
        # All thresholds of a class together: what they share is then still in the cache.
        self._parts: List[List[_ClassHits]] = []
        for (start, stop), first, last in zip(self._spans, first_row, last_row):
            parts = []
            for right, counted in zip(tp, used):
                mine = np.flatnonzero(right[hits[start:stop]])
                skipped = first + np.flatnonzero(~counted[rows[first:last]])
                before = np.searchsorted(following[skipped], start + mine, side="right")
                parts.append(
                    _ClassHits(int(label[start]), mine, records.image[hits[start + mine]], image[skipped], before)
                )
            self._parts.append(parts)
        chosen = matches.object_in_range
        self._objects = _ones(
            matches.object_label[chosen], matches.object_image[chosen], (self.num_classes, self.num_images)
        )

    @property
    def draws_at_once(self) -> int:
        """How many sets of weights are best given at once."""
        return max(1, min(32, _CELLS_AT_ONCE // max(1, self._seen.shape[0])))

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        """The average precisions.

        Args:
            weights: (images, draws), how often each image counts.

        Returns:
            (thresholds, draws, classes); NaN for classes without objects.
        """
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        objects = self._objects @ weights
        seen = self._seen @ weights
        result = np.empty((len(self.iou_thresholds), weights.shape[1], self.num_classes))
        result[:] = np.where(objects > 0, 0.0, np.nan).T
        for (start, stop), parts in zip(self._spans, self._parts):
            taken = np.cumsum(seen[start:stop], axis=0)
            for part, values in zip(parts, result):
                if len(part.hits):
                    values[:, part.label] += _area(part, weights, taken, objects[part.label])
        return result

    def optimism(self) -> np.ndarray:
        """How far average precision overstates that of all possible images.

        The precision at a true positive counts this true positive itself. So it exceeds the precision p among the
        detections of at least this score, on average by (1 - p) / rank. The mean of this over the objects is the bias.
        p is estimated from the detections before it and, of the first ones, from the average precision.

        Returns:
            (thresholds, classes); 0 for classes without true positives.
        """
        ones = np.ones((self.num_images, 1))
        values, objects, seen = self(ones)[:, 0], (self._objects @ ones)[:, 0], (self._seen @ ones)[:, 0]
        prior = np.stack([(1 + shrink(value, np.where(np.isnan(value), 0.0, objects))) / 2 for value in values])
        result = np.zeros(values.shape)
        for (start, stop), parts in zip(self._spans, self._parts):
            taken = np.cumsum(seen[start:stop])
            for part, row, first in zip(parts, result, prior):
                rank = np.maximum(taken[part.hits] - part.ignored_before, 1)
                precision = (np.arange(len(rank)) + first[part.label]) / rank
                row[part.label] = ((1 - precision) / rank).sum() / max(objects[part.label], 1)
        return result


def _area(part: _ClassHits, weights: np.ndarray, taken: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """The area under the interpolated curve of one class at one threshold, for every set of weights."""
    found = weights.take(part.image, axis=0)
    np.cumsum(found, axis=0, out=found)
    taken = taken.take(part.hits, axis=0)
    if len(part.ignored_image):
        ignored = np.zeros((len(part.ignored_image) + 1, weights.shape[1]))
        np.cumsum(weights[part.ignored_image], axis=0, out=ignored[1:])
        taken -= ignored.take(part.ignored_before, axis=0)
    np.maximum(taken, 1, out=taken)  # weights are whole: a hit of a weight is itself seen
    precision = np.divide(found, taken, out=taken)
    np.maximum.accumulate(precision[::-1], axis=0, out=precision[::-1])
    # How many of the 101 levels of recall are reached at each hit. COCO's levels are k x 0.01 as floats, which may lie
    # a last bit above k / 100: hence two steps.
    recall = np.divide(found, np.maximum(objects, 1), out=found)
    reached = np.floor(recall * (100 * (1 + 1e-12)))
    reached += reached * 0.01 <= recall
    steps = np.empty_like(reached)
    steps[0] = reached[0]
    np.subtract(reached[1:], reached[:-1], out=steps[1:])
    return np.einsum("hd,hd->d", precision, steps) / 101


def _ones(rows: np.ndarray, columns: np.ndarray, shape: Sequence[int]) -> csr_matrix:
    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=tuple(shape))
