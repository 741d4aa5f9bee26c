"""The match table compared with plain loops, in shards and blocks, and its size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection import _assignment
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.detection import DetectionState
from tests.helpers.detection_problems import dense_batch, problems
from tests.helpers.reference_matching import match_across_classes, match_coco_setting


def by_image(batch):
    """The detections and the ground truths of each image, as dicts in their order."""
    dets, gts = batch.detections, batch.ground_truths
    columns = {"box": dets.boxes.array, "score": dets.scores, "label": dets.labels}
    gt_columns = {"box": gts.boxes.array, "label": gts.labels, "crowd": gts.crowd, "area": gts.areas()}
    for image in range(batch.num_images):
        yield tuple(
            [{name: column[row] for name, column in part.items()} for row in np.flatnonzero(images == image)]
            for images, part in ((dets.image, columns), (gts.image, gt_columns))
        )


def test_match_table_equals_plain_loops():
    for seed, batch, num_classes, settings in problems(100):
        table = match_images(batch, settings, num_classes=num_classes).table
        for image, (dets, gts) in enumerate(by_image(batch)):
            rows = np.flatnonzero(table.image == image)
            place = {int(at): row for at, row in zip(table.details.det_index[rows], rows)}
            for area in table.grid.area_ranges:
                for iou_thr in table.grid.iou_thrs:
                    matched_at, ignored_at = (
                        table.grid.at(bits, area.name, iou_thr) for bits in (table.matched, table.ignored)
                    )
                    expected = match_coco_setting(dets, gts, iou_thr, area.low, area.high)
                    for at, (gt, ignored) in enumerate(expected):
                        assert matched_at[place[at]] == (gt is not None), seed
                        assert ignored_at[place[at]] == ignored, seed
            own = [gt for gt, _ in match_coco_setting(dets, gts, settings.iou_thr, -np.inf, np.inf)]
            matched = match_across_classes(dets, gts, own, settings.iou_thr, settings.score_thr)
            for at, gt in enumerate(matched):
                if gt is not None:
                    assert table.details.gt_index[place[at]] == gt, seed


def state_of(batch, num_classes, settings, order, **kept):
    return DetectionState(num_classes, settings, **kept).update(batch, order)


def image_columns(seed, num_images, num_classes):
    """Groups as text of several lengths, and flags of every class; sometimes none."""
    random = np.random.default_rng(seed)
    groups = np.array(["day", "night", "fog at dawn"])[random.integers(0, 3, num_images)]
    return {"groups": groups, "negative": random.random((num_images, num_classes)) < 0.5} if seed % 3 else {}


def columns_of(table):
    """The arrays of a table and of its details."""
    columns = {**vars(table), **(vars(table.details) if table.details else {}), **table.image_columns}
    return {name: value for name, value in columns.items() if isinstance(value, np.ndarray)}


def test_selected_images_are_matched_as_if_they_were_alone():
    """A slice of the table is the table of the slice, and the matrix of the table is that of the rule."""
    for seed, batch, size, settings in problems(60):
        batch = replace(batch, image_columns=image_columns(seed, batch.num_images, size))
        table = match_images(batch, settings, num_classes=size).table
        chosen = np.random.default_rng(seed).random(batch.num_images) < 0.6
        alone = DetectionBatch.concatenate(
            [batch.images(0, 0), *(batch.images(at, at + 1) for at in np.flatnonzero(chosen))]
        )
        expected = match_images(alone, settings, num_classes=size)
        for images in (chosen, np.flatnonzero(chosen)):
            actual = table.select_images(images)
            assert actual.num_images == alone.num_images
            for name, column in columns_of(expected.table).items():
                np.testing.assert_array_equal(columns_of(actual)[name], column, err_msg=f"seed {seed}: {name}")
            assert actual.image_columns.keys() == expected.table.image_columns.keys() == batch.image_columns.keys()
            np.testing.assert_array_equal(actual.confusion_matrix(), expected.rules["coco"].matrix)


@pytest.mark.parametrize("keep", ["scores", "full"])
def test_shards_in_any_order_merge_bit_for_bit(keep):
    for seed, batch, size, settings in problems(100):
        random = np.random.default_rng(seed)
        batch = replace(batch, image_columns=image_columns(seed, batch.num_images, size))
        whole = match_images(batch, settings, num_classes=size, keep=keep)
        keys = np.sort(random.permutation(100)[: batch.num_images])
        parts = [
            state_of(batch.images(at, at + 1), size, settings, [[keys[at], at]], keep=keep)
            for at in random.permutation(batch.num_images)
        ]
        merged = merge_all(parts)
        merged = merged.with_arrays(merged.arrays())  # as sent to another rank or written to a file
        expected = columns_of(whole.table)
        assert columns_of(merged.table()).keys() == expected.keys()
        for name, column in columns_of(merged.table()).items():
            assert column.dtype == expected[name].dtype and column.tobytes() == expected[name].tobytes(), (seed, name)
        for rule, counts in whole.rules.items():
            np.testing.assert_array_equal(merged.rule(rule).matrix, counts.matrix)
            np.testing.assert_array_equal(merged.rule(rule).background_types, counts.background_types)
        actual, expected_ap = (average_precision(table) for table in (merged.table(), whole.table))
        assert (
            actual.ap.tobytes() == expected_ap.ap.tobytes() and actual.recall.tobytes() == expected_ap.recall.tobytes()
        )


def test_blocks_of_images_equal_one_block(monkeypatch):
    batch, size = dense_batch(0, num_images=6)
    whole = state_of(batch, size, DetectionSettings(), np.arange(6))
    monkeypatch.setattr("mm_metrics_plugin.states.detection._DETECTIONS_AT_ONCE", 1000)
    assert len(list(batch.blocks(1000))) > 2
    blocks = state_of(batch, size, DetectionSettings(), np.arange(6))
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(blocks.arrays()[name], array, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("keep", "most"), [("full", 52), ("scores", 35), ("matrix", 0)])
def test_bytes_per_detection(keep, most, dtype):
    batch, size = dense_batch(0)
    scores = batch.detections.scores.astype(dtype)
    batch = replace(batch, detections=replace(batch.detections, scores=scores, precision=None))
    state = state_of(batch, size, DetectionSettings(), np.arange(batch.num_images), keep=keep)
    arrays = {name: array for name, array in state.arrays().items() if array is not None}
    sample = [arrays.pop(name) for name in list(arrays) if name.startswith("diagnosis.")]
    assert sum(array.nbytes for array in sample) <= batch.num_images * 350 * 24 + 200  # of 64 images at most
    rows = [array for array in arrays.values() if len(array) == len(batch.detections)]
    assert sum(array.nbytes for array in rows) <= most * len(batch.detections)
    assert len(rows) > 4 or keep == "matrix"
    others = sum(array.nbytes for array in arrays.values()) - sum(array.nbytes for array in rows)
    assert others < 40 * len(batch.ground_truths) + 1000  # independent of the number of detections


@pytest.mark.parametrize("shares", [False, True])
def test_many_boxes_on_each_other_take_few_rounds(monkeypatch, shares):
    """Every detection prefers the same ground truths, so a round assigns one pair, and a loop assigns the rest."""
    rounds = []
    flatnonzero = np.flatnonzero
    monkeypatch.setattr(_assignment.np, "flatnonzero", lambda values: (rounds.append(1), flatnonzero(values))[1])
    random, number = np.random.default_rng(0), 60
    det, gt = np.repeat(np.arange(number), number), np.tile(np.arange(number), number)
    bits = random.integers(0, 8, len(det)).astype(np.uint8)
    shared = (np.arange(number) == 7) & shares
    result = _assignment.assign(det, gt, bits, num_dets=number, shared=shared)
    assert len(rounds) < 20
    expected, det_free, gt_free = [], [7] * number, [7] * number
    for row, (det_row, gt_row, wanted) in enumerate(zip(det.tolist(), gt.tolist(), bits.tolist())):
        won = wanted & det_free[det_row] & gt_free[gt_row]
        det_free[det_row] &= ~won
        gt_free[gt_row] &= 7 if shared[gt_row] else ~won
        expected += [(row, won)] if won else []
    assert sorted(zip(result.pair.tolist(), result.bits.tolist())) == expected
    assert result.det_bits.tolist() == [7 & ~free for free in det_free]
    _assignment.assign(det, 0 * gt, bits, num_dets=number, shared=np.array([True]))  # all on one crowd
    assert len(rounds) < 30
