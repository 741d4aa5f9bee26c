"""Do objects and detections stand in the same pixels?"""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.settings import DetectionSettings


def overlaps_by_scale(batch: DetectionBatch, scale_factors: np.ndarray, *, num_classes: int) -> Tuple[int, int]:
    """How many detections are right as the objects stand, and if the objects are scaled back first.

    Args:
        batch: Detections in the pixels of the original pictures, and objects that should be.
        scale_factors: (images, 2) width and height factors by which the pictures were resized.
        num_classes: Number of classes.

    Example:
        >>> batch = DetectionBatch.from_images(
        ...     boxes=[[[0, 0, 10, 10]]], scores=[[0.9]], labels=[[0]],
        ...     gt_boxes=[[[0, 0, 20, 20]]], gt_labels=[[0]])
        >>> overlaps_by_scale(batch, np.array([[2.0, 2.0]]), num_classes=1)
        (0, 1)
    """
    gts = batch.ground_truths
    scaled = gts.boxes.array / np.tile(scale_factors, 2)[gts.image]
    settings = DetectionSettings(matching=("agnostic",))
    as_is, rescaled = (
        int(
            match_images(replace(batch, ground_truths=there), settings, num_classes=num_classes, table="none")
            .rules["agnostic"]
            .matrix[:-1, :-1]
            .sum()
        )
        for there in (gts, replace(gts, geometry=Boxes(scaled)))
    )
    return as_is, rescaled
