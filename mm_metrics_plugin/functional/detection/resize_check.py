"""Checks whether ground truths are in the pixels of the resized images."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import numpy as np

from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.settings import DetectionSettings


def overlaps_by_scale(batch: DetectionBatch, scale_factors: np.ndarray, *, num_classes: int) -> Tuple[int, int]:
    """How many detections match a ground truth, and how many if the ground truths are scaled back first.

    ``scale_factors`` (images, 2) are the width and height factors by which the images were resized.
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
