"""Key points: object keypoint similarity (OKS) as in ``pycocotools``.

OKS is the mean over labeled key points of exp(-d² / (2 · area · (2σ)²)), where d is the distance in pixels. A ground
truth without labeled key points is neither TP nor FN, and d is the distance to its box, enlarged by its width and
height on each side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, ClassVar, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import Rows
from mm_metrics_plugin.functional._inputs import InvalidValue
from mm_metrics_plugin.functional.detection.geometry import Edges, Outlines
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes, first_invalid, floats
from mm_metrics_plugin.functional.detection.instances import joined_rows, rows_of_images

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.data import GroundTruths

# The sigmas of COCO's 17 key points of persons. They are divided as in pycocotools: 0.26 / 10 is not 0.026.
_TENTHS = (0.26, 0.25, 0.25, 0.35, 0.35, 0.79, 0.79, 0.72, 0.72, 0.62, 0.62, 1.07, 1.07, 0.87, 0.87, 0.89, 0.89)
COCO_SIGMAS = tuple(tenths / 10.0 for tenths in _TENTHS)
# The lines of COCO's persons, which connect key points counted from 0.
COCO_SKELETON = (
    *((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8)),
    *((7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6)),
)
BOX_AREA_FACTOR = 0.53  # of xtcocotools, for ground truths without area
CROSS_SIZE = 0.02  # of the longer side of the box
_BLOCK_PAIRS = 1 << 12  # the arrays fit the cache


class KeyPoints:
    """Key points of objects, in pixels.

    Args:
        array: (N, K, 3) x, y and visibility; a key point is labeled if its visibility is above 0. (N, K, 2): all are.
        sigmas: (K,) standard deviation of each key point relative to the size of the object, such as ``COCO_SIGMAS``.
        boxes: (N, 4) boxes of the objects as left, top, width and height. None: those around all key points, as
            ``pycocotools`` has it for detections.
        skeleton: Pairs of key points that are connected in drawings.

    Example:
        >>> points = KeyPoints([[[0, 0, 2], [10, 0, 0], [10, 20, 1]]], sigmas=[0.1, 0.1, 0.1])
        >>> points.labeled.tolist(), points.areas(), points.ground_truth_areas()
        ([[True, False, True]], array([200.]), array([106.]))
    """

    field: ClassVar[str] = "keypoints"
    score_field: ClassVar[str] = "scores"
    options: ClassVar[tuple[str, ...]] = ("sigmas",)
    overlap_name: ClassVar[str] = "OKS"
    ignored_name: ClassVar[str] = "unlabeled or crowd object"
    prefiltered = False  # key points at a distance are similar, too

    def __init__(self, array: npt.ArrayLike, sigmas: Any, boxes: Any = None, skeleton: Any = ()) -> None:
        values = floats(array, self.field)
        self.sigmas = np.asarray(sigmas, dtype=np.float64)
        if not values.size:
            values = np.empty((0, self.sigmas.size, 3))
        if values.ndim == 3 and values.shape[2] == 2:
            values = np.concatenate([values, np.ones_like(values[..., :1])], axis=2)
        self.array = values
        self.boxes = _boxes_around(values) if boxes is None else floats(boxes, "boxes").reshape(-1, 4)
        self.skeleton = np.asarray(skeleton, dtype=np.int64).reshape(-1, 2)

    def _like(self, array: np.ndarray, boxes: np.ndarray) -> KeyPoints:
        return KeyPoints(array, self.sigmas, boxes, self.skeleton)

    @classmethod
    def empty(cls) -> KeyPoints:
        """No objects."""
        return cls(np.empty((0, 0, 3)), np.empty(0))

    @classmethod
    def from_images(
        cls,
        values: Sequence[Any],
        to_array: Callable[[Any], np.ndarray],
        sigmas: Sequence[float] | None = None,
        skeleton: Any = None,
    ) -> tuple[KeyPoints, list[int]]:
        """The key points of several images, and their numbers.

        Those of an image are an array (N, K, 3) or (N, K, 2), or a dict of this as ``keypoints`` and of the ``boxes``
        of the objects, (N, 4) as left, top, width and height. COCO's key points have its skeleton by default.
        """
        given = [value if isinstance(value, Mapping) else {"keypoints": value} for value in values]
        points = [image["keypoints"] for image in given]
        shape = next((shape[1:] for shape in map(np.shape, points) if len(shape) == 3 and shape[0]), (0, 3))
        if shape[-1] not in (2, 3):
            index = next(index for index, value in enumerate(points) if np.shape(value)[1:] == shape)
            raise InvalidValue(index, "have shape (N, K, 2) or (N, K, 3)", np.shape(points[index]))
        joints = len(sigmas_of(shape[0], sigmas))
        try:
            arrays = rows_of_images(points, (joints, shape[1]), to_array)
        except InvalidValue as error:
            if isinstance(error.found, tuple):
                error.expected += f", with one key point for each of {joints} sigmas"
            raise
        lengths, boxes = [len(array) for array in arrays], None
        if all("boxes" in image for image in given):
            boxes = joined_rows(rows_of_images([image["boxes"] for image in given], (4,), to_array, lengths))
        if skeleton is None:
            skeleton = COCO_SKELETON if sigmas is None and shape[0] == len(COCO_SIGMAS) else ()
        return cls(joined_rows(arrays), sigmas_of(shape[0], sigmas), boxes, skeleton), lengths

    def __len__(self) -> int:
        return len(self.array)

    @property
    def labeled(self) -> np.ndarray:
        """(N, K) whether a key point is labeled."""
        return np.asarray(self.array[..., 2] > 0)

    def check(self) -> str | None:
        """The end of an error message if the arrays do not fit together, else None."""
        shape, joints = self.array.shape, self.sigmas.size
        if len(shape) != 3 or shape[2] != 3:
            return f"must have shape (N, K, 3) or (N, K, 2) (found {shape})"
        if shape[1] != joints or (not joints and len(self)):
            return f"must have as many key points as 'sigmas' (found {shape[1]} key points and {joints} sigmas)"
        if not (np.isfinite(self.sigmas) & (self.sigmas > 0)).all():
            return f"must have finite 'sigmas' above 0 (found {self.sigmas.tolist()})"
        if self.boxes.shape != (len(self), 4):
            return f"must have one box each (found {len(self)} objects and {len(self.boxes)} boxes)"
        if self.skeleton.size and not (0 <= self.skeleton.min() <= self.skeleton.max() < joints):
            return f"must have a 'skeleton' of key points from 0 to {joints - 1} (found {self.skeleton.tolist()})"
        return None

    def first_invalid(self) -> tuple[int, str, object] | None:
        """Row, expected and found value of the first object with an infinite number or a box with a negative side."""
        invalid = first_invalid(self.array) or first_invalid(self.boxes)
        if invalid is None and len(self) and self.boxes[:, 2:].min() < 0:
            row = int(np.argmax((self.boxes[:, 2:] < 0).any(axis=1)))
            return row, "have boxes with sides of at least 0", self.boxes[row].tolist()
        return invalid

    def is_ignored(self) -> np.ndarray:
        """(N,) whether an object has no labeled key point."""
        return np.asarray(~self.labeled.any(axis=1))

    def drawn_like(self, other: KeyPoints) -> KeyPoints:
        """These objects with the skeleton of others, if they have as many key points."""
        same = len(self.sigmas) == len(other.sigmas)
        return KeyPoints(self.array, self.sigmas, self.boxes, other.skeleton) if same else self

    def mismatch(
        self, image: np.ndarray, ground_truths: GroundTruths, image_sizes: np.ndarray | None = None
    ) -> tuple[int, str, object] | None:
        """Image, expected and found value if the key points or their sigmas differ."""
        others = ground_truths.geometry
        if not len(self) or not len(others):
            return None
        if not np.array_equal(self.sigmas, others.sigmas):
            expected = f"have the {len(others.sigmas)} sigmas of the ground truths, {others.sigmas.tolist()}"
            return int(image[0]), expected, self.sigmas.tolist()
        return None

    def take(self, rows: Rows) -> KeyPoints:
        """The selected rows."""
        return self._like(self.array[rows], self.boxes[rows])

    def concatenate(self, others: Sequence[KeyPoints]) -> KeyPoints:
        """These objects followed by those of ``others``."""
        parts = [part for part in (self, *others) if len(part)] or [self]
        joined = (np.concatenate([getattr(part, name) for part in parts]) for name in ("array", "boxes"))
        return parts[0]._like(*joined)

    def areas(self) -> np.ndarray:
        """(N,) the areas of the boxes, as in ``pycocotools`` for detections."""
        return np.asarray(self.boxes[:, 2].astype(np.float64) * self.boxes[:, 3])

    def ground_truth_areas(self) -> np.ndarray:
        """(N,) 0.53 x the area of the box, as in ``xtcocotools``."""
        return np.asarray(self.boxes[:, 2].astype(np.float64) * self.boxes[:, 3] * BOX_AREA_FACTOR)

    def is_empty(self) -> np.ndarray:
        """(N,) False: key points need no area."""
        return np.zeros(len(self), dtype=bool)

    def bounding_boxes(self) -> Edges:
        """The boxes."""
        return Boxes(self.boxes, "xywh").bounding_boxes()

    def scaled(self, factors: np.ndarray) -> KeyPoints:
        """The objects with x and y multiplied by ``factors`` (N, 2)."""
        array = np.array(self.array, dtype=np.float64)
        array[..., :2] *= factors[:, None]
        return self._like(array, self.boxes * np.tile(factors, 2))

    def outlines(self) -> Outlines:
        """The lines of the skeleton between labeled key points, and a cross for each that no line reaches."""
        drawn = self.labeled[:, self.skeleton].all(axis=2)
        reached = drawn @ (self.skeleton[:, :, None] == np.arange(len(self.sigmas))).any(axis=1)
        size = np.maximum(self.boxes[:, 2:].max(axis=1) * CROSS_SIZE, 1)[:, None, None, None]
        points = self.array[:, :, None, :2].astype(np.float64)
        crosses = [points + size * np.array(line) for line in ([(-1, 0), (1, 0)], [(0, -1), (0, 1)])]
        drawn = np.concatenate([drawn, *[self.labeled & ~reached] * 2], axis=1)
        lines = np.full((*drawn.shape, 3, 2), np.nan)
        lines[:, :, :2] = np.concatenate([self.array[:, self.skeleton, :2], *crosses], axis=1)
        lengths = drawn.sum(axis=1) * 3
        points = lines[drawn].reshape(-1, 2)
        # No NaN after the last line of an object.
        last = (np.cumsum(lengths) - 1)[lengths > 0]
        return Outlines(np.delete(points, last, axis=0), np.maximum(lengths - 1, 0).astype(np.int32))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The key points, boxes, sigmas and skeleton."""
        return {"keypoints": self.array, "boxes": self.boxes, "sigmas": self.sigmas, "skeleton": self.skeleton}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> KeyPoints:
        """The inverse of :meth:`to_arrays`."""
        return cls(arrays["keypoints"], arrays["sigmas"], arrays["boxes"], arrays["skeleton"])

    def overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) OKS, also of crowds."""
        areas, result = ground_truths.areas(), np.empty(len(rows))
        for start in range(0, len(rows), _BLOCK_PAIRS):
            block = slice(start, start + _BLOCK_PAIRS)
            result[block] = self._oks(ground_truths.geometry, areas, rows[block], gt_rows[block])
        return result

    def nms_overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) OKS of pairs of these objects with the areas around their key points, as in mmpose's NMS."""
        return self.pair_oks(rows, gt_rows, self.extents())

    def extents(self) -> np.ndarray:
        """(N,) the areas around all key points."""
        sides = _boxes_around(self.array)[:, 2:]
        return np.asarray(sides[:, 0] * sides[:, 1])

    def pair_oks(self, rows: np.ndarray, others: np.ndarray, areas: np.ndarray) -> np.ndarray:
        """(P,) float32 OKS of pairs of these objects, with all key points and the mean of both areas."""
        result = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK_PAIRS):
            first, second = rows[start : start + _BLOCK_PAIRS], others[start : start + _BLOCK_PAIRS]
            distance = self.array[first, :, :2] - self.array[second, :, :2]
            squared = distance[..., 0] ** 2 + distance[..., 1] ** 2
            area = (areas[first] + areas[second])[:, None] / 2 + np.spacing(1)
            result[start : start + _BLOCK_PAIRS] = np.exp(-(squared / (self.sigmas * 2) ** 2 / area / 2)).mean(axis=1)
        return result

    def _oks(self, gts: KeyPoints, areas: np.ndarray, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        points, gt_points = self.array[rows, :, :2], gts.array[gt_rows, :, :2].astype(np.float64)
        distance, counted = points - gt_points, gts.labeled[gt_rows]
        alone = np.flatnonzero(~counted.any(axis=1))
        if len(alone):
            corner, side = np.split(gts.boxes[gt_rows[alone]].astype(np.float64)[:, None], 2, axis=2)
            before, after = corner - side - points[alone], points[alone] - (corner + side * 2)
            distance[alone] = np.maximum(before, 0) + np.maximum(after, 0)
            counted[alone] = True
        squared = distance[..., 0] ** 2 + distance[..., 1] ** 2
        area = areas[gt_rows, None] + np.spacing(1)
        similarity = np.exp(-squared / (gts.sigmas * 2) ** 2 / area / 2)
        return np.asarray(np.where(counted, similarity, 0).sum(axis=1) / counted.sum(axis=1))


def sigmas_of(num_joints: int, sigmas: Sequence[float] | None) -> np.ndarray:
    """The given sigmas, or those of COCO's 17 key points.

    Raises:
        MetricInputError: There are other key points, and no sigmas.
    """
    if sigmas is not None:
        return np.asarray(sigmas, dtype=np.float64)
    if num_joints not in (0, len(COCO_SIGMAS)):  # 0: no objects
        raise MetricInputError(
            f"key points other than COCO's {len(COCO_SIGMAS)} need their sigmas, the standard deviation of each key "
            f"point relative to the size of the object (found {num_joints} key points): give sigmas=(...)"
        )
    return np.asarray(COCO_SIGMAS)


def _boxes_around(array: np.ndarray) -> np.ndarray:
    """(N, 4) left, top, width and height of the boxes around all key points."""
    if array.ndim != 3 or not array.size:
        return np.zeros((len(array), 4))
    low, high = array[..., :2].min(axis=1), array[..., :2].max(axis=1)
    return np.concatenate([low, high - low], axis=1)
