"""Every detection's score and whether it is right, kept between batches."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

import numpy as np

from mm_metrics_plugin.functional.coco_ap import match_for_ap
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.scored_matches import (
    COCO_MAX_DETS,
    ScoredMatches,
    arrange_matches,
    match_settings,
    object_columns,
)
from mm_metrics_plugin.states.base import CONCAT, State
from mm_metrics_plugin.states.detection import NO_NUMBER, key_and_position, place_texts, suppress

# Of detections and of objects: ``image`` is the key, and with ``position`` tells images apart.
_COLUMNS = ("image", "label", "score", "precision", "rank", "matched", "ignored")
_OBJECTS = ("image", "label", "in_range")


class ScoredMatchState(State):
    """What curves, operating points, intervals and comparisons need: some 40 bytes per detection.

    Args:
        num_classes: Number of classes without background.
        iou_thresholds: Least overlaps of a pair.
        nms_iou_threshold: Overlap above which the lesser of two detections of a class is removed first; None: none is.
        max_dets: Number of detections per class and image that average precision uses. All are kept.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> boxes = DetectionBatch(found, Objects([0], [[0, 0, 10, 10]], [0]), 1)
        >>> left, right = (ScoredMatchState(1).update(boxes, np.array([key])) for key in (7, 3))
        >>> matches = left.merge(right).matches()
        >>> matches.image_keys.tolist(), matches.records.image.tolist()
        ([3, 7], [0, 1, 0, 1])
    """

    reductions = {
        "images": CONCAT,
        "texts": CONCAT,
        "text_positions": CONCAT,
        "detection_position": CONCAT,
        "object_position": CONCAT,
        **{f"detection_{name}": CONCAT for name in _COLUMNS},
        **{f"object_{name}": CONCAT for name in _OBJECTS},
    }

    def __init__(
        self,
        num_classes: int,
        *,
        iou_thresholds: Sequence[float] = (0.5,),
        nms_iou_threshold: Optional[float] = None,
        max_dets: int = COCO_MAX_DETS,
    ) -> None:
        self.num_classes = num_classes
        self.nms_iou_threshold = nms_iou_threshold
        self.settings = match_settings(num_classes=num_classes, iou_thresholds=iou_thresholds, max_dets=max_dets)
        super().__init__()

    def update(self, boxes: DetectionBatch, order: np.ndarray, texts: Optional[np.ndarray] = None) -> ScoredMatchState:
        """Matches the images' detections.

        Args:
            boxes: Detections and objects of some images.
            order: (images, 2) the key of each image, the same whatever rank saw it, and its position, which tells
                images of the same key apart; or (images,) keys that no two images share.
            texts: (images,) ids that are not numbers, as in :class:`~mm_metrics_plugin.states.detection.ImageBatch`.
        """
        keys = key_and_position(order)
        detections = boxes.detections
        if self.nms_iou_threshold is not None:
            detections = suppress(detections, num_classes=self.num_classes, iou_threshold=self.nms_iou_threshold)
        records = match_for_ap(detections, boxes.objects, self.settings)
        self.add("images", keys)
        if texts is not None:
            self.add("texts", texts[keys[:, 0] == NO_NUMBER])
            self.add("text_positions", keys[keys[:, 0] == NO_NUMBER, 1])
        columns: Dict[str, Any] = {f"detection_{name}": getattr(records, name) for name in _COLUMNS}
        columns.update({f"object_{name}": value for name, value in object_columns(boxes).items()})
        for name, value in columns.items():
            if name.endswith("_image"):
                self.add(name.replace("image", "position"), keys[value, 1].astype(np.int32))
                value = keys[value, 0]
            self.add(name, value)
        return self

    def matches(self) -> Optional[ScoredMatches]:
        """Everything seen, in the order of the images' keys; None if nothing was."""
        arrays: Dict[str, Any] = self.arrays()
        if arrays["images"] is None:
            return None
        texts = arrays["texts"], arrays["text_positions"]
        columns = {name: arrays[f"detection_{name}"] for name in _COLUMNS}
        objects = {name: arrays[f"object_{name}"] for name in _OBJECTS}
        for kind, rows in (("detection", columns), ("object", objects)):
            rows["image"] = place_texts(np.stack([rows["image"], arrays[f"{kind}_position"]], axis=1), *texts)
        images = place_texts(arrays["images"], *texts)
        return arrange_matches(self.settings, image_keys=images, columns=columns, objects=objects)
