"""One matching pass over every detection, whatever its score: what curves, intervals and comparisons are made of.

Under the ``coco`` protocol a detection takes its object before any with a lower score is looked at. Whether it is right
therefore does not depend on where the scores are cut, and one pass serves all thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.boxes import coco_columns, stable_order
from mm_metrics_plugin.functional.coco_ap import COCO_RANGE, APRecords, APSettings, match_for_ap, order_images
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.image_counts import ImageCounts

COCO_IOU_THRESHOLDS: Tuple[float, ...] = tuple(np.linspace(0.5, 0.95, 10).tolist())
COCO_MAX_DETS = 100


def match_settings(*, num_classes: int, iou_thresholds: Sequence[float], max_dets: int = COCO_MAX_DETS) -> APSettings:
    """Settings with COCO's limits on areas and without them. ``max_dets`` limits average precision and nothing else.

    Example:
        >>> list(match_settings(num_classes=1, iou_thresholds=[0.5]).area_ranges)
        ['any', 'coco']
    """
    return APSettings(
        num_classes=num_classes,
        iou_thresholds=tuple(sorted(iou_thresholds)),
        area_ranges={"any": (-np.inf, np.inf), "coco": COCO_RANGE},
        max_detections=(max_dets,),
    )


@dataclass(frozen=True, eq=False)
class ScoredMatches:
    """Every detection with its score and whether it is right; rows by class, descending score, image.

    Attributes:
        settings: Number of classes, IoU thresholds, and the limit of average precision.
        image_keys: (images,) what the images are called, ascending; images are numbered in this order. Two images of
            the same key are two images.
        records: Of the detections; ``image`` is a number from 0.
        object_image: (M,) image of each object that is not a crowd.
        object_label: (M,) its class.
        object_in_range: (M,) whether its area is one that COCO's average precision counts.
    """

    settings: APSettings
    image_keys: np.ndarray
    records: APRecords
    object_image: np.ndarray
    object_label: np.ndarray
    object_in_range: np.ndarray

    @property
    def num_images(self) -> int:
        """How many images, those without any box included."""
        return len(self.image_keys)

    @property
    def num_classes(self) -> int:
        """How many classes."""
        return self.settings.num_classes

    @property
    def max_dets(self) -> int:
        """Number of detections per class and image that average precision uses. Nothing else is limited."""
        return self.settings.max_detections[-1]

    @property
    def iou_thresholds(self) -> Tuple[float, ...]:
        """The IoU thresholds it was matched at."""
        return tuple(self.settings.iou_thresholds)

    def has_iou(self, iou_threshold: float) -> bool:
        """Whether it was matched at this IoU threshold."""
        return bool(np.isclose(self.iou_thresholds, iou_threshold, rtol=0, atol=1e-9).any())

    def flags(self, iou_threshold: float, *, coco_areas: bool = False) -> Tuple[np.ndarray, np.ndarray]:
        """Which detections are right, and which are right or wrong (those on crowds are neither).

        Args:
            iou_threshold: One of those it was matched at.
            coco_areas: Leave out what COCO's average precision leaves out: boxes of negative or enormous area.

        Raises:
            ValueError: It was not matched at this threshold.
        """
        near = np.isclose(self.iou_thresholds, iou_threshold, rtol=0, atol=1e-9)
        if not near.any():
            raise ValueError(f"'iou_threshold' must be one of {self.iou_thresholds} (found {iou_threshold})")
        word, bit = divmod(int(coco_areas) * len(near) + int(near.argmax()), 64)
        one = np.uint64(1) << np.uint64(bit)
        used = (self.records.ignored[:, word] & one) == 0
        return ((self.records.matched[:, word] & one) != 0) & used, used

    def image_counts(self, *, score_threshold: float, iou_threshold: float = 0.5) -> ImageCounts:
        """What :func:`~mm_metrics_plugin.functional.matching.match` counts at a score threshold, image by image."""
        records = self.records
        tp, used = self.flags(iou_threshold)
        chosen = records.reach(score_threshold)
        right, wrong = tp & chosen, used & ~tp & chosen
        # Objects less true positives: no need to know which object was found.
        cells = (
            (records.image[right], records.label[right]),
            (records.image[wrong], records.label[wrong]),
            (self.object_image, self.object_label),
        )
        counts = ImageCounts.from_events(*cells, num_images=self.num_images, num_classes=self.num_classes)
        counts.counts[2] -= counts.counts[0]
        return counts

    def to_dict(self) -> Dict[str, Any]:
        """Sizes as plain Python values."""
        return {
            "images": self.num_images,
            "detections": len(self.records.score),
            "objects": len(self.object_image),
            "iou_thresholds": list(self.iou_thresholds),
        }

    def __str__(self) -> str:
        return (
            f"{self.num_images} images, {len(self.records.score)} detections, {len(self.object_image)} objects, "
            f"matched at IoU {', '.join(f'{value:g}' for value in self.iou_thresholds)}"
        )


def arrange_matches(
    settings: APSettings,
    *,
    image_keys: np.ndarray,
    columns: Dict[str, np.ndarray],
    objects: Dict[str, np.ndarray],
) -> ScoredMatches:
    """Puts rows that came in any order of images in the one order that every number is computed in.

    Args:
        settings: Of :func:`match_settings`.
        image_keys: (images, 2) key and position of every image. Keys decide the order, and images of the same key are
            told apart by position. (images,) keys alone do where no two images share one.
        columns: ``image`` (like ``image_keys``), ``label``, ``score``, ``precision``, ``rank``, ``matched``,
            ``ignored`` of the detections.
        objects: ``image`` (like ``image_keys``), ``label``, ``in_range`` of the objects without crowds.
    """
    keys, number = order_images(_with_position(image_keys))
    image = number(_with_position(columns["image"]))
    order = stable_order(columns["label"], -columns["score"], image)
    object_image = number(_with_position(objects["image"]))
    object_order = stable_order(object_image)
    rows = {name: value[order] for name, value in columns.items()}
    rows["image"] = image[order]
    counted = [
        np.bincount(objects["label"][chosen], minlength=settings.num_classes)
        for chosen in (np.ones(len(object_image), dtype=bool), objects["in_range"])
    ]
    return ScoredMatches(
        settings=settings,
        image_keys=keys,
        records=APRecords(objects=np.stack(counted), **rows),
        object_image=object_image[object_order],
        object_label=objects["label"][object_order],
        object_in_range=objects["in_range"][object_order],
    )


def _with_position(image_keys: np.ndarray) -> np.ndarray:
    if image_keys.ndim == 2:
        return image_keys
    return np.stack([image_keys, np.zeros_like(image_keys)], axis=1)


def object_columns(batch: DetectionBatch) -> Dict[str, np.ndarray]:
    """Image, class and COCO's opinion on the area of the objects that are no crowds."""
    objects = batch.objects.take(~batch.objects.crowd)
    area = objects.area
    if area is None:
        area = coco_columns(objects.boxes, box_format=objects.box_format)[4]
    in_range = (area >= COCO_RANGE[0]) & (area <= COCO_RANGE[1])
    return {"image": objects.image, "label": objects.labels, "in_range": in_range}


