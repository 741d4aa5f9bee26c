"""COCO's average precision and recall from matched detections, with an optional weight per image.

An image of weight 2 counts as if it were in the dataset twice, one of weight 0 as if it were missing. Nothing is
matched or sorted again for other weights, so the bootstrap and slices of a dataset use the same kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import Result, map_in_order, mean_of_defined
from mm_metrics_plugin.functional.detection.matching import MatchTable
from mm_metrics_plugin.functional.statistics.per_image_counts import count_figures
from mm_metrics_plugin.settings import COCO_AREA_EDGES, COCO_AREA_RANGES, COCO_IOU_THRS, COCO_MAX_DETS, area_ranges

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
        self, table: MatchTable, area: str, max_dets: Optional[int], iou_thrs: Optional[Sequence[float]] = None
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
        self.thresholds: List[_Threshold] = []
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
        self._incidence: Optional[Tuple[csr_matrix, csr_matrix]] = None

    @property
    def draws_at_once(self) -> int:
        """How many sets of weights are best given at once."""
        return max(1, min(48, _CELLS_OF_ALL_CLASSES // max(1, len(self.hits))))

    def average_precision(self, weights: Optional[np.ndarray] = None) -> np.ndarray:
        """(thresholds, classes, D) AP with weights (images, D), whole numbers; by default all 1, with D = 1."""
        if weights is None:
            return self._plain()
        return self._weighted(np.ascontiguousarray(weights, dtype=np.float64))

    def recall(self, max_dets: int, weights: Optional[np.ndarray] = None) -> np.ndarray:
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

    def num_gts(self, weights: Optional[np.ndarray] = None) -> np.ndarray:
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

    def _make_incidence(self) -> Tuple[csr_matrix, csr_matrix]:
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

    def _class_chunks(self, hit_starts: np.ndarray, width: int) -> Iterator[Tuple[int, int]]:
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


def ap_iou_thrs(table: MatchTable, iou_thrs: Optional[Sequence[float]] = None) -> Tuple[float, ...]:
    """The IoU thresholds of AP: those given, else COCO's ten if the table has them, else all of the table."""
    if iou_thrs is not None:
        return tuple(float(value) for value in iou_thrs)
    own = table.grid.iou_thrs
    has_coco = np.isclose(np.array(own)[:, None], COCO_IOU_THRS, rtol=0, atol=1e-9).any(axis=0).all()
    return COCO_IOU_THRS if has_coco else own


@dataclass(frozen=True, eq=False)
class AveragePrecision:
    """COCO's average precision and recall. Undefined values are NaN."""

    iou_thrs: Tuple[float, ...]
    areas: Tuple[str, ...]  # names of the area ranges; the first is that of the headline numbers
    max_dets: Tuple[int, ...]  # detections per class and image, the best first; average precision uses the last number
    ap: np.ndarray  # (areas, thresholds, classes) average precision
    recall: np.ndarray  # (areas, max_dets, thresholds, classes) recall reached
    num_gts: np.ndarray  # (areas, classes) ground truths that count

    @property
    def per_class(self) -> np.ndarray:
        """(classes,) AP over all IoU thresholds, in the first area range."""
        return self.ap[0].mean(axis=0)

    def at_iou(self, iou_thr: float) -> np.ndarray:
        """(classes,) AP at one of the IoU thresholds, in the first area range; NaN if it is not among them."""
        near = np.flatnonzero(np.isclose(self.iou_thrs, iou_thr, rtol=0, atol=1e-9))
        return self.ap[0, near[0]] if len(near) else np.full(self.ap.shape[-1], np.nan)

    def to_dict(self) -> Dict[str, float]:
        """COCO's numbers, named as mmdet names them."""
        most, ranges = self.max_dets[-1], list(enumerate(self.areas))[1:]
        values = {"mAP": self.per_class, "mAP_50": self.at_iou(0.5), "mAP_75": self.at_iou(0.75)}
        for index, name in ranges:
            values[f"mAP_{_SHORT.get(name, name)}"] = self.ap[index].mean(axis=0)
        for index, number in enumerate(self.max_dets):
            values[f"AR@{number}"] = self.recall[0, index].mean(axis=0)
        for index, name in ranges:
            values[f"AR_{_SHORT.get(name, name)}@{most}"] = self.recall[index, -1].mean(axis=0)
        return {name: float(mean_of_defined(value)) for name, value in values.items()}

    def __str__(self) -> str:
        lines = [f"{name:<10}{value:7.4f}" for name, value in self.to_dict().items()]
        lines.append(f"AP of the {self.ap.shape[-1]} classes: " + " ".join(f"{v:.4f}" for v in self.per_class))
        return "\n".join(lines)


