"""What is picked out for looking at: few points of a curve, few members of a cell, images on which runs disagree."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import auc as sklearn_auc
from sklearn.metrics import roc_auc_score

from mm_metrics_plugin.evaluation.disagreements import disagreements
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import worst_first
from mm_metrics_plugin.functional.classification.roc_curves import roc_curves, thinned_curves
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts


def test_thinned_curves_are_points_of_the_exact_ones():
    random = np.random.default_rng(0)
    labels = random.integers(0, 20, 4000)
    scores = random.random((4000, 20)).astype(np.float32)
    scores[np.arange(4000), labels] += 0.5
    exact, thin = roc_curves([scores], labels), thinned_curves(scores, labels, max_points=80)
    for label, (whole, few) in enumerate(zip(exact.per_class, thin.per_class)):
        points = set(zip(whole.thresholds.tolist(), whole.tp.tolist(), whole.fp.tolist()))
        assert set(zip(few.thresholds.tolist(), few.tp.tolist(), few.fp.tolist())) <= points
        assert 40 < len(few.thresholds) <= 84 and few.youden() == whole.youden()
        assert few.f_score().max() == whole.f_score().max()
        area = sklearn_auc(np.append(0, few.false_positive_rate), np.append(0, few.recall))
        assert area == pytest.approx(roc_auc_score(labels == label, scores[:, label]), abs=2e-3)


@pytest.mark.parametrize("most", [0, 30, 90, 1000])
def test_every_group_has_its_worst(most):
    random = np.random.default_rng(1)
    group, badness = random.integers(0, 25, 400), np.round(random.random(400), 1)
    rows, limit = worst_first(group, badness, np.arange(400), per_group=7, most=most)
    assert len(rows) <= max(most, 25) and 1 <= limit <= 7
    for number in range(25):
        mine = sorted(np.flatnonzero(group == number), key=lambda row: (-badness[row], row))
        assert rows[group[rows] == number].tolist() == mine[:limit]


def test_disagreements_are_those_of_a_plain_loop():
    random = np.random.default_rng(2)
    truth = random.integers(0, 2, (300, 4))
    decided = [truth ^ (random.random(truth.shape) < 0.3) for _ in range(2)]
    found = disagreements(*(PerImageCounts.from_decisions(truth, one == 1) for one in decided), most=40)
    wrong = np.array([(one != truth).sum(axis=1) for one in decided])
    for worse in (True, False):
        gain = (wrong[1] - wrong[0]) * (1 if worse else -1)
        expected = [image for image in np.argsort(-gain, kind="stable") if gain[image] > 0][:40]
        assert found.image[found.worse == worse].tolist() == expected
        assert found.counts["worse" if worse else "better"] == (gain > 0).sum()
    assert (found.first[1:].sum(axis=0) == wrong[0][found.image]).all()
    assert sum(found.agreement.values()) == 300 and found.agreement["both"] == (wrong == 0).all(axis=0).sum()


def test_runs_of_different_images_are_refused():
    counts = [PerImageCounts.from_labels(np.zeros(size, int), np.zeros(size, int), num_classes=1) for size in (2, 3)]
    with pytest.raises(MetricInputError, match="found 2 and 3"):
        disagreements(*counts)
