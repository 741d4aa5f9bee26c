"""COCO's matching for every IoU threshold and area range at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

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
    """The settings of average precision, one bit each. Only this class knows the layout of the bits.

    An area range is never split between two 64-bit words. COCO's ranges and thresholds take one word. ``iou_thrs`` are
    ascending, at most 64; the area ranges have different names.
    """

    iou_thrs: Tuple[float, ...] = COCO_IOU_THRS
    area_ranges: Tuple[AreaRange, ...] = COCO_AREA_RANGES

    def __len__(self) -> int:
        return len(self.iou_thrs) * len(self.area_ranges)

    @property
    def num_words(self) -> int:
        """How many 64-bit words the settings take."""
        return -(-len(self.area_ranges) // self._ranges_per_word)

    @property
    def _ranges_per_word(self) -> int:
        return 64 // len(self.iou_thrs)

    def _place(self, area: str) -> Tuple[int, int]:
        """The word of an area range, and its lowest bit."""
        areas = [one.name for one in self.area_ranges]
        if area not in areas:
            raise ValueError(f"area must be one of {', '.join(areas)} (found {area!r})")
        word, place = divmod(areas.index(area), self._ranges_per_word)
        return word, place * len(self.iou_thrs)

    def bit(self, area: str, iou_thr: float) -> Tuple[int, np.uint64]:
        """The word and the bit of one setting."""
        distance = np.abs(np.array(self.iou_thrs) - iou_thr)
        nearest = int(np.argmin(distance))
        if not distance[nearest] <= 1e-9:
            raise ValueError(f"iou_thr must be one of {', '.join(map(str, self.iou_thrs))} (found {iou_thr})")
        word, shift = self._place(area)
        return word, np.uint64(1) << np.uint64(shift + nearest)

    def at(self, bits: np.ndarray, area: str, iou_thr: float) -> np.ndarray:
        """(N,) whether the bit of one setting is set."""
        word, bit = self.bit(area, iou_thr)
        return (bits[:, word] & bit) != 0

    def of_range(self, bits: np.ndarray, area: str) -> np.ndarray:
        """(N,) the bits of one area range, the first IoU threshold lowest, in the narrowest unsigned integers."""
        word, shift = self._place(area)
        width = len(self.iou_thrs)
        dtype = np.uint16 if width <= 16 else np.uint64
        found = bits[:, word] >> np.uint64(shift)
        found &= np.uint64((1 << width) - 1)
        return found.astype(dtype, copy=False)

    def word_masks(self) -> np.ndarray:
        """(words,) the bits of each word that are in use."""
        masks = [0] * self.num_words
        for one in self.area_ranges:
            word, shift = self._place(one.name)
            masks[word] |= ((1 << len(self.iou_thrs)) - 1) << shift
        return np.array(masks, dtype=np.uint64)

    def reached(self, overlap: np.ndarray) -> np.ndarray:
        """(N,) bits, of any word, of the settings whose IoU threshold the overlap reaches."""
        thresholds = np.minimum(self.iou_thrs, LARGEST_IOU_THR)
        table = np.zeros(len(thresholds) + 1, dtype=np.uint64)
        for index in range(len(thresholds)):
            for place in range(self._ranges_per_word):
                table[index + 1 :] |= np.uint64(1) << np.uint64(place * len(thresholds) + index)
        return table[np.searchsorted(thresholds, overlap, side="right")]

    def inside(self, areas: np.ndarray) -> np.ndarray:
        """(N, words) bits of all settings whose area range holds the area."""
        result = np.zeros((len(areas), self.num_words), dtype=np.uint64)
        for one in self.area_ranges:
            word, shift = self._place(one.name)
            mask = np.uint64(((1 << len(self.iou_thrs)) - 1) << shift)
            if np.isinf(one.low) and np.isinf(one.high):
                result[:, word] |= mask
            else:
                result[(areas >= one.low) & (areas <= one.high), word] |= mask
        return result

    def gt_counts(self, ground_truths: GroundTruths) -> np.ndarray:
        """(M, words) bits of the settings under which each ground truth counts; 0 for crowds."""
        counts = self.inside(ground_truths.areas())
        counts[ground_truths.crowd] = 0
        return counts


@dataclass(frozen=True, eq=False)
class GridMatches:
    """Detections matched under every setting of a grid."""

    matched: np.ndarray  # (N, words) bits: assigned to a ground truth
    ignored: np.ndarray  # (N, words) bits: neither TP nor FP
    gt: np.ndarray  # (N,) row of the ground truth at one chosen setting, else -1


def match_grid(
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    grid: MatchGrid,
    *,
    gt_at: Tuple[str, float],
) -> GridMatches:
    """COCO's matching within classes for all IoU thresholds and area ranges at once.

    The pairs are of detections sorted by image and descending score. The ground truths at the area range and IoU
    threshold ``gt_at`` are kept.
    """
    labels, gt_labels = detections.labels, ground_truths.labels
    own_class = np.flatnonzero(labels[pairs.det] == gt_labels[pairs.gt])
    if len(own_class) < len(pairs.det):
        pairs = pairs.select(own_class)
    pairs = pairs.by_preference()
    reached, gt_counts = grid.reached(pairs.overlap), grid.gt_counts(ground_truths)
    # pycocotools matches non-ignored ground truths first. A ground truth is ignored in some area ranges only, so each
    # pair is listed twice: with the bits of the ranges where its ground truth counts, and after all of those of its
    # detection with the other bits.
    starts = group_starts(pairs.det)
    lengths = np.diff(np.append(starts, len(pairs.det)))
    first, count = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    place = np.arange(len(pairs.det)) + first
    pair = np.empty(2 * len(place), dtype=np.intp)
    pair[place] = pair[place + count] = np.arange(len(place))
    counts_here = np.zeros(2 * len(place), dtype=bool)
    counts_here[place] = True
    pair_det, pair_gt = pairs.det[pair], pairs.gt[pair]

    inside = grid.inside(detections.geometry.areas())
    matched, ignored = np.zeros_like(inside), np.zeros_like(inside)
    gt = np.full(len(detections), NO_GT, dtype=np.int32)
    gt_word, gt_bit = grid.bit(*gt_at)
    for word, mask in enumerate(grid.word_masks()):
        bits, regular = np.empty(2 * len(place), dtype=np.uint64), gt_counts[pairs.gt, word]
        bits[place], bits[place + count] = reached & regular, reached & mask & ~regular
        result = assign(pair_det, pair_gt, bits, num_dets=len(detections), shared=ground_truths.crowd)
        matched[:, word] = result.det_bits
        det, on_ignored = pair_det[result.pair], np.flatnonzero(~counts_here[result.pair])
        np.bitwise_or.at(ignored[:, word], det[on_ignored], result.bits[on_ignored])
        ignored[:, word] |= ~(inside[:, word] | result.det_bits) & mask
        if word == gt_word:
            chosen = np.flatnonzero(result.bits & gt_bit)
            gt[det[chosen]] = pair_gt[result.pair[chosen]]
    return GridMatches(matched, ignored, gt)
