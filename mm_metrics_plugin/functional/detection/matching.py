"""Matching of detections to ground truths: one list of overlapping pairs serves every matching rule.

Ties: score descending, then image order, then detection order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.conventions import ANALYSIS_RULE, MATCHING_RULES
from mm_metrics_plugin.functional._arrays import group_starts, position_in_group, stable_order
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.examples import Examples, SortedImages, collect_examples
from mm_metrics_plugin.functional.detection.federated import check_federated
from mm_metrics_plugin.functional.detection.grid import (
    ANY_AREA,
    ASSIGNMENTS,
    MAX_IOU_THR,
    NO_GT,
    GridMatches,
    MatchGrid,
    match_grid,
    report_grid,
)
from mm_metrics_plugin.functional.detection.match_table import DEFAULT_SETTINGS, MatchDetails, MatchTable, Outcome
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs, find_pairs
from mm_metrics_plugin.functional.detection.rules import RuleCounts, RuleMatches, match_by_rule, rule_counts
from mm_metrics_plugin.functional.detection.tide import classify_errors
from mm_metrics_plugin.functional.thresholding import is_mixed
from mm_metrics_plugin.settings import DetectionSettings, require_choice, require_int

# What is kept of matched images: the confusion matrices, also AP, curves and intervals, or also error types.
MATRIX, SCORES, FULL = KEEP = ("matrix", "scores", "full")


@dataclass(frozen=True, eq=False)
class ImageMatches:
    """The result of :func:`match_images`."""

    rules: dict[str, RuleCounts]  # by matching rule
    counts: BatchCounts
    found: int  # ground truths that a detection of their class is matched to; if a rule has analyses, at any score
    table: MatchTable | None  # None for ``keep='matrix'``
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


_NO_MATCHES = GridMatches(*[np.empty(0, dtype=np.int32)] * 3)


def match_images(
    batch: DetectionBatch,
    settings: DetectionSettings = DEFAULT_SETTINGS,
    *,
    num_classes: int,
    keep: str = FULL,
    worst_images: int | None = None,
    names: Sequence[object] | None = None,
) -> ImageMatches:
    """Matches detections to ground truths under every matching rule of the settings.

    Args:
        batch: Detections and ground truths.
        settings: Thresholds, area ranges and matching rules.
        num_classes: Number of classes without background.
        keep: ``'full'``: a match table with details; ``'scores'``: a table without details, for average precision,
            curves and intervals; ``'matrix'``: no table.
        worst_images: Number of worst images, by FN and by FP, to collect with other examples. None: no examples.
        names: Image names for error messages; indices by default.

    Raises:
        MetricInputError: A value is invalid, an image has too many overlapping pairs or masks of different sizes, or a
            matching rule is not defined for the geometry.

    Example:
        One cat, detected by two cat boxes and one dog box:

        >>> from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths
        >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]]
        >>> batch = DetectionBatch(
        ...     Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 1]), GroundTruths([0], boxes[:1], [0]), 1)
        >>> matches = match_images(batch, num_classes=2)
        >>> matches.rules["coco"].matrix.tolist(), matches.table.tp_fp_masks(0.5)[0].tolist()
        ([[1, 0, 0], [0, 0, 0], [1, 1, 0]], [True, False, False])
    """
    require_choice("keep", keep, KEEP)
    require_int("num_classes", num_classes, low=0)
    batch.check(num_classes=num_classes, names=names)
    if keep != MATRIX:
        check_federated(batch, settings, num_classes=num_classes, names=names)
    detections, ground_truths = batch.detections, batch.ground_truths
    reaches = detections.reach(settings.score_thr)
    batch_counts = BatchCounts(
        batch.num_images,
        len(detections),
        int(len(reaches) - np.count_nonzero(reaches)),
        int(np.count_nonzero(detections.geometry.is_empty())),
        len(ground_truths),
        int(np.count_nonzero(ground_truths.ignored)),
        int(np.count_nonzero(ground_truths.geometry.is_empty())),
    )
    matrix_only = keep == MATRIX and worst_images is None
    # Detections with lower scores do not change the matches of the others. With mixed precision, a detection that does
    # not reach the threshold may have a higher score than one that does.
    if matrix_only and not reaches.all() and not is_mixed(detections.precision):
        detections = detections.take(np.flatnonzero(reaches))
    order = detections.score_order()
    if order is not None:
        detections = detections.take(order)
    gt_order = None
    if (ground_truths.image[1:] < ground_truths.image[:-1]).any():
        gt_order = stable_order(ground_truths.image)
        ground_truths = ground_truths.take(gt_order)
    grid = MatchGrid((settings.iou_thr,), (ANY_AREA,)) if keep == MATRIX else report_grid(settings)
    lowest = min(settings.iou_thr, grid.iou_thrs[0], settings.background_iou_thr if keep == FULL else 1.0)
    # The analyses and the examples need the matches of their rule, too.
    names_of_rules = settings.matching if matrix_only else dict.fromkeys((*settings.matching, ANALYSIS_RULE))
    rules = [MATCHING_RULES[name] for name in names_of_rules]
    convention = settings.ap_convention
    pairs = find_pairs(
        detections,
        ground_truths,
        min_overlap=min(lowest, MAX_IOU_THR) if worst_images is None else 0.0,  # examples show any overlap
        overlaps=tuple(
            dict.fromkeys([*(rule.overlap for rule in rules), *([] if keep == MATRIX else [convention.overlap])])
        ),
        names=names,
    )
    ap_matches: Mapping[str, Any] = {}
    if keep != MATRIX and convention.assignment in ASSIGNMENTS:
        assign_for_ap = ASSIGNMENTS[convention.assignment]
        ap_matches = assign_for_ap(pairs, detections, ground_truths, grid, convention.overlap)._asdict()
    within_class = _NO_MATCHES
    if any(rule.has_analyses for rule in rules):
        within_class = match_grid(pairs, detections, ground_truths, grid, gt_at=("any", settings.iou_thr))
    matches = {
        rule.name: match_by_rule(rule, pairs, detections, ground_truths, within_class.gt, settings) for rule in rules
    }
    counts = {name: rule_counts(matches[name], detections, ground_truths, num_classes) for name in settings.matching}
    found = within_class.gt[within_class.gt >= 0]
    if within_class is _NO_MATCHES:
        first = matches[settings.matching[0]]
        found = np.unique(first.gt[first.outcome == Outcome.TP])
    num_found = int(np.count_nonzero(~ground_truths.ignored[found]))
    examples = details = None
    if keep == FULL or worst_images is not None:
        det_index = _position_in_image(detections.image, order)
        gt_index = _position_in_image(ground_truths.image, gt_order)
        images = SortedImages(pairs, detections, ground_truths, det_index, gt_index, batch.num_images)
        if worst_images is not None:
            shown = {name: matches[name] for name in settings.matching}
            examples = collect_examples(
                images, matches[ANALYSIS_RULE], shown, num_classes=num_classes, worst_images=worst_images
            )
        if keep == FULL:
            details = _details(images, matches[ANALYSIS_RULE], within_class.gt, settings)
    if keep == MATRIX:
        return ImageMatches(counts, batch_counts, num_found, None, examples)
    label_dtype = np.int16 if num_classes < 1 << 15 else np.int32
    table = MatchTable(
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
        gt_valid=grid.gt_valid(ground_truths),
        precision=detections.precision,
        details=details,
        settings=settings,
        image_columns=batch.image_columns,
        **ap_matches,
    )
    return ImageMatches(counts, batch_counts, num_found, table, examples)


def _details(
    images: SortedImages, matches: RuleMatches, own_class_gt: np.ndarray, settings: DetectionSettings
) -> MatchDetails:
    pairs, detections, ground_truths, det_index, gt_index, _ = images
    errors = classify_errors(
        pairs, detections, ground_truths, iou_thr=settings.iou_thr, background_iou_thr=settings.background_iou_thr
    )
    below = matches.outcome == Outcome.BELOW_THRESHOLD
    gt, overlap = _closest_gt(pairs, np.where(below, own_class_gt, matches.gt), ground_truths.ignored)
    gt_outcome = np.where(ground_truths.ignored, Outcome.IGNORED, Outcome.MISSED).astype(np.int8)
    for outcome in (Outcome.CONFUSION, Outcome.TP):
        gt_outcome[matches.gt[matches.outcome == outcome]] = outcome
    return MatchDetails(
        det_index=det_index,
        gt_index=_at(gt_index, gt),
        overlap=overlap,
        outcome=matches.outcome,
        error_type=errors.error_type,
        error_ignored=errors.error_ignored,
        error_fixed=errors.error_fixed,
        error_gt=_at(gt_index, errors.error_gt),
        gt_area=ground_truths.areas(),
        gt_outcome=gt_outcome,
        gt_tide_matched=errors.gt_matched,
    )


def _closest_gt(pairs: OverlapPairs, gt: np.ndarray, gt_ignored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matched ground truth of each detection, else the one with the highest overlap; and that overlap."""
    best = pairs.by_preference(gt_ignored)
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
