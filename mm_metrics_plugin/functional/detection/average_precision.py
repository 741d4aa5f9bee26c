"""COCO's average precision and recall from matched detections, with an optional weight for every image.

An image of weight 2 counts as if it were in the dataset twice, one of weight 0 as if it were not there. Nothing is
matched or sorted again for other weights, so that the bootstrap and slices of a dataset use the same kernel.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from scipy.sparse import csr_matrix

from mm_metrics_plugin.functional.detection.matching import MatchTable

_CELLS_AT_ONCE = 1 << 18  # of TP x weights: a few arrays that fit the cache of a core


def interpolated_ap(
    tp: np.ndarray, seen: np.ndarray, starts: np.ndarray, num_gts: np.ndarray, *, coco_levels: bool = True
) -> np.ndarray:
    """The mean over 101 recall levels of the greatest precision at a recall of at least the level.

    Precision peaks and recall rises at true positives only, so that nothing else is looked at.

    Args:
        tp: (H, D) weight of the true positives up to each one, within its class; classes one after the other.
        seen: (H, D) weight of all detections up to each one that are TP or FP.
        starts: (C + 1,) where the true positives of each class begin, and how many there are.
        num_gts: (C, D) weight of the ground truths.
        coco_levels: The recall levels are the floats k x 0.01, as in pycocotools; else k / 100, as in tidecv.

    Returns:
        (C, D); NaN without ground truths.

    Example:
        Two of four ground truths are found, with one FP before the second.

        >>> tp, seen = np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])
        >>> interpolated_ap(tp, seen, np.array([0, 2]), np.array([[4.0]])).round(4)
        array([[0.4224]])
    """
    result = np.where(num_gts > 0, 0.0, np.nan)
    sizes = np.diff(starts)
    classes = np.flatnonzero(sizes)
    if not len(classes):
        return result
    precision = np.maximum(seen, 1)
    np.divide(tp, precision, out=precision)
    for index in classes:
        rising = precision[starts[index] : starts[index + 1]][::-1]
        np.maximum.accumulate(rising, axis=0, out=rising)
    recall = tp / np.repeat(np.maximum(num_gts[classes], 1), sizes[classes], axis=0)
    reached = np.floor(recall * (100 * (1 + 1e-12)))
    # The level itself may lie a last bit above the recall.
    reached += (reached * 0.01 if coco_levels else reached / 100) <= recall
    first = starts[classes]
    steps = np.empty_like(reached)
    np.subtract(reached[1:], reached[:-1], out=steps[1:])
    steps[first] = reached[first]
    precision *= steps
    result[classes] += np.add.reduceat(precision, first, axis=0) / 101
    return result


class _Threshold(NamedTuple):
    """One IoU threshold in one area range."""

    tp: np.ndarray  # the TP, as indices into those of all thresholds
    ignored: np.ndarray  # rows that this threshold ignores and another one counts
    ignored_before: np.ndarray  # how many of these come before each TP


class RangeCurves:
    """Precision and recall at every TP of one area range, for any weights of the images.

    Args:
        table: Every detection, matched.
        area: Name of the area range.
        max_dets: How many detections of a class and image count, the best first; None: all.

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
        >>> from mm_metrics_plugin.functional.detection.matching import match_images
        >>> from mm_metrics_plugin.settings import DetectionSettings
        >>> detections = Detections([0, 1], [[0, 0, 10, 10], [50, 50, 60, 60]], [0.5, 0.9], [0, 0])
        >>> ground_truths = GroundTruths([0, 1], [[0, 0, 10, 10], [0, 0, 10, 10]], [0, 0])
        >>> batch = DetectionBatch(detections, ground_truths, 2)
        >>> table = match_images(batch, DetectionSettings(), num_classes=1, table="ap").table
        >>> curves = RangeCurves(table, "all", 100)
        >>> curves.average_precision()[0].round(4), curves.average_precision(np.array([[1.0], [0.0]]))[0]
        (array([[0.2525]]), array([[1.]]))
    """

    def __init__(self, table: MatchTable, area: str, max_dets: Optional[int]) -> None:
        rows = table.ranked
        order = rows.order if max_dets is None else rows.order[rows.rank < max_dets]
        matched, ignored = (table.grid.of_range(bits, area)[order] for bits in (table.matched, table.ignored))
        tp = matched & ~ignored
        self.table, self.area = table, area
        self.image, self.label = table.image[order], table.label[order]
        self.hits = np.flatnonzero(tp)
        self.class_starts = np.searchsorted(self.label, np.arange(table.num_classes + 1))
        every_threshold = np.uint64((1 << len(table.grid.iou_thrs)) - 1)
        self.counts = ignored != every_threshold  # rows that some threshold counts
        partly = np.flatnonzero(self.counts & (ignored != 0))
        self.thresholds: List[_Threshold] = []
        for index in range(len(table.grid.iou_thrs)):
            bit = np.uint64(1) << np.uint64(index)
            mine = np.flatnonzero(tp[self.hits] & bit)
            skipped = partly[np.flatnonzero(ignored[partly] & bit)]
            self.thresholds.append(_Threshold(mine, skipped, np.searchsorted(skipped, self.hits[mine])))
        self._incidence: Optional[Tuple[csr_matrix, csr_matrix]] = None
        self._rank = rows.rank if max_dets is None else rows.rank[rows.rank < max_dets]

    def average_precision(self, weights: Optional[np.ndarray] = None) -> np.ndarray:
        """(thresholds, classes, D); NaN for classes without ground truths.

        Args:
            weights: (images, D) whole numbers, how often each image counts. None: once, and D is 1.
        """
        if weights is None:
            return self._plain()
        return self._weighted(np.ascontiguousarray(weights, dtype=np.float64))

    def recall(self, max_dets: int) -> np.ndarray:
        """(thresholds, classes) recall that the best ``max_dets`` of each class and image reach."""
        num_gts = self.table.num_gts(self.area)
        within = self._rank[self.hits] < max_dets
        label = self.label[self.hits]
        found = [
            np.bincount(label[one.tp[within[one.tp]]], minlength=self.table.num_classes) for one in self.thresholds
        ]
        return np.where(num_gts > 0, np.stack(found) / np.maximum(num_gts, 1), np.nan)

    def _plain(self) -> np.ndarray:
        num_gts = self.table.num_gts(self.area)[:, None].astype(np.float64)
        seen = np.concatenate([[0], np.cumsum(self.counts)])
        result = np.empty((len(self.thresholds), len(num_gts), 1))
        for out, one in zip(result, self.thresholds):
            rows = self.hits[one.tp]
            label = self.label[rows]
            starts = np.searchsorted(rows, self.class_starts)
            class_start = self.class_starts[label]
            tp = np.arange(1, len(rows) + 1) - starts[label]
            fp_and_tp = seen[rows + 1] - seen[class_start]
            if len(one.ignored):
                fp_and_tp = fp_and_tp - one.ignored_before + np.searchsorted(one.ignored, class_start)
            tp, fp_and_tp = (part[:, None].astype(np.float64) for part in (tp, fp_and_tp))
            out[:] = interpolated_ap(tp, fp_and_tp, starts, num_gts)
        return result

    def _weighted(self, weights: np.ndarray) -> np.ndarray:
        if self._incidence is None:
            self._incidence = self._make_incidence()
        counted_up_to_hit, gts_of_class = self._incidence
        num_gts, between = gts_of_class @ weights, counted_up_to_hit @ weights
        result = np.empty((len(self.thresholds), self.table.num_classes, weights.shape[1]))
        hit_starts = np.searchsorted(self.hits, self.class_starts)
        for first, last in self._class_chunks(hit_starts, weights.shape[1]):
            begin, end = hit_starts[first], hit_starts[last]
            seen = _cumsum_by_class(between[begin:end], hit_starts[first : last + 1] - begin)
            for out, one in zip(result, self.thresholds):
                low, high = np.searchsorted(one.tp, [begin, end])
                mine = one.tp[low:high]
                starts = np.searchsorted(mine, hit_starts[first : last + 1])
                tp = _cumsum_by_class(weights.take(self.image[self.hits[mine]], axis=0), starts)
                fp_and_tp = seen.take(mine - begin, axis=0)
                if len(one.ignored):
                    fp_and_tp -= self._ignored_before(one, low, high, starts, first, last, weights)
                out[first:last] = interpolated_ap(tp, fp_and_tp, starts, num_gts[first:last])
        return result

    def _ignored_before(
        self, one: _Threshold, low: int, high: int, starts: np.ndarray, first: int, last: int, weights: np.ndarray
    ) -> np.ndarray:
        """(TP, D) weight of the rows of its class before each TP that this threshold ignores and another one counts."""
        total = np.zeros((len(one.ignored) + 1, weights.shape[1]))
        np.cumsum(weights[self.image[one.ignored]], axis=0, out=total[1:])
        before_class = np.searchsorted(one.ignored, self.class_starts[first:last])
        return total[one.ignored_before[low:high]] - total[np.repeat(before_class, np.diff(starts))]

    def _make_incidence(self) -> Tuple[csr_matrix, csr_matrix]:
        """(hits, images): rows that count and come before a hit of their class, by hit; (classes, images): gts."""
        num_hits, table = len(self.hits), self.table
        rows = np.flatnonzero(self.counts)
        following = np.searchsorted(self.hits, rows)
        rows, following = rows[following < num_hits], following[following < num_hits]
        # What comes after the last hit of a class changes nothing.
        same_class = self.label[self.hits[following]] == self.label[rows]
        counts = np.flatnonzero(table.grid.of_range(table.gt_counts, self.area))
        return (
            _ones(following[same_class], self.image[rows[same_class]], (num_hits, table.num_images)),
            _ones(table.gt_label[counts], table.gt_image[counts], (table.num_classes, table.num_images)),
        )

    def _class_chunks(self, hit_starts: np.ndarray, width: int) -> Iterator[Tuple[int, int]]:
        """Runs of classes whose TP times weights fit the cache."""
        first, most = 0, max(1, _CELLS_AT_ONCE // width)
        while first < self.table.num_classes:
            last = max(int(np.searchsorted(hit_starts, hit_starts[first] + most, side="right")) - 1, first + 1)
            yield first, min(last, self.table.num_classes)
            first = last


def _cumsum_by_class(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums down the first axis that begin anew at each of ``starts``."""
    if len(starts) == 2:
        return np.cumsum(values, axis=0)
    total = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    return total[1:] - np.repeat(total[starts[:-1]], np.diff(starts), axis=0)


def _ones(rows: np.ndarray, columns: np.ndarray, shape: Sequence[int]) -> csr_matrix:
    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=tuple(shape))
