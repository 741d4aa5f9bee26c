"""What stands behind the page of a detector: members of cells, worst images."""

from __future__ import annotations

import numpy as np
import pytest
from mm_metrics_plugin.functional.cell_members import cell_members
from mm_metrics_plugin.functional.matching import PROTOCOLS, match
from mm_metrics_plugin.functional.worst_images import worst_images

from tests.functional.detection_problems import random_batch

SEEDS = range(60)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_cell_lists_as_many_as_the_matrix_counts(protocol):
    for seed in SEEDS:
        batch, size = random_batch(seed)
        options = dict(num_classes=size, protocol=protocol, iou_threshold=0.5, score_threshold=0.4)
        members = cell_members(batch, per_cell=10**6, most=10**9, **options)
        matrix = match(batch.detections, batch.objects, **options).matrix
        assert np.array_equal(members.matrix, matrix)
        assert np.array_equal(np.bincount(members.cell, minlength=matrix.size), matrix.ravel())
        # Every listed pair is what its cell says it is.
        truth = np.append(batch.objects.labels, size)[members.object]
        prediction = np.append(batch.detections.labels, size)[members.detection]
        assert np.array_equal(truth * (size + 1) + prediction, members.cell)
        pairs = (members.detection >= 0) & (members.object >= 0)
        assert np.array_equal(
            batch.detections.image[members.detection[pairs]], batch.objects.image[members.object[pairs]]
        )
        assert (members.overlap[pairs] >= 0.5 - 1e-5).all() and np.isnan(members.overlap[~pairs]).all()


def test_the_worst_come_first_and_only_so_many():
    for seed in SEEDS:
        batch, size = random_batch(seed)
        whole = cell_members(batch, num_classes=size, per_cell=10**6, most=10**9)
        short = cell_members(batch, num_classes=size, per_cell=2)
        boxes = batch.objects.boxes
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        for truth, prediction in zip(*np.nonzero(whole.matrix)):
            found, there = whole.of(truth, prediction)
            assert len(found) == whole.matrix[truth, prediction]
            if prediction == size:
                badness = area[there]
            else:
                badness = batch.detections.scores[found] * (-1 if truth == prediction else 1)
            assert (np.diff(badness) <= 0).all()
            first = short.of(truth, prediction)
            assert np.array_equal(first[0], found[:2]) and np.array_equal(first[1], there[:2])


def test_all_cells_together_list_no_more_than_fits():
    batch, size = next((b, n) for b, n in map(random_batch, SEEDS) if len(b.detections) > 60 and n == 1)
    total = int(cell_members(batch, num_classes=size, score_threshold=0.0).matrix.sum())
    members = cell_members(batch, num_classes=size, score_threshold=0.0, most=total // 2)
    assert len(members.cell) <= total // 2 and members.limit < 50
    one = cell_members(batch, num_classes=size, score_threshold=0.0, most=0)
    assert one.limit == 1 and len(one.cell) == np.count_nonzero(one.matrix)


def test_the_worst_images_by_hand():
    for seed in SEEDS:
        batch, size = random_batch(seed)
        matches = match(batch.detections, batch.objects, num_classes=size)
        worst = worst_images(batch, matches)
        missed, confidence = [], []
        for image in range(batch.num_images):
            rows = [row for row in range(len(batch.detections)) if batch.detections.image[row] == image]
            found = {int(matches.matched_object[row]) for row in rows if matches.tp[row]}
            there = [row for row in range(len(batch.objects)) if batch.objects.image[row] == image]
            missed.append(sum(1 for row in there if not batch.objects.crowd[row] and row not in found))
            false = [float(batch.detections.scores[row]) for row in rows if matches.used[row] and not matches.tp[row]]
            confidence.append(max(false, default=-1.0))
        assert worst.missed.tolist() == missed
        assert np.nan_to_num(worst.confidence, nan=-1.0).tolist() == confidence
        images = range(batch.num_images)
        by_missed = sorted(images, key=lambda image: (-missed[image], -confidence[image], image))
        assert worst.most_missed.tolist() == [image for image in by_missed if missed[image]]
        by_confidence = sorted(images, key=lambda image: (-confidence[image], -missed[image], image))
        assert worst.most_confident.tolist() == [image for image in by_confidence if confidence[image] >= 0]
        fn = matches.matrix.sum(1)[:-1] - np.diag(matches.matrix)[:-1]
        assert worst.lost.sum() == fn.sum() == worst.missed.sum()
        assert np.count_nonzero(worst.right) == np.trace(matches.matrix[:-1, :-1])
