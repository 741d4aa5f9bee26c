"""Equal scores in a permuted sample are ranked by image, as in each run."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.functional.coco_ap import APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.comparison import compare_detection
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.scored_matches import match_scores

IMAGES = 5
THERE = Objects(np.arange(IMAGES), np.tile([0.0, 0.0, 10.0, 10.0], (IMAGES, 1)), np.zeros(IMAGES))


def run(right):
    """One detection per image, all of one score: on the object, or beside it."""
    boxes = THERE.boxes + 50 * ~np.array(right)[:, None]
    return DetectionBatch(Detections(np.arange(IMAGES), boxes, np.full(IMAGES, 0.5), np.zeros(IMAGES)), THERE, IMAGES)


@pytest.mark.parametrize("seed", range(6))
def test_permuted_samples_with_equal_scores(seed):
    """The share of all swaps, each made anew from boxes, that part the runs at least as far."""
    random = np.random.default_rng(seed)
    first, second = (run(random.random(IMAGES) < 0.5) for _ in range(2))
    settings = APSettings(num_classes=1)

    def value(swap, runs):
        batch = DetectionBatch.concatenate([runs[one].images(image, image + 1) for image, one in enumerate(swap)])
        return average_precision(match_for_ap(batch.detections, batch.objects, settings), settings).to_dict()["mAP_50"]

    apart = []
    for code in range(1 << IMAGES):
        swap = [code >> image & 1 for image in range(IMAGES)]
        apart.append(value(swap, (second, first)) - value(swap, (first, second)))
    found = compare_detection(
        *(match_scores(one, num_classes=1) for one in (first, second)), permutations=2000
    ).overall["mAP_50"]
    assert found.difference == pytest.approx(apart[0], abs=1e-12)
    assert found.p_value == pytest.approx(np.mean(np.abs(apart) >= abs(apart[0]) - 1e-12), abs=0.05)
