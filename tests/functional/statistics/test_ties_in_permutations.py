"""Equal scores in a permuted sample are ranked by image, as in each run."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from tests.helpers.coco_problems import match_table

IMAGES = 5
BOXES = np.tile([0.0, 0.0, 10.0, 10.0], (IMAGES, 1))
GROUND_TRUTHS = GroundTruths(np.arange(IMAGES), BOXES, np.zeros(IMAGES))


def run(right):
    """One detection per image, all of one score: on the ground truth, or beside it."""
    detections = Detections(
        np.arange(IMAGES), BOXES + 50 * ~np.array(right)[:, None], np.full(IMAGES, 0.5), np.zeros(IMAGES)
    )
    return DetectionBatch(detections, GROUND_TRUTHS, IMAGES)


@pytest.mark.parametrize("seed", range(6))
def test_permuted_samples_with_equal_scores(seed):
    """The share of all swaps, each made anew from boxes, that part the runs at least as far."""
    random = np.random.default_rng(seed)
    first, second = (run(random.random(IMAGES) < 0.5) for _ in range(2))

    def value(swap, runs):
        batch = DetectionBatch.concatenate([runs[one].images(image, image + 1) for image, one in enumerate(swap)])
        return average_precision(match_table(batch, 1)).to_dict()["mAP_50"]

    apart = []
    for code in range(1 << IMAGES):
        swap = [code >> image & 1 for image in range(IMAGES)]
        apart.append(value(swap, (second, first)) - value(swap, (first, second)))
    tables = (match_table(one, 1, iou_thrs=(0.5,)) for one in (first, second))
    found = paired_permutation_test(*tables, permutations=2000).overall["mAP_50"]
    assert found.difference == pytest.approx(apart[0], abs=1e-12)
    assert found.p_value == pytest.approx(np.mean(np.abs(apart) >= abs(apart[0]) - 1e-12), abs=0.05)