def average_precision(
    table: MatchTable,
    *,
    max_dets: int = COCO_MAX_DETS,
    iou_thrs: Optional[Sequence[float]] = None,
    weights: Optional[np.ndarray] = None,
) -> AveragePrecision:
    """COCO's average precision and recall. The numbers equal those of ``pycocotools``; NaN where it prints -1.

    Args:
        table: Every detection and ground truth, matched.
        max_dets: Number of detections per class and image that count, those with the highest scores. Average recall is
            also given for 1 and 10 of them.
        iou_thrs: Some of the IoU thresholds of the table. None: COCO's ten, or all of a table without them.
        weights: (images,) whole numbers, how often each image counts. None: once.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> detections = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0], [[0, 0, 10, 9]], [0]), 1)
        >>> table = match_images(batch, num_classes=1, table="ap").table
        >>> round(average_precision(table).to_dict()["mAP"], 6)
        0.95
    """
    thresholds = ap_iou_thrs(table, iou_thrs)
    known = {one.name for one in table.grid.area_ranges}
    areas = tuple(one.name for one in COCO_AREA_RANGES if one.name in known)
    numbers = tuple(sorted({1, max_dets} | ({10} if max_dets > 10 else set())))
    columns = None if weights is None else np.asarray(weights)[:, None]

    def of_range(area: str) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        curves = RangeCurves(table, area, max_dets, thresholds)
        recall = np.stack([curves.recall(number, weights) for number in numbers])
        return curves.average_precision(columns)[..., 0], recall, curves.num_gts(weights)

    _ = table.ranked  # sorted once, not by each thread
    ap, recall, num_gts = map(np.stack, zip(*map_in_order(of_range, areas)))
    if weights is None:
        table.ap_values.update({(area, max_dets, thresholds): values for area, values in zip(areas, ap)})
    return AveragePrecision(iou_thrs=thresholds, areas=areas, max_dets=numbers, ap=ap, recall=recall, num_gts=num_gts)


@dataclass(frozen=True, eq=False)
class SizeReport(Result):
    """Results by the area of the ground truths; undefined ones are NaN.

    Every range is matched separately. Ground truths outside a range, and detections that match them, are ignored. A
    detection without a match is an FP in every range that holds its area. Both ends belong to a range. TP and FP of the
    ranges need not add up to those of the row ``all``, which has the counts of the ``coco`` confusion matrix and COCO's
    AP.
    """

    ranges: Dict[str, Tuple[float, float]]  # least and greatest area; the first is ``all``, any area for the counts
    max_dets: int  # number of detections per class and image that average precision uses
    iou_thr: float  # least overlap of a match that counts for precision and recall
    score_thr: float  # least score of a detection that counts for precision and recall
    ground_truths: np.ndarray  # (ranges, classes) ground truths
    tp: np.ndarray  # (ranges, classes) true positives
    fp: np.ndarray  # (ranges, classes) false positives
    average_precision: np.ndarray  # (ranges, classes) over the IoU thresholds of average precision
    average_precision_50: np.ndarray  # (ranges, classes) at IoU 0.5

    def figures(self) -> Dict[str, Dict[str, float]]:
        """By range: ground truths, TP, FP, the means over classes, and the mAPs."""
        _, overall = count_figures(self.tp, self.fp, self.ground_truths - self.tp)
        columns: Dict[str, np.ndarray] = {
            "ground_truths": self.ground_truths.sum(axis=1),
            "tp": self.tp.sum(axis=1),
            "fp": self.fp.sum(axis=1),
            **overall,
            "mAP": mean_of_defined(self.average_precision),
            "mAP_50": mean_of_defined(self.average_precision_50),
        }
        return {
            name: {key: column[index].item() for key, column in columns.items()}
            for index, name in enumerate(self.ranges)
        }

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {"overall": self.figures(), **super().to_dict()}

    def __str__(self) -> str:
        lines = [f"{'':<16}{'gts':>9}{'precision':>11}{'recall':>9}{'mAP':>9}{'mAP_50':>9}"]
        for name, row in self.figures().items():
            lines.append(
                f"{name:<16}{row['ground_truths']:>9}{row['mean_precision']:>11.4f}{row['mean_recall']:>9.4f}"
                f"{row['mAP']:>9.4f}{row['mAP_50']:>9.4f}"
            )
        return "\n".join(lines)


