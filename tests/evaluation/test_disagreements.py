"""Images on which two runs disagree, beside a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.evaluation.examples import disagreements
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts


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
