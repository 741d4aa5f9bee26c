"""Confusion matrices compared with mmdet's tool, pycocotools and supervision."""

from __future__ import annotations

import contextlib
import io
import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional.detection import pairs
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.match_table import Outcome
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.pairs import find_pairs
from mm_metrics_plugin.functional.detection.rules import BACKGROUND_TYPES, match_by_rule
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.detection import DetectionState
from tests.helpers.detection_problems import (
    StockDataset,
    coco_eval,
    random_batch,
    rows_as_given,
    stock_results,
    stock_tool,
)
from tests.helpers.reference_matching import overlap

SEEDS = range(int(os.environ.get("MM_METRICS_SEEDS", "300")))


def counts_of(batch, num_classes, rule="coco", **options):
    """The counts of one matching rule."""
    settings = DetectionSettings(matching=(rule,), **options)
    return match_images(batch, settings, num_classes=num_classes, keep="matrix").rules[rule]


def coco_details(batch, num_classes, **options):
    """Outcome and matched ground truth (or -1) of each detection under ``coco``, in the order of the batch."""
    table = match_images(batch, DetectionSettings(**options), num_classes=num_classes).table
    row, gt_row = rows_as_given(table, batch)
    outcome, gt = np.empty(len(row), dtype=int), np.empty(len(row), dtype=int)
    outcome[row] = table.details.outcome
    matched = np.isin(table.details.outcome, (Outcome.TP, Outcome.CONFUSION, Outcome.IGNORED))
    gt[row] = np.where(matched, gt_row, -1)
    return outcome, gt


def agnostic_gts(batch, **options):
    """Outcome and matched ground truth of each detection under ``agnostic``, in the order of the batch."""
    settings = DetectionSettings(**options)
    order = np.lexsort((-batch.detections.scores, batch.detections.image))
    detections = batch.detections.take(order)
    near = find_pairs(detections, batch.ground_truths, min_overlap=settings.iou_thr)
    rule = MATCHING_RULES["agnostic"]
    actual = match_by_rule(rule, near, detections, batch.ground_truths, np.empty(0), settings)
    outcome, gt = np.empty(len(order), dtype=int), np.empty(len(order), dtype=int)
    outcome[order], gt[order] = actual.outcome, actual.gt
    return outcome, gt


def thresholds_of(seed):
    return {"score_thr": [0.3, 0.0, 0.5][seed % 3], "iou_thr": [0.5, 0.5, 0.75, 0.3][seed % 4]}


@pytest.fixture(params=[None, 3])
def block(request, monkeypatch):
    """One or many blocks of pairs."""
    if request.param:
        monkeypatch.setattr(pairs, "_BLOCK_CANDIDATES", request.param)


def test_mmdet_equals_the_stock_tool_cell_by_cell(block):
    busy = 0
    for seed in SEEDS:
        batch, num_classes = random_batch(seed)
        options = thresholds_of(seed)
        actual = counts_of(batch, num_classes, "mmdet", **options)
        with contextlib.redirect_stdout(io.StringIO()):
            expected = stock_tool().calculate_confusion_matrix(
                StockDataset(batch, num_classes), stock_results(batch), options["score_thr"], None, options["iou_thr"]
            )
        np.testing.assert_array_equal(actual.matrix, expected, err_msg=f"seed {seed}")
        reached = batch.detections.reach(options["score_thr"])
        np.testing.assert_array_equal(
            actual.detections, np.bincount(batch.detections.labels[reached], minlength=num_classes)
        )
        np.testing.assert_array_equal(
            actual.ground_truths, np.bincount(batch.ground_truths.labels, minlength=num_classes)
        )
        np.testing.assert_array_equal(actual.background_types, [[0] * num_classes] * 2 + [actual.matrix[-1, :-1]])
        busy += actual.duplicates > 0
    assert busy > len(SEEDS) // 6  # the rules differ on duplicates


