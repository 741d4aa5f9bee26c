"""What is remembered of a detector between batches."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

import numpy as np

from mm_metrics_plugin.functional.boxes import nms, xywh_to_xyxy
from mm_metrics_plugin.functional.coco_ap import APRecords, APSettings, match_for_ap, order_images
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections
from mm_metrics_plugin.functional.false_positives import BACKGROUND_TYPES, count_background_types
from mm_metrics_plugin.functional.matching import Matches, match
from mm_metrics_plugin.states.base import CONCAT, MAX, SUM, RowBuffer
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.confusion import ConfusionState

# Numbers of :class:`Matches` that add up over batches.
COUNTS = (
    "detections",
    "detections_below_threshold",
    "detections_ignored",
    "objects",
    "objects_ignored",
    "detections_without_area",
    "objects_without_area",
    "duplicates",
    "objects_counted_again",
    "detections_counted_again",
)
_RECORDS = ("image", "label", "score", "rank", "matched", "ignored")
NO_NUMBER = np.iinfo(np.int64).max  # the key of images whose id is not a number: after all others


class ImageBatch(Batch):
    """The detections and objects of the images of a batch, laid flat.

    Args:
        boxes: The detections and objects, images numbered from 0.
        order: (images, 2) the key of each image, which decides between equal scores, and its position, which tells
            images of the same key apart; or (images,) keys that no two images share.
        texts: (images,) of :func:`encode_texts`, the ids of the images whose key is ``NO_NUMBER``; None if none has it.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> found, there = Detections([0, 1], np.zeros((2, 4)), [0.9, 0.8], [0, 0]), Objects.empty()
        >>> batch = ImageBatch(DetectionBatch(found, there, 2), np.array([7, 9]))
        >>> len(batch), len(batch.without_last().boxes.detections)
        (2, 1)
    """

    def __init__(self, boxes: DetectionBatch, order: np.ndarray, texts: Optional[np.ndarray] = None) -> None:
        super().__init__(boxes, order, texts)  # type: ignore[arg-type]
        self.boxes = boxes
        self.order = order
        self.texts = texts

    def __len__(self) -> int:
        return self.boxes.num_images

    def without_last(self) -> ImageBatch:
        """The batch without its last image."""
        texts = None if self.texts is None else self.texts[:-1]
        return ImageBatch(self.boxes.images(0, len(self) - 1), self.order[:-1], texts)


def encode_texts(texts: Sequence[Optional[str]]) -> np.ndarray:
    """Texts as bytes of one width, which sort as the texts do; None comes after all of them.

    Example:
        >>> np.argsort(encode_texts(["b", None, "a"])).tolist()
        [2, 0, 1]
    """
    encoded = np.array([b"\xff" if text is None else _without_nul(text) for text in texts])
    return encoded.astype(f"S{-(-max(1, encoded.itemsize) // 16) * 16}")  # few widths, so that batches share blocks


def _without_nul(text: str) -> bytes:
    """UTF-8, in which NUL and the character after it are written as two bytes: NumPy cuts NUL off the end."""
    return text.encode("utf-8", "surrogatepass").replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")


def place_texts(images: np.ndarray, texts: Optional[np.ndarray], positions: Optional[np.ndarray]) -> np.ndarray:
    """Keys and positions of images, with the positions of images that have no number replaced by their places.

    Places are those in the order of the texts, and of equal texts in the order of positions.

    Args:
        images: (rows, 2) keys and positions.
        texts: (n,) of all images whose key is ``NO_NUMBER``.
        positions: (n,) of these images.

    Example:
        >>> images = np.array([[7, 0], [NO_NUMBER, 1], [NO_NUMBER, 2]])
        >>> place_texts(images, encode_texts(["b", "a"]), np.array([1, 2]))[:, 1].tolist()
        [0, 1, 0]
    """
    if texts is None or positions is None:
        return images
    by_position = np.argsort(positions)
    place = np.empty(len(texts), dtype=np.int64)
    place[np.lexsort((positions, texts))] = np.arange(len(texts))
    rows = images[:, 0] == NO_NUMBER
    images = images.copy()
    images[rows, 1] = place[by_position[np.searchsorted(positions[by_position], images[rows, 1])]]
    return images


def key_and_position(order: np.ndarray) -> np.ndarray:
    """The key and the position of each image, (images, 2), where keys alone may be given.

    Example:
        >>> key_and_position(np.array([7, 9])).tolist()
        [[7, 0], [9, 0]]
    """
    order = np.asarray(order, dtype=np.int64)
    return np.stack([order, np.zeros_like(order)], axis=1) if order.ndim == 1 else order


def suppress(detections: Detections, *, num_classes: int, iou_threshold: float) -> Detections:
    """The detections left by non-maximum suppression within every image and class.

    Example:
        >>> found = Detections([0, 0, 1], [[0, 0, 10, 10]] * 3, [0.9, 0.8, 0.7], [0, 0, 0], box_format="xywh")
        >>> suppress(found, num_classes=1, iou_threshold=0.5).scores.tolist()
        [0.9, 0.7]
    """
    boxes = detections.boxes if detections.box_format == "xyxy" else xywh_to_xyxy(detections.boxes)
    groups = detections.image * num_classes + detections.labels
    return detections.take(nms(boxes, detections.scores, groups, iou_threshold=iou_threshold))


class DetectionState(ConfusionState):
    """The confusion matrix of a detector under one protocol, what was counted, and the records for AP.

    All detections at or above the score threshold are counted. Only AP has a limit, ``max_detections`` of its settings.

    Args:
        num_classes: Number of classes without background.
        protocol: ``'coco'``, ``'mmdet'`` or ``'agnostic'``.
        iou_threshold: Least overlap of a pair.
        score_threshold: Least score of a detection that is used.
        nms_iou_threshold: Overlap above which the lesser of two detections of a class is removed first; None: none is.
        average_precision: What AP is taken over; None keeps no records, so that memory stays constant.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> found = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> boxes = DetectionBatch(found, Objects([0], [[0, 0, 10, 10]], [0]), 1)
        >>> state = DetectionState(1).update(boxes, np.array([0]))
        >>> state.matrix.tolist(), state.count("detections"), state.count("images")
        ([[1, 0], [1, 0]], 2, 1)
    """

    reductions = {
        **ConfusionState.reductions,
        "counts": SUM,
        "background_types": SUM,
        "ap_objects": SUM,
        "ap_most": MAX,
        "ap_position": CONCAT,
        "ap_text": CONCAT,
        "ap_text_position": CONCAT,
        **{f"ap_{name}": CONCAT for name in _RECORDS},
    }
    counts: np.ndarray
    background_types: np.ndarray  # (types, classes)
    background_rows = 1
    ap_objects: np.ndarray
    ap_most: np.ndarray
    ap_position: RowBuffer
    ap_text: RowBuffer
    ap_text_position: RowBuffer
    ap_image: RowBuffer

    def __init__(
        self,
        num_classes: int,
        *,
        protocol: str = "coco",
        iou_threshold: float = 0.5,
        score_threshold: float = 0.3,
        nms_iou_threshold: Optional[float] = None,
        average_precision: Optional[APSettings] = None,
    ) -> None:
        self.protocol = protocol
        self.iou_threshold = iou_threshold
        self.score_threshold = score_threshold
        self.nms_iou_threshold = nms_iou_threshold
        self.average_precision = average_precision
        super().__init__(num_classes)

    def update(  # type: ignore[override]
        self, boxes: DetectionBatch, order: np.ndarray, texts: Optional[np.ndarray] = None
    ) -> DetectionState:
        """Matches the images' detections to their objects and adds up what came of it."""
        detections, suppressed = boxes.detections, 0
        if self.nms_iou_threshold is not None:
            detections = suppress(detections, num_classes=self.num_classes, iou_threshold=self.nms_iou_threshold)
            suppressed = len(boxes.detections) - len(detections)
        matches: Matches = match(
            detections,
            boxes.objects,
            num_classes=self.num_classes,
            protocol=self.protocol,
            iou_threshold=self.iou_threshold,
            score_threshold=self.score_threshold,
        )
        self.add_matrix(matches.matrix)
        self.add("background_types", count_background_types(detections, boxes.objects, matches))
        counted = [getattr(matches, name) or 0 for name in COUNTS]
        self.add("counts", np.array([boxes.num_images, suppressed, *counted], dtype=np.int64))
        if self.average_precision is not None:
            keys = key_and_position(order)
            records = match_for_ap(detections, boxes.objects, self.average_precision)
            self.add("ap_most", np.array([records.most_detections], dtype=np.int64))
            records = records.best(self.average_precision.max_detections[-1])  # no others are ever needed
            self.add("ap_objects", records.objects)
            self.add("ap_position", keys[records.image, 1].astype(np.int32))
            for name in _RECORDS:
                value = getattr(records, name)
                self.add(f"ap_{name}", keys[value, 0] if name == "image" else value)
            if texts is not None:
                self.add("ap_text", texts[keys[:, 0] == NO_NUMBER])
                self.add("ap_text_position", keys[keys[:, 0] == NO_NUMBER, 1])
        return self

    @property
    def false_positives(self) -> np.ndarray:
        """(types, classes) how many detections in the background row are of each of ``BACKGROUND_TYPES``."""
        if self.background_types is None:
            return np.zeros((len(BACKGROUND_TYPES), self.num_classes), dtype=np.int64)
        return self.background_types

    @property
    def most_detections(self) -> int:
        """The largest number of detections of one class in one image, where records for AP are kept."""
        return 0 if self.ap_most is None else int(self.ap_most[0])

    def count(self, name: str) -> int:
        """How many images, suppressed detections, or whatever of :class:`Matches` was counted."""
        names = ("images", "detections_suppressed", *COUNTS)
        return 0 if self.counts is None else int(self.counts[names.index(name)])

    @property
    def tally(self) -> Dict[str, int]:
        """Everything counted, by name."""
        return {name: self.count(name) for name in ("images", "detections_suppressed", *COUNTS)}

    def records(self) -> Optional[APRecords]:
        """What AP is computed from; None where nothing was kept."""
        if self.ap_objects is None:
            return None
        arrays: Dict[str, Any] = self.arrays()
        columns = {name: arrays[f"ap_{name}"] for name in _RECORDS}
        images = np.stack([columns["image"], arrays["ap_position"]], axis=1)
        images = place_texts(images, arrays["ap_text"], arrays["ap_text_position"])
        columns["image"] = order_images(images)[1](images)
        return APRecords(objects=self.ap_objects, **columns)
