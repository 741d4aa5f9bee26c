"""Matching of detections to ground truths: one list of overlapping pairs serves every matching rule.

Ties: score descending, then image order, then detection order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import group_starts, position_in_group, stable_order
from mm_metrics_plugin.functional.detection.confusion_rules import (
    CONFUSION,
    IGNORED,
    MISSED,
    TP,
    OneToOne,
    RuleCounts,
    match_agnostic,
    match_coco,
    mmdet_matches,
    one_to_one_matches,
    rule_counts,
)
from mm_metrics_plugin.functional.detection.data import DetectionBatch, GroundTruths
from mm_metrics_plugin.functional.detection.examples import Examples, MatchedImages, collect_examples
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.match_table import (
    ANY_AREA,
    DEFAULT_SETTINGS,
    MAX_IOU_THR,
    NO_GT,
    GridMatches,
    MatchDetails,
    MatchGrid,
    MatchTable,
    match_grid,
    report_grid,
)
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs, find_pairs
from mm_metrics_plugin.functional.detection.tide import classify_errors
from mm_metrics_plugin.settings import DetectionSettings


@dataclass(frozen=True, eq=False)
class ImageMatches:
    """The result of :func:`match_images`."""

    rules: dict[str, RuleCounts]  # by matching rule
    counts: BatchCounts
    table: MatchTable | None  # None for ``table='none'``
    examples: Examples | None = None  # None for ``worst_images=None``


class BatchCounts(NamedTuple):
    """Counts that do not depend on the matching rule."""

    images: int
    detections: int
    detections_below_threshold: int
    detections_without_area: int
    ground_truths: int
    crowds: int
    ground_truths_without_area: int


_EMPTY = np.empty(0, dtype=np.int32)
_NO_MATCHES = GridMatches(_EMPTY, _EMPTY, _EMPTY), OneToOne(_EMPTY, _EMPTY)


def match_images(
    batch: DetectionBatch,
    settings: DetectionSettings = DEFAULT_SETTINGS,
    *,
    num_classes: int,
    table: str = "full",
    worst_images: int | None = None,
    names: Sequence[Any] | None = None,
) -> ImageMatches:
    """Matches detections to ground truths under every matching rule of the settings.

    Args:
        batch: Checked detections and ground truths.
        settings: Thresholds, area ranges and matching rules.
        num_classes: Number of classes without background.
        table: Columns of the match table: ``'full'``, ``'scores'`` (without details, for curves and intervals),
            ``'ap'`` (also without the precision of scores) or ``'none'`` (no table).
        worst_images: Number of worst images, by FN and by FP, to collect with other examples. None: no examples.
        names: Image names for error messages; indices by default.

    Raises:
        MetricInputError: An image has too many overlapping pairs.

    Example:
        One cat, detected by two cat boxes and one dog box:

        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths
        >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]]
        >>> batch = DetectionBatch(
        ...     Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 1]), GroundTruths([0], boxes[:1], [0]), 1)
        >>> matches = match_images(batch, num_classes=2)
        >>> matches.rules["coco"].matrix.tolist(), matches.table.flags(0.5)[0].tolist()
        ([[1, 0, 0], [0, 0, 0], [1, 1, 0]], [True, False, False])
    """
    detections, ground_truths = batch.detections, batch.ground_truths
    reaches = detections.reach(settings.score_thr)
    batch_counts = BatchCounts(
        batch.num_images,
        len(detections),
        int(len(reaches) - np.count_nonzero(reaches)),
        int(np.count_nonzero(detections.geometry.is_empty())),
        len(ground_truths),
        int(np.count_nonzero(ground_truths.crowd)),
        int(np.count_nonzero(ground_truths.geometry.is_empty())),
    )
    matrix_only = table == "none" and worst_images is None
    # Detections with lower scores do not change the matches of the others.
    if matrix_only and not reaches.all():
        detections = detections.take(np.flatnonzero(reaches))
    order = detections.score_order()
    if order is not None:
        detections = detections.take(order)
    gt_order = None
    if (ground_truths.image[1:] < ground_truths.image[:-1]).any():
        gt_order = stable_order(ground_truths.image)
        ground_truths = ground_truths.take(gt_order)
    grid = MatchGrid((settings.iou_thr,), (ANY_AREA,)) if table == "none" else report_grid(settings)
    lowest = min(settings.iou_thr, grid.iou_thrs[0], settings.background_iou_thr if table == "full" else 1.0)
    pairs = find_pairs(
        detections,
        ground_truths,
        min_overlap=min(lowest, MAX_IOU_THR) if worst_images is None else 0.0,  # examples show any overlap
        coco=not matrix_only or settings.matching != ("mmdet",),
        mmdet="mmdet" in settings.matching,
        names=names,
    )
    thresholds = {"iou_thr": settings.iou_thr, "score_thr": settings.score_thr}
    within_class, coco = _NO_MATCHES
    if not matrix_only or "coco" in settings.matching:
        within_class = match_grid(pairs, detections, ground_truths, grid, gt_at=("any", settings.iou_thr))
        coco = match_coco(pairs, detections, ground_truths, within_class.gt, **thresholds)
    matches = {}
    for rule in settings.matching:
        if rule == "mmdet":
            matches[rule] = mmdet_matches(pairs, detections, ground_truths, **thresholds)
        else:
            one_to_one = coco if rule == "coco" else match_agnostic(pairs, detections, ground_truths, **thresholds)
            matches[rule] = one_to_one_matches(one_to_one, ground_truths.crowd)
    rules = {
        rule: rule_counts(counted, detections, ground_truths, num_classes, score_thr=settings.score_thr)
        for rule, counted in matches.items()
    }
    examples = details = None
    if table == "full" or worst_images is not None:
        det_index = _position_in_image(detections.image, order)
        gt_index = _position_in_image(ground_truths.image, gt_order)
        images = MatchedImages(pairs, detections, ground_truths, det_index, gt_index, batch.num_images)
        if worst_images is not None:
            examples = collect_examples(images, coco, matches, num_classes=num_classes, worst_images=worst_images)
        if table == "full":
            details = _details(images, coco, settings)
    if table == "none":
        return ImageMatches(rules, batch_counts, None, examples)
    label_dtype = np.int16 if num_classes < 1 << 15 else np.int32
    kept = MatchTable(
        grid=grid,
        num_classes=num_classes,
        num_images=batch.num_images,
        image=detections.image.astype(np.int32),
        label=detections.labels.astype(label_dtype),
        score=detections.scores,
        matched=within_class.matched,
        ignored=within_class.ignored,
        gt_image=ground_truths.image.astype(np.int32),
        gt_label=ground_truths.labels.astype(label_dtype),
        gt_counts=grid.gt_counts(ground_truths),
        precision=detections.precision if table in ("scores", "full") else None,
        details=details,
        settings=settings,
    )
    return ImageMatches(rules, batch_counts, kept, examples)


def _details(images: MatchedImages, coco: OneToOne, settings: DetectionSettings) -> MatchDetails:
    pairs, detections, ground_truths, det_index, gt_index, _ = images
    errors = classify_errors(
        pairs, detections, ground_truths, iou_thr=settings.iou_thr, background_iou_thr=settings.background_iou_thr
    )
    gt, overlap = _closest_gt(pairs, coco.gt, ground_truths.crowd)
    gt_outcome = np.where(ground_truths.crowd, IGNORED, MISSED).astype(np.int8)
    for outcome in (CONFUSION, TP):
        gt_outcome[coco.gt[coco.outcome == outcome]] = outcome
    return MatchDetails(
        det_index=det_index,
        gt_index=_at(gt_index, gt),
        overlap=overlap,
        outcome=coco.outcome,
        error_type=errors.error_type,
        error_gt=_at(gt_index, errors.error_gt),
        gt_area=ground_truths.areas(),
        gt_outcome=gt_outcome,
        gt_tide_matched=errors.gt_matched,
    )


def _closest_gt(pairs: OverlapPairs, gt: np.ndarray, crowd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matched ground truth of each detection, else the one with the highest overlap; and that overlap."""
    best = pairs.by_preference(crowd)
    starts = group_starts(best.det)
    closest, overlap = gt.copy(), np.zeros(len(gt), dtype=np.float32)
    det = best.det[starts]
    unmatched = gt[det] < 0
    closest[det[unmatched]] = best.gt[starts[unmatched]]
    rows = np.flatnonzero(pairs.gt == closest[pairs.det])
    overlap[pairs.det[rows]] = pairs.overlap[rows]
    return closest, overlap