def evaluate_img(batch, num_classes, *, score_thr, iou_thr):
    """TP, ignored detections and matched ground truths of pycocotools' ``evaluateImg``."""
    rows = np.flatnonzero(batch.detections.scores >= np.float32(score_thr))
    evaluation = coco_eval(batch, num_classes, min_score=score_thr)
    evaluation.params.iouThrs = np.array([iou_thr])
    evaluation.params.maxDets = [10**6]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
    # pycocotools also ignores unmatched detections of negative area, that is inverted ones; here they are FP.
    boxes = batch.detections.boxes.array
    inverted = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) < 0
    is_tp, ignored = np.zeros((2, len(batch.detections)), bool)
    matched = np.full(len(batch.detections), -1)
    for image in evaluation.evalImgs:
        if image is None or image["aRng"] != evaluation.params.areaRng[0] or not image["dtIds"]:
            continue
        row = rows[np.array(image["dtIds"]) - 1]
        ids, skipped = image["dtMatches"][0].astype(int), image["dtIgnore"][0].astype(bool)
        is_tp[row], ignored[row], matched[row] = (ids > 0) & ~skipped, skipped, ids - 1
    return is_tp, ignored & ~inverted, matched


def test_coco_equals_evaluate_img(block):
    ignored_seen = confusions = 0
    for seed in SEEDS:
        batch, num_classes = random_batch(seed)
        options = thresholds_of(seed)
        outcome, gt = coco_details(batch, num_classes, **options)
        is_tp, ignored, matched = evaluate_img(batch, num_classes, **options)
        np.testing.assert_array_equal(outcome == Outcome.TP, is_tp, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(outcome == Outcome.IGNORED, ignored, err_msg=f"seed {seed}")
        in_class = is_tp | ignored
        np.testing.assert_array_equal(gt[in_class], matched[in_class], err_msg=f"seed {seed}")
        matrix = counts_of(batch, num_classes, **options).matrix
        expected = np.bincount(batch.detections.labels[is_tp], minlength=num_classes)
        np.testing.assert_array_equal(matrix.diagonal()[:-1], expected)
        ignored_seen += ignored.any()
        confusions += matrix[:-1, :-1].sum() > expected.sum()
    assert ignored_seen > len(SEEDS) // 6 and confusions > len(SEEDS) // 6


def greedy_by_overlap(batch, iou_thr, score_thr):
    """The definition of ``agnostic``: all pairs by overlap, then by score and order; crowds last."""
    dets, gts = batch.detections, batch.ground_truths
    pairs_left = []
    for row in np.flatnonzero(dets.reach(score_thr)).tolist():
        for at in np.flatnonzero(gts.image == dets.image[row]).tolist():
            value = overlap(dets.boxes.array[row], gts.boxes.array[at], gts.crowd[at])
            if value >= min(iou_thr, 1 - 1e-10):
                crowd = bool(gts.crowd[at])
                pairs_left.append((crowd, -value, -float(dets.scores[row]), row, -at if crowd else at))
    matched = np.full(len(dets), -1)
    for crowd, _, _, row, at in sorted(pairs_left):
        if matched[row] < 0 and (crowd or at not in matched):
            matched[row] = abs(at)
    return matched


def test_agnostic_equals_its_definition(block):
    for seed in SEEDS[:200]:
        batch, _ = random_batch(seed, odd_boxes=False)
        expected = greedy_by_overlap(batch, 0.5, 0.3)
        np.testing.assert_array_equal(agnostic_gts(batch)[1], expected, err_msg=f"seed {seed}")


def test_agnostic_equals_supervision_where_there_is_one_class():
    """Its matrix prefers pairs of the same class and takes IoU > threshold; with one class only the latter is left."""
    import supervision

    compared = 0
    for seed in SEEDS:
        batch, _ = random_batch(seed, crowds=False, ties=False)
        dets, gts = batch.detections, batch.ground_truths
        predictions, targets = [], []
        for image in range(batch.num_images):
            det, gt = dets.images(image, image + 1), gts.images(image, image + 1)
            predictions.append(np.c_[det.boxes.array, np.zeros(len(det)), det.scores].astype(np.float64))
            targets.append(np.c_[gt.boxes.array, np.zeros(len(gt))])
        below = float(np.nextafter(0.5, 0))
        peer = supervision.ConfusionMatrix.from_tensors(predictions, targets, ["thing"], 0.3 + 1e-6, below)
        dets = dets.take(dets.scores >= 0.3 + 1e-6)
        one_class = DetectionBatch(
            replace(dets, labels=dets.labels * 0), replace(gts, labels=gts.labels * 0), batch.num_images
        )
        matrix = counts_of(one_class, 1, "agnostic", score_thr=0).matrix
        np.testing.assert_array_equal(matrix, peer.matrix, err_msg=f"seed {seed}")
        compared += matrix[0, 0] > 0
    assert compared > len(SEEDS) // 3


@pytest.mark.parametrize("rule", MATCHING_RULES)
def test_empty_and_inverted_boxes_match_nothing_and_are_counted(rule):
    detections = Detections([0, 0], [[5, 5, 5, 9], [9, 9, 1, 1]], [0.9, 0.9], [0, 0])
    ground_truths = GroundTruths([0, 0], [[5, 5, 5, 9], [1, 1, 9, 9]], [0, 0])
    batch = DetectionBatch(detections, ground_truths, 1)
    actual = match_images(batch, DetectionSettings(matching=(rule,)), num_classes=1)
    np.testing.assert_array_equal(actual.rules[rule].matrix, [[0, 2], [2, 0]])
    assert (actual.counts.detections_without_area, actual.counts.ground_truths_without_area) == (2, 1)


@pytest.mark.parametrize("rule", MATCHING_RULES)
@pytest.mark.parametrize("spread", [2000, 400])
def test_memory_is_bounded_by_the_overlapping_pairs(rule, spread):
    """20 million pairs in one image, of which few overlap."""
    random = np.random.default_rng(0)
    corner = random.random((2000, 2)) * spread
    gt_boxes = np.concatenate([corner, corner + 60], axis=1)
    boxes = gt_boxes[random.integers(0, 2000, 10_000)] + random.normal(0, 8, (10_000, 4))
    batch = DetectionBatch(
        Detections(np.zeros(10_000), boxes.astype(np.float32), random.random(10_000), random.integers(0, 4, 10_000)),
        GroundTruths(np.zeros(2000), gt_boxes, random.integers(0, 4, 2000)),
        1,
    )
    tracemalloc.start()
    try:
        matrix = counts_of(batch, 4, rule, score_thr=0).matrix
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 256 * 2**20 and matrix.sum() >= 10_000


def test_mmdet_counts_duplicates_as_tp():
    boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]]
    detections = Detections([0, 0, 0], boxes, [0.9, 0.8, 0.1], [0, 0, 1])
    batch = DetectionBatch(detections, GroundTruths([0], boxes[:1], [0]), 1)
    settings = DetectionSettings(matching=("coco", "mmdet"))
    state = DetectionState(2, settings, keep="matrix").update(batch, [0])
    mmdet, coco = state.rule("mmdet"), state.rule("coco")
    assert mmdet.matrix.tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]
    names = ("duplicates", "ground_truths_counted_again", "detections_counted_again")
    assert [mmdet.counts_by_name[name] for name in names] == [1, 1, 0]
    assert [coco.counts_by_name[name] for name in names] == [0, 0, 0]
    assert coco.background_types[list(BACKGROUND_TYPES).index("duplicate")].tolist() == [1, 0]