def results_by_size(
    table: MatchTable,
    *,
    area_edges: Sequence[float] = COCO_AREA_EDGES,
    iou_thr: float = 0.5,
    score_thr: float = 0.3,
    max_dets: int = COCO_MAX_DETS,
    iou_thrs: Optional[Sequence[float]] = None,
) -> SizeReport:
    """Precision and recall at a score threshold, and average precision, by the area of the ground truths.

    Args:
        table: Every detection and ground truth, matched, with the area ranges between these edges.
        area_edges: Areas between the ranges, ascending, in square pixels.
        iou_thr: IoU threshold of precision and recall.
        score_thr: Score threshold of precision and recall, which count all detections that reach it.
        max_dets: Number of detections per class and image that average precision uses.
        iou_thrs: IoU thresholds of average precision, as in :func:`average_precision`.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> ground_truths = GroundTruths([0, 0], [[0, 0, 10, 10], [100, 100, 300, 300]], [0, 0])
        >>> batch = DetectionBatch(Detections([0], [[100, 100, 300, 290]], [0.9], [0]), ground_truths, 1)
        >>> print(results_by_size(match_images(batch, num_classes=1, table="ap").table))
                              gts  precision   recall      mAP   mAP_50
        all                     2     1.0000   0.5000   0.5050   0.5050
        small                   1        nan   0.0000   0.0000   0.0000
        medium                  0        nan      nan      nan      nan
        large                   1     1.0000   1.0000   1.0000   1.0000
    """
    ranges, thresholds = area_ranges(area_edges), ap_iou_thrs(table, iou_thrs)
    for one in ranges:
        key = one.name, max_dets, thresholds
        if key not in table.ap_values:
            table.ap_values[key] = RangeCurves(table, *key).average_precision()[..., 0]
    ap = np.stack([table.ap_values[one.name, max_dets, thresholds] for one in ranges])
    at_50 = np.flatnonzero(np.isclose(thresholds, 0.5, rtol=0, atol=1e-9))
    reached = np.flatnonzero(table.reach(score_thr))
    label = table.label[reached]
    tp, fp, num_gts = [], [], []
    # COCO leaves boxes of negative or enormous area out of the range of all areas. The confusion matrix does not.
    for area in ("any", *(one.name for one in ranges[1:])):
        is_tp, is_tp_or_fp = (flag[reached] for flag in table.flags(iou_thr, area))
        tp.append(np.bincount(label[is_tp], minlength=table.num_classes))
        fp.append(np.bincount(label[is_tp_or_fp & ~is_tp], minlength=table.num_classes))
        num_gts.append(table.num_gts(area))
    return SizeReport(
        ranges={one.name: (one.low, one.high) for one in ranges},
        max_dets=max_dets,
        iou_thr=float(iou_thr),
        score_thr=float(score_thr),
        ground_truths=np.stack(num_gts),
        tp=np.stack(tp),
        fp=np.stack(fp),
        average_precision=ap.mean(axis=1),
        average_precision_50=ap[:, at_50[0]] if len(at_50) else np.full(ap.shape[::2], np.nan),
    )
