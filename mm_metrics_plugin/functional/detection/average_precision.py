"""COCO's average precision and recall, with optional weights of the images.

An image of weight 2 counts as if the dataset contained it twice, one of weight 0 as if it were missing. Other weights
need no new matching or sorting, so the bootstrap uses the same kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Callable, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.conventions import FREQUENCIES, NO_LIMIT
from mm_metrics_plugin.functional._arrays import map_in_order, mean_of_defined
from mm_metrics_plugin.functional.detection.federated import not_exhaustive
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.settings import DetectionSettings

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NAMED_IOU_THRS = (0.5, 0.75)  # with values of their own, such as mAP_50, if they are averaged over
_SHORT = {"small": "s", "medium": "m", "large": "l"}
_BLOCK_CELLS = 1 << 17  # TP x draws: arrays of this size fit the cache
_BATCH_CELLS = 1 << 22  # TP x draws: 32 MB


def _levels_of_101(recall: np.ndarray, coco_levels: bool = True) -> np.ndarray:
    """Number of recall levels reached: the floats k x 0.01, as in pycocotools, or k / 100, as in tidecv."""
    levels = recall * (100 * (1 + 1e-12))
    np.floor(levels, out=levels)
    # The level itself may exceed the recall by a rounding error.
    levels += (levels * 0.01 if coco_levels else levels / 100) <= recall
    return levels


def _levels_of_11(recall: np.ndarray) -> np.ndarray:
    """Number of VOC's recall levels reached. As in mmdet, some are above k / 10, such as 0.30000000000000004."""
    return np.searchsorted(np.arange(0, 1 + 1e-3, 0.1), recall, side="right").astype(np.float64)


# How precision is averaged over recall: the number of recall levels reached at a recall, and the number of all levels.
INTERPOLATIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "101": (_levels_of_101, 101),
    "tide": (partial(_levels_of_101, coco_levels=False), 101),
    "11": (_levels_of_11, 11),
    "area": (np.copy, 1),
}


def interpolated_ap(
    tp: np.ndarray, tp_and_fp: np.ndarray, starts: np.ndarray, num_gts: np.ndarray, *, interpolation: str = "101"
) -> np.ndarray:
    """Interpolated average precision (C, D), NaN without ground truths, for D weightings.

    ``tp`` and ``tp_and_fp`` (H, D) are cumulative weights within the class at the TP, sorted by class from ``starts``
    (C + 1,); both are overwritten. ``interpolation`` is one of ``INTERPOLATIONS``.
    """
    result = np.where(num_gts > 0, 0.0, np.nan)
    sizes = np.diff(starts)
    classes = np.flatnonzero(sizes)
    if not len(classes):
        return result
    precision, recall = np.maximum(tp_and_fp, 1, out=tp_and_fp), tp
    np.divide(tp, precision, out=precision)
    for index in classes:
        rows = slice(starts[index], starts[index + 1])
        highest = precision[rows][::-1]
        np.maximum.accumulate(highest, axis=0, out=highest)
        np.divide(tp[rows], np.maximum(num_gts[index], 1), out=recall[rows])
    count_levels, num_levels = INTERPOLATIONS[interpolation]
    levels = count_levels(recall)
    first, new_levels = starts[classes], recall
    np.subtract(levels[1:], levels[:-1], out=new_levels[1:])
    new_levels[first] = levels[first]
    precision *= new_levels
    result[classes] += np.add.reduceat(precision, first, axis=0) / num_levels
    return result


class _Threshold(NamedTuple):
    """One IoU threshold in one area range."""

    tp: np.ndarray  # indices of its TP in ``hits``
    image: np.ndarray  # images of the TP
    starts: np.ndarray  # (C + 1,) index of the first TP of each class
    ignored: np.ndarray  # rows that are ignored at this threshold but not at all
    ignored_starts: np.ndarray  # (C + 1,) index of the first ignored row of each class
    ignored_before: np.ndarray  # number of ignored rows before each TP
    after_ignored: np.ndarray  # indices of the TP after an ignored row of their class


class HitCounts(NamedTuple):
    """Counts at the TP of one IoU threshold, sorted by class."""

    label: np.ndarray  # (H,) class of the TP
    tp: np.ndarray  # (H,) cumulative number of TP of the class
    tp_and_fp: np.ndarray  # (H,) cumulative number of TP and FP of the class
    starts: np.ndarray  # (C + 1,) index of the first TP of each class


