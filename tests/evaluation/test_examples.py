"""Samples of the cells of a classifier, and images on which two runs differ, compared with plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.evaluation.examples import confusion_cells, decision_cells, disagreements
from mm_metrics_plugin.functional.statistics.paired_tests import changed_images
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts


def listed(cells):
    """Samples by cell, in their order."""
    samples = {}
    for cell, sample in zip(cells.cell.tolist(), cells.sample.tolist()):
        samples.setdefault(divmod(cell, cells.shape[1]), []).append(sample)
    return samples


def test_samples_of_cells_equal_a_plain_loop():
    random = np.random.default_rng(1)
    scores, labels = np.round(random.random((200, 3)), 1), random.integers(0, 3, 200)
    predictions = scores.argmax(axis=1)
    expected = {}
    for sample, cell in enumerate(zip(labels.tolist(), predictions.tolist())):
        expected.setdefault(cell, []).append(sample)
    for (label, predicted), samples in expected.items():
        sign = 1 if label == predicted else -1  # correct predictions with low scores, wrong ones with high scores
        samples.sort(key=lambda sample: (sign * scores[sample, predicted], sample))
    assert listed(confusion_cells(scores, labels, predictions, most=20_000)) == expected

    targets, reached = random.integers(-1, 2, scores.shape), scores >= 0.5
    expected = {}
    for label in range(3):
        for kind, (is_target, is_reached) in enumerate(((1, True), (0, True), (1, False))):  # TP, FP, FN
            samples = np.flatnonzero((targets[:, label] == is_target) & (reached[:, label] == is_reached)).tolist()
            sign = -1 if kind == 1 else 1
            expected[label, kind] = sorted(samples, key=lambda sample: (sign * scores[sample, label], sample))
    assert listed(decision_cells(scores, targets, reached, most=20_000)) == expected


def test_disagreements_equal_a_plain_loop():
    random = np.random.default_rng(2)
    targets = random.integers(0, 2, (300, 4))
    decisions = [targets ^ (random.random(targets.shape) < 0.3) for _ in range(2)]
    found = disagreements(*(PerImageCounts.from_decisions(targets, run == 1) for run in decisions), most=40)
    errors = np.array([(run != targets).sum(axis=1) for run in decisions])
    for worse in (True, False):
        gain = (errors[1] - errors[0]) * (1 if worse else -1)
        expected = [image for image in np.argsort(-gain, kind="stable") if gain[image] > 0][:40]
        assert found.image[found.worse == worse].tolist() == expected
        assert found.counts["worse" if worse else "better"] == (gain > 0).sum()
    assert (found.first[1:].sum(axis=0) == errors[0][found.image]).all()
    assert sum(found.agreement.values()) == 300 and found.agreement["both"] == (errors == 0).all(axis=0).sum()


@pytest.mark.parametrize("seed", range(5))
def test_changed_images_equal_their_definition(seed):
    random = np.random.default_rng(seed)
    images, classes = int(random.integers(1, 40)), int(random.integers(1, 6))
    runs, cells = [], np.zeros((2, 3, classes, images), dtype=np.int64)
    for dense in cells:
        events = [(random.integers(0, images, 30), random.integers(0, classes, 30)) for _ in range(3)]
        runs.append(PerImageCounts.from_events(*events, num_images=images, num_classes=classes))
        dense[:, runs[-1].label, runs[-1].image] = runs[-1].counts
    change = cells[1] - cells[0]
    size, totals = np.abs(change).sum(axis=1), change.sum(axis=1)
    order = np.lexsort((np.arange(images), -size[1], -size[0]))
    expected = [(int(image), *totals[:, image].tolist()) for image in order if size[:, image].any()]
    assert [(row.image, row.tp, row.fp, row.fn) for row in changed_images(*runs)] == expected


def test_changed_images_need_memory_for_the_changes_only():
    images, classes = 1_000_000, 100_000  # dense counts of one run would need more than a terabyte
    labels = np.zeros(images, dtype=np.int64)
    decisions = labels.copy()
    decisions[77] = 99_999
    runs = [PerImageCounts.from_labels(labels, run, num_classes=classes) for run in (labels, decisions)]
    (changed,) = changed_images(*runs)
    assert (changed.image, changed.tp, changed.fp, changed.fn) == (77, -1, 1, 1)
