"""Overlapping pairs of detections and ground truths, computed once for all matching rules."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry import Edges

MAX_PAIRS = 1 << 21  # per image; a report with examples takes about 300 bytes for each
_BLOCK_CANDIDATES = 1 << 16  # arrays of this length fit the cache


class OverlapPairs(NamedTuple):
    """Overlapping pairs, sorted by detection."""

    det: np.ndarray  # (P,) int32 indices of the detections, ascending
    gt: np.ndarray  # (P,) int32 indices of the ground truths, ascending within a detection
    overlap: np.ndarray  # (P,) float64, COCO's IoU (of a crowd: intersection / detection area), or else mmdet's
    mmdet_overlap: np.ndarray | None = None  # (P,) float32, mmdet's IoU

    def select(self, rows: np.ndarray) -> OverlapPairs:
        """The chosen pairs (indices or a mask)."""
        float32 = None if self.mmdet_overlap is None else self.mmdet_overlap[rows]
        return OverlapPairs(self.det[rows], self.gt[rows], self.overlap[rows], float32)

    def by_preference(self, gt_last: np.ndarray | None = None) -> OverlapPairs:
        """The pairs of each detection by descending overlap; of ties the later ground truth first, as in COCO.

        The ground truths of the mask ``gt_last`` (M,) come after all others.
        """
        same = self.det[1:] == self.det[:-1]
        several = np.flatnonzero(np.append(same, False) | np.append(False, same))
        if not len(several):
            return self
        # Most detections have one candidate; only the others are sorted.
        rows = self.select(several)
        last = () if gt_last is None else (gt_last[rows.gt],)
        order = np.arange(len(self.det))
        order[several] = several[np.lexsort((-rows.gt, -rows.overlap, *last, rows.det))]
        return self.select(order)


def find_pairs(
    detections: Detections,
    ground_truths: GroundTruths,
    *,
    min_overlap: float,
    coco: bool = True,
    mmdet: bool = False,
    names: Sequence[Any] | None = None,
) -> OverlapPairs:
    """The pairs in the same image with an overlap above 0 and of at least ``min_overlap``; rows are sorted by image.

    With both ``coco`` and ``mmdet`` overlaps, pairs that reach ``min_overlap`` by either are kept.
    """
    first, count = _candidate_ranges(ground_truths.image, detections.image)
    rows = np.flatnonzero(count)
    crowd = ground_truths.crowd
    blocks: list[OverlapPairs] = []
    num_pairs = np.zeros(1 + int(detections.image.max(initial=-1)), dtype=np.int64)  # per image
    shapes, gt_shapes = detections.geometry, ground_truths.geometry
    edges = (shapes.bounding_boxes(), gt_shapes.bounding_boxes()) if shapes.prefiltered else None
    for det, gt in _candidates(rows, first[rows], count[rows], edges):
        float32: Any = shapes.mmdet_overlaps(gt_shapes, det, gt) if mmdet else None
        overlap: Any = shapes.overlaps(gt_shapes, det, gt, crowd[gt]) if coco else float32
        kept = (overlap >= min_overlap) & (overlap > 0)
        if mmdet and coco:
            kept |= (float32 >= np.float32(min_overlap)) & (float32 > 0)
        pairs = OverlapPairs(det.astype(np.int32), gt.astype(np.int32), overlap, float32)
        blocks.append(pairs if kept.all() else pairs.select(np.flatnonzero(kept)))
        num_pairs += np.bincount(detections.image[blocks[-1].det], minlength=len(num_pairs))
        if num_pairs.max() > MAX_PAIRS:
            full = int(np.argmax(num_pairs > MAX_PAIRS))
            image = full if names is None else names[full]
            raise MetricInputError(
                f"image {image!r} has more than {MAX_PAIRS} pairs of a detection and a ground truth that overlap; "
                "such results are damaged, or need non-maximum suppression (nms_iou_thr)"
            )
    if not blocks:
        empty = np.empty(0, dtype=np.int32)
        return OverlapPairs(empty, empty, np.empty(0), np.empty(0, dtype=np.float32) if mmdet else None)
    columns: list[Any] = [None if column[0] is None else np.concatenate(column) for column in zip(*blocks)]
    return OverlapPairs(*columns)


def _candidate_ranges(gt_image: np.ndarray, det_image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each detection, the first ground truth of its image and their number; images are sorted."""
    images = 1 + max(int(image[-1]) if len(image) else -1 for image in (gt_image, det_image))
    counts = np.bincount(gt_image, minlength=images)
    starts = np.cumsum(counts) - counts
    return starts[det_image], counts[det_image]


def _candidates(
    rows: np.ndarray, first: np.ndarray, count: np.ndarray, edges: tuple[Edges, Edges] | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of detections and ground truths of an image, in blocks; with ``edges`` only if the boxes intersect."""
    ends = np.cumsum(count)
    start, base = 0, 0
    while start < len(rows):
        stop = max(int(np.searchsorted(ends, base + _BLOCK_CANDIDATES, side="right")), start + 1)
        repeats, end = count[start:stop], int(ends[stop - 1])
        gt = np.arange(end - base) + np.repeat(first[start:stop] - (ends[start:stop] - repeats - base), repeats)
        block = rows[start:stop]
        if edges is None:
            yield np.repeat(block, repeats), gt
        else:
            box, gt_box = edges
            intersects = np.repeat(box.right[block], repeats) > gt_box.left[gt]
            intersects &= np.repeat(box.left[block], repeats) < gt_box.right[gt]
            near = np.flatnonzero(intersects)
            det, gt = np.repeat(block, repeats)[near], gt[near]
            near = np.flatnonzero((box.bottom[det] > gt_box.top[gt]) & (box.top[det] < gt_box.bottom[gt]))
            yield det[near], gt[near]
        start, base = stop, end