def _position_in_image(image: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """The original position of each row in its image; ``order`` is the permutation that sorted the rows."""
    if order is None:
        return np.asarray(position_in_group(image), dtype=np.int32)
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[order] = np.arange(len(order))
    original = image[inverse]
    by_image = stable_order(original)
    position = np.empty(len(order), dtype=np.int32)
    position[by_image] = position_in_group(original[by_image])
    return np.asarray(position[order])


def _at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``values[rows]``, with -1 where the row is -1."""
    return np.asarray(np.append(values, np.int32(NO_GT))[rows], dtype=np.int32)


def overlaps_by_scale(batch: DetectionBatch, scale_factors: np.ndarray, *, num_classes: int) -> tuple[int, int]:
    """Number of matched detections, as given and with the ground truths scaled back to the original image size.

    ``scale_factors`` (images, 2) are the width and height factors of the resized images.
    """
    settings = DetectionSettings(matching=("agnostic",))

    def count_matches(ground_truths: GroundTruths) -> int:
        matches = match_images(
            replace(batch, ground_truths=ground_truths), settings, num_classes=num_classes, table="none"
        )
        return int(matches.rules["agnostic"].matrix[:-1, :-1].sum())

    gts = batch.ground_truths
    rescaled = replace(gts, geometry=Boxes(gts.boxes.array / np.tile(scale_factors, 2)[gts.image]))
    return count_matches(gts), count_matches(rescaled)
