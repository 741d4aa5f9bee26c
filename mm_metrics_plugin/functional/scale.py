"""Do objects and detections stand in the same pixels?"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional.detection.data import DetectionBatch, GroundTruths
from mm_metrics_plugin.functional.matching import match


def overlaps_by_scale(batch: DetectionBatch, scale_factors: np.ndarray, *, num_classes: int) -> Tuple[int, int]:
    """How many detections are right as the objects stand, and if the objects are scaled back first.

    Args:
        batch: Detections in the pixels of the original pictures, and objects that should be.
        scale_factors: (images, 2) width and height factors by which the pictures were resized.
        num_classes: Number of classes.

    Example:
        >>> batch = DetectionBatch.from_images(
        ...     boxes=[[[0, 0, 10, 10]]], scores=[[0.9]], labels=[[0]],
        ...     object_boxes=[[[0, 0, 20, 20]]], object_labels=[[0]])
        >>> overlaps_by_scale(batch, np.array([[2.0, 2.0]]), num_classes=1)
        (0, 1)
    """
    objects = batch.objects
    back = GroundTruths(objects.image, objects.boxes / np.tile(scale_factors, 2)[objects.image], objects.labels)
    as_is, rescaled = (
        int(match(batch.detections, there, num_classes=num_classes, protocol="agnostic").matrix[:-1, :-1].sum())
        for there in (objects, back)
    )
    return as_is, rescaled
