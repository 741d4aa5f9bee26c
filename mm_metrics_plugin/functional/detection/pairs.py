"""Overlapping pairs of detections and ground truths, computed once for all matching rules."""

from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry import Edges, Geometry

MAX_PAIRS = 1 << 21  # per image; a report with examples takes about 300 bytes for each
_BLOCK_CANDIDATES = 1 << 16  # arrays of this length fit the cache


class OverlapPairs(NamedTuple):
    """Overlapping pairs, sorted by detection."""

    det: np.ndarray  # (P,) int32 indices of the detections, ascending
    gt: np.ndarray  # (P,) int32 indices of the ground truths, ascending within a detection
    overlaps: dict[str, np.ndarray]  # (P,) by the method of the geometry that computed them

    @property
    def overlap(self) -> np.ndarray:
        """(P,) the overlaps by COCO's rule, ``overlaps`` of the geometry."""
        return self.overlaps["overlaps"]

    def select(self, rows: np.ndarray) -> OverlapPairs:
        """The chosen pairs (indices or a mask)."""
        return OverlapPairs(
            self.det[rows], self.gt[rows], {name: overlap[rows] for name, overlap in self.overlaps.items()}
        )

    @classmethod
    def concatenate(cls, parts: Sequence[OverlapPairs]) -> OverlapPairs:
        """The pairs of all parts, in order."""
        overlaps = {name: np.concatenate([part.overlaps[name] for part in parts]) for name in parts[0].overlaps}
        return cls(np.concatenate([part.det for part in parts]), np.concatenate([part.gt for part in parts]), overlaps)

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
    overlaps: Sequence[str] = ("overlaps",),
    names: Sequence[object] | None = None,
) -> OverlapPairs:
    """The pairs in the same image with an overlap above 0 and of at least ``min_overlap``; rows are sorted by image.

    ``overlaps`` are methods of the geometry. Pairs that reach ``min_overlap`` by one of them are kept.
    """
    first, count = candidate_ranges(ground_truths.image, detections.image)
    rows = np.flatnonzero(count)
    blocks: list[OverlapPairs] = []
    num_pairs = np.zeros(1 + int(detections.image.max(initial=-1)), dtype=np.int64)  # per image
    shapes, gt_shapes = detections.geometry, ground_truths.geometry
    margin = max(getattr(shapes, "margins", {}).get(name, 0.0) for name in overlaps)
    edges = (shapes.bounding_boxes(), _widened(gt_shapes.bounding_boxes(), margin)) if shapes.prefiltered else None
    methods = {name: _overlap_method(shapes, name) for name in overlaps}
    for det, gt in _candidates(rows, first[rows], count[rows], edges):
        computed = {name: method(ground_truths, det, gt) for name, method in methods.items()}
        reached = [(overlap >= overlap.dtype.type(min_overlap)) & (overlap > 0) for overlap in computed.values()]
        kept = np.logical_or.reduce(reached)
        pairs = OverlapPairs(det.astype(np.int32), gt.astype(np.int32), computed)
        blocks.append(pairs if kept.all() else pairs.select(np.flatnonzero(kept)))
        num_pairs += np.bincount(detections.image[blocks[-1].det], minlength=len(num_pairs))
        if num_pairs.max() > MAX_PAIRS:
            full = int(np.argmax(num_pairs > MAX_PAIRS))
            image = full if names is None else names[full]
            raise MetricInputError(
                f"image {image!r} has more than {MAX_PAIRS} pairs of a detection and a ground truth that overlap; "
                "such results are damaged, or need non-maximum suppression (nms_iou_thr=...)"
            )
    if not blocks:
        empty = np.empty(0, dtype=np.int32)
        return OverlapPairs(empty, empty, {name: np.empty(0) for name in overlaps})
    return OverlapPairs.concatenate(blocks)


def _widened(edges: Edges, margin: float) -> Edges:
    """Boxes with this margin on every side."""
    if not margin:
        return edges
    return Edges(edges.left - margin, edges.top - margin, edges.right + margin, edges.bottom + margin)


def _overlap_method(geometry: Geometry, name: str) -> Callable[[GroundTruths, np.ndarray, np.ndarray], np.ndarray]:
    method: Callable[[GroundTruths, np.ndarray, np.ndarray], np.ndarray] | None = getattr(geometry, name, None)
    if method is None:
        rules = [rule.name for rule in MATCHING_RULES.values() if rule.overlap == name]
        raise MetricInputError(
            f"matching={', '.join(map(repr, rules))} is not defined for {geometry.field}; choose another matching rule"
        )
    return method


def candidate_ranges(gt_image: np.ndarray, det_image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
