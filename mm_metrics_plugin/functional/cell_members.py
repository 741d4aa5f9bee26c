"""Which detections and objects stand behind each cell of a detector's confusion matrix, the worst first.

Worst means: of wrong detections the most confident, of missed objects the largest, of right detections the least
confident. Between equals the earlier image comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Tuple, Union

import numpy as np

from mm_metrics_plugin.functional.boxes import box_iou, coco_columns, xywh_to_xyxy
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.false_positives import NOTHING_REACHED, background_types, best_overlaps
from mm_metrics_plugin.functional.matching import match, overlapping_pairs
from mm_metrics_plugin.functional.worst_first import worst_first

NOBODY = -1


@dataclass(frozen=True, eq=False)
class CellMembers:
    """The first members of every cell.

    Attributes:
        matrix: (C + 1, C + 1) how many each cell has; rows truth, columns prediction, background last.
        limit: How many of a cell are listed at the most.
        cell: (K,) number of the cell of each listed member, row by row; ascending.
        detection: (K,) row of its detection, -1 for a missed object.
        object: (K,) row of its object, -1 for a detection on background.
        overlap: (K,) IoU of the two, NaN where there is only one.
        best_object: (K,) row of the object that the detection overlaps most, where it has no object of its own; else
            that object. -1 for a missed object, and where the detection overlaps nothing.
        best_overlap: (K,) IoU of the detection and ``best_object``, 0 where it overlaps nothing; NaN for a missed
            object.
        background_type: (K,) of a detection in the background row the index in
            :data:`~mm_metrics_plugin.functional.false_positives.BACKGROUND_TYPES`, else -1.
    """

    matrix: np.ndarray
    limit: int
    cell: np.ndarray
    detection: np.ndarray
    object: np.ndarray
    overlap: np.ndarray
    best_object: np.ndarray
    best_overlap: np.ndarray
    background_type: np.ndarray

    def of(self, truth: int, prediction: int) -> Tuple[np.ndarray, np.ndarray]:
        """Rows of the detections and objects that are listed for a cell, the worst first."""
        wanted = truth * len(self.matrix) + prediction
        chosen = slice(*np.searchsorted(self.cell, [wanted, wanted + 1]))
        return self.detection[chosen], self.object[chosen]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        return {name: np.asarray(value).tolist() for name, value in vars(self).items()}

    def __str__(self) -> str:
        return f"{len(self.cell)} of {int(self.matrix.sum())} members listed, up to {self.limit} a cell"


def cell_members(
    batch: DetectionBatch,
    *,
    num_classes: int,
    protocol: str = "coco",
    iou_threshold: float = 0.5,
    score_threshold: float = 0.3,
    per_cell: int = 50,
    most: int = 20_000,
) -> CellMembers:
    """List what is in the cells of the matrix that :func:`~mm_metrics_plugin.functional.matching.match` counts.

    Args:
        batch: Detections and objects of all images.
        num_classes: Number of classes without background.
        protocol: As in ``match``.
        iou_threshold: Least overlap of a pair.
        score_threshold: Least score of a detection that is used.
        per_cell: List no more than so many of a cell,
        most: and fewer if all cells together would list more than this; one a cell is always listed.

    Example:
        >>> from mm_metrics_plugin.functional.detection_batch import Detections, Objects
        >>> found = Detections([0, 0, 0], [[0, 0, 10, 10], [50, 0, 60, 9], [80, 0, 90, 8]], [0.9, 0.7, 0.8], [0, 0, 0])
        >>> there = Objects([0, 0], [[0, 0, 10, 10], [0, 50, 9, 59]], [0, 0])
        >>> members = cell_members(DetectionBatch(found, there, 1), num_classes=1)
        >>> members.of(1, 0), members.of(0, 1)
        ((array([2, 1]), array([-1, -1])), (array([-1]), array([1])))
        >>> print(members)
        4 of 4 members listed, up to 50 a cell
    """
    detections, objects, size = batch.detections, batch.objects, num_classes + 1
    found, there, kinds = _pairs(batch, num_classes, protocol, iou_threshold, score_threshold)
    # Index -1 reads the background's label, which stands behind the others.
    truth = np.append(objects.labels, num_classes)[there]
    prediction = np.append(detections.labels, num_classes)[found]
    badness = np.append(detections.scores.astype(np.float64), 0.0)[found]
    badness[truth == prediction] *= -1
    missed = found == NOBODY
    badness[missed] = _areas(objects)[there[missed]]
    image = np.where(missed, np.append(objects.image, 0)[there], np.append(detections.image, 0)[found])
    cell = truth * size + prediction
    counts = np.bincount(cell, minlength=size * size)
    listed, limit = worst_first(cell, badness, image, found, there, per_group=per_cell, most=most)
    found, there = found[listed], there[listed]
    overlap = np.full(len(listed), np.nan)
    both = np.flatnonzero((found != NOBODY) & (there != NOBODY))
    overlap[both] = box_iou(_edges(detections)[found[both]], _edges(objects)[there[both]])
    alone = np.flatnonzero((found != NOBODY) & (there == NOBODY))
    # For mmdet crowds are objects like any other.
    nearest = best_overlaps(detections, objects, found[alone], crowds=protocol == "mmdet")
    best_object, best_overlap = there.copy(), overlap.copy()
    best_object[alone], best_overlap[alone] = nearest.best_object, nearest.best
    return CellMembers(
        matrix=counts.reshape(size, size).astype(np.int64, copy=False),
        limit=limit,
        cell=cell[listed],
        detection=found,
        object=there,
        overlap=overlap,
        best_object=best_object,
        best_overlap=best_overlap,
        background_type=kinds[listed],
    )


def _edges(rows: Union[Detections, Objects]) -> np.ndarray:
    return rows.boxes if rows.box_format == "xyxy" else xywh_to_xyxy(rows.boxes)


def _areas(objects: Objects) -> np.ndarray:
    return objects.area if objects.area is not None else coco_columns(objects.boxes, box_format=objects.box_format)[4]


def _pairs(
    batch: DetectionBatch, num_classes: int, protocol: str, iou_threshold: float, score_threshold: float
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of detections and objects, one pair for every count of the matrix; -1 where it has no other side.

    The third array is the type of a detection in the background row, else -1.
    """
    detections, objects = batch.detections, batch.objects
    if protocol == "mmdet":
        chosen = detections.reach(score_threshold)
        nothing = (np.empty(0, dtype=np.int64),) * 2
        blocks = [nothing, *overlapping_pairs(detections, objects, chosen, iou_threshold)]
        found, there = (np.concatenate(parts) for parts in zip(*blocks))
        alone = chosen.copy()
        alone[found] = False
        missed = np.ones(len(objects), dtype=bool)
        missed[there[detections.labels[found] == objects.labels[there]]] = False
        left = np.flatnonzero(alone)
        types = np.full(len(left), NOTHING_REACHED)
    else:
        matches = match(
            detections,
            objects,
            num_classes=num_classes,
            protocol=protocol,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
        )
        matched, used = np.asarray(matches.matched_object), np.asarray(matches.used)
        found = np.flatnonzero(used & (matched >= 0))
        there = matched[found]
        left, types = background_types(detections, objects, matches)
        missed = ~objects.crowd
        missed[there] = False
    lost = np.flatnonzero(missed)
    return (
        np.concatenate([found, left, np.full(len(lost), NOBODY)]),
        np.concatenate([there, np.full(len(left), NOBODY), lost]),
        np.concatenate([np.full(len(found), -1), types, np.full(len(lost), -1)]),
    )
