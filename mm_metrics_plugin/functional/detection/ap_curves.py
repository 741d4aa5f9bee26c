"""COCO's average precision and recall from matched detections, with an optional weight per image.

An image of weight 2 counts as if it were in the dataset twice, one of weight 0 as if it were missing. Nothing is
matched or sorted again for other weights, so the bootstrap and slices of a dataset use the same kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.settings import COCO_IOU_THRS

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_SHORT = {"small": "s", "medium": "m", "large": "l"}
_CELLS_AT_ONCE = 1 << 17  # of TP x weights: a few arrays that fit the cache of a core
_CELLS_OF_ALL_CLASSES = 1 << 22  # of TP x weights: an array of 32 MB


def interpolated_ap(
    tp: np.ndarray, seen: np.ndarray, starts: np.ndarray, num_gts: np.ndarray, *, coco_levels: bool = True
) -> np.ndarray:
    """The mean over 101 recall levels of the greatest precision at a recall of at least the level.

    Precision peaks and recall rises at true positives only, so only these are needed.

    Args:
        tp: (H, D) weight of the true positives up to each one, within its class; sorted by class. It is overwritten.
        seen: (H, D) weight of all TP and FP up to each one. It is overwritten.
        starts: (C + 1,) where the true positives of each class begin, and how many there are.
        num_gts: (C, D) weight of the ground truths; the result is NaN where it is 0.
        coco_levels: The recall levels are the floats k x 0.01, as in pycocotools; else k / 100, as in tidecv.
    """
    result = np.where(num_gts > 0, 0.0, np.nan)
    sizes = np.diff(starts)
    classes = np.flatnonzero(sizes)
    if not len(classes):
        return result
    precision, recall = np.maximum(seen, 1, out=seen), tp
    np.divide(tp, precision, out=precision)
    for index in classes:
        rows = slice(starts[index], starts[index + 1])
        highest = precision[rows][::-1]
        np.maximum.accumulate(highest, axis=0, out=highest)
        np.divide(tp[rows], np.maximum(num_gts[index], 1), out=recall[rows])
    levels = recall * (100 * (1 + 1e-12))
    np.floor(levels, out=levels)
    # The level itself may lie a last bit above the recall.
    levels += (levels * 0.01 if coco_levels else levels / 100) <= recall
    first, new_levels = starts[classes], recall
    np.subtract(levels[1:], levels[:-1], out=new_levels[1:])
    new_levels[first] = levels[first]
    precision *= new_levels
    result[classes] += np.add.reduceat(precision, first, axis=0) / 101
    return result


class _Threshold(NamedTuple):
    """One IoU threshold in one area range."""

    tp: np.ndarray  # the TP, as indices into those of all thresholds
    image: np.ndarray  # of the TP
    starts: np.ndarray  # where those of each class begin
    ignored: np.ndarray  # rows that this threshold ignores and another one counts
    ignored_starts: np.ndarray  # where those of each class begin
    ignored_before: np.ndarray  # how many of these come before each TP, those of other classes included
    after_ignored: np.ndarray  # the TP that come after one of these of their class, as indices into ``tp``


class HitCounts(NamedTuple):
    """Counts at each TP of one IoU threshold, sorted by class."""

    label: np.ndarray  # (H,) class of the TP
    tp: np.ndarray  # (H,) true positives of the class up to this one
    seen: np.ndarray  # (H,) detections of the class up to this one that are TP or FP
    starts: np.ndarray  # (C + 1,) where the TP of each class begin


class RangeCurves:
    """Precision and recall at every TP of one area range, for any weights of the images.

    ``max_dets`` detections of a class and image count, the best first, or all; ``iou_thrs`` are of the table, or all of
    it.
    """

    def __init__(
        self, table: MatchTable, area: str, max_dets: int | None, iou_thrs: Sequence[float] | None = None
    ) -> None:
        order, self._rank = table.ranked
        if max_dets is not None and table.most_detections > max_dets:
            within = np.flatnonzero(self._rank < max_dets)
            order, self._rank = order[within], self._rank[within]
        matched, ignored = (table.grid.of_range(bits, area)[order] for bits in (table.matched, table.ignored))
        self.table, self.area = table, area
        self.iou_thrs = table.grid.iou_thrs if iou_thrs is None else tuple(float(value) for value in iou_thrs)
        lowest = table.grid.bit(area, table.grid.iou_thrs[0])[1]
        bits = [matched.dtype.type(table.grid.bit(area, value)[1] // lowest) for value in self.iou_thrs]
        every_threshold = np.bitwise_or.reduce(bits)
        ignored &= every_threshold
        tp = matched & ~ignored & every_threshold
        self.image, self.label = table.image[order], table.label[order]
        self.hits = np.flatnonzero(tp)
        self.class_starts = np.searchsorted(self.label, np.arange(table.num_classes + 1))
        self.counts = ignored != every_threshold  # rows that some threshold counts
        partly = np.flatnonzero(self.counts & (ignored != 0))
        self.thresholds: list[_Threshold] = []
        for bit in bits:
            mine = np.flatnonzero(tp[self.hits] & bit)
            rows = self.hits[mine]
            skipped = partly[np.flatnonzero(ignored[partly] & bit)]
            skipped_starts, before = (np.searchsorted(skipped, place) for place in (self.class_starts, rows))
            self.thresholds.append(
                _Threshold(
                    tp=mine,
                    image=self.image[rows],
                    starts=np.searchsorted(rows, self.class_starts),
                    ignored=skipped,
                    ignored_starts=skipped_starts,
                    ignored_before=before,
                    after_ignored=np.flatnonzero(before > skipped_starts[self.label[rows]]),
                )
            )
        self._incidence: tuple[csr_matrix, csr_matrix] | None = None

    @property
    def draws_at_once(self) -> int:
        """How many sets of weights are best given at once."""
        return max(1, min(48, _CELLS_OF_ALL_CLASSES // max(1, len(self.hits))))

    def average_precision(self, weights: np.ndarray | None = None) -> np.ndarray:
        """(thresholds, classes, D) AP with weights (images, D), whole numbers; by default all 1, with D = 1."""
        if weights is None:
            return self._plain()
        return self._weighted(np.ascontiguousarray(weights, dtype=np.float64))

    def recall(self, max_dets: int, weights: np.ndarray | None = None) -> np.ndarray:
        """(thresholds, classes) recall of the best ``max_dets`` of each class and image, with weights (images,)."""
        num_gts = self.num_gts(weights)
        within = self._rank[self.hits] < max_dets
        label = self.label[self.hits]
        weight = None if weights is None else weights[self.image[self.hits]]
        found = []
        for one in self.thresholds:
            mine = one.tp[within[one.tp]]
            of_hits = None if weight is None else weight[mine]
            found.append(np.bincount(label[mine], weights=of_hits, minlength=self.table.num_classes))
        return np.where(num_gts > 0, np.stack(found) / np.maximum(num_gts, 1), np.nan)

    def num_gts(self, weights: np.ndarray | None = None) -> np.ndarray:
        """(classes,) weight of the ground truths that count in the area range."""
        if weights is None:
            return self.table.num_gts(self.area)
        rows = self.counted_gts()
        return np.bincount(
            self.table.gt_label[rows], weights=weights[self.table.gt_image[rows]], minlength=self.table.num_classes
        )

    def counted_gts(self) -> np.ndarray:
        """Rows of the ground truths that count in the area range."""
        return np.flatnonzero(self.table.grid.of_range(self.table.gt_counts, self.area))

    def hit_counts(self) -> Iterator[HitCounts]:
        """The counts at the TP of each IoU threshold."""
        seen = np.zeros(len(self.counts) + 1, dtype=np.int32)
        np.cumsum(self.counts, out=seen[1:])
        for one in self.thresholds:
            rows = self.hits[one.tp]
            label = self.label[rows]
            tp = np.arange(1, len(rows) + 1) - one.starts[label]
            tp_and_fp = seen[rows + 1] - seen[self.class_starts[label]]
            if len(one.ignored):
                tp_and_fp = tp_and_fp - one.ignored_before + one.ignored_starts[label]
            yield HitCounts(label, tp, tp_and_fp, one.starts)

    def _plain(self) -> np.ndarray:
        num_gts = self.num_gts()[:, None].astype(np.float64)
        result = np.empty((len(self.thresholds), len(num_gts), 1))
        for out, one in zip(result, self.hit_counts()):
            tp, seen = (part[:, None].astype(np.float64) for part in (one.tp, one.seen))
            out[:] = interpolated_ap(tp, seen, one.starts, num_gts)
        return result

    def _weighted(self, weights: np.ndarray) -> np.ndarray:
        if self._incidence is None:
            self._incidence = self._make_incidence()
        counted_up_to_hit, gts_of_class = self._incidence
        num_gts, seen = gts_of_class @ weights, counted_up_to_hit @ weights
        result = np.empty((len(self.thresholds), self.table.num_classes, weights.shape[1]))
        hit_starts = np.searchsorted(self.hits, self.class_starts)
        # Weight of the rows of a class up to each one that this threshold ignores and another one counts.
        ignored = [weights.take(self.image[one.ignored], axis=0) for one in self.thresholds]
        for one, values in zip(self.thresholds, ignored):
            _cumsum_by_class(values, one.ignored_starts)
        for first, last in self._class_chunks(hit_starts, weights.shape[1]):
            _cumsum_by_class(seen, hit_starts[first : last + 1])
            for index, one in enumerate(self.thresholds):
                low, high = one.starts[first], one.starts[last]
                starts, mine = one.starts[first : last + 1] - low, one.tp[low:high]
                tp = weights.take(one.image[low:high], axis=0)
                _cumsum_by_class(tp, starts)
                tp_and_fp = seen.take(mine, axis=0)
                if len(one.ignored):
                    first_after, last_after = np.searchsorted(one.after_ignored, [low, high])
                    after = one.after_ignored[first_after:last_after]
                    tp_and_fp[after - low] -= ignored[index].take(one.ignored_before[after] - 1, axis=0)
                result[index, first:last] = interpolated_ap(tp, tp_and_fp, starts, num_gts[first:last])
        return result

    def _make_incidence(self) -> tuple[csr_matrix, csr_matrix]:
        """(hits, images): rows that count and come before a hit of their class, by hit; (classes, images): gts."""
        num_hits, table = len(self.hits), self.table
        rows = np.flatnonzero(self.counts)
        following = np.searchsorted(self.hits, rows)
        rows, following = rows[following < num_hits], following[following < num_hits]
        # What comes after the last hit of a class changes nothing.
        same_class = self.label[self.hits[following]] == self.label[rows]
        counts = self.counted_gts()
        return (
            _ones(following[same_class], self.image[rows[same_class]], (num_hits, table.num_images)),
            _ones(table.gt_label[counts], table.gt_image[counts], (table.num_classes, table.num_images)),
        )

    def _class_chunks(self, hit_starts: np.ndarray, width: int) -> Iterator[tuple[int, int]]:
        """Runs of classes whose TP times weights fit the cache."""
        first, most = 0, max(1, _CELLS_AT_ONCE // width)
        while first < self.table.num_classes:
            last = max(int(np.searchsorted(hit_starts, hit_starts[first] + most, side="right")) - 1, first + 1)
            yield first, min(last, self.table.num_classes)
            first = last


def _cumsum_by_class(values: np.ndarray, starts: np.ndarray) -> None:
    """Replaces values by their cumulative sums over the first axis, which restart at each of ``starts``."""
    for start, stop in zip(starts[:-1], starts[1:]):
        if stop - start > 1:
            np.cumsum(values[start:stop], axis=0, out=values[start:stop])


def _ones(rows: np.ndarray, columns: np.ndarray, shape: Sequence[int]) -> csr_matrix:
    from scipy.sparse import csr_matrix  # only weights need it, and importing it takes as long as matching

    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=tuple(shape))


def ap_iou_thrs(table: MatchTable, iou_thrs: Sequence[float] | None = None) -> tuple[float, ...]:
    """The IoU thresholds of AP: those given, else COCO's ten if the table has them, else all of the table."""
    if iou_thrs is not None:
        return tuple(float(value) for value in iou_thrs)
    own = table.grid.iou_thrs
    has_coco = np.isclose(np.array(own)[:, None], COCO_IOU_THRS, rtol=0, atol=1e-9).any(axis=0).all()
    return COCO_IOU_THRS if has_coco else own
