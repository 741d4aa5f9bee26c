"""Members of confusion matrix cells and worst images, compared with the matrices and plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional.detection import examples
from mm_metrics_plugin.functional.detection.examples import DRAWN_KINDS
from mm_metrics_plugin.functional.detection.match_table import Outcome
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.rules import BACKGROUND_TYPES
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.detection import DetectionState
from tests.helpers.detection_problems import members_of, problems, random_batch, rows_as_given
from tests.helpers.reference_matching import overlap

SEEDS = range(60)
SETTINGS = DetectionSettings(matching=tuple(MATCHING_RULES), score_thr=0.2)


@pytest.fixture
def unlimited(monkeypatch):
    monkeypatch.setattr(examples, "MAX_PER_CELL", 10**6)
    monkeypatch.setattr(examples, "MAX_CELL_EXAMPLES", 10**9)


def match(batch, num_classes, worst_images=3, settings=SETTINGS):
    return match_images(batch, settings, num_classes=num_classes, worst_images=worst_images)


def rows_of(members, batch):
    """Rows of the detections and of the ground truths in a batch sorted by image; -1 without any."""
    images = np.arange(batch.num_images)
    first = [np.searchsorted(side.image, images)[members.image] for side in (batch.detections, batch.ground_truths)]
    return [
        np.where(index < 0, -1, start + index) for start, index in zip(first, (members.det_index, members.gt_index))
    ]


def test_members_of_every_cell_equal_the_matrix(unlimited):
    for seed in SEEDS:
        batch, size = random_batch(seed)
        dets, gts, matches = batch.detections, batch.ground_truths, match(*random_batch(seed))
        for rule, counts in matches.rules.items():
            members = members_of(matches.examples.cells, rule)
            assert np.array_equal(np.bincount(members.cell, minlength=counts.matrix.size), counts.matrix.ravel())
            target, prediction = np.divmod(members.cell, size + 1)
            assert np.array_equal(prediction, np.where(members.label < 0, size, members.label))
            # A detection in the background row shows the ground truth that it overlaps most, or none.
            in_background = members.background_type >= 0
            assert np.array_equal(in_background, target == size)
            assert np.array_equal(target[~in_background], members.gt_label[~in_background])
            for index, name in enumerate(BACKGROUND_TYPES):
                labels = members.label[members.background_type == index]
                expected = counts.background_types[index]
                assert np.array_equal(np.bincount(labels, minlength=size), expected), (seed, rule, name)
            pairs = ~in_background & (members.label >= 0)
            assert (members.overlap[pairs] >= 0.5 - 1e-5).all()
            assert np.array_equal(np.isnan(members.overlap), members.label < 0)
            det, gt = rows_of(members, batch)
            for rows, side, label, outline in (
                (det, dets, members.label, members.outline),
                (gt, gts, members.gt_label, members.gt_outline),
            ):
                known = rows >= 0
                assert np.array_equal(known, label >= 0) and np.array_equal(known, outline.lengths > 0)
                assert np.array_equal(label[known], side.labels[rows[known]])
                assert np.array_equal(side.image[rows[known]], members.image[known])
                corners = outline.points.reshape(-1, 5, 2)[:, [0, 2]].reshape(-1, 4)
                assert np.allclose(corners, side.boxes.to_format("xyxy")[rows[known]], rtol=0, atol=1e-12)
            assert np.array_equal(members.score[det >= 0], dets.scores[det[det >= 0]])


@pytest.mark.parametrize("rule", MATCHING_RULES)
def test_false_positive_has_the_ground_truth_of_the_highest_iou(rule, unlimited):
    seen = np.zeros(3, dtype=int)
    for seed in range(40):
        batch, size = random_batch(seed)
        dets, gts = batch.detections, batch.ground_truths
        members = members_of(match(batch, size).examples.cells, rule)
        members = members.take(np.flatnonzero(members.background_type >= 0))
        for place, (row, best) in enumerate(zip(*rows_of(members, batch))):
            overlaps = {
                at: overlap(dets.boxes.array[row], gts.boxes.array[at])
                for at in np.flatnonzero((gts.image == dets.image[row]) & ((rule == "mmdet") | ~gts.crowd))
            }
            highest, kind = max(overlaps.values(), default=0.0), int(members.background_type[place])
            assert members.overlap[place] == pytest.approx(highest, abs=1e-6)  # float32
            assert (best == -1) == (highest == 0)
            if best >= 0:
                assert overlaps[best] == pytest.approx(highest, abs=1e-6)
            if rule != "mmdet":
                assert (highest >= 0.5) == (list(BACKGROUND_TYPES)[kind] != "background")
            seen[kind] += 1
    assert seen[2] > 20 and (rule == "mmdet" or (seen > 20).all())


def test_members_are_sorted_and_limited_per_cell(unlimited, monkeypatch):
    for seed in SEEDS:
        batch, size = random_batch(seed)
        whole = match(batch, size).examples.cells
        with monkeypatch.context() as limited:
            limited.setattr(examples, "MAX_PER_CELL", 2)
            short = match(batch, size).examples.cells
        area = batch.ground_truths.areas()
        for rule in MATCHING_RULES:
            own, few = members_of(whole, rule), members_of(short, rule)
            for cell in np.unique(own.cell):
                (target, prediction), members = divmod(int(cell), size + 1), own.take(own.cell == cell)
                _, gt = rows_of(members, batch)
                worst = area[gt] if prediction == size else members.score * (-1 if target == prediction else 1)
                assert (np.diff(worst) <= 0).all()
                first = few.take(few.cell == cell)
                for name in ("image", "det_index", "gt_index"):
                    assert np.array_equal(getattr(first, name), getattr(members, name)[:2])


def test_worst_images_equal_a_plain_loop():
    for seed in SEEDS:
        batch, size = random_batch(seed)
        matches = match(batch, size, worst_images=2)
        table, worst, shapes = matches.table, matches.examples.images, matches.examples.shapes
        _, gt = rows_as_given(table, batch)
        outcome, crowd = table.details.outcome, batch.ground_truths.crowd
        missed, confidence, kinds = [], [], []
        for image in range(batch.num_images):
            own = table.image == image
            matched = set(gt[own & (outcome == Outcome.TP)].tolist())
            lost = [at for at in np.flatnonzero((batch.ground_truths.image == image) & ~crowd) if at not in matched]
            false = own & (outcome != Outcome.TP) & (outcome < Outcome.IGNORED)
            missed.append(len(lost))
            confidence.append(max(table.score[false].tolist(), default=-1.0))
            kinds.append((len(matched), np.count_nonzero(false), len(lost)))
        images = range(batch.num_images)
        by_missed = sorted(images, key=lambda image: (-missed[image], -confidence[image], image))
        by_confidence = sorted(images, key=lambda image: (-confidence[image], -missed[image], image))
        first = [image for image in by_missed if missed[image]][:2]
        second = [image for image in by_confidence if confidence[image] >= 0][:2]
        assert worst.image[worst.most_missed()][:2].tolist() == first
        assert worst.image[worst.most_confident()][:2].tolist() == second
        assert worst.image.tolist() == sorted({*first, *second})
        assert worst.missed.tolist() == [missed[image] for image in worst.image]
        assert np.nan_to_num(worst.confidence, nan=-1.0).tolist() == [confidence[image] for image in worst.image]
        for image in images:
            own = shapes.kind[shapes.image == image]
            drawn = [np.count_nonzero(own == kind) for kind in range(len(DRAWN_KINDS))]
            assert tuple(drawn) == (kinds[image] if image in worst.image else (0, 0, 0))


def test_examples_of_shards_merge_to_those_of_all_images(monkeypatch):
    monkeypatch.setattr(examples, "MAX_PER_CELL", 2)
    for seed, batch, size, settings in problems(100):

        def state_of(part, order, size=size, settings=settings):
            return DetectionState(size, settings, worst_images=1).update(part, order)

        whole = state_of(batch, np.arange(batch.num_images)).examples()
        order = np.random.default_rng(seed).permutation(batch.num_images)
        merged = merge_all([state_of(batch.images(at, at + 1), [at]) for at in order]).examples()
        for name, table in whole._asdict().items():
            for column, expected in table.to_arrays().items():
                own = getattr(merged, name).to_arrays()[column]
                np.testing.assert_array_equal(own, expected, err_msg=f"{name}.{column}, seed {seed}")
