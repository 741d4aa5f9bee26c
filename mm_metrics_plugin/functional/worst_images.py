"""The images a detector does worst on: where it misses most, and where it is most confidently wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np

from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.matching import Matches


@dataclass(frozen=True, eq=False)
class WorstImages:
    """Images in two orders, and what every box of the data set is.

    Attributes:
        most_missed: Images by how many objects were missed, the most first; of equally many, by the confidence of
            false detections. Only images that miss any.
        most_confident: Images by the confidence of their most confident false detection.
        missed: (images,) how many objects of each image were missed.
        confidence: (images,) the score of each image's most confident false detection; NaN where it has none.
        right: (N,) detections that are right.
        wrong: (N,) detections that are wrong.
        lost: (M,) objects that no detection of their class was right about.
    """

    most_missed: np.ndarray
    most_confident: np.ndarray
    missed: np.ndarray
    confidence: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    lost: np.ndarray

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {name: value.tolist() for name, value in vars(self).items()}

    def __str__(self) -> str:
        return f"{len(self.most_missed)} images miss objects, {len(self.most_confident)} have false detections"


def worst_images(batch: DetectionBatch, matches: Matches) -> WorstImages:
    """Order the images by how bad they are.

    Args:
        batch: Detections and objects of all images.
        matches: Of :func:`~mm_metrics_plugin.functional.matching.match`, under ``coco`` or ``agnostic``.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> from mm_metrics_plugin.functional.matching import match
        >>> found = Detections([0, 1], [[0, 0, 10, 10], [50, 50, 60, 60]], [0.9, 0.8], [0, 0])
        >>> there = Objects([0, 1, 2, 2], [[0, 0, 10, 10]] * 4, [0] * 4)
        >>> worst = worst_images(DetectionBatch(found, there, 3), match(found, there, num_classes=1))
        >>> worst.most_missed.tolist(), worst.missed.tolist(), worst.most_confident.tolist()
        ([2, 1], [0, 1, 2], [1])
    """
    detections, objects = batch.detections, batch.objects
    right = np.asarray(matches.tp)
    wrong = np.asarray(matches.used) & ~right
    lost = ~objects.crowd
    lost[np.asarray(matches.matched_object)[right]] = False
    missed = np.bincount(objects.image[lost], minlength=batch.num_images)
    highest = np.full(batch.num_images, -np.inf)
    np.maximum.at(highest, detections.image[wrong], detections.scores[wrong].astype(np.float64))
    image = np.arange(batch.num_images)
    by_missed = np.lexsort((image, -highest, -missed))
    by_confidence = np.lexsort((image, -missed, -highest))
    return WorstImages(
        most_missed=by_missed[missed[by_missed] > 0],
        most_confident=by_confidence[highest[by_confidence] > -np.inf],
        missed=missed,
        confidence=np.where(highest > -np.inf, highest, np.nan),
        right=right,
        wrong=wrong,
        lost=lost,
    )