def match_scores(
    batch: DetectionBatch,
    *,
    num_classes: int,
    iou_thresholds: Sequence[float] = (0.5,),
    max_dets: int = COCO_MAX_DETS,
    names: Optional[Sequence[Any]] = None,
) -> ScoredMatches:
    """Matches every detection, whatever its score, under the ``coco`` protocol.

    Args:
        batch: Detections and objects of all images.
        num_classes: Number of classes without background.
        iou_thresholds: Least overlaps of a pair; :data:`COCO_IOU_THRESHOLDS` for mAP.
        max_dets: Number of detections per class and image that average precision uses. All are matched and counted.
        names: Names of the images for error messages.

    Raises:
        MetricInputError: Something in the boxes, scores or labels is not usable; the message names image and field.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> found = Detections([0, 0, 0], [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]], [0.9, 0.8, 0.7], [0, 0, 1])
        >>> batch = DetectionBatch(found, Objects([0], [[0, 0, 10, 10]], [0]), 1)
        >>> matches = match_scores(batch, num_classes=2)
        >>> print(matches)
        1 images, 3 detections, 1 objects, matched at IoU 0.5
        >>> matches.flags(0.5)[0].tolist()
        [True, False, False]
        >>> print(matches.image_counts(score_threshold=0.75))
        1 images, 2 classes: 1 true positives, 1 false positives, 0 false negatives
    """
    settings = match_settings(num_classes=num_classes, iou_thresholds=iou_thresholds, max_dets=max_dets)
    records = match_for_ap(batch.detections, batch.objects, settings, names=names)
    return arrange_matches(
        settings,
        image_keys=np.arange(batch.num_images),
        columns={key: value for key, value in vars(records).items() if key != "objects"},
        objects=object_columns(batch),
    )
