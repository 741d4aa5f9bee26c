"""How often ``paired_permutation_test`` calls two equally good detectors different, each at its own best threshold.

``bench_coverage.py`` prints the table of docs/en/concepts/statistics.md;
``tests/functional/statistics/test_paired_tests.py`` checks the rates.
"""

from __future__ import annotations

from typing import Iterator

import numpy as np

from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.settings import DetectionSettings


def similar_detectors(random: np.random.Generator, images: int) -> Iterator[DetectionBatch]:
    """Two detectors with the same expected results on every image, and independent noise in their scores."""
    image = np.repeat(np.arange(images), random.poisson(2.5, images))
    boxes = np.arange(len(image))[:, None] * 20.0 + np.array([0, 0, 10, 10])
    ground_truths = GroundTruths(image, boxes, random.integers(0, 2, len(image)))
    ease = random.normal(size=images)[image] + random.normal(size=len(image))
    for _ in range(2):
        wrong = np.repeat(np.arange(images), random.poisson(6, images))
        scores = [0.5 + ease + random.normal(size=len(image)), random.normal(-1.5, 1.2, len(wrong))]
        detections = Detections(
            np.append(image, wrong),
            np.concatenate([boxes, np.full((len(wrong), 4), [-50.0, 0, -40, 10])]),
            1 / (1 + np.exp(-np.concatenate(scores))),
            np.append(ground_truths.labels, random.integers(0, 2, len(wrong))),
        )
        yield DetectionBatch(detections, ground_truths, images)


def rejection_rates(
    rule: str, images: int, *, comparisons: int, permutations: int = 199, seed: int = 0
) -> dict[str, float]:
    """Share of comparisons with p <= 0.05: of each metric, unadjusted, and of ``any`` of them, adjusted."""
    random, rejected = np.random.default_rng(seed), []
    settings = DetectionSettings(iou_thrs=(0.5,), operating_point=rule)
    for number in range(comparisons):
        batches = similar_detectors(random, images)
        first, second = (match_images(run, settings, num_classes=2, keep="scores").table for run in batches)
        assert first is not None and second is not None
        result = paired_permutation_test(first, second, average_precision=False, permutations=permutations, seed=number)
        one = {name: test.p_unadjusted <= 0.05 for name, test in result.overall.items()}
        rejected.append({**one, "any": any(test.p_value <= 0.05 for test in result.overall.values())})
    return {name: float(np.mean([row[name] for row in rejected])) for name in rejected[0]}