@pytest.mark.parametrize("rule", ["coco", "agnostic"])
@pytest.mark.parametrize("iou_thr", [0.5, 0.75])
def test_background_types_equal_a_plain_loop(rule, iou_thr):
    totals = np.zeros(3, dtype=int)
    for seed in range(60):
        batch, num_classes = random_batch(seed)
        dets, gts = batch.detections, batch.ground_truths
        options = {"iou_thr": iou_thr, "score_thr": 0.2}
        outcome, gt = coco_details(batch, num_classes, **options) if rule == "coco" else agnostic_gts(batch, **options)
        expected = np.zeros((3, num_classes), dtype=int)
        for row in np.flatnonzero((outcome < Outcome.IGNORED) & (gt < 0)):
            reached = [
                at
                for at in np.flatnonzero(~gts.crowd & (gts.image == dets.image[row]))
                if overlap(dets.boxes.array[row], gts.boxes.array[at]) >= iou_thr
            ]
            assert set(reached) <= set(gt.tolist())  # otherwise it would be matched to one of them
            own_class = any(gts.labels[at] == dets.labels[row] for at in reached)
            name = "duplicate" if own_class else "confusion_matched" if reached else "background"
            assert outcome[row] == BACKGROUND_TYPES[name]
            expected[list(BACKGROUND_TYPES).index(name), dets.labels[row]] += 1
        counts = counts_of(batch, num_classes, rule, **options)
        np.testing.assert_array_equal(counts.background_types, expected)
        np.testing.assert_array_equal(expected.sum(axis=0), counts.matrix[-1, :-1])
        totals += expected.sum(axis=1)
    assert (totals > 20).all()
