"""All boxes of a detector's results: what is kept where a report must be able to look again."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import numpy as np

from mm_metrics_plugin.functional.boxes import stable_order
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.score_precision import precision_of
from mm_metrics_plugin.states.base import CONCAT, RowBuffer, State

_FOUND = ("image", "boxes", "scores", "labels", "precision")
_THERE = ("image", "boxes", "labels", "crowd", "area")


class BoxState(State):
    """Detections and objects, each with the key of its image.

    Keys say in which order images stand, so that nothing depends on who saw which image first.

    Args:
        box_format: Of the detections.
        object_box_format: Of the objects.
        areas: Whether objects have areas of their own.

    Example:
        >>> found = Detections([0, 1], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> boxes = DetectionBatch(found, Objects([0], [[0, 0, 10, 10]], [0]), 2)
        >>> state = BoxState().update(boxes, np.array([1, 0]))
        >>> state.batch(2).detections.scores.tolist(), state.batch(2).objects.image.tolist()
        ([0.8, 0.9], [1])
    """

    reductions = {
        **{f"detection_{name}": CONCAT for name in _FOUND},
        **{f"object_{name}": CONCAT for name in _THERE},
    }
    detection_image: RowBuffer
    object_image: RowBuffer

    def __init__(self, *, box_format: str = "xyxy", object_box_format: str = "xyxy", areas: bool = False) -> None:
        self.box_format = box_format
        self.object_box_format = object_box_format
        self.areas = areas
        super().__init__()

    @classmethod
    def like(cls, boxes: DetectionBatch) -> BoxState:
        """An empty state for boxes of this kind."""
        objects = boxes.objects
        return cls(
            box_format=boxes.detections.box_format,
            object_box_format=objects.box_format,
            areas=objects.area is not None,
        )

    @property
    def kind(self) -> Tuple[Any, ...]:
        """How the boxes are given; states of different kinds cannot be one."""
        return self.box_format, self.object_box_format, self.areas

    def update(self, boxes: DetectionBatch, order: np.ndarray) -> BoxState:
        """Keeps the boxes of images whose keys are ``order``."""
        for prefix, rows, names in (("detection", boxes.detections, _FOUND), ("object", boxes.objects, _THERE)):
            for name in names:
                value: Optional[np.ndarray] = getattr(rows, name)
                if name == "image":
                    value = np.asarray(order)[value]
                elif value is None:  # areas: none of their own
                    value = np.zeros(len(rows))
                self.add(f"{prefix}_{name}", value)
        return self

    def with_arrays(self, arrays: Dict[str, Optional[np.ndarray]]) -> BoxState:
        """A state with the settings of this one that holds ``arrays``; files of earlier versions lack the precision."""
        scores = arrays["detection_scores"]
        if scores is not None and arrays.get("detection_precision") is None:
            precision = np.full(scores.shape[:1], precision_of(scores.dtype), dtype=np.uint8)
            arrays = {**arrays, "detection_precision": precision}
        return super().with_arrays(arrays)

    def renumbered(self, places: np.ndarray) -> BoxState:
        """The same boxes with ``places[key]`` for every key."""
        arrays = self.arrays()
        for name in ("detection_image", "object_image"):
            if arrays[name] is not None:
                arrays[name] = places[arrays[name]]
        return self.with_arrays(arrays)

    def batch(self, num_images: int) -> DetectionBatch:
        """Everything, image after image in the order of their keys, which must be 0 to ``num_images - 1``."""
        arrays: Dict[str, Any] = self.arrays()
        if arrays["detection_image"] is None:
            return DetectionBatch(Detections.empty(), Objects.empty(), num_images)
        found = {name: arrays[f"detection_{name}"] for name in _FOUND}
        there = {name: arrays[f"object_{name}"] for name in _THERE}
        if not self.areas:
            there["area"] = None
        detections = Detections(**found, box_format=self.box_format)
        objects = Objects(**there, box_format=self.object_box_format)
        return DetectionBatch(
            detections.take(stable_order(detections.image)), objects.take(stable_order(objects.image)), num_images
        )
