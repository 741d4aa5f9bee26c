"""COCO's matching for all IoU thresholds and area ranges at once, one bit each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, NamedTuple

import numpy as np

from mm_metrics_plugin.functional._arrays import group_starts
from mm_metrics_plugin.functional.detection._assignment import assign
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs
from mm_metrics_plugin.settings import COCO_AREA_RANGES, COCO_IOU_THRS, AreaRange, DetectionSettings

ANY_AREA = AreaRange("any", -np.inf, np.inf)
MAX_IOU_THR = 1 - 1e-10  # as in pycocotools, so that identical boxes reach a threshold of 1
NO_GT = -1


@dataclass(frozen=True)
class MatchGrid:
    """The settings of average precision (an IoU threshold in an area range), one bit each in 64-bit words.

    Only this class knows the bit layout. COCO's settings take one word; an area range is never split between words.
    ``iou_thrs`` are ascending, at most 64.
    """

    iou_thrs: tuple[float, ...] = COCO_IOU_THRS
    area_ranges: tuple[AreaRange, ...] = COCO_AREA_RANGES

    def __len__(self) -> int:
        return len(self.iou_thrs) * len(self.area_ranges)

    @property
    def num_words(self) -> int:
        """Number of 64-bit words."""
        return -(-len(self.area_ranges) // self._ranges_per_word)

    @property
    def _ranges_per_word(self) -> int:
        return 64 // len(self.iou_thrs)

    def _place(self, area: str) -> tuple[int, int]:
        """The word of an area range, and its lowest bit."""
        areas = [area_range.name for area_range in self.area_ranges]
        if area not in areas:
            raise ValueError(f"area must be one of {', '.join(areas)} (found {area!r})")
        word, position = divmod(areas.index(area), self._ranges_per_word)
        return word, position * len(self.iou_thrs)

    def _range_mask(self, area: str) -> tuple[int, int]:
        """The word of an area range, and the mask of its bits."""
        word, shift = self._place(area)
        return word, ((1 << len(self.iou_thrs)) - 1) << shift

    def bit(self, area: str, iou_thr: float) -> tuple[int, np.uint64]:
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
        return np.asarray((bits[:, word] & bit) != 0)

    def of_range(self, bits: np.ndarray, area: str) -> np.ndarray:
        """(N,) the bits of one area range, shifted to the lowest, as uint16 if they fit."""
        word, shift = self._place(area)
        width = len(self.iou_thrs)
        range_bits = bits[:, word] >> np.uint64(shift)
        range_bits &= np.uint64((1 << width) - 1)
        return range_bits.astype(np.uint16 if width <= 16 else np.uint64, copy=False)

    def word_masks(self) -> np.ndarray:
        """(words,) the bits in use."""
        masks = [0] * self.num_words
        for area_range in self.area_ranges:
            word, mask = self._range_mask(area_range.name)
            masks[word] |= mask
        return np.array(masks, dtype=np.uint64)

    def reached(self, overlap: np.ndarray) -> np.ndarray:
        """(N,) the bits, in any word, of the settings whose IoU threshold the overlap reaches."""
        thresholds = np.minimum(self.iou_thrs, MAX_IOU_THR).astype(overlap.dtype)
        table = np.zeros(len(thresholds) + 1, dtype=np.uint64)
        for index in range(len(thresholds)):
            for place in range(self._ranges_per_word):
                table[index + 1 :] |= np.uint64(1) << np.uint64(place * len(thresholds) + index)
        return table[np.searchsorted(thresholds, overlap, side="right")]

    def inside(self, areas: np.ndarray, *, half_open: bool = False) -> np.ndarray:
        """(N, words) the bits of the settings whose area range contains the area.

        With ``half_open``, the highest area does not belong to a range, and all areas to the range ``all``.
        """
        result = np.zeros((len(areas), self.num_words), dtype=np.uint64)
        for area_range in self.area_ranges:
            word, mask = self._range_mask(area_range.name)
            if area_range == ANY_AREA or (half_open and area_range.name == "all"):
                result[:, word] |= np.uint64(mask)
            elif half_open:
                result[(areas >= area_range.low) & (areas < area_range.high), word] |= np.uint64(mask)
            else:
                result[(areas >= area_range.low) & (areas <= area_range.high), word] |= np.uint64(mask)
        return result

    def gt_valid(self, ground_truths: GroundTruths) -> np.ndarray:
        """(M, words) the bits of the settings under which each ground truth counts; 0 for ignored ones."""
        valid = self.inside(ground_truths.areas())
        valid[ground_truths.ignored] = 0
        return valid


@dataclass(frozen=True, eq=False)
class GridMatches:
    """The matching of detections under every setting of a grid."""

    matched: np.ndarray  # (N, words) bits of the settings under which a detection is matched
    ignored: np.ndarray  # (N, words) bits of the settings under which it is neither TP nor FP
    gt: np.ndarray  # (N,) its ground truth under the setting ``gt_at``, or -1


class APMatches(NamedTuple):
    """The matching for average precision, where it differs from that of the other analyses; columns of the table."""

    ap_matched: np.ndarray  # (N, words) as ``matched``
    ap_ignored: np.ndarray  # (N, words) as ``ignored``
    gt_ap_valid: np.ndarray  # (M, words) bits of the settings under which a ground truth counts


def match_grid(
    pairs: OverlapPairs,
    detections: Detections,
    ground_truths: GroundTruths,
    grid: MatchGrid,
    *,
    gt_at: tuple[str, float],
) -> GridMatches:
    """COCO's matching within classes; detections are sorted by image and descending score.

    The matched ground truths are returned for one setting ``gt_at``, an area range and an IoU threshold.
    """
    labels, gt_labels = detections.labels, ground_truths.labels
    own_class = np.flatnonzero(labels[pairs.det] == gt_labels[pairs.gt])
    if len(own_class) < len(pairs.det):
        pairs = pairs.select(own_class)
    pairs = pairs.by_preference()
    reached, gt_valid = grid.reached(pairs.overlap), grid.gt_valid(ground_truths)
    # pycocotools matches non-ignored ground truths first. A ground truth is ignored in some area ranges only, so the
    # pairs of a detection are listed twice: with the bits under which the ground truth counts, then with the others.
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
        bits, regular = np.empty(2 * len(place), dtype=np.uint64), gt_valid[pairs.gt, word]
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


def match_best_overlap(
    pairs: OverlapPairs, detections: Detections, ground_truths: GroundTruths, grid: MatchGrid, overlap: str
) -> APMatches:
    """VOC's matching within classes; detections are sorted by image and descending score.

    A detection is compared with the ground truth of the highest overlap only: if another detection is matched to that,
    it is a FP. Detections whose best ground truth is ignored or outside the area range are ignored, as are unmatched
    ones outside the range.
    """
    own_class = np.flatnonzero(detections.labels[pairs.det] == ground_truths.labels[pairs.gt])
    det, gt, overlaps = pairs.det[own_class], pairs.gt[own_class], pairs.overlaps[overlap][own_class]
    ignored_gt = ground_truths.ignored
    order = np.lexsort((gt, ignored_gt[gt], -overlaps, det))
    best = order[group_starts(det[order])]
    det, gt, overlaps = det[best], gt[best], overlaps[best]
    areas, gt_areas = (
        getattr(shapes, "voc_areas", shapes.areas)() for shapes in (detections.geometry, ground_truths.geometry)
    )
    gt_valid = grid.inside(gt_areas, half_open=True)
    gt_valid[ignored_gt] = 0
    inside = grid.inside(areas, half_open=True)
    matched, ignored = np.zeros_like(inside), np.zeros_like(inside)
    reached = grid.reached(overlaps)
    for word, mask in enumerate(grid.word_masks()):
        valid = gt_valid[gt, word]
        assigned = assign(
            det, gt, reached & valid, num_dets=len(detections), shared=np.zeros(len(gt_valid), dtype=bool)
        )
        matched[:, word] = assigned.det_bits
        reaches = np.zeros(len(detections), dtype=np.uint64)
        reaches[det] = reached & mask
        ignored[:, word] = ~(inside[:, word] | reaches) & mask
        ignored[det, word] |= reached & mask & ~valid
    return APMatches(matched, ignored, gt_valid)


# How detections are assigned for average precision, other than by the matches of every analysis (``best_free``).
ASSIGNMENTS: dict[str, Callable[..., APMatches]] = {"best_overlap": match_best_overlap}


def report_grid(settings: DetectionSettings) -> MatchGrid:
    """The grid of a report: the IoU thresholds of AP and of the counts, the area ranges, and one without limits."""
    # COCO's 0.8999999999999999 and 0.9 are two thresholds.
    thresholds = tuple(sorted({*settings.iou_thrs, settings.iou_thr}))
    return MatchGrid(thresholds, tuple(dict.fromkeys((ANY_AREA, *settings.ap_ranges, *settings.size_ranges))))
