"""The match table against plain loops, against pycocotools' rule in another form, and against the other functions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mm_metrics_plugin.functional.cell_members import cell_members
from mm_metrics_plugin.functional.coco_ap import APSettings, match_for_ap
from mm_metrics_plugin.functional.coco_ap import average_precision as old_average_precision
from mm_metrics_plugin.functional.error_types import error_types
from mm_metrics_plugin.functional.false_positives import count_background_types, count_errors
from mm_metrics_plugin.functional.matching import match
from mm_metrics_plugin.functional.worst_images import worst_images

from mm_metrics_plugin.functional.detection.average_precision import RangeCurves
from mm_metrics_plugin.functional.detection.confusion_rules import MISSED, TP
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.tide import errors_at_threshold, tide_errors
from mm_metrics_plugin.settings import DetectionSettings
from tests.functional.detection.problems import make_problem
from tests.functional.detection.reference import match_across_classes, match_coco_setting

SEEDS = range(300)
OLD_NAMES = {"classification": "class", "localization": "localisation"}


def by_image(batch):
    """The instances of each image as dicts, in the order given."""
    found = [([], []) for _ in range(batch.num_images)]
    dets, gts = batch.detections, batch.ground_truths
    for row in range(len(dets)):
        one = {"row": row, "box": dets.geometry.array[row], "score": dets.scores[row], "label": dets.labels[row]}
        found[dets.image[row]][0].append(one)
    for row in range(len(gts)):
        one = {"box": gts.geometry.array[row], "label": gts.labels[row], "crowd": gts.crowd[row]}
        found[gts.image[row]][1].append({**one, "area": gts.areas()[row]})
    return found


def test_the_table_equals_plain_loops():
    for seed in SEEDS:
        problem = make_problem(seed)
        settings = problem.settings
        table = match_images(problem.batch, settings, num_classes=problem.num_classes).table
        for image, (dets, gts) in enumerate(by_image(problem.batch)):
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


@pytest.mark.parametrize("table", ["none", "ap", "full"])
def test_matrices_and_background_types_equal_those_of_match(table):
    for seed in SEEDS:
        problem = make_problem(seed)
        settings, old = problem.settings, problem.old
        found = match_images(problem.batch, settings, num_classes=problem.num_classes, table=table)
        for rule, counts in found.rules.items():
            expected = match(
                old.detections,
                old.objects,
                num_classes=problem.num_classes,
                protocol=rule,
                iou_threshold=settings.iou_thr,
                score_threshold=settings.score_thr,
            )
            assert (counts.matrix == expected.matrix).all(), (seed, rule)
            types = count_background_types(old.detections, old.objects, expected)
            assert (counts.background_types == types).all(), (seed, rule)
            assert counts.detections == expected.detections and counts.objects == expected.objects
            assert counts.detections_ignored == expected.detections_ignored
            assert counts.duplicates == (expected.duplicates or 0)


def test_average_precision_equals_the_other_kernel():
    for seed in SEEDS:
        problem = make_problem(seed)
        table = match_images(problem.batch, problem.settings, num_classes=problem.num_classes, table="ap").table
        grid = table.grid
        ranges = {one.name: (one.low, one.high) for one in grid.area_ranges}
        settings = APSettings(
            problem.num_classes, iou_thresholds=grid.iou_thrs, area_ranges=ranges, max_detections=(1, 3)
        )
        records = match_for_ap(problem.old.detections, problem.old.objects, settings)
        expected = old_average_precision(records, settings)
        for index, area in enumerate(ranges):
            curves = RangeCurves(table, area, 3)
            value = curves.average_precision()[..., 0]
            np.testing.assert_allclose(value, expected.precision[index].mean(axis=-1), atol=1e-12, err_msg=str(seed))
            ones = np.ones((problem.batch.num_images, 2))
            np.testing.assert_allclose(curves.average_precision(ones)[..., 1], value, atol=1e-12, err_msg=str(seed))
            for at, most in enumerate((1, 3)):
                np.testing.assert_allclose(curves.recall(most), expected.recall[index, at], atol=1e-12)


def test_weights_count_images_several_times():
    for seed in range(100):
        problem = make_problem(seed)
        random = np.random.default_rng(seed)
        weights = random.integers(0, 3, problem.batch.num_images)
        detections = problem.batch.detections  # without ties: tied detections of an image would not stay together
        detections = replace(detections, scores=random.permutation(len(detections)) / 16)
        original = replace(problem.batch, detections=detections)
        repeated = [original.images(at, at + 1) for at in np.repeat(np.arange(len(weights)), weights)]
        if not repeated:
            continue
        values = []
        for batch in (original, DetectionBatch.concatenate(repeated)):
            table = match_images(batch, problem.settings, num_classes=problem.num_classes, table="ap").table
            curves = RangeCurves(table, "all", 100)
            values.append(curves.average_precision(weights[:, None] if batch is original else None))
        np.testing.assert_allclose(*values, atol=1e-12, err_msg=str(seed))


@pytest.mark.parametrize("absent", ["skip", "zero"])
def test_tide_equals_error_types(absent):
    for seed in SEEDS:
        problem = make_problem(seed)
        table = match_images(problem.batch, problem.settings, num_classes=problem.num_classes).table
        found = tide_errors(table, absent=absent)
        options = {"num_classes": problem.num_classes, "iou_threshold": problem.settings.iou_thr}
        expected = error_types(problem.old, absent=absent, **options)
        for name, counts in found.counts.items():
            old = OLD_NAMES.get(name, name)
            assert (counts == expected.counts[old]).all(), (seed, name)
            assert (found.ignored[name] == expected.ignored[old]).all(), (seed, name)
            np.testing.assert_allclose(found.dap[name], expected.gains[old], atol=1e-12, err_msg=str((seed, name)))
            np.testing.assert_allclose(found.dap_per_class[name], expected.gains_per_class[old], atol=1e-12)
        np.testing.assert_allclose(
            [found.average_precision, found.dap_false_positives, found.dap_false_negatives],
            [expected.average_precision, expected.gain_false_positives, expected.gain_false_negatives],
            atol=1e-12,
        )


def test_images_can_be_matched_apart():
    for seed in range(100):
        problem = make_problem(seed)
        whole = match_images(problem.batch, problem.settings, num_classes=problem.num_classes)
        parts = [
            match_images(problem.batch.images(at, at + 1), problem.settings, num_classes=problem.num_classes)
            for at in range(problem.batch.num_images)
        ]
        for name in ("label", "score", "matched", "ignored", "gt_label", "gt_counts"):
            joined = np.concatenate([getattr(part.table, name) for part in parts])
            assert (joined == getattr(whole.table, name)).all(), (seed, name)
        for name in vars(whole.table.details):
            joined = np.concatenate([getattr(part.table.details, name) for part in parts])
            assert (joined == getattr(whole.table.details, name)).all(), (seed, name)
        for rule, counts in whole.rules.items():
            assert (sum(part.rules[rule].matrix for part in parts) == counts.matrix).all()


def test_details_agree_with_the_matrix():
    for seed in SEEDS:
        problem = make_problem(seed)
        found = match_images(problem.batch, problem.settings, num_classes=problem.num_classes)
        details, matrix = found.table.details, found.rules["coco"].matrix
        assert np.count_nonzero(details.outcome == TP) == matrix[:-1, :-1].trace()
        assert np.count_nonzero(details.gt_outcome == MISSED) == matrix[:-1, -1].sum()
        assert np.count_nonzero(details.gt_outcome == TP) == matrix[:-1, :-1].trace()


def test_every_overlap_is_computed_once(monkeypatch):
    calls = []
    overlaps = Boxes.overlaps

    def counted(self, gts, rows, gt_rows, crowd):
        calls.extend(zip(rows.tolist(), gt_rows.tolist()))
        return overlaps(self, gts, rows, gt_rows, crowd)

    monkeypatch.setattr(Boxes, "overlaps", counted)
    for seed in range(50):
        problem = make_problem(seed)
        calls.clear()
        table = match_images(problem.batch, problem.settings, num_classes=problem.num_classes).table
        tide_errors(table)
        RangeCurves(table, "all", 100).average_precision()
        assert len(set(calls)) == len(calls)


def test_bytes_per_detection():
    problem = make_problem(2)
    table = match_images(problem.batch, DetectionSettings(), num_classes=problem.num_classes).table
    size = {name: getattr(table, name).itemsize for name in ("image", "label", "matched", "ignored")}
    score = 4  # float32, as detectors give it
    details = ("det_index", "gt_index", "overlap", "outcome", "error_type", "error_gt")
    assert sum(size.values()) + score <= 32
    assert sum(size.values()) + score + sum(getattr(table.details, name).itemsize for name in details) <= 50


def test_a_crowd_of_many_detections_takes_few_rounds(monkeypatch):
    from mm_metrics_plugin.functional.detection import _assignment

    rounds = []
    flatnonzero = np.flatnonzero
    monkeypatch.setattr(_assignment.np, "flatnonzero", lambda values: (rounds.append(1), flatnonzero(values))[1])
    number = 5000
    _assignment.assign(
        np.arange(number), np.zeros(number, int), np.ones(number, np.uint8), num_dets=number, shared=np.array([True])
    )
    assert len(rounds) < 10


def test_errors_at_the_threshold_equal_count_errors():
    for seed in SEEDS:
        problem = make_problem(seed)
        settings, old = problem.settings, problem.old
        table = match_images(problem.batch, settings, num_classes=problem.num_classes).table
        thresholds = {"iou_threshold": settings.iou_thr, "score_threshold": settings.score_thr}
        matches = match(old.detections, old.objects, num_classes=problem.num_classes, **thresholds)
        expected = count_errors(old, matches)
        for name, counts in errors_at_threshold(table).items():
            assert (counts == expected[OLD_NAMES.get(name, name)]).all(), (seed, name)


def test_examples_equal_cell_members_and_worst_images():
    for seed in SEEDS:
        problem = make_problem(seed)
        settings, old, size = problem.settings, problem.old, problem.num_classes
        found = match_images(problem.batch, settings, num_classes=size, worst_images=2).examples
        thresholds = {"iou_threshold": settings.iou_thr, "score_threshold": settings.score_thr}
        for rule in settings.matching:
            expected = cell_members(old, num_classes=size, protocol=rule, **thresholds)
            members = found.members.of_rule(rule)
            assert (members.cell == expected.cell).all(), (seed, rule)
            for rows, index, given in (
                (expected.detection, members.det_index, old.detections),
                (expected.best_object, members.gt_index, old.objects),
            ):
                position = [int((given.image[:row] == given.image[row]).sum()) if row >= 0 else -1 for row in rows]
                assert (index == position).all(), (seed, rule)
            assert np.allclose(members.overlap, expected.best_overlap, atol=1e-6, equal_nan=True), (seed, rule)
            assert (members.background_type == expected.background_type).all()
        matches = match(old.detections, old.objects, num_classes=size, **thresholds)
        worst = worst_images(old, matches)
        images = found.images
        assert images.image[images.most_missed()][:2].tolist() == worst.most_missed[:2].tolist(), seed
        assert images.image[images.most_confident()][:2].tolist() == worst.most_confident[:2].tolist(), seed
        for kind, mask, rows in (
            (0, worst.right, old.detections),
            (1, worst.wrong, old.detections),
            (2, worst.lost, old.objects),
        ):
            listed = found.boxes.box[found.boxes.kind == kind]
            chosen = rows.boxes[mask & np.isin(rows.image, images.image)]
            assert sorted(map(tuple, listed[:, :2].tolist())) == sorted(map(tuple, chosen[:, :2].tolist())), seed