class APCurves:
    """Precision and recall at every TP in one area range, for any weights of the images.

    At most ``max_dets`` detections per class and image are used. IoU thresholds are those of the settings by default.
    With a smaller ``mean_max_dets``, ``thresholds`` has every IoU threshold twice: with ``max_dets``, then with it.
    """

    def __init__(
        self,
        table: MatchTable,
        area: str,
        max_dets: int,
        iou_thrs: Sequence[float] | None = None,
        mean_max_dets: int | None = None,
    ) -> None:
        order, self._rank = table.ap_ranked
        if table.most_detections > max_dets:
            used = np.flatnonzero(self._rank < max_dets)
            order, self._rank = order[used], self._rank[used]
        *det_bits, self._gt_valid = table.ap_bits
        matched, ignored = (table.grid.of_range(bits, area)[order] for bits in det_bits)
        if table.settings.ap_convention.federated:
            rows = np.flatnonzero(not_exhaustive(table, order))
            ignored[rows] |= ~matched[rows]
        self.table, self.area = table, area
        self._interpolation = table.settings.ap_convention.interpolation
        self.iou_thrs = table.settings.iou_thrs if iou_thrs is None else tuple(float(value) for value in iou_thrs)
        lowest = table.grid.bit(area, table.grid.iou_thrs[0])[1]
        bits = [matched.dtype.type(table.grid.bit(area, value)[1] // lowest) for value in self.iou_thrs]
        every_threshold = np.bitwise_or.reduce(bits)
        ignored &= every_threshold
        tp = matched & ~ignored & every_threshold
        self.image, self.label = table.image[order], table.label[order]
        self.hits = np.flatnonzero(tp)  # TP at any threshold
        self.class_starts = np.searchsorted(self.label, np.arange(table.num_classes + 1))
        self.counted = ignored != every_threshold  # rows that are not ignored at every threshold
        self.max_dets, self.mean_max_dets = max_dets, min(mean_max_dets or max_dets, max_dets)
        partly = np.flatnonzero(self.counted & (ignored != 0))
        limits = [(bit, False) for bit in bits]
        if min(max_dets, table.most_detections) > self.mean_max_dets:
            limits += [(bit, True) for bit in bits]
        within = self._rank < self.mean_max_dets
        self.thresholds: list[_Threshold] = []
        for bit, limited in limits:
            own_tp = np.flatnonzero(tp[self.hits] & bit)
            own_ignored = partly[np.flatnonzero(ignored[partly] & bit)]
            if limited:  # the rows beyond the limit are as if they were ignored
                own_tp = own_tp[within[self.hits[own_tp]]]
                own_ignored = np.union1d(own_ignored, np.flatnonzero(self.counted & ~within))
            rows = self.hits[own_tp]
            ignored_starts = np.searchsorted(own_ignored, self.class_starts)
            ignored_before = np.searchsorted(own_ignored, rows)
            self.thresholds.append(
                _Threshold(
                    tp=own_tp,
                    image=self.image[rows],
                    starts=np.searchsorted(rows, self.class_starts),
                    ignored=own_ignored,
                    ignored_starts=ignored_starts,
                    ignored_before=ignored_before,
                    after_ignored=np.flatnonzero(ignored_before > ignored_starts[self.label[rows]]),
                )
            )

    @property
    def batch_size(self) -> int:
        """Recommended number of resamples (columns of weights) per call."""
        return max(1, min(48, _BATCH_CELLS // max(1, len(self.hits))))

    def recall(self, max_dets: int, weights: np.ndarray | None = None) -> np.ndarray:
        """(thresholds, classes) recall of at most ``max_dets`` detections per class and image."""
        num_gts = self.num_gts(weights)
        within = self._rank[self.hits] < max_dets
        label = self.label[self.hits]
        weight = None if weights is None else weights[self.image[self.hits]]
        tp = []
        for threshold in self.thresholds[: len(self.iou_thrs)]:
            rows = threshold.tp[within[threshold.tp]]
            row_weight = None if weight is None else weight[rows]
            tp.append(np.bincount(label[rows], weights=row_weight, minlength=self.table.num_classes))
        return np.where(num_gts > 0, np.stack(tp) / np.maximum(num_gts, 1), np.nan)

    def num_gts(self, weights: np.ndarray | None = None) -> np.ndarray:
        """(classes,) weight of the ground truths in the area range."""
        rows = self.counted_gts()
        weight = None if weights is None else weights[self.table.gt_image[rows]]
        return np.bincount(self.table.gt_label[rows], weights=weight, minlength=self.table.num_classes)

    def counted_gts(self) -> np.ndarray:
        """Rows of the ground truths in the area range."""
        return np.flatnonzero(self.table.grid.of_range(self._gt_valid, self.area))

    def hit_counts(self) -> Iterator[HitCounts]:
        """The counts at the TP of each IoU threshold."""
        counted = np.zeros(len(self.counted) + 1, dtype=np.int32)
        np.cumsum(self.counted, out=counted[1:])
        for threshold in self.thresholds:
            rows = self.hits[threshold.tp]
            label = self.label[rows]
            tp = np.arange(1, len(rows) + 1) - threshold.starts[label]
            tp_and_fp = counted[rows + 1] - counted[self.class_starts[label]]
            if len(threshold.ignored):
                tp_and_fp = tp_and_fp - threshold.ignored_before + threshold.ignored_starts[label]
            yield HitCounts(label, tp, tp_and_fp, threshold.starts)

    def average_precision(self, weights: np.ndarray | None = None) -> np.ndarray:
        """(thresholds, classes, D) AP for integer weights (images, D); by default all 1, with D = 1."""
        if weights is not None:
            return self._weighted(np.ascontiguousarray(weights, dtype=np.float64))
        num_gts = self.num_gts()[:, None].astype(np.float64)
        result = np.empty((len(self.thresholds), len(num_gts), 1))
        for out, hits in zip(result, self.hit_counts()):
            tp, tp_and_fp = (counts[:, None].astype(np.float64) for counts in (hits.tp, hits.tp_and_fp))
            out[:] = interpolated_ap(tp, tp_and_fp, hits.starts, num_gts, interpolation=self._interpolation)
        return result

    def _weighted(self, weights: np.ndarray) -> np.ndarray:
        counted_up_to_hit, gts_of_class = self._incidence
        num_gts, counted = gts_of_class @ weights, counted_up_to_hit @ weights
        result = np.empty((len(self.thresholds), self.table.num_classes, weights.shape[1]))
        hit_starts = np.searchsorted(self.hits, self.class_starts)
        ignored = [weights.take(self.image[threshold.ignored], axis=0) for threshold in self.thresholds]
        for threshold, values in zip(self.thresholds, ignored):
            _cumsum_by_class(values, threshold.ignored_starts)
        for first, last in self._class_blocks(hit_starts, weights.shape[1]):
            _cumsum_by_class(counted, hit_starts[first : last + 1])
            for index, threshold in enumerate(self.thresholds):
                low, high = threshold.starts[first], threshold.starts[last]
                starts = threshold.starts[first : last + 1] - low
                tp = weights.take(threshold.image[low:high], axis=0)
                _cumsum_by_class(tp, starts)
                tp_and_fp = counted.take(threshold.tp[low:high], axis=0)
                if len(threshold.ignored):
                    first_after, last_after = np.searchsorted(threshold.after_ignored, [low, high])
                    after = threshold.after_ignored[first_after:last_after]
                    tp_and_fp[after - low] -= ignored[index].take(threshold.ignored_before[after] - 1, axis=0)
                result[index, first:last] = interpolated_ap(
                    tp, tp_and_fp, starts, num_gts[first:last], interpolation=self._interpolation
                )
        return result

    @cached_property
    def _incidence(self) -> tuple[csr_matrix, csr_matrix]:
        """Sparse counts: (hits, images) of rows since the previous hit; (classes, images) of ground truths."""
        from scipy.sparse import csr_matrix  # slow to import

        def ones(rows: np.ndarray, columns: np.ndarray, height: int) -> csr_matrix:
            return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(height, table.num_images))

        num_hits, table = len(self.hits), self.table
        rows = np.flatnonzero(self.counted)
        following = np.searchsorted(self.hits, rows)
        rows, following = rows[following < num_hits], following[following < num_hits]
        # Rows after the last hit of a class have no effect.
        same_class = self.label[self.hits[following]] == self.label[rows]
        counts = self.counted_gts()
        return (
            ones(following[same_class], self.image[rows[same_class]], num_hits),
            ones(table.gt_label[counts], table.gt_image[counts], table.num_classes),
        )

    def _class_blocks(self, hit_starts: np.ndarray, width: int) -> Iterator[tuple[int, int]]:
        """Ranges of classes whose TP x draws fit the cache."""
        first, max_hits = 0, max(1, _BLOCK_CELLS // width)
        while first < self.table.num_classes:
            last = max(int(np.searchsorted(hit_starts, hit_starts[first] + max_hits, side="right")) - 1, first + 1)
            yield first, min(last, self.table.num_classes)
            first = last


def ap_curves(table: MatchTable, settings: DetectionSettings, area: str = "all") -> APCurves:
    """The curves of an area range with the limits and thresholds of the settings; those of mAP are of all areas."""
    mean_max_dets = settings.mean_max_dets if area == "all" else None
    return APCurves(table, area, settings.max_dets, settings.iou_thrs, mean_max_dets)


def _cumsum_by_class(values: np.ndarray, starts: np.ndarray) -> None:
    """Cumulative sums over the first axis in place, restarting at each of ``starts``."""
    for start, stop in zip(starts[:-1], starts[1:]):
        if stop - start > 1:
            np.cumsum(values[start:stop], axis=0, out=values[start:stop])


def limit_text(max_dets: int) -> str:
    """A number of detections in a key, such as that of ``AR@100``."""
    return "all" if max_dets >= NO_LIMIT else str(max_dets)


def ap_by_name(
    values: np.ndarray, iou_thrs: Sequence[float], *, max_dets: int, mean_max_dets: int
) -> dict[str, np.ndarray]:
    """Names average precisions ``values`` (thresholds, ...): ``AP``, and those of some thresholds, such as ``AP_50``.

    ``AP`` is the mean over the thresholds. Values of ``mean_max_dets`` detections follow those of ``max_dets``, if they
    differ; ``AP`` is then the mean of these, and ``AP@1000``, for example, that of the others.
    """
    number = len(iou_thrs)
    named = {"AP": values[-number:].mean(axis=0)}
    if mean_max_dets < max_dets:
        named[f"AP@{limit_text(max_dets)}"] = values[:number].mean(axis=0)
    for iou_thr in NAMED_IOU_THRS:
        at = np.flatnonzero(np.isclose(iou_thrs, iou_thr, rtol=0, atol=1e-9))
        named.update({f"AP_{round(100 * iou_thr)}": values[index] for index in at[:1]})
    return named


@dataclass(frozen=True, eq=False)
class AveragePrecision:
    """Average precision and recall; NaN where undefined."""

    iou_thrs: tuple[float, ...]
    areas: tuple[str, ...]  # names of the area ranges; the first is ``all``
    max_dets: tuple[int, ...]  # maximum numbers of detections per class and image; average precision uses the last
    ap: np.ndarray  # (areas, thresholds, classes) average precision
    recall: np.ndarray  # (areas, max_dets, thresholds, classes) maximum recall
    num_gts: np.ndarray  # (areas, classes) number of ground truths
    mean_max_dets: int  # the maximum number of mAP and of AP per class
    mean_ap: np.ndarray  # (thresholds, classes) their average precision
    frequency: tuple[str, ...] | None = None  # (classes,) some of ``FREQUENCIES``, which have means of their own

    @classmethod
    def undefined(cls, settings: DetectionSettings, num_classes: int) -> AveragePrecision:
        """That of no images."""
        thresholds = settings.iou_thrs
        areas = tuple(area_range.name for area_range in settings.ap_ranges)
        numbers = recall_limits(settings)
        values = np.full((len(areas), len(thresholds), num_classes), np.nan)
        return cls(
            iou_thrs=thresholds,
            areas=areas,
            max_dets=numbers,
            ap=values,
            recall=np.stack([values] * len(numbers), axis=1),
            num_gts=np.zeros((len(areas), num_classes), dtype=np.int64),
            mean_max_dets=settings.mean_max_dets,
            mean_ap=values[0],
            frequency=settings.frequency,
        )

    @property
    def per_class(self) -> np.ndarray:
        """(classes,) AP averaged over the IoU thresholds; its mean is mAP."""
        return np.asarray(self.mean_ap.mean(axis=0))

    def at_iou(self, iou_thr: float) -> np.ndarray:
        """(classes,) AP at one of the IoU thresholds; NaN if it is not among them."""
        near = np.flatnonzero(np.isclose(self.iou_thrs, iou_thr, rtol=0, atol=1e-9))
        return self.ap[0, near[0]] if len(near) else np.full(self.ap.shape[-1], np.nan)

    @property
    def by_name(self) -> dict[str, np.ndarray]:
        """(classes,) the AP of each class by name."""
        values = np.concatenate([self.ap[0], self.mean_ap])
        return ap_by_name(values, self.iou_thrs, max_dets=self.max_dets[-1], mean_max_dets=self.mean_max_dets)

    def to_dict(self) -> dict[str, float]:
        """Means over the classes, with mmdet's names; with COCO's settings its twelve numbers."""
        most, ranges = self.max_dets[-1], list(enumerate(self.areas))[1:]
        values = {f"m{name}": value for name, value in self.by_name.items()}
        for index, name in ranges:
            values[f"mAP_{_SHORT.get(name, name)}"] = self.ap[index].mean(axis=0)
        for letter in FREQUENCIES if self.frequency else ():
            values[f"mAP_{letter}"] = self.per_class[np.array(self.frequency) == letter]
        for index, number in enumerate(self.max_dets):
            values[f"AR@{limit_text(number)}"] = self.recall[0, index].mean(axis=0)
        for index, name in ranges:
            values[f"AR_{_SHORT.get(name, name)}@{limit_text(most)}"] = self.recall[index, -1].mean(axis=0)
        return {name: float(mean_of_defined(value)) for name, value in values.items()}

    def __str__(self) -> str:
        lines = [f"{name:<10}{value:7.4f}" for name, value in self.to_dict().items()]
        lines.append(f"AP of the {self.ap.shape[-1]} classes: " + " ".join(f"{v:.4f}" for v in self.per_class))
        return "\n".join(lines)


def recall_limits(settings: DetectionSettings) -> tuple[int, ...]:
    """The maximum numbers of detections per class and image of average recall; the last is that of AP."""
    return (*(number for number in settings.recall_max_dets if number < settings.max_dets), settings.max_dets)


def average_precision(
    table: MatchTable,
    *,
    max_dets: int | None = None,
    recall_max_dets: Sequence[int] | None = None,
    iou_thrs: Sequence[float] | None = None,
    weights: np.ndarray | None = None,
) -> AveragePrecision:
    """Average precision and recall by the convention of the settings; NaN where ``pycocotools`` prints -1.

    Args:
        table: Match table of :func:`match_images`. Its settings are the defaults of the other arguments.
        max_dets: Maximum number of detections per class and image, by score.
        recall_max_dets: Smaller numbers, for which recall is also computed.
        iou_thrs: IoU thresholds that are averaged over, some of those of the table.
        weights: (images,) integers, the multiplicity of each image. None: 1.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, match_images
        >>> detections = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0], [[0, 0, 10, 9]], [0]), 1)
        >>> table = match_images(batch, num_classes=1, keep="scores").table
        >>> round(average_precision(table).to_dict()["mAP"], 6)
        0.95
    """
    settings = table.settings_with(max_dets=max_dets, recall_max_dets=recall_max_dets, iou_thrs=iou_thrs)
    thresholds, max_dets = settings.iou_thrs, settings.max_dets
    available = {area_range.name for area_range in table.grid.area_ranges}
    areas = tuple(area_range.name for area_range in settings.ap_ranges if area_range.name in available)
    numbers = recall_limits(settings)
    columns = None if weights is None else np.asarray(weights)[:, None]

    def of_range(area: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        curves = ap_curves(table, settings, area)
        recall = np.stack([curves.recall(number, weights) for number in numbers])
        return curves.average_precision(columns)[..., 0], recall, curves.num_gts(weights)

    _ = table.ap_ranked  # computed before the threads start
    ap, recalls, num_gts = zip(*map_in_order(of_range, areas))
    if weights is None:
        table.ap_values.update({(area, max_dets, thresholds): values for area, values in zip(areas, ap)})
    return AveragePrecision(
        iou_thrs=thresholds,
        areas=areas,
        max_dets=numbers,
        ap=np.stack([value[: len(thresholds)] for value in ap]),
        recall=np.stack(recalls),
        num_gts=np.stack(num_gts),
        mean_max_dets=settings.mean_max_dets,
        mean_ap=ap[0][-len(thresholds) :],
        frequency=settings.frequency,
    )
