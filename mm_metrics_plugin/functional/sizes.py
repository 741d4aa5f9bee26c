"""How good a detector is on small and on large objects.

By COCO's rule: objects outside a range of areas are ignored, a detection that takes one of them as well, and one that
takes nothing is wrong in every range its own area lies in. Both ends of a range belong to it.

Every range is matched on its own: a detection that overlaps a small and a large object may be right in both ranges. So
TP and FP of the ranges need not add up to those of all objects, which are in the row ``all``. That row has the counts
of the confusion matrix under ``coco`` and the average precision of COCO.

All detections at or above the score threshold are counted. Only average precision has a limit, ``max_dets``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.coco_ap import COCO_RANGE, APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.image_counts import count_figures, mean_of_defined
from mm_metrics_plugin.functional.scored_matches import COCO_IOU_THRESHOLDS, COCO_MAX_DETS

COCO_EDGES = (32.0**2, 96.0**2)
_NAMES = ("small", "medium", "large")


@dataclass(frozen=True, eq=False)
class SizeReport:
    """Figures by range of areas; undefined ones are NaN.

    Attributes:
        ranges: Least and greatest area by name. The first is ``all``; there objects and detections of any area count
            for precision and recall.
        max_dets: Number of detections per class and image that average precision uses.
        iou_threshold: Least overlap of a pair that counts for precision and recall.
        score_threshold: Least score of a detection that counts for precision and recall.
        objects: (ranges, classes).
        tp: (ranges, classes) right detections.
        fp: (ranges, classes) wrong detections.
        average_precision: (ranges, classes) over COCO's ten IoU thresholds.
        average_precision_50: (ranges, classes) at IoU 0.5.
    """

    ranges: Dict[str, Tuple[float, float]]
    max_dets: int
    iou_threshold: float
    score_threshold: float
    objects: np.ndarray
    tp: np.ndarray
    fp: np.ndarray
    average_precision: np.ndarray
    average_precision_50: np.ndarray

    def figures(self) -> Dict[str, Dict[str, float]]:
        """By range: objects, right and wrong detections, the means over classes, and the mAPs."""
        _, overall = count_figures(self.tp, self.fp, self.objects - self.tp)
        columns: Dict[str, np.ndarray] = {
            "objects": self.objects.sum(axis=1),
            "tp": self.tp.sum(axis=1),
            "fp": self.fp.sum(axis=1),
            **overall,
            "mAP": mean_of_defined(self.average_precision),
            "mAP_50": mean_of_defined(self.average_precision_50),
        }
        return {
            name: {key: column[index].item() for key, column in columns.items()}
            for index, name in enumerate(self.ranges)
        }

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        result: Dict[str, Any] = {"overall": self.figures()}
        for name, value in vars(self).items():
            result[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return result

    def __str__(self) -> str:
        lines = [f"{'':<16}{'objects':>9}{'precision':>11}{'recall':>9}{'mAP':>9}{'mAP_50':>9}"]
        for name, row in self.figures().items():
            lines.append(
                f"{name:<16}{row['objects']:>9}{row['mean_precision']:>11.4f}{row['mean_recall']:>9.4f}"
                f"{row['mAP']:>9.4f}{row['mAP_50']:>9.4f}"
            )
        return "\n".join(lines)


def size_ranges(edges: Sequence[float] = COCO_EDGES) -> Dict[str, Tuple[float, float]]:
    """Ranges of areas between edges; COCO's names where there are three of them.

    Example:
        >>> size_ranges()
        {'small': (0.0, 1024.0), 'medium': (1024.0, 9216.0), 'large': (9216.0, 10000000000.0)}
        >>> list(size_ranges([100]))
        ['area_0_100', 'area_100_up']
    """
    ends = [0.0, *(float(edge) for edge in edges), 1e10]
    if any(not low < high for low, high in zip(ends[:-1], ends[1:])):
        raise ValueError(f"'edges' must be positive, ascending areas (found {list(edges)})")
    ranges = list(zip(ends[:-1], ends[1:]))
    if len(ranges) == len(_NAMES):
        return dict(zip(_NAMES, ranges))
    names = [f"area_{low:g}_{high:g}" for low, high in ranges[:-1]] + [f"area_{ends[-2]:g}_up"]
    return dict(zip(names, ranges))


def size_report(
    batch: DetectionBatch,
    *,
    num_classes: int,
    edges: Sequence[float] = COCO_EDGES,
    iou_threshold: float = 0.5,
    score_threshold: float = 0.3,
    max_dets: int = COCO_MAX_DETS,
    names: Optional[Sequence[Any]] = None,
) -> SizeReport:
    """Precision and recall at a score threshold, and average precision, by the area of the objects.

    Args:
        batch: Detections and objects of all images.
        num_classes: Number of classes without background.
        edges: Areas between the ranges, ascending, in square pixels. COCO's by default.
        iou_threshold: Least overlap of a pair that counts for precision and recall.
        score_threshold: Least score of a detection that counts for precision and recall.
        max_dets: Number of detections per class and image that average precision uses.
        names: Names of the images for error messages.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> there = Objects([0, 0], [[0, 0, 10, 10], [100, 100, 300, 300]], [0, 0])
        >>> found = Detections([0], [[100, 100, 300, 290]], [0.9], [0])
        >>> print(size_report(DetectionBatch(found, there, 1), num_classes=1))
                          objects  precision   recall      mAP   mAP_50
        all                     2     1.0000   0.5000   0.5050   0.5050
        small                   1        nan   0.0000   0.0000   0.0000
        medium                  0        nan      nan      nan      nan
        large                   1     1.0000   1.0000   1.0000   1.0000
    """
    ranges = {"all": COCO_RANGE, **size_ranges(edges)}
    thresholds = sorted({*COCO_IOU_THRESHOLDS, float(iou_threshold)})
    settings = APSettings(
        num_classes=num_classes,
        iou_thresholds=thresholds,
        area_ranges={**ranges, "any": (-np.inf, np.inf)},
        max_detections=(max_dets,),
    )
    records = match_for_ap(batch.detections, batch.objects, settings, names=names)
    precision = average_precision(records, settings).precision[: len(ranges)].mean(axis=3)
    coco = [thresholds.index(value) for value in COCO_IOU_THRESHOLDS]
    chosen = records.reach(score_threshold)
    counted = np.zeros((2, len(ranges), num_classes), dtype=np.int64)
    # COCO leaves boxes of negative or enormous area out of the range of all areas. The confusion matrix does not.
    counted_ranges = [len(ranges), *range(1, len(ranges))]
    for index, place in enumerate(counted_ranges):
        word, bit = divmod(place * len(thresholds) + thresholds.index(float(iou_threshold)), 64)
        one = np.uint64(1) << np.uint64(bit)
        used = chosen & ((records.ignored[:, word] & one) == 0)
        right = (records.matched[:, word] & one) != 0
        for part, mask in zip(counted, (used & right, used & ~right)):
            part[index] = np.bincount(records.label[mask], minlength=num_classes)
    return SizeReport(
        ranges=ranges,
        max_dets=max_dets,
        iou_threshold=float(iou_threshold),
        score_threshold=float(score_threshold),
        objects=records.objects[counted_ranges],
        tp=counted[0],
        fp=counted[1],
        average_precision=precision[:, coco].mean(axis=1),
        average_precision_50=precision[:, coco[0]],
    )
