"""COCO's matching for every IoU threshold and area range at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import group_starts
from mm_metrics_plugin.functional.detection._assignment import assign
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs
from mm_metrics_plugin.settings import COCO_AREA_RANGES, COCO_IOU_THRS, AreaRange

ANY_AREA = AreaRange("any", -np.inf, np.inf)
LARGEST_IOU_THR = 1 - 1e-10  # pycocotools' limit, so that identical boxes reach a threshold of 1
NO_GT = -1


@dataclass(frozen=True)
class MatchGrid:
    """The settings that average precision is computed over, one bit each: the only owner of the layout of the bits.

    Args:
        iou_thrs: Ascending.
        area_ranges: At most 64 settings in all (ranges times thresholds).

    Example:
        >>> grid = MatchGrid()
        >>> len(grid), int(grid.bit("all", 0.5)), int(grid.bit("small", 0.75))
        (40, 1, 32768)
    """

    iou_thrs: Tuple[float, ...] = COCO_IOU_THRS
    area_ranges: Tuple[AreaRange, ...] = COCO_AREA_RANGES

    def __len__(self) -> int:
        return len(self.iou_thrs) * len(self.area_ranges)

    def bit(self, area: str, iou_thr: float) -> np.uint64:
        """The bit of one setting."""
        areas = [one.name for one in self.area_ranges]
        near = np.flatnonzero(np.isclose(self.iou_thrs, iou_thr, rtol=0, atol=1e-9))
        if area not in areas or not len(near):
            raise ValueError(f"matched at IoU {self.iou_thrs} and areas {areas} only (found {iou_thr} and {area!r})")
        return np.uint64(1) << np.uint64(areas.index(area) * len(self.iou_thrs) + int(near[0]))

    def of_range(self, bits: np.ndarray, area: str) -> np.ndarray:
        """The bits of one area range, the first IoU threshold lowest."""
        width = len(self.iou_thrs)
        index = [one.name for one in self.area_ranges].index(area)
        return (bits >> np.uint64(index * width)) & np.uint64((1 << width) - 1)

    def reached(self, overlap: np.ndarray) -> np.ndarray:
        """(N,) bits of all settings whose IoU threshold the overlap reaches."""
        thresholds = np.minimum(self.iou_thrs, LARGEST_IOU_THR)
        table = np.zeros(len(thresholds) + 1, dtype=np.uint64)
        for index in range(len(thresholds)):
            for area in range(len(self.area_ranges)):
                table[index + 1 :] |= np.uint64(1) << np.uint64(area * len(thresholds) + index)
        return table[np.searchsorted(thresholds, overlap, side="right")]

    def inside(self, areas: np.ndarray) -> np.ndarray:
        """(N,) bits of all settings whose area range holds the area."""
        result = np.zeros(len(areas), dtype=np.uint64)
        width = len(self.iou_thrs)
        for index, one in enumerate(self.area_ranges):
            mask = np.uint64(((1 << width) - 1) << (index * width))
            if np.isinf(one.low) and np.isinf(one.high):
                result |= mask
            else:
                result[(areas >= one.low) & (areas <= one.high)] |= mask
        return result


@dataclass(frozen=True, eq=False)
class GridMatches:
    """Detections matched under every setting of a grid.

    Attributes:
        matched: (N,) bits: assigned to a ground truth.
        ignored: (N,) bits: neither TP nor FP.
        gt: (N,) row of the ground truth at one chosen setting, else -1.
    """

    matched: np.ndarray
    ignored: np.ndarray
    gt: np.ndarray


def match_grid(
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    grid: MatchGrid,
    *,
    gt_at: Optional[np.uint64] = None,
) -> GridMatches:
    """COCO's matching for all IoU thresholds and area ranges at once.

    Args:
        pairs: Of detections sorted by image and descending score; those of two classes are left out here.
        detections: The detections of the pairs.
        ground_truths: The ground truths of the pairs.
        grid: The settings.
        gt_at: The setting whose ground truths are kept; None: none.
    """
    labels, gt_labels = detections.labels, ground_truths.labels
    own_class = np.flatnonzero(labels[pairs.det] == gt_labels[pairs.gt])
    if len(own_class) < len(pairs.det):
        pairs = pairs.select(own_class)
    pairs = pairs.by_preference()
    countable = grid.inside(ground_truths.areas())
    countable[ground_truths.crowd] = 0
    reached, regular = grid.reached(pairs.overlap), countable[pairs.gt]
    # pycocotools matches non-ignored ground truths first. A ground truth is ignored in some area ranges only, so each
    # pair is listed twice: with the bits of the ranges where its ground truth counts, and after all of those of its
    # detection with the other bits.
    starts = group_starts(pairs.det)
    lengths = np.diff(np.append(starts, len(pairs.det)))
    first, count = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    place = np.arange(len(pairs.det)) + first
    pair = np.empty(2 * len(place), dtype=np.intp)
    bits = np.empty(2 * len(place), dtype=np.uint64)
    pair[place] = pair[place + count] = np.arange(len(place))
    bits[place], bits[place + count] = reached & regular, reached & ~regular
    counts_here = np.zeros(2 * len(place), dtype=bool)
    counts_here[place] = True
    result = assign(pairs.det[pair], pairs.gt[pair], bits, num_dets=len(detections), shared=ground_truths.crowd)

    det, ignored = pairs.det[pair[result.pair]], np.zeros(len(detections), dtype=np.uint64)
    on_ignored = np.flatnonzero(~counts_here[result.pair])
    np.bitwise_or.at(ignored, det[on_ignored], result.bits[on_ignored])
    ignored |= ~(grid.inside(detections.geometry.areas()) | result.det_bits) & np.uint64((1 << len(grid)) - 1)
    gt = np.full(len(detections), NO_GT, dtype=np.int32)
    if gt_at is not None:
        chosen = np.flatnonzero(result.bits & gt_at)
        gt[det[chosen]] = pairs.gt[pair[result.pair[chosen]]]
    return GridMatches(result.det_bits, ignored, gt)
